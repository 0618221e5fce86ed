//! Prints the table of a recording, or times it against a walk that only looks at record headers:
//! `cargo run --release -p bprec-report --example by_prog -- FILE [--bench] [--by WHAT] [--width N]`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for the one who runs it")]

use bprec_report::{Input, Options, by_prog};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let input = Input::open(&args[0]).unwrap();
    let options = Options { by: value("--by").map(|by| by.parse().unwrap()), ..Options::default() };
    if args.iter().any(|arg| arg == "--bench") {
        return bench(&input, &options);
    }
    let width = value("--width").map_or(140, |width| width.parse().unwrap());
    let report = by_prog(&input, &options).unwrap();
    let mut out = std::io::stdout().lock();
    if args.iter().any(|arg| arg == "--json") {
        report.write_json(&mut out).unwrap();
    } else if args.iter().any(|arg| arg == "--csv") {
        report.write_csv(&mut out).unwrap();
    } else {
        report.write_table(&mut out, width).unwrap();
    }
}

/// The best of five rounds, each in turn, in CPU time of the thread: other load on the machine counts less that way. A
/// round is several runs, since that time advances with the scheduler's ticks.
fn bench(input: &Input, options: &Options) {
    let file = bprec_format::File::parse(input.bytes()).unwrap();
    let one = Options { threads: Some(1), ..options.clone() };
    let mut best = [f64::MAX; 2];
    let mut wall = f64::MAX;
    let mut records = 0;
    for _ in 0..5 {
        let runs: [&mut dyn FnMut(); 2] = [&mut || records = file.records().filter(Result::is_ok).count(), &mut || {
            drop(by_prog(input, &one).unwrap())
        }];
        for (best, run) in best.iter_mut().zip(runs) {
            let start = cpu_ms();
            (0..RUNS).for_each(|_| run());
            *best = best.min((cpu_ms() - start) / f64::from(RUNS));
        }
        let start = Instant::now();
        drop(by_prog(input, options).unwrap());
        wall = wall.min(start.elapsed().as_secs_f64() * 1e3);
    }
    let [walk, report] = best;
    println!("{} bytes, {records} records", input.bytes().len());
    println!(
        "CPU: walk {walk:.1} ms, by_prog {report:.1} ms = {:.2} walks; wall, all threads: {wall:.1} ms",
        report / walk
    );
}

/// Runs in a round.
const RUNS: u32 = 8;

/// CPU time of this thread, as far as the scheduler tells (Linux); time of the clock elsewhere.
fn cpu_ms() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match schedstat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()) {
        Some(ns) => ns / 1e6,
        None => std::time::UNIX_EPOCH.elapsed().map_or(0.0, |time| time.as_secs_f64() * 1e3),
    }
}
