//! Totals of a test run: parses the output of test programs, on this machine or in a guest, into counts, skip reasons and the last
//! output lines of failed programs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::mem::take;

use anyhow::{Result, anyhow, ensure};

use crate::skips::{self, Skip, short};
use crate::target_directory;

/// Totals of one or more test programs.
#[derive(Default)]
pub(crate) struct Tally {
    /// [`skips::HOST`] or the name of the guest.
    place: String,
    /// Path of the log.
    log: String,
    passed: usize,
    failed: usize,
    skipped: usize,
    skips: BTreeSet<Skip>,
    /// Tests with result `ok`, by place; some of these tests printed SKIP.
    ran: BTreeSet<(String, String)>,
    /// Lines about repetitions: [`AGAIN`] for measurements whose first values did not agree, [`UNSTEADY`] for tests that failed at first and passed
    /// in a second run.
    repeats: Vec<String>,
    /// Messages about failures, each with the last output of its test program.
    failures: Vec<String>,
    /// Failed tests, from the lists of test programs that ended with a result.
    failed_tests: Vec<String>,
    /// Output of the running test program, if one runs.
    printed: Option<Vec<String>>,
    /// Name of the test whose captured output the current lines are.
    test: String,
    skipped_here: BTreeSet<String>,
}

const AGAIN: &str = "AGAIN";
const UNSTEADY: &str = "UNSTEADY";
/// Limit on repeated measurements in a run of all tests; beyond it the run fails. Most runs repeat none. Chance and a busy
/// moment explain a few repeats; more repeats mean that some numbers are wrong.
const MAX_AGAIN: usize = 6;
/// Limit on tests that fail and then pass in a second run, in a run of all tests; beyond it the run fails. A few such failures come from a shared or
/// emulated processor or from other load on the machine; code with an intermittent bug fails more often.
const MAX_UNSTEADY: usize = 2;
/// Limit on the shown output lines of a failed test program; the log has all lines.
const MAX_SHOWN: usize = 400;

impl Tally {
    /// Returns an empty tally of a place, with the path of the log for messages.
    pub(crate) fn of(place: &str, log: &str) -> Self {
        Self { place: place.to_owned(), log: log.to_owned(), ..Self::default() }
    }

