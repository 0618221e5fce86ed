//! Totals of a test run: parses the output of test programs, on this machine or in a guest, into counts, skip reasons and the last
//! output lines of failed programs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;

use anyhow::{Result, anyhow, ensure};

use crate::skips::{self, Skip, short};
use crate::target_directory;

/// Totals of one or more test programs.
#[derive(Default)]
pub(crate) struct Tally {
    /// Name of the guest; empty for this machine.
    place: String,
    /// Path of the log.
    log: String,
    passed: usize,
    failed: usize,
    skipped: usize,
    skips: Vec<Skip>,
    /// Tests with result `ok`, by place; some of these tests printed SKIP.
    ran: BTreeSet<(String, String)>,
    /// Measurements that were repeated because the first values did not agree.
    again: Vec<String>,
    /// Tests that failed at first and passed in a second run.
    unsteady: Vec<String>,
    /// Messages about failures, each with the last output of its test program.
    failures: Vec<String>,
    /// Failed tests, from the lists of test programs that ended with a result.
    failed_tests: Vec<String>,
    pub(crate) running: bool,
    /// Output of the running test program.
    printed: Vec<String>,
    /// Name of the test whose captured output the current lines are.
    test: String,
    skipped_here: BTreeSet<String>,
}

/// Limit on repeated measurements in a run of all tests; beyond it the run fails. Most runs repeat none. Chance and a busy
/// moment explain a few repeats; more repeats mean that some numbers are wrong.
const MAX_AGAIN: usize = 6;
/// Limit on tests that fail and then pass in a second run, in a run of all tests; beyond it the run fails. A few such failures come from a shared or
/// emulated processor or from other load on the machine; code with an intermittent bug fails more often.
const MAX_UNSTEADY: usize = 2;
/// Limit on the shown output lines of a failed test program; the log has all lines.
const MAX_SHOWN: usize = 400;

impl Tally {
    /// Returns the tally of a guest's output, with the path of the log for messages.
    pub(crate) fn of(guest: &str, log: &str) -> Self {
        Self { place: guest.to_owned(), log: log.to_owned(), ..Self::default() }
    }

