//! Data from a pipe is in a temporary file while bprec reads it: another user can neither read the file nor find a name to replace it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Scratch, root, wait_for};

/// Id of a user who is neither the owner of the file nor in its group.
const STRANGER: &str = "65534";

/// True if a stranger can read a file.
fn stranger_reads(path: &Path) -> bool {
    let ids = ["--reuid", STRANGER, "--regid", STRANGER, "--clear-groups", "cat"];
    let output = Command::new("setpriv").args(ids).arg(path).stdout(Stdio::null()).stderr(Stdio::null()).status();
    output.expect("setpriv is of util-linux").success()
}

#[test]
fn nobody_else_can_read_or_replace_what_came_through_a_pipe() {
    if !root("nobody_else_can_read_or_replace_what_came_through_a_pipe") {
        return;
    }
    let scratch = Scratch::new();
    let temporary = scratch.path("tmp");
    fs::create_dir(&temporary).unwrap();
    // The directory is like /tmp: everyone may create files in it.
    fs::set_permissions(scratch.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(&temporary, PermissionsExt::from_mode(0o1777)).unwrap();
    let readable = temporary.join("readable");
    fs::write(&readable, "by all").unwrap();
    fs::set_permissions(&readable, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(stranger_reads(&readable), "the other user can read a file with permission for all");
    fs::remove_file(&readable).unwrap();

    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-6.1/ratio.data");
    let recording = fs::read(recording).unwrap();
    let mut reader = Command::new(env!("CARGO_BIN_EXE_bprec"))
        .args(["report", "-i", "-"])
        .env("TMPDIR", &temporary)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = reader.stdin.take().unwrap();
    pipe.write_all(&recording[..recording.len() / 2]).unwrap();
    let descriptors = PathBuf::from(format!("/proc/{}/fd", reader.id()));
    let spool = wait_for("a temporary file", || {
        let mut files = fs::read_dir(&descriptors).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        files.find(|file| fs::read_link(file).is_ok_and(|target| target.starts_with(&temporary)))
    });
    let metadata = wait_for("data in the temporary file", || fs::metadata(&spool).ok().filter(|file| file.len() > 0));
    assert_eq!((metadata.nlink(), metadata.mode() & 0o777, metadata.uid()), (0, 0o600, 0));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "the temporary file has no name");
    assert!(fs::read(&spool).unwrap().starts_with(b"PERFILE2"), "the owner can read the temporary file");
    assert!(!stranger_reads(&spool), "another user can read the temporary file");
    pipe.write_all(&recording[recording.len() / 2..]).unwrap();
    drop(pipe);
    assert!(reader.wait().unwrap().success());
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "no file is left");
}
