//! Run statistics that would take more than their budget are on in windows, and runs are estimates. Real kernel, root; a test binary
//! of its own, so that no other test has the kernel count meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::time::{Duration, Instant};

use bprec_fixtures::{Fixture, load};
use support::{Running, Scratch, bprec, measured, report, root, skip, succeed};

/// A program that runs as often as system calls are made, with statistics that may take next to nothing.
#[test]
fn runs_are_estimated_where_statistics_would_take_too_much() {
    let test = "runs_are_estimated_where_statistics_would_take_too_much";
    if !root(test) {
        return;
    }
    // What the windows catch obeys chance: a busy moment of the machine that falls between them is in none.
    measured(|| estimate(test));
}

fn estimate(test: &str) -> Result<(), String> {
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let loaded = Fixture::TP.open().unwrap().for_this_thread().unwrap().start().unwrap();
    let program = loaded.programs().unwrap().into_iter().find(|it| it.name == "account_syscall_enter").unwrap();
    let counted = || loaded.run_stats(&program.name).unwrap().run_cnt;
    let before = counted();
    load::system_calls(1_000);
    let others_count = counted() > before;
    let recording = Running::record(&path, &["-q", "-F", "99", "--budget", "0.02"]);
    let before = counted();
    let mut made = 0;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        load::system_calls(10_000);
        made += 10_000;
    }
    recording.end();
    let counted = counted() - before;
    // What others have the kernel count is none of our windows', and not scaled with it.
    assert!(
        others_count || counted < made / 2,
        "the kernel counted {counted} of {made} runs: that is not a part of them"
    );
    let report = report(&path, &[]);
    let runs = &support::program(&report, program.id)["runs"];
    let estimated = runs["count"].as_u64().unwrap();
    let ratio = estimated as f64 / made as f64;
    if !(0.5..2.0).contains(&ratio) {
        return Err(format!("{estimated} estimated, {made} made, {counted} counted"));
    }
    if others_count && runs["estimate"].is_null() {
        // To have them on costs nothing more then, and the recorder leaves them on.
        skip(test, "others have the kernel count runs all the time");
        return Ok(());
    }
    assert!(runs["estimate"]["counted_for_ns"].as_u64().unwrap() > 0, "{runs}");
    let table = succeed(bprec().args(["report", "-i"]).arg(&path)).stdout;
    let table = String::from_utf8_lossy(&table);
    let row = table.lines().find(|line| line.contains(&program.name)).unwrap();
    assert!(row.contains('≈'), "{row}");

    // At most so many runs were counted as the kernel counted while the recording went on, each for a few nanoseconds to a microsecond.
    let taken_ns = report["recording"]["cost"]["run_statistics"]["time_ns"].as_u64().unwrap();
    assert!(
        taken_ns > 0 && (others_count || taken_ns < 1_000 * counted.max(1) * 4),
        "{taken_ns} ns for {counted} runs"
    );
    assert!(table.lines().any(|line| line.contains("[run statistics, by this recording]")), "{table}");
    Ok(())
}