    /// Processes one output line. Returns a line to show: outside of test programs this line, at the end of a test program its result.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "running" && (rest.ends_with(" tests") || rest.ends_with(" test")) {
            self.program_died();
            self.printed = Some(Vec::new());
        }
        let Some(printed) = &mut self.printed else { return Some(line.to_owned()) };
        printed.push(line.to_owned());
        match word {
            "----" => rest.strip_suffix(" stdout ----").into_iter().for_each(|test| test.clone_into(&mut self.test)),
            "AGAIN:" => self.repeat(&self.test.clone(), rest),
            "SKIP" | "SKIP:" => {
                // Names of tests may contain `::`. A line without a name is about the test whose output is being read.
                let (test, reason) = rest.split_once(": ").unwrap_or((&self.test, rest));
                self.skipped_here.insert(short(test).to_owned());
                self.skips.insert(self.skip_of(test, reason));
            }
            "test" if rest.starts_with("result: ") => return Some(self.result(rest)),
            "test" => match rest.split_once(" ... ") {
                Some((test, "ok")) => drop(self.ran.insert((self.place.clone(), short(test).to_owned()))),
                // Some tests are only the body of a child process that another test starts.
                Some((_, result)) if result.starts_with("ignored, run by another test") => {}
                Some((test, result)) if result.starts_with("ignored") => self.skip(test, result),
                _ => {}
            },
            _ => {}
        }
        None
    }

    /// Processes the result of a test program.
    fn result(&mut self, result: &str) -> String {
        let count = |what: &str| -> usize {
            let part = result.split(['.', ';']).find_map(|part| part.trim().strip_suffix(what));
            part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        let (skipped, failed) = (take(&mut self.skipped_here).len(), count("failed"));
        self.count(count("passed").saturating_sub(skipped), failed, skipped);
        let printed = self.printed.take().unwrap_or_default();
        if failed > 0 {
            // The list of failed tests comes last, and is read from its end.
            let names = printed.iter().rev().skip(2).map_while(|line| line.strip_prefix("    "));
            self.failed_tests.extend(names.map(str::to_owned));
            // Lines before `failures:` are about tests that passed.
            self.keep(printed.into_iter().skip_while(|line| line != "failures:").collect());
        }
        format!("{result}; {skipped} printed SKIP")
    }

    fn count(&mut self, passed: usize, failed: usize, skipped: usize) {
        (self.passed, self.failed, self.skipped) = (self.passed + passed, self.failed + failed, self.skipped + skipped);
    }

    /// Counts a failure if a test program has ended without a result: it was killed or aborted.
    fn program_died(&mut self) {
        if let Some(mut printed) = self.printed.take() {
            self.failed += 1;
            printed.push("FAILED: a test program ended without a result".into());
            self.keep(printed);
        }
        self.skipped_here.clear();
    }

    fn keep(&mut self, printed: Vec<String>) {
        let shown = printed[printed.len().saturating_sub(MAX_SHOWN)..].join("\n");
        self.failures.push(format!("in {}, {}:\n{shown}", self.place, self.log));
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
        for test in take(&mut self.failed_tests) {
            self.repeats.push(format!("{UNSTEADY} {} {test}: passed when run again", self.place));
        }
        (self.failed, self.passed) = (self.failed - tests, self.passed + tests);
        self.failures.drain(..).map(|failure| format!("passed when run again:\n{failure}")).collect()
    }

    /// Adds the totals of another tally.
    pub(crate) fn add(&mut self, other: Self) {
        self.count(other.passed, other.failed, other.skipped);
        self.skips.extend(other.skips);
        self.ran.extend(other.ran);
        self.repeats.extend(other.repeats);
        self.failures.extend(other.failures);
    }

    /// Counts a check, and prints its failure.
    pub(crate) fn check(&mut self, check: &str, result: Result<()>) {
        let Err(why) = result else { return self.passed += 1 };
        let failure = format!("FAILED {check}: {why:#}");
        println!("{failure}");
        self.failures.push(failure);
        self.failed += 1;
    }

    /// Counts a check that is impossible on this machine.
    pub(crate) fn skip(&mut self, check: &str, why: &str) {
        self.skips.insert(self.skip_of(check, why));
        self.skipped += 1;
    }

    fn skip_of(&self, test: &str, reason: &str) -> Skip {
        Skip { place: self.place.clone(), test: test.to_owned(), reason: reason.to_owned() }
    }

    /// Counts a result of a script's checks: `PASS <check>`, `FAIL <check>: <why>` or `SKIP <check>: <why>`.
    pub(crate) fn script(&mut self, script: &str, line: &str) {
        let (check, why) = line.split_once(": ").unwrap_or((line, "no reason given"));
        match check.split_once(' ') {
            Some(("PASS", _)) => self.passed += 1,
            Some(("SKIP", check)) => self.skip(check, why),
            Some(("FAIL", check)) => self.check(&format!("{script} {check}"), Err(anyhow!("{why}"))),
            _ => self.check(&format!("{script} results"), Err(anyhow!("not a result: {line}"))),
        }
    }

    /// Counts a check that was repeated.
    pub(crate) fn repeat(&mut self, check: &str, why: &str) {
        self.repeats.push(format!("{AGAIN} {} {check}: {why}", self.place));
    }

    /// Prints all skip reasons, repeated measurements, failures and the closing line. Compares the skips with the list of allowed skips and
    /// with `BPREC_REQUIRE`, and adds the names of repeated tests to those of earlier runs.
    ///
    /// # Errors
    /// Fails if a test or check failed, or no test ran.
    pub(crate) fn close(self) -> Result<()> {
        ensure!(self.passed + self.failed + self.skipped > 0, "no test ran");
        let names = self.repeats.iter().map(|line| line.split(": ").next().unwrap_or(line));
        let names: String = ["runs"].into_iter().chain(names).map(|name| format!("{name}\n")).collect();
        let mut repeats = File::options().create(true).append(true).open(target_directory().join("repeats.txt"))?;
        repeats.write_all(names.as_bytes())?;
        self.judge(&std::fs::read_to_string(skips::LIST)?, &std::env::var("BPREC_REQUIRE").unwrap_or_default())
    }

    fn judge(mut self, list: &str, required: &str) -> Result<()> {
        self.skips.iter().for_each(|skip| println!("{skip}"));
        for fault in skips::faults(&self.skips, &self.ran, list, required)? {
            self.check("skips", Err(anyhow!(fault)));
        }
        self.repeats.iter().for_each(|line| println!("{line}"));
        for (what, kind, limit) in [
            ("measurements were repeated", AGAIN, MAX_AGAIN),
            ("tests passed only when run again", UNSTEADY, MAX_UNSTEADY),
        ] {
            let found = self.repeats.iter().filter(|line| line.starts_with(kind)).count();
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
    use crate::skips::HOST;

    fn tally(lines: &[&str], success: bool) -> (usize, usize, usize) {
        let mut tally = Tally::of(HOST, "log");
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
        assert_eq!(said, ["SKIP x86 it::three: no file: none", "SKIP x86 it::two: no perf to ask"]);
        assert_eq!(tally.ran.iter().collect::<Vec<_>>(), [&("x86".to_owned(), "one".to_owned())]);
        assert_eq!((tally.passed, tally.skipped), (1, 2));
    }

    #[test]
    fn measurements_made_again_are_bounded() {
        let close = |times: usize| {
            let mut tally = Tally::of("vm x", "out");
            tally.line("running 1 test");
            tally.line("---- shares_agree stdout ----");
            (0..times).for_each(|_| drop(tally.line("AGAIN: measurement 1 does not agree: 3 of 5")));
            assert!(tally.repeats.iter().all(|line| line.starts_with("AGAIN vm x shares_agree: measurement 1")));
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
            let mut tally = Tally::of(HOST, "log");
            lines.iter().for_each(|line| drop(tally.line(line)));
            tally.end(true);
            tally
        };
        let mut tally = first();
        assert_eq!(tally.to_run_again(), ["b", "a"]);
        let said = tally.ran_again(second(&["running 2 tests", PASSED]));
        assert!(said.len() == 1 && said[0].starts_with("passed when run again:\nin vm x, out:\nfailures:"), "{said:?}");
        assert_eq!((tally.passed, tally.failed, tally.repeats.len()), (11, 0, 2));
        assert_eq!(tally.repeats[0], "UNSTEADY vm x b: passed when run again");
        assert!(tally.to_run_again().is_empty() && tally.failures.is_empty());
        assert_eq!(MAX_UNSTEADY, 2);
        tally.repeats.push("UNSTEADY c: passed when run again".into());
        assert!(tally.judge("", "").is_err());
        // A test counts as failed if it fails again, is not run again, or if its test program died.
        const ONE: &str = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 10 filtered out";
        for lines in [&["running 2 tests", "failures:", "    a", "", BAD][..], &["running 1 test", ONE], &[]] {
            let mut tally = first();
            assert!(tally.ran_again(second(lines)).is_empty());
            assert_eq!((tally.failed, tally.repeats.len()), (2, 0), "{lines:?}");
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
        assert_eq!(said, [OK, BAD].map(|it| format!("{}; 0 printed SKIP", it.strip_prefix("test ").unwrap())));
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
