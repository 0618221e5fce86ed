//! Run statistics that would exceed their budget are on only in windows, and runs are estimates. Real kernel, root; tests of other
//! files wait, so that no other test makes the kernel count meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{self, Running, Scratch, SetAtEnd, bprec, measured, report, root, skip, succeed};
use bprec_fixtures::{Fixture, Loaded, StatsSwitch, load};

/// Program that runs once for each system call of the load.
const PROGRAM: &str = "account_syscall_enter";

fn known_load() -> (Loaded, u32) {
    let loaded = Fixture::TP.open().unwrap().for_this_thread().unwrap().start().unwrap();
    let id = loaded.id_of(PROGRAM).unwrap();
    (loaded, id)
}

/// Makes system calls for this time; returns their number.
fn make_calls(length: Duration) -> u64 {
    let started = Instant::now();
    let mut made = 0;
    while started.elapsed() < length {
        load::system_calls(10_000);
        made += 10_000;
    }
    made
}

/// A reading of run statistics as `bprec script` shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    time_ns: u64,
    on_ns: u64,
    others_ns: u64,
    /// Runs of the requested program; `None` if the reading does not contain it.
    runs: Option<u64>,
}

/// All readings of a recording.
fn readings(path: &Path, id: u32) -> Vec<Reading> {
    let script = succeed(bprec().args(["script", "-F", "+state", "-i"]).arg(path)).stdout;
    let number = |line: &str, before: &str| {
        let (_, text) = line.split_once(before)?;
        text.split(|byte: char| !byte.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let script = String::from_utf8_lossy(&script);
    let lines = script.lines().filter(|line| line.contains("run stats at "));
    lines
        .map(|line| Reading {
            time_ns: number(line, "run stats at ").unwrap(),
            on_ns: number(line, "on for ").unwrap_or_else(|| panic!("{line}")),
            others_ns: number(line, "for others ").unwrap_or(0),
            runs: number(line, &format!("program {id} ")),
        })
        .collect()
}

/// A program that runs for every system call, with a very small budget for statistics.
#[test]
fn runs_are_estimated_where_statistics_would_take_too_much() {
    let test = "runs_are_estimated_where_statistics_would_take_too_much";
    if !root(test) {
        return;
    }
    // Repeats the test after a bad estimate: windows are samples of time, and can miss a busy moment between them.
    measured(|| estimate(test));
}

fn estimate(test: &str) -> Result<(), String> {
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let (loaded, id) = known_load();
    let counted = || loaded.run_stats(PROGRAM).unwrap().run_cnt;
    let before = counted();
    load::system_calls(1_000);
    let others_count = counted() > before;
    let recording = Running::record(&path, &["-q", "-F", "999", "--budget", "0.1"]);
    let before = counted();
    let made = make_calls(Duration::from_secs(5));
    recording.end();
    let counted = counted() - before;
    // If other tools have statistics on, the kernel also counts runs outside of windows. Such runs are not extrapolated.
    if !others_count && counted > made / 2 {
        return Err(format!("the kernel counted {counted} of {made} runs: expected only a part of them"));
    }
    let report = report(&path, &[]);
    let runs = &support::program(&report, id)["runs"];
    let estimated = runs["count"].as_u64().unwrap();
    let ratio = estimated as f64 / made as f64;
    if !(0.5..2.0).contains(&ratio) {
        return Err(format!("{estimated} estimated, {made} made, {counted} counted"));
    }
    if others_count && runs["estimate"].is_null() {
        skip(test, "other tools have run statistics on all the time");
        return Ok(());
    }
    assert!(runs["estimate"]["counted_for_ns"].as_u64().unwrap() > 0, "{runs}");
    let table = succeed(bprec().args(["report", "-i"]).arg(&path)).stdout;
    let table = String::from_utf8_lossy(&table);
    let row = table.lines().find(|line| line.contains(PROGRAM)).unwrap();
    assert!(row.contains('≈'), "{row}");
    assert!(!table.contains("≈RUNS are estimates from short windows"), "{table}");
    // The load keeps a CPU busy, so counting slows it down; the margin of the estimate must cover this.
    let margin = runs["estimate"]["count_margin"].as_f64().unwrap();
    if !others_count && (estimated as f64 - made as f64).abs() > margin * 1.5 {
        return Err(format!("{estimated} ± {margin} estimated, {made} made"));
    }

    // Counting a run takes from a few nanoseconds to a microsecond. The reported cost is less than 4 µs for each run that the kernel counted.
    let taken_ns = report["recording"]["cost"]["run_statistics"]["time_ns"].as_u64().unwrap();
    if taken_ns == 0 || !others_count && taken_ns >= 1_000 * counted.max(1) * 4 {
        return Err(format!("{taken_ns} ns for {counted} runs"));
    }
    assert!(table.lines().any(|line| line.contains("[cost of counting runs]")), "{table}");
    Ok(())
}

/// There are about ten windows per second, and each is closed on time even if the recorder is busy. The cost of counting
/// stays within the budget.
#[test]
fn windows_are_many_and_closed_on_time() {
    const SECONDS: f64 = 5.0;
    const PART: f64 = 0.005;
    if !root("windows_are_many_and_closed_on_time") {
        return;
    }
    measured(|| {
        let scratch = Scratch::new();
        let path = scratch.path("perf.data");
        let (_loaded, id) = known_load();
        let recording = Running::record(&path, &["-q", "-F", "99", "--budget", &(PART * 100.0).to_string()]);
        let made = make_calls(Duration::from_secs_f64(SECONDS));
        recording.end();
        let readings = readings(&path, id);
        let lengths: Vec<(u64, u64)> = readings
            .windows(2)
            .map(|pair| (pair[1].time_ns - pair[0].time_ns, pair[1].on_ns.saturating_sub(pair[0].on_ns)))
            .filter(|(_, on_ns)| *on_ns > 0)
            .collect();
        // The time at the start in which all runs are counted also counts as a window here.
        if lengths.len() < 40 {
            return Err(format!("{} windows: {lengths:?}", lengths.len()));
        }
        // A busy machine can delay the end of a window, so the two longest windows are not checked.
        let mut on: Vec<u64> = lengths.iter().map(|(_, on_ns)| *on_ns).collect();
        on.sort_unstable();
        let (median, longest) = (on[on.len() / 2], on[on.len() - 3]);
        if median > 20_000_000 || longest > 60_000_000 {
            return Err(format!("median {median} ns, longest but two {longest} ns: {on:?}"));
        }
        let report = report(&path, &[]);
        let cost = &report["recording"]["cost"]["run_statistics"];
        let percent = cost["machine_percent"].as_f64().unwrap();
        if !(PART * 30.0..PART * 120.0).contains(&percent) {
            return Err(format!("{percent} % of the machine for {made} calls: {cost}"));
        }
        Ok(())
    });
}

/// Another process has statistics on when the recording begins, and then switches them off; afterwards statistics are on only in the recorder's
/// windows. The recording states for how long the other process had them on.
#[test]
fn statistics_of_others_are_known_and_never_held_on() {
    let test = "statistics_of_others_are_known_and_never_held_on";
    if !root(test) {
        return;
    }
    measured(|| {
        let scratch = Scratch::new();
        let path = scratch.path("perf.data");
        let (loaded, id) = known_load();
        let counted = || loaded.run_stats(PROGRAM).unwrap().run_cnt;
        let other = StatsSwitch::on().unwrap();
        let recording = Running::record(&path, &["-q", "-F", "99", "--budget", "0.02"]);
        let (before, began) = (counted(), Instant::now());
        let made = make_calls(Duration::from_secs(2));
        let (all, with_other) = (counted() - before, began.elapsed());
        assert!(all >= made, "the kernel counted {all} of {made} runs while statistics were on");
        drop(other);
        let before = counted();
        let made = make_calls(Duration::from_secs(2));
        let part = counted() - before;
        recording.end();
        if part > made / 2 {
            return Err(format!(
                "the kernel counted {part} of {made} runs after the other user of run statistics had ended"
            ));
        }
        let readings = readings(&path, id);
        let known = Duration::from_nanos(readings.last().unwrap().others_ns);
        // The recording starts before the load, so the stated time may be up to a second longer.
        let longest = with_other + Duration::from_secs(1);
        if known < with_other / 2 || known > longest {
            return Err(format!("statistics are known to be on for {known:?}, expected about {with_other:?}"));
        }
        Ok(())
    });
}

/// A message at the start and the report say that statistics of other tools make all programs slower, even without `-v`.
#[test]
fn statistics_of_others_are_said() {
    if !root("statistics_of_others_are_said") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let _other = StatsSwitch::on().unwrap();
    let output = succeed(bprec().args(["record", "-a", "-F", "99", "--duration", "0.2", "-o"]).arg(&path));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("another tool has switched on the kernel's run statistics"), "{said}");
    let table = String::from_utf8(succeed(bprec().args(["report", "-i"]).arg(&path)).stdout).unwrap();
    let (above, _) = table.split_once("PROGRAM").unwrap();
    assert!(above.contains("# another tool had switched on the kernel's run statistics"), "{table}");
    assert_eq!(report(&path, &[])["recording"]["statistics_of_others"], true);
}

/// Another process switches statistics on and off at random times. The recorder must not take runs that the kernel counted because of this process
/// for runs of its own short windows: the estimate would be far too high.
#[test]
fn switches_of_others_are_seen() {
    if !root("switches_of_others_are_seen") {
        return;
    }
    measured(|| {
        let scratch = Scratch::new();
        let path = scratch.path("perf.data");
        let (_loaded, id) = known_load();
        let recording = Running::record(&path, &["-q", "-F", "99", "--budget", "0.02"]);
        let is_over = AtomicBool::new(false);
        let ((on, times), made) = thread::scope(|scope| {
            let switching = scope.spawn(|| {
                let (mut on, mut times) = (Duration::ZERO, 0);
                for length in (0u64..).map(|number| Duration::from_millis(150 + number * 7919 % 400)) {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (switch, began) = (StatsSwitch::on().unwrap(), Instant::now());
                    thread::sleep(length);
                    on += began.elapsed();
                    drop(switch);
                    thread::sleep(length);
                    times += 1;
                }
                (on, times)
            });
            let _over = SetAtEnd(&is_over);
            let made = make_calls(Duration::from_secs(5));
            is_over.store(true, Ordering::Relaxed);
            (switching.join().unwrap(), made)
        });
        recording.end();
        let readings = readings(&path, id);
        let known = Duration::from_nanos(readings.last().unwrap().others_ns);
        // Each switch reduces the known time by at most one check interval, and the known time never exceeds the real time.
        if known > on + Duration::from_millis(100) || known + Duration::from_millis(200) * times < on {
            return Err(format!("statistics are known to be on for {known:?}, in fact {on:?} in {times} periods"));
        }
        let estimated = support::program(&report(&path, &[]), id)["runs"]["count"].as_u64().unwrap();
        if !(0.7..1.4).contains(&(estimated as f64 / made as f64)) {
            return Err(format!("{estimated} estimated, {made} made"));
        }
        Ok(())
    });
}
