//! Running all tests, here and in guests, and saying in one line how they went.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::neighbours::Neighbours;
use crate::tally::Tally;
use crate::target_directory;
use crate::vm::{self, Builds};

/// Runs `cargo test --workspace` with `arguments`, says how each test program went, what the failed ones printed, and closes with
/// `N passed, N failed, N skipped`. Everything that was printed is in `test.log` where cargo builds.
///
/// A test that cannot run here prints a line `SKIP <test>: <reason>` and returns; it counts as skipped, not as passed.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut tally = Tally::default();
    tally.add(here(arguments)?);
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
        tally.add(here(arguments)?);
        return Ok(());
    }
    let neighbours = Neighbours::start(&target_directory(), builds.bprec())?;
    tally.add(here(arguments)?);
    neighbours.end(tally);
    Ok(())
}

/// The tests of the workspace, and those that failed once more if they are few.
fn here(arguments: &[&str]) -> Result<Tally> {
    let mut tally = cargo_test(arguments, &[], "test.log")?;
    if !tally.to_run_again().is_empty() {
        let mut filter = vec!["--exact"];
        filter.extend(tally.to_run_again().iter().map(String::as_str));
        println!("once more: {}", filter[1..].join(" "));
        let second = cargo_test(arguments, &filter, "test-again.log")?;
        tally.ran_again(second).iter().for_each(|failure| println!("{failure}"));
    }
    Ok(tally)
}

/// What `cargo test` comes to with `filter` as arguments of the test programs; what it prints is kept in `log` where cargo builds.
fn cargo_test(arguments: &[&str], filter: &[&str], log: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    let log = target_directory().join(log);
    fs::create_dir_all(target_directory())?;
    let mut kept = BufWriter::new(File::create(&log).with_context(|| format!("create {}", log.display()))?);
    // One pipe for both, so that lines stay in order.
    let (output, input) = io::pipe()?;
    let mut child = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(arguments)
        // Without this the output of tests that pass, SKIP lines too, is thrown away.
        .args(["--", "--show-output"])
        .args(filter)
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
                // What is said while no test program runs is cargo's. A few tests alone are not worth a line for each program.
                match (tally.running, tally.line(&line)) {
                    _ if !filter.is_empty() => {}
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
    Ok(tally)
}

/// Time between two looks whether the tests have ended, while they print nothing.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So long after their end their output ends as well, unless something else has it.
const LEFT_BEHIND: Duration = Duration::from_secs(10);
