//! Runs all tests, on this machine and in guests, and prints one line with the totals.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
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
    let mut kept = BufWriter::new(File::create(&log).with_context(|| format!("create {}", log.display()))?);
    // One pipe for standard output and standard error keeps the lines in order.
    let (output, input) = io::pipe()?;
    let mut child = command::cargo(&["test", "--no-fail-fast"])
        .args(arguments)
        // Without this option the test harness discards the output of passing tests, including SKIP lines.
        .args(["--", "--show-output"])
        .args(filter)
        .envs(environment.iter().copied())
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
    let limit = max_silence()?;
    let mut ended = None;
    let mut last_line = Instant::now();
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                last_line = Instant::now();
                let line = String::from_utf8_lossy(&line);
                writeln!(kept, "{line}")?;
                // Lines outside of a test program come from cargo. With a filter, nothing is printed here: most
                // programs then run no test, so a line for each would be noise.
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
                if now - last_line > limit {
                    // cargo continues with the next test program, and the tally counts the killed program as failed.
                    println!("killed: no test has ended for {} s", limit.as_secs());
                    kill_descendants(child.id())?;
                    last_line = now;
                }
                if ended.is_some_and(|ended| now - ended > LEFT_BEHIND) {
                    tally.fail("processes", "a test has left a process behind that holds the output of the test");
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
    println!("the whole output is in {}", log.display());
    Ok(tally)
}

/// Time between two checks for the end of the tests, while they print nothing.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time limit for the end of cargo's output after cargo has ended. Beyond it, a process that a test left behind must be
/// holding the pipe open.
const LEFT_BEHIND: Duration = Duration::from_secs(10);
/// Returns the longest allowed time without an output line: `BPREC_TEST_LIMIT` seconds, by default ten minutes. Tests and compilations of a crate
/// usually print a line after at most a tenth of this time.
fn max_silence() -> Result<Duration> {
    let seconds = std::env::var("BPREC_TEST_LIMIT").map_or(Ok(600), |text| text.parse());
    Ok(Duration::from_secs(seconds.context("BPREC_TEST_LIMIT: expected seconds")?))
}

/// Kills all descendants of a process, but not the process itself.
fn kill_descendants(ancestor: u32) -> Result<()> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")?
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let mut found = Vec::from([ancestor]);
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, it)| *it == parent).map(|(pid, _)| pid));
        at += 1;
    }
    if found.len() > 1 {
        let pids = found[1..].iter().map(u32::to_string);
        Command::new("kill").arg("-KILL").args(pids).status().context("run kill")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Command, Stdio, kill_descendants};
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn what_a_process_started_is_killed_and_the_process_goes_on() {
        let script = "sleep 1000 & echo started; wait $!; exit 7";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        kill_descendants(shell.id()).unwrap();
        let status = shell.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(7), None));
    }
}
