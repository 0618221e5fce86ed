//! What a report takes against a walk that only looks at record headers:
//! `cargo bench -p bprec-report --bench by_prog -- FILE`.
#![allow(clippy::print_stdout, reason = "a tool for the one who runs it")]

use bprec_report::{Input, Options, by_prog};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(file) = std::env::args().skip(1).find(|arg| !arg.starts_with('-')) else {
        println!("SKIP by_prog: no recording given");
        return Ok(());
    };
    bench(&Input::open(file)?)
}

/// Runs in a round.
const RUNS: u32 = 8;

/// The best of five rounds, each in turn, in CPU time of the thread: other load on the machine counts less that way. A
/// round is several runs, since that time advances with the scheduler's ticks.
fn bench(input: &Input) -> Result<(), Box<dyn Error>> {
    let file = bprec_format::File::parse(input.bytes())?;
    let one_thread = Options { threads: Some(1), ..Options::default() };
    let mut records = 0;
    let mut best = [f64::MAX; 2];
    let mut wall = f64::MAX;
    for _ in 0..5 {
        let start = cpu_ms();
        for _ in 0..RUNS {
            records = file.records().filter(Result::is_ok).count();
        }
        best[0] = best[0].min((cpu_ms() - start) / f64::from(RUNS));
        let start = cpu_ms();
        for _ in 0..RUNS {
            by_prog(input, &one_thread)?;
        }
        best[1] = best[1].min((cpu_ms() - start) / f64::from(RUNS));
        let start = Instant::now();
        by_prog(input, &Options::default())?;
        wall = wall.min(start.elapsed().as_secs_f64() * 1e3);
    }
    let [walk, report] = best;
    println!("{} bytes, {records} records", input.bytes().len());
    println!(
        "CPU: walk {walk:.1} ms, report {report:.1} ms = {:.2} walks; wall with all threads: {wall:.1} ms",
        report / walk
    );
    Ok(())
}

/// CPU time of this thread, as far as the scheduler tells (Linux); time of the clock elsewhere.
fn cpu_ms() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match schedstat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()) {
        Some(ns) => ns / 1e6,
        None => std::time::UNIX_EPOCH.elapsed().map_or(0.0, |time| time.as_secs_f64() * 1e3),
    }
}
