//! What the end-to-end tests share: the program under test, the judges, and a place for files.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A directory of the test's own, removed at its end.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Says that a test cannot run here, in the form that is counted.
pub(crate) fn skip(test: &str, reason: &str) {
    println!("SKIP {test}: {reason}");
}

/// Whether this is root; says so when not.
pub(crate) fn root(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        skip(test, "needs root");
    }
    root
}

/// Whether perf is installed; says so when not.
pub(crate) fn perf_installed(test: &str) -> bool {
    let found = Command::new("perf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        skip(test, "perf is not installed");
    }
    found
}

/// Makes a measurement that obeys chance until it agrees, at most four times: a busy moment of the machine spoils one, what is wrong
/// spoils all.
pub(crate) fn measured(measurement: impl Fn() -> Result<(), String>) {
    let mut misses = Vec::new();
    for _ in 0..4 {
        match measurement() {
            Ok(()) => return,
            Err(miss) => misses.push(miss),
        }
    }
    panic!("no measurement agrees: {misses:#?}");
}

/// The program under test.
pub(crate) fn bprec() -> Command {
    Command::new(env!("CARGO_BIN_EXE_bprec"))
}

/// Runs a command to its end; it must succeed.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Records with these arguments into `path`.
pub(crate) fn record(path: &Path, arguments: &[&str]) -> Output {
    succeed(bprec().arg("record").arg("-o").arg(path).args(arguments))
}

/// Runs perf on a recording; it must succeed without a word on standard error.
pub(crate) fn perf<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    let mut command = Command::new("perf");
    command.args(arguments).env("PAGER", "cat").env("LC_ALL", "C");
    let output = succeed(&mut command);
    let complaints: Vec<_> = String::from_utf8_lossy(&output.stderr)
        .lines()
        // What it says on the way, not about the file.
        .filter(|line| !line.trim().is_empty() && !line.starts_with("[ perf "))
        .map(str::to_owned)
        .collect();
    assert!(complaints.is_empty(), "{command:?} says: {complaints:#?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The report of a recording as JSON.
pub(crate) fn report(path: &Path, arguments: &[&str]) -> Value {
    let output = succeed(bprec().arg("report").arg("--json").arg("-i").arg(path).args(arguments));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Ids of what BPF objects there are, as bpftool lists them: `prog`, `map` or `link`.
pub(crate) fn bpf_ids(what: &str) -> Vec<u64> {
    let output = succeed(Command::new("bpftool").args(["-j", what, "list"]));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Array(Vec::new()));
    let mut ids: Vec<u64> = list.as_array().unwrap().iter().map(|item| item["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// Whether the kernel counts runs of BPF programs for everyone.
pub(crate) fn stats_sysctl() -> String {
    std::fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").unwrap().trim().to_owned()
}

/// Starts recording the machine for so many seconds, and waits until it samples: the command is not let go before.
pub(crate) fn recording(path: &Path, seconds: &str, more: &[&str]) -> Child {
    let started = path.with_extension("started");
    // Of another recording under this name.
    drop(std::fs::remove_file(&started));
    let child = bprec()
        .args(["record", "-q", "-a", "-o"])
        .arg(path)
        .args(more)
        .args(["--", "sh", "-c", "touch \"$0\"; exec sleep \"$1\""])
        .arg(&started)
        .arg(seconds)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while !started.exists() {
        assert!(Instant::now() < patience, "no recording after 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Waits for the end of a recording.
pub(crate) fn end(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

/// The program of the report with this id.
pub(crate) fn program(report: &Value, id: u32) -> &Value {
    report["programs"].as_array().unwrap().iter().find(|p| p["id"] == id).unwrap_or_else(|| panic!("no program {id}"))
}
