//! What exact counters cost, beside `perf stat -b` and `bpftool prog profile`: `cargo xtask bench-exact PERF BPFTOOL` runs it in a guest,
//! as fentry and fexit are not allowed everywhere.
#![allow(clippy::print_stdout, reason = "a tool for the one who runs it")]

mod cost;

use std::error::Error;
use std::path::PathBuf;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["cost", perf, bpftool] => cost::bench(&PathBuf::from(perf), &PathBuf::from(bpftool)),
        ["yardsticks"] => cost::yardsticks(),
        _ => {
            println!("SKIP exact: no `cost PERF BPFTOOL` or `yardsticks` given");
            Ok(())
        }
    }
}
