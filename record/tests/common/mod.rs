//! Helpers of the tests of shared counters.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bprec_fixtures::Counter;
use bprec_format::bprec::state::SharedCounters;
use bprec_record::{CounterTarget, Level, SharedOptions};

pub fn allowed(test: &str) -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        println!("SKIP {test}: needs root");
    }
    root
}

/// A bpf file system that only this test uses.
pub struct PrivateBpf(tempfile::TempDir);

impl PrivateBpf {
    pub fn mount() -> PrivateBpf {
        let directory = tempfile::tempdir().unwrap();
        let status = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(directory.path()).status().unwrap();
        assert!(status.success());
        PrivateBpf(directory)
    }

    pub fn map(&self) -> PathBuf {
        self.0.path().join("perf_attr_map")
    }
}

impl Drop for PrivateBpf {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0.path()).status());
    }
}

/// Messages to the user from all tests.
pub static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub fn say(level: Level, text: &str) {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{level:?}: {text}"));
}

pub fn options(bpf: &PrivateBpf, events: &str, targets: &[CounterTarget]) -> SharedOptions {
    SharedOptions { events: vec![events.to_owned()], targets: targets.to_vec(), attr_map: Some(bpf.map()) }
}

/// Value of each event of the target with index `target`.
pub fn values(counters: &SharedCounters, target: usize) -> Vec<u64> {
    let target = &counters.targets[target];
    assert_eq!(target.reason, "");
    assert!(target.readings.iter().all(|reading| reading.enabled_ns == reading.running_ns));
    target.readings.iter().map(|reading| reading.value).collect()
}

/// Checks a value against readings of a plain counter: before and after the start, and before and after the end of the shared count.
#[track_caller]
pub fn check_within(what: &str, value: u64, plain: [u64; 4]) {
    let (inner, outer) = (plain[2] - plain[1], plain[3] - plain[0]);
    assert!((inner..=outer).contains(&value), "{what}: {value} is not within {inner} to {outer}");
}

/// Checks that two counts of page faults differ by at most one percent plus five faults: a shared counter also counts faults during the switch to the
/// task.
#[track_caller]
pub fn check_share(what: &str, value: u64, plain: u64) {
    assert!(value.abs_diff(plain) <= plain / 100 + 5, "{what}: {value} against {plain}");
}

/// Checks the time of tasks, in nanoseconds, against plain counters of the tasks. A slice of a shared counter begins
/// slightly before and ends slightly after the slice of a plain counter. The shared slice therefore includes the task
/// switch, which takes long on an emulated machine.
#[track_caller]
pub fn check_near(what: &str, value_ns: u64, plain_ns: u64, switches: u64) {
    let allowed_ns = plain_ns / 100 + switches * 200_000;
    assert!(value_ns.abs_diff(plain_ns) <= allowed_ns, "{what}: {value_ns} against {plain_ns}, {switches} switches");
}

/// A shell for a test. Dropping it kills the shell.
pub struct Shell {
    child: Child,
    stdin: ChildStdin,
}

impl Shell {
    /// Starts a shell that waits for [`Shell::go`] before it runs the script. Returns after a short time, when the
    /// shell waits.
    pub fn held(script: &str) -> Shell {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("read go; {script}")]);
        Shell::of(&mut command)
    }

    /// Starts another program that waits for a line.
    pub fn of(command: &mut Command) -> Shell {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        thread::sleep(Duration::from_millis(200));
        Shell { child, stdin }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn go(&mut self) {
        self.stdin.write_all(b"go\n").unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Script that keeps a shell busy for a while.
pub const SPIN: &str = "n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done";

/// Waits until the counter no longer changes.
pub fn settled(counter: &Counter) {
    let mut last = u64::MAX;
    for _ in 0..600 {
        thread::sleep(Duration::from_millis(300));
        let now = counter.value().unwrap();
        if now == last {
            return;
        }
        last = now;
    }
    panic!("the counter still changes");
}
