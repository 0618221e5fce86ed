//! The kernel is unchanged after a recording or a count, however it ended, also by `kill -9`. Real kernel, root; tests of other files wait, so that
//! no other test switches the kernel's statistics at the same time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::held::{Ids, KINDS, held_by, held_by_any};
use crate::support::{Scratch, bpf_ids, bprec, kernel_is, record, root, stats_sysctl, wait_for};
use bprec_fixtures::Fixture;

fn shown(kind: &str, id: u64) -> String {
    let shown = Command::new("bpftool").args([kind, "show", "id", &id.to_string()]).output().unwrap();
    format!("{kind} {}", String::from_utf8_lossy(&shown.stdout))
}

/// Objects of a recorder that still exist although no process holds them. The kernel frees the objects of a process later, in workers, so the check
/// is repeated for a while.
fn left_behind(held: &Ids) -> Vec<String> {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let others = held_by_any();
        let mut left = Vec::new();
        for (number, kind) in KINDS.iter().enumerate() {
            let is_left = |id: &u64| held[number].contains(id) && !others[number].contains(id);
            left.extend(bpf_ids(kind).into_iter().filter(is_left).map(|id| shown(kind, id)));
        }
        if left.is_empty() || Instant::now() > patience {
            return left;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn nothing_stays_in_the_kernel() {
    if !root("nothing_stays_in_the_kernel") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let switch = stats_sysctl();
    // Loads programs, so that there is something to count.
    let _loaded = Fixture::COUNTED.open().unwrap().load().unwrap();

    record(&path, &["-q", "-a", "--", "sleep", "0.3"]);
    assert_eq!(stats_sysctl(), switch);

    let this_process = std::process::id().to_string();
    let object = concat!("--bpf-object=", env!("CARGO_MANIFEST_DIR"), "/fixtures/bpf/ip_histogram.bpf.o");
    // Commands, each with the minimum number of links that it has while it runs: one for bprec's BPF iterator, and one per event with a program.
    let ways: [(&[&str], usize); 6] = [
        (&["record", "-a"], 1),
        (&["record", "-a", "-e", "cpu-clock", "--aggregate"], 2),
        (&["record", "-a", "-e", "cpu-clock", object], 2),
        (&["record", "-a", "-e", "cpu-clock", "--bpf-sampler"], 2),
        (&["record", "-p", &this_process, "-e", "cpu-clock", "--bpf-sampler"], 2),
        (&["stat", "-b", "all"], 1),
    ];
    for (arguments, links) in ways {
        // Before 5.15, programs were attached to events without a link.
        let links = if kernel_is(5, 15) { links } else { 1 };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
            let before = KINDS.map(|kind| BTreeSet::from_iter(bpf_ids(kind)));
            let mut child = bprec()
                .args(arguments)
                .args(["-q", "-o"])
                .arg(&path)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut held = wait_for(&format!("{links} links of {arguments:?}"), || {
                let held = held_by(child.id());
                (held[2].difference(&before[2]).count() >= links).then_some(held)
            });
            std::thread::sleep(Duration::from_millis(500));
            for (held, more) in held.iter_mut().zip(held_by(child.id())) {
                held.extend(more);
            }
            // Objects that existed before belong to other tools, which may have pinned them.
            for (held, others) in held.iter_mut().zip(&before) {
                held.retain(|id| !others.contains(id));
            }
            assert!(held.iter().all(|ids| !ids.is_empty()) || links == 1, "{arguments:?}: {held:?}");
            // SAFETY: kill(2) takes two numbers; the process is our child and has not been waited for.
            assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
            let status = child.wait().unwrap();
            assert_eq!(status.success(), signal != libc::SIGKILL, "signal {signal}: {status}");
            assert_eq!(left_behind(&held), [""; 0], "{arguments:?} after signal {signal}");
            assert_eq!(stats_sysctl(), switch, "{arguments:?} after signal {signal}");
        }
    }
}
