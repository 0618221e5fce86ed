//! Running all tests, here and in guests, and saying in one line how they went.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::neighbours::Neighbours;
use crate::vm::{self, Builds};

/// Runs `cargo test --workspace` with `arguments`, says how each test program went, what the failed ones printed, and closes with
/// `N passed, N failed, N skipped`. Everything that was printed is in `test.log` where cargo builds.
///
/// A test that cannot run here prints a line `SKIP <test>: <reason>` and returns; it counts as skipped, not as passed.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut tally = Tally::default();
    here(arguments, &mut tally)?;
    tally.close()
}

/// The same beside other users of BPF.
pub(crate) fn beside_others(arguments: &[&str]) -> Result<()> {
    let mut tally = Tally::default();
    here_beside_others(&Builds::make(&target_directory())?, arguments, &mut tally)?;
    tally.close()
}

/// The same without arguments, then every guest, where the tests are alone; with one closing line over all.
pub(crate) fn everywhere() -> Result<()> {
    let mut tally = Tally::default();
    let builds = Builds::make(&target_directory())?;
    here_beside_others(&builds, &[], &mut tally)?;
    vm::test_all(&builds, &mut tally);
    tally.close()
}

fn here_beside_others(builds: &Builds, arguments: &[&str], tally: &mut Tally) -> Result<()> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        tally.skip("neighbours", "other users of BPF beside the tests take root");
        return here(arguments, tally);
    }
    let neighbours = Neighbours::start(&target_directory(), builds.bprec())?;
    here(arguments, tally)?;
    neighbours.end(tally);
    Ok(())
}

fn here(arguments: &[&str], tally: &mut Tally) -> Result<()> {
    let log = target_directory().join("test.log");
    fs::create_dir_all(target_directory())?;
    let mut kept = BufWriter::new(File::create(&log).with_context(|| format!("create {}", log.display()))?);
    // One pipe for both, so that lines stay in order.
    let (output, input) = io::pipe()?;
    let mut child = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(arguments)
        // Without this the output of tests that pass, SKIP lines too, is thrown away.
        .args(["--", "--show-output"])
        .stdin(Stdio::null())
        .stdout(input.try_clone()?)
        .stderr(input)
        .spawn()
        .context("run cargo test")?;
    let (send, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let mut ended = None;
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line);
                writeln!(kept, "{line}")?;
                // What is said while no test program runs is cargo's.
                match (tally.running, tally.line(&line)) {
                    (_, Some(result)) => println!("{result}"),
                    (false, None) if !tally.running && !line.is_empty() => println!("{line}"),
                    _ => {}
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                if ended.is_none() && child.try_wait().context("wait for cargo test")?.is_some() {
                    ended = Some(now);
                }
                if ended.is_some_and(|ended| now - ended > LEFT_BEHIND) {
                    tally.fail("processes", "a test has left one behind that holds its output");
                    break;
                }
            }
        }
    }
    kept.flush().with_context(|| format!("write {}", log.display()))?;
    let success = child.wait().context("wait for cargo test")?.success();
    if reader.is_finished() {
        drop(reader.join());
    }
    tally.end(success);
    println!("all of it is in {}", log.display());
    Ok(())
}

/// Where cargo builds.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// What the lines of one or more test binaries add up to.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    reasons: Vec<String>,
    skipped_here: BTreeSet<String>,
    running: bool,
    /// The test whose output this is.
    test: String,
    /// Measurements that were made once more because they did not agree.
    again: Vec<String>,
    /// What the test program has printed that runs.
    printed: VecDeque<String>,
    /// What failed, and the end of what it printed.
    failures: Vec<String>,
}

/// Time between two looks whether the tests have ended, while they print nothing.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So long after their end their output ends as well, unless something else has it.
const LEFT_BEHIND: Duration = Duration::from_secs(10);

/// How many measurements may be made once more in a run of all tests. Most runs need none: chance and a busy moment account for a few, a rare wrong
/// number for more.
const MAX_AGAIN: usize = 6;
/// So many lines are kept of a test program's output; more are in the log.
const MAX_PRINTED: usize = 400;

