//! Cost of exact counters, beside `perf stat -b` and `bpftool prog profile`: `cargo xtask bench-exact PERF BPFTOOL`
//! runs it in a guest, because some machines do not allow fentry and fexit.
#![allow(clippy::print_stdout, reason = "benchmarks print their results")]

mod attach;
mod causes;
mod churn;
mod cost;
mod gate;
mod load;
mod totals;

use std::error::Error;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["cost", perf, bpftool] => cost::bench(perf.as_ref(), bpftool.as_ref()),
        ["attach"] => attach::bench(),
        ["yardsticks"] => cost::yardsticks(),
        ["totals", perf, bprec, tries] => totals::bench(perf.as_ref(), bprec.as_ref(), tries.parse()?),
        ["churn", seconds] => churn::bench(seconds.parse()?),
        ["gate"] => gate::accuracy(),
        ["causes", rounds] => causes::bench(rounds.parse()?),
        ["gauge", times] => causes::gauges(times.parse()?),
        ["budget", bprec, seconds, rounds] => gate::budget(bprec.as_ref(), seconds.parse()?, rounds.parse()?),
        _ => {
            println!(
                "SKIP exact: name one benchmark, with its arguments: attach, budget, causes, churn, cost, gate, gauge, totals, yardsticks"
            );
            Ok(())
        }
    }
}
