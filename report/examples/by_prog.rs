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

/// The best of seven, each in turn.
fn bench(input: &Input, options: &Options) {
    let file = bprec_format::File::parse(input.bytes()).unwrap();
    let one = Options { threads: Some(1), ..options.clone() };
    let mut best = [f64::MAX; 3];
    let mut records = 0;
    for _ in 0..7 {
        let runs: [&mut dyn FnMut(); 3] = [
            &mut || records = file.records().filter(Result::is_ok).count(),
            &mut || drop(by_prog(input, &one).unwrap()),
            &mut || drop(by_prog(input, options).unwrap()),
        ];
        for (best, run) in best.iter_mut().zip(runs) {
            let start = Instant::now();
            run();
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    let [walk, one, all] = best.map(|seconds| seconds * 1e3);
    println!("{} bytes, {records} records: walk {walk:.1} ms", input.bytes().len());
    println!(
        "by_prog: 1 thread {one:.1} ms = {:.2} walks, all threads {all:.1} ms = {:.2} walks",
        one / walk,
        all / walk
    );
}
