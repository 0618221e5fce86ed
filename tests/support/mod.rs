//! Common code of the end-to-end tests: the program under test, other tools to compare with, and a directory for files.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

pub(crate) mod held;
pub(crate) mod turns;

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bprec_format::Endian;
use serde_json::Value;

pub(crate) use turns::alone;

/// A directory that only this test uses, removed when the test ends.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Prints that a test cannot run here, in the form that `cargo xtask test` counts.
pub(crate) fn skip(test: &str, reason: &str) {
    println!("SKIP {test}: {reason}");
}

/// Returns true for root; otherwise prints a skip message. Tests that need root take turns on the machine.
#[track_caller]
pub(crate) fn root(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    match root {
        true => turns::beside(Location::caller().file()),
        false => skip(test, "needs root"),
    }
    root
}

/// True if perf is installed; prints a skip message if not.
pub(crate) fn perf_installed(test: &str) -> bool {
    let found = Command::new("perf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        skip(test, "perf is not installed");
    }
    found
}

/// Repeats a measurement that depends on chance until it succeeds, at most four times, while no other test runs. A busy moment of the machine makes
/// one attempt fail; a bug makes all fail. `cargo xtask test` counts the printed lines of repetitions and fails if there are too many.
pub(crate) fn measured(measurement: impl Fn() -> Result<(), String>) {
    alone();
    for attempt in 1..=4 {
        match measurement() {
            Ok(()) => return,
            Err(miss) => println!("AGAIN: measurement {attempt} does not agree: {}", miss.replace('\n', " ")),
        }
    }
    panic!("no measurement agrees");
}

/// Waits at most a minute for something that must happen: a busy or emulated machine can be slow.
pub(crate) fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "after a minute, still waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the first checkpoint of a recording.
pub(crate) fn wait_for_checkpoint(path: &Path) {
    wait_for(&format!("a checkpoint in {}", path.display()), || has_checkpoint(path).then_some(()));
}

/// Returns true once the header counts more bytes of records than those of the first record.
pub(crate) fn has_checkpoint(path: &Path) -> bool {
    let data_bytes = || {
        let bytes = std::fs::read(path).ok()?;
        let first = usize::try_from(Endian::NATIVE.u64_at(&bytes, 40)?).ok()?;
        Some((Endian::NATIVE.u64_at(&bytes, 48)?, Endian::NATIVE.u16_at(&bytes, first + 6)?))
    };
    data_bytes().is_some_and(|(all, first)| all > u64::from(first))
}

/// Sends a signal, written as an option of `kill` (`-INT`), to a child that has not been waited for.
pub(crate) fn signal(child: &Child, number: &str) {
    assert!(Command::new("kill").args([number, &child.id().to_string()]).status().unwrap().success());
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

/// Runs perf on a recording; perf must succeed without output on standard error.
pub(crate) fn perf<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    let mut command = Command::new("perf");
    command.args(arguments).env("PAGER", "cat").env("LC_ALL", "C");
    let output = succeed(&mut command);
    let complaints: Vec<_> = String::from_utf8_lossy(&output.stderr)
        .lines()
        // perf's progress lines are not about the file.
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

/// The report of a recording as JSON, only for this thread, because other tasks may run the same programs.
pub(crate) fn report_of_this_thread(path: &Path, arguments: &[&str]) -> Value {
    let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
    report(path, &[arguments, &["--comms", comm.trim_end()]].concat())
}

/// Ids of all BPF objects of a kind that bpftool lists: `prog`, `map` or `link`.
pub(crate) fn bpf_ids(what: &str) -> Vec<u64> {
    let output = succeed(Command::new("bpftool").args(["-j", what, "list"]));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Array(Vec::new()));
    let mut ids: Vec<u64> = list.as_array().unwrap().iter().map(|item| item["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// Returns true if the running kernel has this version or a newer one.
pub(crate) fn kernel_is(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (major, minor)
}

/// Value of the sysctl that switches the kernel's counting of BPF program runs.
pub(crate) fn stats_sysctl() -> String {
    std::fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").unwrap().trim().to_owned()
}

/// `bprec record` or `bprec stat` with a command that runs until the test ends it.
pub(crate) struct Running {
    child: Child,
    /// FIFO from which the command reads; a line ends the command.
    told: std::fs::File,
}

impl Running {
    /// Starts bprec, and waits until its command runs, because bprec measures from then on. The files of the command are beside `path`.
    pub(crate) fn start(path: &Path, arguments: &[&OsStr]) -> Self {
        let (begun, fifo) = (path.with_extension("begun"), path.with_extension("fifo"));
        for file in [&begun, &fifo] {
            // Another test may have left a file with this name.
            drop(std::fs::remove_file(file));
        }
        succeed(Command::new("mkfifo").arg(&fifo));
        // The FIFO is opened for reading and writing, so that the open does not wait for another process.
        let told = std::fs::File::options().read(true).write(true).open(&fifo).unwrap();
        let child = bprec()
            .args(arguments)
            .args(["--", "sh", "-c", "touch \"$0\"; read -r _ <\"$1\""])
            .args([&begun, &fifo])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for("the start of the command", || begun.exists().then_some(()));
        Self { child, told }
    }

    /// Starts to record the machine into `path`.
    pub(crate) fn record(path: &Path, more: &[&str]) -> Self {
        let mut arguments = ["record", "-a", "-o"].map(OsStr::new).to_vec();
        arguments.push(path.as_os_str());
        arguments.extend(more.iter().map(OsStr::new));
        Self::start(path, &arguments)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the command and waits for bprec; returns its messages.
    pub(crate) fn end(mut self) -> String {
        std::io::Write::write_all(&mut self.told, b"\n").unwrap();
        let output = self.child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {said}", output.status);
        said
    }
}

/// Starts to record the machine for this number of seconds, and waits until sampling begins, which is when the command starts.
pub(crate) fn recording(path: &Path, seconds: &str, more: &[&str]) -> Child {
    let started = path.with_extension("started");
    // Another recording may have left a file with this name.
    drop(std::fs::remove_file(&started));
    let child = bprec()
        .args(["record", "-q", "-a", "-o"])
        .arg(path)
        .args(more)
        .args(["--", "sh", "-c", "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep \"$1\""])
        .arg(&started)
        .arg(seconds)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("a recording that has begun", || started.exists().then_some(()));
    child
}

/// Kills the recorder of a recording at `path`, then its command, which would outlive it.
pub(crate) fn kill(path: &Path, mut recorder: Child) {
    let command = std::fs::read_to_string(path.with_extension("started")).unwrap();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    succeed(Command::new("kill").arg(command.trim()));
}

/// Sets the flag on drop, also after a panic, because a scope waits for threads that run until the flag is set.
pub(crate) struct SetAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for the end of a recording.
pub(crate) fn end(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

/// Finds the program with this id in the report.
pub(crate) fn program(report: &Value, id: u32) -> &Value {
    report["programs"].as_array().unwrap().iter().find(|p| p["id"] == id).unwrap_or_else(|| panic!("no program {id}"))
}