impl Tally {
    /// Takes a line of a test binary's output. Gives how the binary went where it is the line that says so.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        if self.printed.len() == MAX_PRINTED {
            self.printed.pop_front();
        }
        self.printed.push_back(line.to_owned());
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.binary_died();
            self.running = true;
            self.printed = VecDeque::from([line.to_owned()]);
        } else if let Some(test) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            test.clone_into(&mut self.test);
        } else if let Some(miss) = line.strip_prefix("AGAIN: ") {
            self.again.push(format!("AGAIN {}: {miss}", self.test));
        } else if let Some(skip) = line.strip_prefix("SKIP ") {
            let test = skip.split(':').next().unwrap_or(skip);
            if self.skipped_here.insert(test.to_owned()) {
                self.reasons.push(line.to_owned());
            }
        } else if let Some((test, reason)) = line.strip_prefix("test ").and_then(|test| test.split_once(" ... ignored"))
        {
            // Some tests exist only to be run by another one as a child process.
            if !reason.starts_with(", run by another test") {
                self.skipped += 1;
                self.reasons.push(format!("SKIP {test}: ignored{reason}"));
            }
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let count = |what: &str| -> usize {
                let part = result.split(['.', ';']).map(str::trim).find_map(|part| part.strip_suffix(what));
                part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
            };
            let skipped = self.skipped_here.len();
            let (passed, failed) = (count("passed").saturating_sub(skipped), count("failed"));
            self.passed += passed;
            self.failed += failed;
            self.skipped += skipped;
            self.skipped_here.clear();
            self.running = false;
            if failed > 0 {
                // Before it are the tests that passed.
                while self.printed.iter().any(|line| line == "failures:") && self.printed[0] != "failures:" {
                    self.printed.pop_front();
                }
                self.keep_printed();
            }
            let some = |count: usize, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
            return Some(format!("{passed} passed{}{}", some(failed, "failed"), some(skipped, "skipped")));
        }
        None
    }

    /// A binary that was running and gave no result was killed or aborted: that is a failure too.
    fn binary_died(&mut self) {
        if self.running {
            self.failed += 1;
            self.printed.push_back("FAILED: a test program ended without a result".into());
            self.keep_printed();
        }
        self.running = false;
        self.skipped_here.clear();
    }

    fn keep_printed(&mut self) {
        self.failures.push(Vec::from(std::mem::take(&mut self.printed)).join("\n"));
    }

    /// No more lines come; without success there is a failure, even if no line told of one.
    pub(crate) fn end(&mut self, success: bool) {
        self.binary_died();
        if !success && self.failed == 0 {
            self.failed = 1;
            self.failures.push("FAILED: it ended without success before any test had failed".into());
        }
    }

    /// Says where the tests were and what has all they printed, in what is said of those so far.
    pub(crate) fn place(&mut self, place: &str, log: &str) {
        for reason in self.reasons.iter_mut().chain(&mut self.again) {
            if let Some((word, rest)) = reason.split_once(' ') {
                *reason = format!("{word} {place} {rest}");
            }
        }
        for failure in &mut self.failures {
            *failure = format!("in {place}, {log}:\n{failure}");
        }
    }

    /// Adds what others came to.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.reasons.extend(other.reasons);
        self.again.extend(other.again);
        self.failures.extend(other.failures);
    }

    /// One check held.
    pub(crate) fn pass(&mut self) {
        self.passed += 1;
    }

    /// One check did not hold; says so.
    pub(crate) fn fail(&mut self, check: &str, why: &str) {
        let failure = format!("FAILED {check}: {why}");
        println!("{failure}");
        self.failures.push(failure);
        self.failed += 1;
    }

    /// One check could not be made here.
    pub(crate) fn skip(&mut self, check: &str, why: &str) {
        self.reasons.push(format!("SKIP {check}: {why}"));
        self.skipped += 1;
    }

    /// Prints every reason to skip, every measurement that was made again, what failed, and the closing line.
    ///
    /// # Errors
    /// When something failed.
    pub(crate) fn close(mut self) -> Result<()> {
        for line in self.reasons.iter().chain(&self.again) {
            println!("{line}");
        }
        println!("{} measurements made again, at most {MAX_AGAIN} may be", self.again.len());
        if self.again.len() > MAX_AGAIN {
            self.fail("measurements", "too many do not agree at once");
        }
        for failure in &self.failures {
            println!("\n{failure}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        ensure!(self.failed == 0, "tests failed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_AGAIN, Tally};

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
    fn measurements_made_again_are_bounded() {
        let close = |times: usize| {
            let mut tally = Tally::default();
            tally.line("---- shares_agree stdout ----");
            (0..times).for_each(|_| drop(tally.line("AGAIN: measurement 1 does not agree: 3 of 5")));
            tally.place("vm x", "out");
            assert!(tally.again.iter().all(|line| line.starts_with("AGAIN vm x shares_agree: measurement 1")));
            tally.close()
        };
        assert!(close(0).is_ok() && close(MAX_AGAIN).is_ok() && close(MAX_AGAIN + 1).is_err());
    }

    #[test]
    fn what_a_failed_test_printed_is_kept_and_nothing_else() {
        let mut tally = Tally::default();
        let program = ["running 2 tests", "test good ... ok", "failures:", "---- bad stdout ----", "1 is not 2", BAD];
        let said: Vec<_> =
            ["running 3 tests", "much", OK].into_iter().chain(program).filter_map(|it| tally.line(it)).collect();
        assert_eq!(said, ["3 passed", "2 passed, 1 failed"]);
        tally.end(false);
        tally.place("vm x", "out");
        assert_eq!(tally.failures, [format!("in vm x, out:\nfailures:\n---- bad stdout ----\n1 is not 2\n{BAD}")]);
    }

    #[test]
    fn a_binary_that_dies_has_failed() {
        assert_eq!(tally(&["running 4 tests", "running 4 tests", OK], false), (3, 1, 0));
        assert_eq!(tally(&["running 1 test"], false), (0, 1, 0));
        assert_eq!(tally(&[], false), (0, 1, 0));
    }
}
