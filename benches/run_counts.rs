//! Recordings of loads that make system calls. A BPF program runs on each call. The bench compares RUNS of this program with its true count of runs,
//! and checks the margin of RUNS. Needs root and an idle machine.
//!
//! `cargo bench --bench run_counts -- [ROUNDS] [SECONDS,…] [LOAD]`: by default, 11 rounds with recordings of 2, 5 and 20 s. These 396 recordings take
//! more than an hour.
//!
//! The BPF program counts its own runs. The bench reads this count every 5 ms, by the recording's clock. From these readings it interpolates the
//! count at the recording's first and last reading of run statistics: the difference is the true count of runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout, reason = "a bench")]

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use bprec_fixtures::load::Pattern;
use bprec_fixtures::{Fixture, Loaded};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

const PROGRAM: &str = "account_syscall_enter";
/// System calls per second of a load that does not saturate its CPU, while the load is active.
const PER_SECOND: u64 = 250_000;
/// Modes of a recording: name and options.
const MODES: [(&str, &[&str]); 2] = [("default", &[]), ("--budget 0.5", &["--budget", "0.5"])];

/// Result of one recording.
struct Outcome {
    /// Relative error of RUNS; positive if RUNS is too high.
    error: f64,
    /// Half of the margin relative to RUNS; `None` if RUNS is exact.
    margin: Option<f64>,
    /// True if the true count of runs is inside the margin.
    is_inside: bool,
    windows: usize,
    cost_percent: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let rounds: u32 = arguments.first().map_or(11, |text| text.parse().expect("rounds"));
    let lengths = arguments.get(1).map_or("2,5,20", |text| text);
    let only = arguments.get(2);
    println!(
        "{:<13} {:<11} {:>4} {:>3} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8} {:>6}",
        "mode", "load", "s", "n", "median", "worst", "mean", "± median", "inside", "windows", "cost%"
    );
    for (mode, options) in MODES {
        for (name, pattern) in Pattern::NAMES.into_iter().filter(|(name, _)| only.is_none_or(|only| only == name)) {
            for seconds in lengths.split(',').map(|text| text.parse::<u64>().expect("seconds")) {
                let outcomes: Vec<Outcome> = (0..rounds).map(|_| record(pattern, seconds, options)).collect();
                row(mode, name, seconds, &outcomes);
            }
        }
    }
}

fn row(mode: &str, load: &str, seconds: u64, outcomes: &[Outcome]) {
    let count = outcomes.len();
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let percent = |value: Option<f64>| value.map_or("exact".to_owned(), |value| format!("{:.2} %", value * 100.0));
    let errors = || outcomes.iter().map(|outcome| outcome.error);
    let worst = errors().map(f64::abs).fold(0.0, f64::max);
    let mean = errors().sum::<f64>() / count as f64;
    let margins: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.margin).collect();
    let inside = outcomes.iter().filter(|outcome| outcome.is_inside).count();
    let windows = median(outcomes.iter().map(|outcome| outcome.windows as f64).collect());
    let cost = outcomes.iter().map(|outcome| outcome.cost_percent).sum::<f64>() / count as f64;
    println!(
        "{mode:<13} {load:<11} {seconds:>4} {count:>3} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8} {cost:>6.2}",
        percent(median(errors().map(f64::abs).collect())),
        percent(Some(worst)),
        percent(Some(mean)),
        percent(median(margins)),
        format!("{inside}/{count}"),
        windows.unwrap_or(0.0),
    );
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Readings of the count that the BPF program keeps of its own runs: (time in ns, runs so far).
struct Truth(Vec<(u64, u64)>);

impl Truth {
    /// Reads the count every 5 ms until `is_over` returns true.
    fn follow(loaded: &Loaded, mut is_over: impl FnMut() -> bool) -> Truth {
        let mut moments = Vec::new();
        while !is_over() {
            let before_ns = now_ns();
            let count = loaded.entered(PROGRAM).unwrap();
            moments.push((before_ns.midpoint(now_ns()), count));
            thread::sleep(Duration::from_millis(5));
        }
        Truth(moments)
    }

    fn at(&self, time_ns: u64) -> f64 {
        let after = self.0.partition_point(|(at, _)| *at < time_ns).clamp(1, self.0.len() - 1);
        let ((from_ns, from), (to_ns, to)) = (self.0[after - 1], self.0[after]);
        from as f64 + (to - from) as f64 * (time_ns as f64 - from_ns as f64) / (to_ns - from_ns) as f64
    }
}

fn record(pattern: Pattern, seconds: u64, options: &[&str]) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let (path, started) = (directory.path().join("perf.data"), directory.path().join("started"));
    // The program counts all system calls of the machine, as the kernel's run statistics do.
    let loaded = Fixture::TP.start().unwrap();
    let id = loaded.id_of(PROGRAM).unwrap();
    let length = Duration::from_secs(seconds);
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_bprec"))
        .args(["record", "-q", "-a", "-o"])
        .arg(&path)
        .args(options)
        .args(["--", "sh", "-c", "touch \"$0\"; exec sleep \"$1\""])
        .args([started.as_os_str(), seconds.to_string().as_ref()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let load = thread::spawn(move || {
        while !started.exists() {
            thread::sleep(Duration::from_millis(1));
        }
        pattern.run(length, PER_SECOND)
    });
    let mut ended = None;
    let truth = Truth::follow(&loaded, || {
        ended = recorder.try_wait().unwrap();
        ended.is_some()
    });
    load.join().unwrap();
    assert!(ended.unwrap().success());

    let output = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bprec"));
        let output = command.args(arguments).arg("-i").arg(&path).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let report: Value = serde_json::from_str(&output(&["report", "--json"])).unwrap();
    let program = report["programs"].as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
    let runs = &program["runs"];
    let (times, windows) = readings(&output(&["script", "-F", "+state"]), id);
    let (first_ns, last_ns) = times;
    let true_runs = truth.at(last_ns) - truth.at(first_ns);
    let shown = runs["count"].as_f64().unwrap_or(f64::NAN);
    let margin = runs["estimate"]["count_margin"].as_f64();
    Outcome {
        error: shown / true_runs - 1.0,
        margin: margin.map(|margin| margin / shown),
        // The program's own count is only exact to the reading interval of 5 ms, so an exact RUNS may differ by 0.5 %.
        is_inside: (shown - true_runs).abs() <= margin.unwrap_or(true_runs * 0.005),
        windows,
        cost_percent: report["recording"]["cost"]["run_statistics"]["machine_percent"].as_f64().unwrap_or(0.0),
    }
}

/// Returns the times of the first and last reading of the program's run statistics, ns, and the number of windows in which the kernel counted runs.
fn readings(script: &str, id: u32) -> ((u64, u64), usize) {
    let number = |line: &str, before: &str| {
        let (_, text) = line.split_once(before)?;
        text.split(|byte: char| !byte.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let lines: Vec<&str> = script.lines().filter(|line| line.contains("run stats at ")).collect();
    let mut times = lines.iter().filter(|line| line.contains(&format!(" program {id} ")));
    let time = |line: &&str| number(line, "run stats at ").unwrap();
    let first_ns = times.next().map_or(0, time);
    let last_ns = times.next_back().map_or(first_ns, time);
    let on: Vec<u64> = lines.iter().filter_map(|line| number(line, "on for ")).collect();
    ((first_ns, last_ns), on.windows(2).filter(|pair| pair[1] > pair[0]).count())
}
