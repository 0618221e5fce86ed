//! Commands that read confine themselves before they read a recording. The tests check this in the files of the process in /proc.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Scratch, skip, wait_for};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-6.1/ratio.data")
}

fn bprec(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bprec"));
    command.args(arguments);
    command
}

/// Value of a field of `/proc/PID/status`.
fn status(process: &Child, member: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(member)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

/// True if this kernel filters system calls; prints a skip message if not.
fn has_seccomp(test: &str) -> bool {
    let has = Path::new("/proc/sys/kernel/seccomp/actions_avail").exists();
    if !has {
        skip(test, "the kernel has no filters of system calls");
    }
    has
}

/// While a reader waits for its first byte of input, it has dropped all unneeded privileges; with `--no-sandbox` it keeps them.
#[test]
fn a_reader_is_confined_before_it_reads() {
    if !has_seccomp("a_reader_is_confined_before_it_reads") {
        return;
    }
    let scratch = Scratch::new();
    let output = scratch.path("out.data");
    let output = output.to_str().unwrap();
    let recovered = ["recover", "-", "-o", output];
    let base = recording();
    let compared = ["diff", base.to_str().unwrap(), "-"];
    for arguments in [
        &["report", "-i", "-"][..],
        &["annotate", "-i", "-", "*"],
        &["script", "-i", "-"],
        &recovered,
        &compared,
        &["rewrite", "-i", "-", "-o", output],
    ] {
        let mut reader = bprec(arguments);
        let mut reader = reader.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("mode 2: a filter", || (status(&reader, "Seccomp") == "2").then_some(()));
        assert_eq!(status(&reader, "NoNewPrivs"), "1", "{arguments:?}");
        reader.stdin.take().unwrap().write_all(&fs::read(recording()).unwrap()).unwrap();
        assert!(reader.wait().unwrap().success(), "{arguments:?}");
    }
    assert!(bprec(&["report", "-i", output]).output().unwrap().status.success());

    let mut reader = bprec(&["report", "--no-sandbox", "-i", "-"]);
    let mut reader = reader.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut pipe = reader.stdin.take().unwrap();
    // The reader has begun to copy, so it is past the point where it would confine itself.
    pipe.write_all(&fs::read(recording()).unwrap()[..4096]).unwrap();
    let descriptors = PathBuf::from(format!("/proc/{}/fd", reader.id()));
    let is_copy = |target: PathBuf| target.to_string_lossy().ends_with(" (deleted)");
    wait_for("a temporary file", || {
        let mut files = fs::read_dir(&descriptors).ok()?.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files.find(|target| is_copy(target.clone()))
    });
    assert_eq!((status(&reader, "Seccomp").as_str(), status(&reader, "NoNewPrivs").as_str()), ("0", "0"));
    drop(pipe);
    reader.wait().unwrap();
}

/// While a reader of a file prints, it has no capability, and cannot open files.
#[test]
fn a_reader_of_a_file_can_open_nothing_while_it_prints() {
    if !has_seccomp("a_reader_of_a_file_can_open_nothing_while_it_prints") {
        return;
    }
    let mut reader = bprec(&["script", "-i"]);
    // No process reads the output, which is larger than the buffer of a pipe.
    let mut reader = reader.arg(recording()).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("no capabilities", || (status(&reader, "CapEff") == "0000000000000000").then_some(()));
    wait_for("all filters", || matches!(status(&reader, "Seccomp_filters").as_str(), "3" | "").then_some(()));
    assert_eq!(status(&reader, "CapPrm"), "0000000000000000");
    drop(reader.stdout.take());
    assert!(reader.wait().unwrap().success(), "the end of the reading process is not an error");
}

#[test]
fn what_confines_a_command_is_said_when_asked_for() {
    let said = |arguments: &[&str]| {
        let Output { status, stderr, .. } = bprec(arguments).arg("-i").arg(recording()).output().unwrap();
        assert!(status.success());
        String::from_utf8(stderr).unwrap()
    };
    let scratch = Scratch::new();
    let copy = scratch.path("copy.data");
    fs::copy(recording(), &copy).unwrap();
    let recovered = bprec(&["recover", "--in-place", "-v"]).arg(&copy).output().unwrap();
    let text = String::from_utf8(recovered.stderr).unwrap();
    assert!(
        text.starts_with("bprec: sandbox: ") && text.lines().nth(1).is_some_and(|line| line.ends_with("nothing to do")),
        "{text}"
    );
    assert_eq!(said(&["report"]), "");
    assert_eq!(said(&["report", "--no-sandbox", "--verbose"]), "bprec: sandbox: none (--no-sandbox)\n");
    let confined = said(&["report", "--verbose"]);
    assert!(confined.starts_with("bprec: sandbox: ") && confined.ends_with("no capabilities\n"), "{confined}");
}
