//! After any end of a recording, or of counting without one, `kill -9` included, the kernel is as it was. Real kernel, root; a test binary of its own, so that
//! no other test switches the kernel's statistics beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bprec_fixtures::Fixture;
use support::{Scratch, bpf_ids, bprec, record, root, stats_sysctl};

/// Kinds of objects, as bpftool calls them.
const KINDS: [&str; 3] = ["prog", "map", "link"];

/// Ids by kind.
type Ids = [BTreeSet<u64>; 3];

/// What a process has descriptors of: also what others made, as a recorder holds every program.
fn held_by(pid: u32) -> Ids {
    let mut ids = Ids::default();
    // Descriptors, and whole processes, may be gone by the time they are looked at.
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        for line in text.lines() {
            for (kind, ids) in KINDS.iter().zip(&mut ids) {
                let id = line.strip_prefix(kind).and_then(|rest| rest.strip_prefix("_id:"));
                ids.extend(id.and_then(|id| id.trim().parse::<u64>().ok()));
            }
        }
    }
    ids
}

/// Of what a recorder held, that which is still there although no process holds it. The kernel frees what a process held from
/// workers, so that it is asked again for a while.
fn left_behind(held: &Ids) -> [Vec<u64>; 3] {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let others: Vec<Ids> = pids.map(held_by).collect();
        let mut left: [Vec<u64>; 3] = Default::default();
        for (kind, left) in left.iter_mut().enumerate() {
            let is_left = |id: &u64| held[kind].contains(id) && !others.iter().any(|ids| ids[kind].contains(id));
            left.extend(bpf_ids(KINDS[kind]).into_iter().filter(is_left));
        }
        if left.iter().all(Vec::is_empty) || Instant::now() > patience {
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
    let nothing: [Vec<u64>; 3] = Default::default();
    // So that there is something to count.
    let _loaded = Fixture::COUNTED.open().unwrap().load().unwrap();

    record(&path, &["-q", "-a", "--", "sleep", "0.3"]);
    assert_eq!(stats_sysctl(), switch);

    let this_process = std::process::id().to_string();
    let object = concat!("--bpf-object=", env!("CARGO_MANIFEST_DIR"), "/fixtures/bpf/ip_histogram.bpf.o");
    // Each with the least number of links that it has while it runs: the iterator's, and one per event with a
    // program.
    let ways: [(&[&str], usize); 6] = [
        (&["record", "-a"], 1),
        (&["record", "-a", "-e", "cpu-clock", "--aggregate"], 2),
        (&["record", "-a", "-e", "cpu-clock", object], 2),
        (&["record", "-a", "-e", "cpu-clock", "--bpf-sampler"], 2),
        (&["record", "-p", &this_process, "-e", "cpu-clock", "--bpf-sampler"], 2),
        (&["stat", "-b", "all"], 1),
    ];
    for (arguments, links) in ways {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
            let mut child = bprec()
                .args(arguments)
                .args(["-q", "-o"])
                .arg(&path)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let patience = Instant::now() + Duration::from_secs(30);
            while held_by(child.id())[2].len() < links {
                assert!(Instant::now() < patience, "{arguments:?}: no {links} links after 30 s");
                std::thread::sleep(Duration::from_millis(20));
            }
            std::thread::sleep(Duration::from_millis(500));
            let held = held_by(child.id());
            assert!(held.iter().all(|ids| !ids.is_empty()) || links == 1, "{arguments:?}: {held:?}");
            // SAFETY: kill(2) takes two numbers; the process is our child and has not been waited for.
            assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
            let status = child.wait().unwrap();
            assert_eq!(status.success(), signal != libc::SIGKILL, "signal {signal}: {status}");
            assert_eq!(left_behind(&held), nothing, "programs, maps, links of {arguments:?} after signal {signal}");
            assert_eq!(stats_sysctl(), switch, "{arguments:?} after signal {signal}");
        }
    }
}
