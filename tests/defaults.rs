//! By default, bprec attaches nothing to programs or functions of other tools. Real kernel, root; on a kernel without trampolines, the test proves
//! nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Scratch, bprec, root, skip, wait_for};
use bprec_fixtures::Fixture;
use serde_json::Value;

/// Symbols of the kernel's trampolines: one for each function that has a program attached.
fn trampolines() -> BTreeSet<String> {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let names = symbols.lines().filter_map(|line| line.split_whitespace().nth(2));
    names.filter(|name| name.starts_with("bpf_trampoline_")).map(str::to_owned).collect()
}

/// Links and programs that use trampolines, from bpftool's lists: kind, id, type and name of each.
fn tracing() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for kind in ["link", "prog"] {
        // bpftool fails if an object of another test disappears while it lists.
        let list = wait_for("a list of bpftool's", || {
            let output = Command::new("bpftool").args(["-j", kind, "list"]).output().unwrap();
            serde_json::from_slice::<Vec<Value>>(&output.stdout).ok()
        });
        // Leaves out bprec's iterator `bprec_refs`: iterators are also of type tracing, but are attached only to their own link.
        let is_tracing = |it: &&Value| {
            ["tracing", "ext", "lsm"].iter().any(|name| it["type"] == *name) && it["name"] != "bprec_refs"
        };
        found.extend(
            list.iter().filter(is_tracing).map(|it| format!("{kind} {} {} {}", it["id"], it["type"], it["name"])),
        );
    }
    found
}

/// Objects that appeared while a bprec command ran to its end: trampolines; links and programs that use trampolines.
fn attached_while(arguments: &[&str]) -> (BTreeSet<String>, BTreeSet<String>) {
    let before = (trampolines(), tracing());
    let mut child = bprec().args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut seen = (BTreeSet::new(), BTreeSet::new());
    let status = loop {
        let ended = child.try_wait().unwrap();
        seen.0.extend(trampolines().difference(&before.0).cloned());
        seen.1.extend(tracing().difference(&before.1).cloned());
        match ended {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(status.success(), "{arguments:?}: {status}");
    seen
}

#[test]
fn by_default_nothing_is_attached_to_others() {
    let test = "by_default_nothing_is_attached_to_others";
    if !root(test) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let path = path.to_str().unwrap();
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    for arguments in [&["record", "-q", "-a", "-o", path, "--", "sleep", "2"] as &[_], &["stat", "--", "sleep", "2"]] {
        let (trampolines, tracing) = attached_while(arguments);
        assert!(trampolines.is_empty() && tracing.is_empty(), "{arguments:?}: {trampolines:?}, {tracing:?}");
    }
    // The same check detects requested attachments.
    let asked = ["record", "-q", "-a", "-o", path, "--counters", "exact=loop_of_100", "--", "sleep", "2"];
    let (trampolines, tracing) = attached_while(&asked);
    drop(loaded);
    if tracing.is_empty() {
        skip(test, "this kernel allows no trampolines, so the test would see none");
    } else {
        assert!(!trampolines.is_empty(), "{tracing:?}");
    }
}
