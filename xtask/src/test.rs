//! Runs all tests, on this machine and in guests, and prints one line with the totals.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::command;
use crate::neighbours::Neighbours;
use crate::tally::Tally;
use crate::target_directory;
use crate::vm::{self, Builds};

/// Runs `cargo test` with `arguments`, for the workspace or for the crates that the arguments name. Prints the result of each test program
/// and the output of failed tests, then `N passed, N failed, N skipped`. The whole output is in `test.log` in the target directory.
///
/// A test that cannot run on this machine prints a line `SKIP <test>: <reason>` and returns; the test counts as skipped, not as passed.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut tally = Tally::default();
    tally.add(here(arguments)?);
    tally.close()
}

/// Runs the tests as [`run`] does, beside other users of BPF.
pub(crate) fn beside_others(arguments: &[&str]) -> Result<()> {
    let mut tally = Tally::default();
    here_beside_others(&Builds::make()?, arguments, &mut tally)?;
    tally.close()
}

/// Runs all tests beside other users of BPF, then in every guest without other users. Prints one closing line with all totals.
pub(crate) fn everywhere() -> Result<()> {
    let mut tally = Tally::default();
    let builds = Builds::make()?;
    here_beside_others(&builds, &[], &mut tally)?;
    vm::test_all(&builds, &mut tally);
    tally.close()
}

fn here_beside_others(builds: &Builds, arguments: &[&str], tally: &mut Tally) -> Result<()> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        tally.skip("neighbours", "other users of BPF beside the tests need root");
        tally.add(here(arguments)?);
        return Ok(());
    }
    let neighbours = Neighbours::start(&target_directory(), builds.bprec())?;
    tally.add(here(arguments)?);
    neighbours.end(tally);
    Ok(())
}

/// Runs the checks that need neither root nor network and change nothing on the machine: format, lints and rules of the tree, then the tests
/// of the crates that read recordings and of the commands that read.
pub(crate) fn offline() -> Result<()> {
    for arguments in [
        &["fmt", "--all", "--check"][..],
        &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        &["xtask", "tree"],
    ] {
        command::run(&mut command::cargo(arguments))?;
    }
    // One cargo call for all packages: the features of a dependency depend on the set of packages that are built together.
    let mut arguments = Vec::from(["--locked", "--lib", "--bin", "xtask", "--example", "seeds"]);
    arguments.extend(OFFLINE_CRATES.iter().flat_map(|it| ["-p", it]));
    arguments.extend(OFFLINE_PROGRAMS.iter().flat_map(|it| ["--test", it]));
    let mut tally = Tally::default();
    tally.add(cargo_test(&arguments, &[], &[OFFLINE_MUTATIONS], "check.log")?);
    tally.close()
}

/// Variable with the count of damaged recordings for the mutation test, and its value in `cargo xtask check`: the full count takes minutes.
const OFFLINE_MUTATIONS: (&str, &str) = ("BPREC_MUTATIONS", "2000");

/// Crates with tests that need no privilege; the last is the crate of `bprec` itself.
const OFFLINE_CRATES: [&str; 5] = ["bprec-format", "bprec-generate", "bprec-report", "xtask", "bprec"];
/// Test programs of these crates. `live` is missing because it records, `limits` and `viewers` because they take long.
const OFFLINE_PROGRAMS: [&str; 5] = ["it", "many_pairs", "mutation", "properties", "shapes"];

/// Runs the tests of the workspace, and repeats the failed tests if they are few.
fn here(arguments: &[&str]) -> Result<Tally> {
    let names_crates = arguments.iter().any(|it| it.starts_with("-p") || it.starts_with("--package"));
    let workspace: &[&str] = if names_crates { &[] } else { &["--workspace"] };
    let arguments = &[workspace, arguments].concat();
    let mut tally = cargo_test(arguments, &[], &[], "test.log")?;
    if !tally.to_run_again().is_empty() {
        let mut filter = vec!["--exact"];
        filter.extend(tally.to_run_again().iter().map(String::as_str));
        println!("once more: {}", filter[1..].join(" "));
        let second = cargo_test(arguments, &filter, &[], "test-again.log")?;
        tally.ran_again(second).iter().for_each(|failure| println!("{failure}"));
    }
    Ok(tally)
}

/// Runs `cargo test` with `filter` as arguments of the test programs, and returns the totals. The output is kept in the file `log` of the
/// target directory.
fn cargo_test(arguments: &[&str], filter: &[&str], environment: &[(&str, &str)], log: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    let log = target_directory().join(log);
    fs::create_dir_all(target_directory())?;
    let kept = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    // The lock is held until every process that has inherited the open file has ended.
    kept.lock()?;
    let limit = std::env::var("BPREC_TEST_LIMIT").unwrap_or_else(|_| LIMIT_SECONDS.to_owned());
    let mut child = command::cargo(&["test", "--no-fail-fast"])
        // cargo continues with the next test program, and the tally counts the killed program as failed.
        .args(["--config", &format!("target.'cfg(unix)'.runner = ['timeout', '--signal=KILL', '{limit}']")])
        .args(arguments)
        // Without this option the test harness discards the output of passing tests, including SKIP lines.
        .args(["--", "--show-output"])
        .args(filter)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        // One open file for standard output and standard error keeps the lines in order.
        .stdout(kept.try_clone()?)
        .stderr(kept)
        .spawn()
        .context("run cargo test")?;
    let mut output = BufReader::new(File::open(&log)?);
    let mut read = Vec::new();
    let status = loop {
        let ended = child.try_wait().context("wait for cargo test")?;
        while output.read_until(b'\n', &mut read)? > 0 && read.ends_with(b"\n") {
            let line = String::from_utf8_lossy(&read).trim_end_matches('\n').to_owned();
            read.clear();
            // Lines outside of a test program come from cargo. With a filter, nothing is printed here: most
            // programs then run no test, so a line for each would be noise.
            match (tally.running, tally.line(&line)) {
                _ if !filter.is_empty() => {}
                (_, Some(result)) => println!("{result}"),
                (false, None) if !tally.running && !line.is_empty() => println!("{line}"),
                _ => {}
            }
        }
        if let Some(status) = ended {
            break status;
        }
        thread::sleep(LOOK_EVERY);
    };
    let ended_at = Instant::now();
    while output.get_ref().try_lock().is_err() {
        if ended_at.elapsed() > LEFT_BEHIND {
            tally.fail("processes", "a test has left a process behind that holds the output of the test");
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    tally.end(status.success());
    println!("the whole output is in {}", log.display());
    Ok(tally)
}

/// Time between two reads of the output, while the tests run.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time limit for the end of all processes of the tests after cargo has ended.
const LEFT_BEHIND: Duration = Duration::from_secs(10);
/// Time limit of a test program in seconds: more than twice the time of the longest. `BPREC_TEST_LIMIT` replaces it.
const LIMIT_SECONDS: &str = "1800";
