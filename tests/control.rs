//! `bprec record --control`: commands of another process, through real FIFOs. Real kernel, root; perf is the judge.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::{Scratch, bprec, perf, perf_installed, root, succeed};

/// The two FIFOs, with both ends open: nobody waits for another to open one.
struct Control {
    commands: File,
    answers: File,
    paths: [PathBuf; 2],
}

impl Control {
    fn new(scratch: &Scratch, name: &str) -> Control {
        let paths = ["ctl", "ack"].map(|end| scratch.path(&format!("{name}.{end}")));
        succeed(Command::new("mkfifo").args(&paths));
        let open = |path: &PathBuf| File::options().read(true).write(true).open(path).unwrap();
        Control { commands: open(&paths[0]), answers: open(&paths[1]), paths }
    }

    /// As an option.
    fn option(&self) -> String {
        format!("--control=fifo:{},{}", self.paths[0].display(), self.paths[1].display())
    }

    fn send(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    /// Sends a command and waits until it was carried out.
    fn done(&mut self, command: &str) -> [u8; 5] {
        self.send(command);
        let mut answer = [0; 5];
        self.answers.read_exact(&mut answer).unwrap();
        answer
    }
}

/// Touches so many pages for the first time, one fault each.
fn touch_pages(pages: usize) {
    // SAFETY: memory of its own, which nobody knows of before or after; each write is inside of it.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(std::ptr::null_mut(), pages * 4096, access, kind, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        (0..pages).for_each(|page| memory.cast::<u8>().add(page * 4096).write_volatile(1));
        libc::munmap(memory, pages * 4096);
    }
}

/// Samples in a file, as perf counts them.
fn samples(path: &Path) -> usize {
    let out = perf(&["script", "-F", "event", "-i", path.to_str().unwrap()]);
    out.lines().filter(|line| line.trim().trim_end_matches(':') == "page-faults").count()
}

/// `bprec record` of this thread's page faults.
fn recorder(path: &Path, more: &[&str]) -> Child {
    // SAFETY: plain system calls: no huge pages, of which one fault would be for many; and the number of this thread.
    let thread = unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        libc::gettid()
    };
    bprec()
        .args([
            "record",
            "-m",
            "16M",
            "-e",
            "page-faults",
            "-c",
            "1",
            "--counters",
            "off",
            "-t",
            &thread.to_string(),
            "-o",
        ])
        .arg(path)
        .args(more)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end; what was said.
fn end(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    said
}

/// Page faults are samples between `enable` and `disable`, and at no other time.
#[test]
fn sampling_is_on_between_enable_and_disable() {
    let test = "sampling_is_on_between_enable_and_disable";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let mut control = Control::new(&scratch, "record");
    let path = scratch.path("perf.data");
    let recorder = recorder(&path, &["-D", "-1", &control.option()]);
    control.done("ping");
    touch_pages(50_000);
    control.done("enable");
    touch_pages(7_000);
    control.done("disable");
    touch_pages(50_000);
    control.done("enable");
    touch_pages(4_000);
    control.done("stop");
    touch_pages(50_000);
    let said = end(recorder);
    let sampled = samples(&path);
    // What this thread needs besides, for the FIFOs and its own memory, is a few pages, some hundred where the kernel had taken them back.
    assert!((11_000..15_000).contains(&sampled), "{sampled}: {said}");
}

/// `snapshot` has ended a file when it is answered. What is no command is said, and not answered.
#[test]
fn a_snapshot_ends_a_file() {
    let test = "a_snapshot_ends_a_file";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let mut control = Control::new(&scratch, "record");
    let path = scratch.path("perf.data");
    let recorder = recorder(&path, &["--switch-output", &control.option()]);
    control.done("ping");
    let closed = || {
        let entries = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let mut closed: Vec<PathBuf> = entries.filter(|path| path.to_str().unwrap().contains("perf.data.2")).collect();
        closed.sort();
        closed
    };
    assert!(closed().is_empty());
    touch_pages(3_000);
    control.done("snapshot");
    let first = closed();
    assert_eq!(first.len(), 1, "{first:?}");
    let sampled = samples(&first[0]);
    assert!((3_000..3_100).contains(&sampled), "{sampled}");
    control.send("faster");
    control.send("enable page-faults");
    control.send("evlist -v");
    control.done("evlist");
    control.done("stop");
    let said = end(recorder);
    assert!(said.contains("'faster' is unknown"), "{said}");
    assert!(said.contains("'enable page-faults' is not supported: all events are switched together"), "{said}");
    assert!(said.contains("'evlist -v' is not supported: evlist without options"), "{said}");
    assert!(said.contains("page-faults"), "{said}");
    assert_eq!(closed().len(), 2, "{said}");
}

/// The answer is perf's, to the byte.
#[test]
fn answers_are_those_of_perf() {
    let test = "answers_are_those_of_perf";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let mut control = Control::new(&scratch, "perf");
    let perf = Command::new("perf")
        .args(["record", "-q", "-e", "dummy", "-o", "/dev/null", &control.option(), "--", "sleep", "600"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let theirs = control.done("ping");
    control.done("stop");
    perf.wait_with_output().unwrap();

    let mut control = Control::new(&scratch, "record");
    let path = scratch.path("perf.data");
    let script = "exec 3<>\"$1\" 4<>\"$2\"; exec \"$0\" record -q -e dummy -o \"$3\" --control fd:3,4 -- sleep 600";
    let recorder = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_bprec")])
        .args(&control.paths)
        .arg(&path)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(control.done("ping"), theirs);
    control.done("stop");
    // The command was asked to end, and did.
    recorder.wait_with_output().unwrap();
    assert!(path.exists());
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let fails = |arguments: &[&str]| {
        let output = bprec().arg("record").args(arguments).args(["--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(fails(&["-D", "-1"]).contains("--control"));
    assert!(fails(&["-D", "-2", "--control", "fd:1"]).contains("-D -2"));
    assert!(fails(&["--control", "fifo:"]).contains("fifo:CTL"));
    assert!(fails(&["--control", "socket:/a"]).contains("fifo:CTL"));
    assert!(fails(&["--control", "fifo:/nowhere/at/all"]).contains("/nowhere/at/all"));
    assert!(fails(&["--control", "fd:977"]).contains("fd:977"));
}
