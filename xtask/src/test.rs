//! Runs all tests, on this machine and in guests, and prints one line with the totals.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use xshell::{Shell, cmd};

use crate::skips::HOST;
use crate::tally::Tally;
use crate::vm::{self, Builds};
use crate::{logged, target_directory};

/// Runs `cargo test` with `arguments`, for the workspace or for the crates that the arguments name. Prints the result of each test program
/// and the output of failed tests, then `N passed, N failed, N skipped`. The whole output is in `test.log` in the target directory.
///
/// A test that cannot run on this machine prints a line `SKIP <test>: <reason>` and returns; the test counts as skipped, not as passed.
pub(crate) fn run(sh: &Shell, arguments: &[String]) -> Result<()> {
    here(sh, arguments)?.close()
}

/// Runs the tests as [`run`] does, beside other users of BPF.
pub(crate) fn beside_others(sh: &Shell, arguments: &[String]) -> Result<()> {
    here_beside_others(sh, &Builds::make(sh)?, arguments)?.close()
}

/// Runs all tests beside other users of BPF, then in every guest without other users. Prints one closing line with all totals.
pub(crate) fn everywhere(sh: &Shell) -> Result<()> {
    let builds = Builds::make(sh)?;
    let mut tally = here_beside_others(sh, &builds, &[])?;
    vm::test(&vm::chosen(&[])?, &builds, &mut tally);
    tally.close()
}

fn here_beside_others(sh: &Shell, builds: &Builds, arguments: &[String]) -> Result<Tally> {
    let directory = target_directory().join("neighbours");
    let mut script = Command::new("setup/neighbours");
    let script = script.arg(builds.bprec()?).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = script.spawn().context("run setup/neighbours")?;
    let mut lines = BufReader::new(running.stdout.take().context("setup/neighbours has no output")?).lines();
    ensure!(lines.next().transpose()?.as_deref() == Some("ready"), "setup/neighbours could not start them");
    let mut tally = here(sh, arguments)?;
    // At the end of its input, the script checks that the tests have not disturbed the neighbours.
    drop(running.stdin.take());
    lines.try_for_each(|line| line.map(|line| tally.script("neighbours", &line)))?;
    let status = running.wait()?;
    ensure!(status.success(), "setup/neighbours ended with {status}");
    Ok(tally)
}

/// Runs the tests of the workspace, and repeats the failed tests if they are few; or the tests of chosen crates, once.
fn here(sh: &Shell, arguments: &[String]) -> Result<Tally> {
    let names_crates = arguments.iter().any(|it| it.starts_with("-p") || it.starts_with("--package"));
    let workspace = (!names_crates).then_some("--workspace");
    let test = || cmd!(sh, "cargo test {workspace...} {arguments...}");
    let mut tally = cargo_test(test(), &[], "test.log")?;
    if !names_crates && !tally.to_run_again().is_empty() {
        println!("once more: {}", tally.to_run_again().join(" "));
        let second = cargo_test(test(), tally.to_run_again(), "test-again.log")?;
        tally.ran_again(second).iter().for_each(|failure| println!("{failure}"));
    }
    Ok(tally)
}

/// Runs a command `cargo test`, of all tests or of those named `only`, and returns the totals. The output is kept in the file `log` of the target
/// directory.
fn cargo_test(test: xshell::Cmd<'_>, only: &[String], log: &str) -> Result<Tally> {
    let log = target_directory().join(log);
    let mut tally = Tally::of(HOST, &log.display().to_string());
    let limit = std::env::var("BPREC_TEST_LIMIT").unwrap_or_else(|_| LIMIT_SECONDS.to_owned());
    // cargo continues with the next test program, and the tally counts the killed program as failed.
    let runner = format!("--config=target.'cfg(unix)'.runner = ['timeout', '--signal=KILL', '{limit}']");
    // Without `--show-output` the test harness discards the output of passing tests, including SKIP lines.
    let mut test: Command = test.args(["--no-fail-fast", &runner, "--", "--show-output"]).into();
    if !only.is_empty() {
        test.arg("--exact").args(only);
    }
    let (mut child, lines) = logged::spawn(test, &log)?;
    loop {
        match lines.recv_timeout(LEFT_BEHIND) {
            // If only some tests run, nothing is printed here: most programs then run no test, so a line for each would be noise.
            Ok(line) => match tally.line(&line?) {
                Some(shown) if only.is_empty() && !shown.is_empty() => println!("{shown}"),
                _ => {}
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_none() => {}
            Err(RecvTimeoutError::Timeout) => {
                tally.check("processes", Err(anyhow!("a test has left a process behind that holds its output")));
                break;
            }
        }
    }
    tally.end(child.wait().context("wait for cargo test")?.success());
    println!("the whole output is in {}", log.display());
    Ok(tally)
}

/// Time limit for the end of all processes of the tests after cargo has ended.
const LEFT_BEHIND: Duration = Duration::from_secs(10);
/// Time limit of a test program in seconds: more than twice the time of the longest. `BPREC_TEST_LIMIT` replaces it.
const LIMIT_SECONDS: &str = "1800";
