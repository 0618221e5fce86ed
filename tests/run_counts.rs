//! Runs and time per run are the kernel's own numbers. Real kernel, root; a test binary of its own, so that no other test's recording
//! has the kernel count at the same time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use bprec_fixtures::Fixture;
use bprec_fixtures::load::Packets;
use support::{Running, Scratch, program, report, root, skip, stats_sysctl};

/// Runs, and time per run, are the kernel's own numbers: the program runs only while the recording counts.
#[test]
fn runs_are_the_kernels() {
    const PACKETS: u64 = 5_000;
    if !root("runs_are_the_kernels") {
        return;
    }
    if stats_sysctl() != "0" {
        skip("runs_are_the_kernels", "kernel.bpf_stats_enabled is on: runs are counted outside of the recording too");
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut loaded = Fixture::XDP.open().unwrap().load().unwrap();
    // Attached after it has begun: runs before that are counted, too, where others have the kernel count.
    let recording = Running::record(&path, &["-q", "--budget", "100"]);
    match loaded.attach() {
        Err(error) if format!("{error:#}").contains("busy") => {
            skip("runs_are_the_kernels", "another XDP program is on lo");
            recording.end();
            return;
        }
        attached => attached.unwrap(),
    }
    Packets::new().unwrap().send(PACKETS).unwrap();
    // Whatever else is sent on lo afterwards, or counted by others, is none of ours.
    loaded.detach();
    recording.end();

    let name = "xdp_count_packets";
    let kernel = loaded.run_stats(name).unwrap();
    assert!(kernel.run_cnt >= PACKETS, "{kernel:?}");
    let report = report(&path, &[]);
    let runs = &program(&report, loaded.id_of(name).unwrap())["runs"];
    assert_eq!(runs["count"].as_u64(), Some(kernel.run_cnt));
    assert_eq!(runs["time_ns"].as_u64(), Some(kernel.run_time_ns));
    assert_eq!(runs["ns_per_run"].as_f64(), Some(kernel.run_time_ns as f64 / kernel.run_cnt as f64));
    assert_eq!(runs["misses"].as_u64(), kernel.recursion_misses);
}
