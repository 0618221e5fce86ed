//! Ids of the machine and of its boot in a recording, compared with systemd's and the kernel's.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Scratch, bprec, record, report, root, skip, succeed};

/// Application id of bprec, with which systemd hashes the machine id.
const APPLICATION: &str = "--app-specific=8360a73d82284ed9a9238482bb49e537";
/// Machine id in the image of a container.
const OF_IMAGE: &str = "0123456789abcdef0123456789abcdef";

/// Id that systemd prints.
fn by_systemd(arguments: &[&str]) -> String {
    let output = succeed(Command::new("systemd-id128").args(arguments));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Lines of the header of a recording with ids.
fn ids(path: &Path, more: &[&str]) -> Vec<String> {
    let output = succeed(bprec().args(["report", "--header-only", "-i"]).arg(path).args(more));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.contains(" id : ")).map(str::to_owned).collect()
}

#[test]
fn a_recording_knows_its_machine_and_its_boot() {
    let test = "a_recording_knows_its_machine_and_its_boot";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    record(&path, &["-e", "cpu-clock", "--", "true"]);
    let recording = &report(&path, &[])["recording"];
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    assert_eq!(recording["boot_id"], boot.as_str());
    // If the files of the machine cannot be looked at, `/etc` may be part of an image that many machines share.
    let is_image = ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists());
    let is_hidden = fs::read_dir("/proc/1/root").is_err();
    let own = fs::read_to_string("/etc/machine-id").ok().filter(|_| !is_image || !is_hidden);
    let Some(secret) = own else {
        assert_eq!(recording.get("machine_id"), None);
        assert_eq!(ids(&path, &[]), [format!("# boot id : {boot}")]);
        return;
    };
    // The file has the hash of the machine id, but not the machine id itself, neither as text nor as bytes.
    let secret = secret.trim();
    let number = u128::from_str_radix(secret, 16).unwrap().to_be_bytes();
    let bytes = fs::read(&path).unwrap();
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(!has(secret.as_bytes()) && !has(&number));
    let machine = recording["machine_id"].as_str().unwrap();
    assert!(has(machine.as_bytes()));
    assert_eq!(ids(&path, &[]), [format!("# machine id : {machine}"), format!("# boot id : {boot}")]);
    assert_eq!(ids(&path, &["--redact"]), ["# machine id : machine-1", "# boot id : boot-1"]);

    if Command::new("systemd-id128").arg("--version").output().is_err() {
        return skip(test, "systemd is not installed");
    }
    assert_eq!(machine, by_systemd(&["machine-id", APPLICATION]));
    assert_eq!(boot, by_systemd(&["boot-id"]));
    // In its own pid namespace, the recorder cannot read the id of the machine. The boot id is the kernel's, so it is the same.
    let alone = scratch.path("alone.data");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(env!("CARGO_BIN_EXE_bprec"));
    succeed(command.args(["record", "-e", "cpu-clock", "-o"]).arg(&alone).args(["--", "true"]));
    let recording = &report(&alone, &[])["recording"];
    assert_eq!(recording.get("machine_id"), None);
    assert_eq!(recording["boot_id"], boot.as_str());
}

/// In a container that shares the host's pid namespace, `/etc` is from an image. Many machines have the same image, so the recorder must not use its
/// machine id.
#[test]
fn in_a_container_the_id_is_that_of_the_machine() {
    let test = "in_a_container_the_id_is_that_of_the_machine";
    if !root(test) {
        return;
    }
    if fs::metadata(Path::new("/proc/1/root").join("etc")).is_err() {
        return skip(test, "the files of the first process cannot be looked at");
    }
    let scratch = Scratch::new();
    let (image, outside, inside) = (scratch.path("etc"), scratch.path("outside.data"), scratch.path("inside.data"));
    fs::create_dir(&image).unwrap();
    fs::write(image.join("machine-id"), OF_IMAGE).unwrap();
    record(&outside, &["-e", "cpu-clock", "--", "true"]);
    let script = "mount --bind \"$1\" /etc && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&image).arg(env!("CARGO_BIN_EXE_bprec"));
    succeed(command.args(["record", "-e", "cpu-clock", "-o"]).arg(&inside).args(["--", "true"]));
    let machine = |path| report(path, &[])["recording"].get("machine_id").cloned();
    assert_eq!(machine(&inside), machine(&outside));
}
