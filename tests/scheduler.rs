//! A scheduler made of BPF programs (sched_ext): each of its operations has its runs and its time. Real kernel, root.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use crate::support::{Running, Scratch, alone, program, record, report, root, skip};
use bprec_fixtures::Fixture;
use bprec_fixtures::agent::Victim;

/// Programs of the scheduler, each with its operation.
const OPERATIONS: [(&str, &str); 2] = [("scheduler_enqueue", "enqueue"), ("scheduler_stopping", "stopping")];
/// Context switches of the load, half of those that it causes.
const SWITCHES: u64 = 5_000;

#[test]
fn each_operation_of_a_scheduler_has_its_runs_and_its_time() {
    const TEST: &str = "each_operation_of_a_scheduler_has_its_runs_and_its_time";
    if !root(TEST) {
        return;
    }
    if !Path::new("/sys/kernel/sched_ext").exists() {
        skip(TEST, "the kernel has no sched_ext");
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut loaded = Fixture::SCHEDULER.open().unwrap().load().unwrap();
    // The scheduler runs only during the recording, so that all its runs are counted.
    let recording = Running::record(&path, &["-q", "--budget", "100"]);
    loaded.attach_operations("scheduler").unwrap();
    Victim::Switches.run(SWITCHES).unwrap();
    loaded.detach();
    recording.end();
    let counted = report(&path, &[]);
    let times = OPERATIONS.map(|(name, _)| {
        let runs = &program(&counted, loaded.id_of(name).unwrap())["runs"];
        let kernel = loaded.run_stats(name).unwrap();
        assert_eq!(runs["count"].as_u64(), Some(kernel.run_cnt), "{name}");
        assert_eq!(runs["count"].as_u64(), Some(loaded.entered(name).unwrap()), "{name}");
        assert_eq!(runs["time_ns"].as_u64(), Some(kernel.run_time_ns), "{name}");
        assert!(kernel.run_cnt >= SWITCHES, "{name}: {kernel:?}");
        runs["ns_per_run"].as_f64().unwrap()
    });
    // The second does forty times the work of the first, which also calls a kernel function.
    assert!(times[1] > 1.5 * times[0], "{times:?}");

    loaded.attach_operations("scheduler").unwrap();
    record(&path, &["-q", "-a", "--", "true"]);
    loaded.detach();
    let attached = report(&path, &["--all"]);
    for (name, operation) in OPERATIONS {
        let attachments = program(&attached, loaded.id_of(name).unwrap())["attached"].clone();
        let expected = format!("scheduler.{operation}");
        let is_there = attachments.as_array().unwrap().iter().any(|it| it.as_str().unwrap().ends_with(&expected));
        assert!(is_there, "{name}: {attachments}");
        // The kernel calls these operations under the lock of a run queue, where the timer of the guest cannot sample.
        let rows = attached["events"][0]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["id"].as_u64() == Some(loaded.id_of(name).unwrap().into())).unwrap();
        assert_eq!(row["blind"]["code"], "interrupts_off", "{name}: {row}");
        assert_eq!(row["blind"]["hook"], operation, "{name}");
    }
}
