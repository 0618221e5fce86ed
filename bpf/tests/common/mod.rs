//! What the tests against the running kernel share.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_rs::{Object, ObjectBuilder};
use serde_json::Value;

pub const INVENTORY: &[u8] = include_bytes!("../../../fixtures/bpf/inventory.bpf.o");

/// True when this process may load programs; otherwise says that the test is skipped.
pub fn can_load(test: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let is_root = status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    if !is_root {
        println!("SKIP {test}: needs root");
        return false;
    }
    if let Some(Err(error)) = bprec_bpf::prog_ids().next() {
        println!("SKIP {test}: {error}");
        return false;
    }
    true
}

/// True when there is a bpftool to compare with; otherwise says that the test is skipped.
pub fn has_bpftool(test: &str) -> bool {
    let found = bpftool_path().is_some();
    if !found {
        println!("SKIP {test}: no bpftool");
    }
    found
}

fn bpftool_path() -> Option<&'static str> {
    ["/usr/sbin/bpftool", "/usr/local/sbin/bpftool", "/usr/bin/bpftool"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// Runs bpftool and parses what it answers.
pub fn bpftool(args: &[&str]) -> Value {
    let output = Command::new(bpftool_path().unwrap()).arg("-j").args(args).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// The bytes that bpftool dumps into a file.
pub fn bpftool_dump(what: &str, id: u32) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump");
    let id = id.to_string();
    bpftool(&["prog", "dump", what, "id", &id, "file", file.to_str().unwrap()]);
    std::fs::read(file).unwrap_or_default()
}

/// Loads the programs of `inventory.bpf.c`, all or those named. They go when the object is dropped.
pub fn load_inventory(only: &[&str]) -> Object {
    let mut open = ObjectBuilder::default().open_memory(INVENTORY).unwrap();
    for mut program in open.progs_mut() {
        let name = program.name().to_str().unwrap().to_owned();
        program.set_autoload(only.is_empty() || only.contains(&name.as_str()));
    }
    open.load().unwrap()
}

/// Id of a loaded program.
pub fn prog_id(object: &Object, name: &str) -> u32 {
    use std::os::fd::{AsFd, AsRawFd};
    let program = object.progs().find(|program| program.name() == name).unwrap();
    fdinfo(program.as_fd().as_raw_fd(), "prog_id")
}

/// A number from the fdinfo of one of our own descriptors.
pub fn fdinfo(fd: i32, key: &str) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(":")?.trim().parse().ok()).unwrap()
}

/// A directory with a bpf file system in it, unmounted when dropped.
pub struct Bpffs(tempfile::TempDir);

impl Bpffs {
    pub fn mount() -> Option<Bpffs> {
        let dir = tempfile::tempdir().unwrap();
        let done = Command::new("mount").args(["-t", "bpf", "bpffs"]).arg(dir.path()).status().ok()?;
        done.success().then_some(Bpffs(dir))
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}