    /// Processes one output line of a test program. At the line `test result:`, returns a summary with the counts and the time.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.program_died();
            self.running = true;
        }
        self.printed.push(line.to_owned());
        if let Some(test) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            test.clone_into(&mut self.test);
        } else if let Some(miss) = line.strip_prefix("AGAIN: ") {
            self.repeat(&self.test.clone(), miss);
        } else if let Some(skip) = line.strip_prefix("SKIP ").or_else(|| line.strip_prefix("SKIP: ")) {
            // Names of tests may contain `::`. A line without a name is about the test whose output is being read.
            let (test, reason) = skip.split_once(": ").unwrap_or((&self.test, skip));
            self.skipped_here.insert(short(test).to_owned());
            let skip = Skip { place: self.place.clone(), test: test.to_owned(), reason: reason.to_owned() };
            if !self.skips.contains(&skip) {
                self.skips.push(skip);
            }
        } else if let Some((test, result)) = line.strip_prefix("test ").and_then(|test| test.split_once(" ... ")) {
            if result == "ok" {
                self.ran.insert((self.place.clone(), short(test).to_owned()));
            // Some tests are only the body of a child process that another test starts.
            } else if result.starts_with("ignored") && !result.starts_with("ignored, run by another test") {
                self.skip(test, result);
            }
        } else if let Some(result) = line.strip_prefix("test result: ") {
            return Some(self.result(result));
        }
        None
    }

    /// Processes the result of a test program.
    fn result(&mut self, result: &str) -> String {
        let count = |what: &str| -> usize {
            let part = result.split(['.', ';']).find_map(|part| part.trim().strip_suffix(what));
            part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        let skipped = std::mem::take(&mut self.skipped_here).len();
        let (passed, failed) = (count("passed").saturating_sub(skipped), count("failed"));
        (self.passed, self.failed, self.skipped) = (self.passed + passed, self.failed + failed, self.skipped + skipped);
        self.running = false;
        if failed > 0 {
            // The list of failed tests comes last, and is read from its end.
            let list = self.printed.iter().rev().skip(2);
            let names: Vec<_> = list.map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect();
            self.failed_tests.extend(names.into_iter().rev());
            // Lines before `failures:` are about tests that passed.
            let from = self.printed.iter().position(|line| line == "failures:");
            self.keep_printed(from.unwrap_or(0));
        }
        self.printed.clear();
        let some = |count: usize, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
        let time = result.rsplit_once("finished in ").map_or(String::new(), |(_, time)| format!(" in {time}"));
        format!("{passed} passed{}{}{time}", some(failed, "failed"), some(skipped, "skipped"))
    }

    /// Counts a failure if a test program has ended without a result: it was killed or aborted.
    fn program_died(&mut self) {
        if self.running {
            self.failed += 1;
            self.printed.push("FAILED: a test program ended without a result".into());
            self.keep_printed(0);
        }
        self.running = false;
        self.printed.clear();
        self.skipped_here.clear();
    }

    fn keep_printed(&mut self, from: usize) {
        let place = if self.place.is_empty() { String::new() } else { format!("in {}, {}:\n", self.place, self.log) };
        let from = from.max(self.printed.len().saturating_sub(MAX_SHOWN));
        self.failures.push(place + &self.printed[from..].join("\n"));
    }

    /// Ends the tally. If `cargo test` failed and no line reported a failure, counts one failure.
    pub(crate) fn end(&mut self, success: bool) {
        self.program_died();
        if !success && self.failed == 0 {
            self.failed = 1;
            self.failures.push("FAILED: cargo test ended with an error, but no test had failed".into());
        }
    }

    /// Returns the tests to run again: the failed tests, if no test program died and at most [`MAX_UNSTEADY`] tests failed; otherwise none.
    pub(crate) fn to_run_again(&self) -> &[String] {
        let is_all = self.failed_tests.len() == self.failed && self.failed <= MAX_UNSTEADY;
        if is_all { &self.failed_tests } else { &[] }
    }

    /// Adds the second run, of [`Self::to_run_again`]. If all these tests pass now, they count as passed, but unsteady. Returns the output of their
    /// first failures.
    ///
    /// The caller prints this output. If this function printed it, the output of this function's unit tests would have lines that look like test
    /// results, and the tally that reads the output would count them.
    #[must_use]
    pub(crate) fn ran_again(&mut self, second: Self) -> Vec<String> {
        let tests = self.to_run_again().len();
        // More tests than requested pass if another test program has a test with the same name.
        if second.failed > 0 || second.passed < tests {
            self.failures.extend(second.failures.into_iter().map(|failure| format!("run again:\n{failure}")));
            return Vec::new();
        }
        for test in std::mem::take(&mut self.failed_tests) {
            self.unsteady.push(format!("UNSTEADY {}: passed when run again", self.shown(&test)));
        }
        (self.failed, self.passed) = (self.failed - tests, self.passed + tests);
        self.failures.drain(..).map(|failure| format!("passed when run again:\n{failure}")).collect()
    }

    /// Returns the name of a check, with the guest.
    fn shown(&self, check: &str) -> String {
        format!("{} {check}", self.place).trim_start().to_owned()
    }

    /// Adds the totals of another tally.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.skips.extend(other.skips);
        self.ran.extend(other.ran);
        self.again.extend(other.again);
        self.unsteady.extend(other.unsteady);
        self.failures.extend(other.failures);
    }

    /// Counts a check, and prints its failure.
    pub(crate) fn check(&mut self, check: &str, result: Result<()>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => {
                let failure = format!("FAILED {check}: {why:#}");
                println!("{failure}");
                self.failures.push(failure);
                self.failed += 1;
            }
        }
    }

    /// Counts a check that is impossible on this machine.
    pub(crate) fn skip(&mut self, check: &str, why: &str) {
        self.skips.push(Skip { place: self.place.clone(), test: check.to_owned(), reason: why.to_owned() });
        self.skipped += 1;
    }

    /// Counts a check that was repeated.
    pub(crate) fn repeat(&mut self, check: &str, why: &str) {
        self.again.push(format!("AGAIN {}: {why}", self.shown(check)));
    }

    /// Prints all skip reasons, repeated measurements, failures and the closing line. Compares the skips with the list of allowed skips and
    /// with `BPREC_REQUIRE`, and adds the names of repeated tests to those of earlier runs.
    ///
    /// # Errors
    /// Fails if a test or check failed, or no test ran.
    pub(crate) fn close(self) -> Result<()> {
        ensure!(self.passed + self.failed + self.skipped > 0, "no test ran");
        let mut repeats = File::options().create(true).append(true).open(target_directory().join("repeats.txt"))?;
        writeln!(repeats, "runs")?;
        for line in self.again.iter().chain(&self.unsteady) {
            writeln!(repeats, "{}", line.split(": ").next().unwrap_or(line))?;
        }
        self.judge(&std::fs::read_to_string(skips::LIST)?, &std::env::var("BPREC_REQUIRE").unwrap_or_default())
    }

    fn judge(mut self, list: &str, required: &str) -> Result<()> {
        self.skips.iter().for_each(|skip| println!("{skip}"));
        for fault in skips::faults(&self.skips, &self.ran, list, required)? {
            self.check("skips", Err(anyhow!(fault)));
        }
        self.again.iter().chain(&self.unsteady).for_each(|line| println!("{line}"));
        for (what, found, limit) in [
            ("measurements were repeated", self.again.len(), MAX_AGAIN),
            ("tests passed only when run again", self.unsteady.len(), MAX_UNSTEADY),
        ] {
            println!("{found} {what}, at most {limit} are allowed");
            if found > limit {
                self.check("repetitions", Err(anyhow!("too many {what}")));
            }
        }
        self.failures.iter().for_each(|failure| println!("\n{failure}"));
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        ensure!(self.failed == 0, "tests failed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_AGAIN, MAX_UNSTEADY, Tally};

    fn tally(lines: &[&str], success: bool) -> (usize, usize, usize) {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| drop(tally.line(line)));
        tally.end(success);
        (tally.passed, tally.failed, tally.skipped)
    }

    const OK: &str = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
    const BAD: &str =
        "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";

    #[test]
    fn binaries_add_up() {
        assert_eq!(tally(&["running 4 tests", "test slow ... ignored", OK, "running 3 tests", BAD], false), (5, 1, 1));
        assert_eq!(tally(&["running 4 tests", "test child ... ignored, run by another test", OK], true), (3, 0, 0));
    }

    #[test]
    fn a_skip_is_not_a_pass_and_counts_once() {
        let lines = ["running 4 tests", "SKIP live: needs root", "SKIP live: needs root", OK, "running 4 tests", OK];
        assert_eq!(tally(&lines, true), (5, 0, 1));
    }

    #[test]
    fn skips_and_runs_are_known_by_place_and_test() {
        let mut tally = Tally::of("x86", "out");
        let lines = [
            "running 3 tests",
            "test it::one ... ok",
            "---- it::two stdout ----",
            "SKIP: no perf to ask",
            "SKIP it::three: no file: none",
            OK,
        ];
        lines.iter().for_each(|line| drop(tally.line(line)));
        let said: Vec<_> = tally.skips.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["SKIP x86 it::two: no perf to ask", "SKIP x86 it::three: no file: none"]);
        assert_eq!(tally.ran.iter().collect::<Vec<_>>(), [&("x86".to_owned(), "one".to_owned())]);
        assert_eq!((tally.passed, tally.skipped), (1, 2));
    }

    #[test]
    fn measurements_made_again_are_bounded() {
        let close = |times: usize| {
            let mut tally = Tally::of("vm x", "out");
            tally.line("---- shares_agree stdout ----");
            (0..times).for_each(|_| drop(tally.line("AGAIN: measurement 1 does not agree: 3 of 5")));
            assert!(tally.again.iter().all(|line| line.starts_with("AGAIN vm x shares_agree: measurement 1")));
            tally.judge("", "")
        };
        assert!(close(0).is_ok() && close(MAX_AGAIN).is_ok() && close(MAX_AGAIN + 1).is_err());
    }

    #[test]
    fn a_few_tests_may_fail_once() {
        const TWO: &str = "test result: FAILED. 9 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        const PASSED: &str = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out";
        let first = || {
            let mut tally = Tally::of("vm x", "out");
            let lines =
                ["running 11 tests", "failures:", "---- a stdout ----", "no", "failures:", "    a", "    b", "", TWO];
            lines.iter().for_each(|line| drop(tally.line(line)));
            tally.end(false);
            tally
        };
        let second = |lines: &[&str]| {
            let mut tally = Tally::default();
            lines.iter().for_each(|line| drop(tally.line(line)));
            tally.end(true);
            tally
        };
        let mut tally = first();
        assert_eq!(tally.to_run_again(), ["a", "b"]);
        let said = tally.ran_again(second(&["running 2 tests", PASSED]));
        assert!(said.len() == 1 && said[0].starts_with("passed when run again:\nin vm x, out:\nfailures:"), "{said:?}");
        assert_eq!((tally.passed, tally.failed, tally.unsteady.len()), (11, 0, 2));
        assert_eq!(tally.unsteady[0], "UNSTEADY vm x a: passed when run again");
        assert!(tally.to_run_again().is_empty() && tally.failures.is_empty());
        assert_eq!(MAX_UNSTEADY, 2);
        tally.unsteady.push("UNSTEADY c: passed when run again".into());
        assert!(tally.judge("", "").is_err());
        // A test counts as failed if it fails again, is not run again, or if its test program died.
        const ONE: &str = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 10 filtered out";
        for lines in [&["running 2 tests", "failures:", "    a", "", BAD][..], &["running 1 test", ONE], &[]] {
            let mut tally = first();
            assert!(tally.ran_again(second(lines)).is_empty());
            assert_eq!((tally.failed, tally.unsteady.len()), (2, 0), "{lines:?}");
        }
        let mut tally = first();
        tally.line("running 1 test");
        tally.end(false);
        assert!(tally.to_run_again().is_empty());
    }

    #[test]
    fn what_a_failed_test_printed_is_kept_and_nothing_else() {
        let mut tally = Tally::of("vm x", "out");
        let program = ["running 2 tests", "test good ... ok", "failures:", "---- bad stdout ----", "1 is not 2", BAD];
        let said: Vec<_> =
            ["running 3 tests", "much", OK].into_iter().chain(program).filter_map(|it| tally.line(it)).collect();
        assert_eq!(said, ["3 passed in 0.00s", "2 passed, 1 failed in 0.00s"]);
        tally.end(false);
        assert_eq!(tally.failures, [format!("in vm x, out:\nfailures:\n---- bad stdout ----\n1 is not 2\n{BAD}")]);
    }

    #[test]
    fn a_binary_that_dies_has_failed() {
        assert_eq!(tally(&["running 4 tests", "running 4 tests", OK], false), (3, 1, 0));
        assert_eq!(tally(&["running 1 test"], false), (0, 1, 0));
        assert_eq!(tally(&[], false), (0, 1, 0));
    }
}
