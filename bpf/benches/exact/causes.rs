//! Cost of each part of counting. Other work runs beside a program that never pauses; the slowdown of both is measured
//! with each combination of parts.

use std::thread;
use std::time::{Duration, Instant};

use bprec_bpf::{Profiler, Source, StatsGuard};

use crate::Result;
use crate::cost::{Held, MIXED, NEVER, ours, possible_cpus};
use crate::load::{Load, Work};

const PROGRAM: &str = "loop_of_100";
/// Time of one measurement of a combination.
const SLICE: Duration = Duration::from_millis(500);

/// Combinations of parts of counting: name; interval of the probe (one run in this many is measured; `None`: no probe); true if the kernel's run
/// statistics are on.
const PARTS: [(&str, Option<u64>, bool); 6] = [
    ("nothing", None, false),
    ("run statistics", None, true),
    ("counting programs, measuring no run", Some(NEVER), false),
    ("counting programs, measuring no run; run statistics", Some(NEVER), true),
    ("counting programs, measuring every run", Some(1), false),
    ("counting programs, measuring every run; run statistics", Some(1), true),
];

/// Measures and prints the table.
pub(crate) fn bench(rounds: usize) -> Result<()> {
    let work = Work::start();
    let load = Load::start(PROGRAM, 1, None)?;
    let mut sums = [(0u64, 0u64, Duration::ZERO); PARTS.len()];
    for round in 0..rounds {
        for turn in 0..PARTS.len() {
            let part = if round % 2 == 0 { turn } else { PARTS.len() - 1 - turn };
            let (_, every, stats) = PARTS[part];
            let _guard = if stats { Some(StatsGuard::enable()?) } else { None };
            let _held = match every {
                Some(every) => ours(&load.loaded, PROGRAM, &MIXED[..1], every)?,
                None => Held::Nothing,
            };
            let (start, runs, done) = (Instant::now(), load.runs(), work.done());
            thread::sleep(SLICE);
            let sum = &mut sums[part];
            sum.0 += load.runs() - runs;
            sum.1 += work.done() - done;
            sum.2 += start.elapsed();
        }
    }
    let per_second = |count: u64, time: Duration| count as f64 / time.as_secs_f64();
    let bare = (per_second(sums[0].0, sums[0].2), per_second(sums[0].1, sums[0].2));
    println!("| beside `{PROGRAM}` | runs/s | runs, on / off | other work, on / off |");
    println!("| --- | --- | --- | --- |");
    for ((name, ..), (runs, done, time)) in PARTS.iter().zip(sums) {
        let (runs, done) = (per_second(runs, time), per_second(done, time));
        println!("| {name} | {runs:.0} | {:.4} | {:.4} |", runs / bare.0, done / bare.1);
    }
    Ok(())
}

/// Repeats the calibration with and without run statistics, on an idle machine and beside one thread of work per CPU.
pub(crate) fn gauges(times: usize) -> Result<()> {
    println!("| beside work | run statistics | inside, ns | measured, ns | skipped, ns |");
    println!("| --- | --- | --- | --- | --- |");
    let profiler = Profiler::load(&[Source::Clock], 0, possible_cpus()?)?;
    for busy in [false, true] {
        let _work: Vec<Work> = (0..possible_cpus()?).filter(|_| busy).map(|_| Work::start()).collect();
        for stats in [false, true] {
            let _guard = if stats { Some(StatsGuard::enable()?) } else { None };
            for _ in 0..times {
                let gauged = profiler.calibrate()?;
                let [inside, measured, skipped] =
                    [gauged.inside_ns, gauged.measured_ns, gauged.skipped_ns].map(|ns| ns as f64 / gauged.runs as f64);
                println!("| {busy} | {stats} | {inside:.0} | {measured:.0} | {skipped:.0} |");
            }
        }
    }
    Ok(())
}
