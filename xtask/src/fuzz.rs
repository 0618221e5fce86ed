//! Runs the fuzzers. Their seeds are made by an example of `bprec-generate`, which knows the format.

use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::command;

/// Compiler flags that report the executed branches of an input to libFuzzer.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Writes the seeds into `corpus/<target>/`.
pub(crate) fn seeds(corpus: &Path) -> Result<()> {
    // The packages are the same as in `cargo xtask test`, so that neither command rebuilds what the other has built.
    let example = ["build", "--quiet", "--locked", "--workspace", "--example", "seeds"];
    command::run(&mut command::cargo(&example))?;
    command::run(Command::new(crate::target_directory().join("debug/examples/seeds")).arg(corpus))
}

/// Builds the fuzzers and runs each with its seeds for `seconds`; as many fuzzers run at the same time as the machine has CPUs.
pub(crate) fn run(seconds: &str, names: &[&str]) -> Result<()> {
    let seconds: u32 = seconds.parse().with_context(|| format!("{seconds} is not a number of seconds"))?;
    let target = std::path::absolute(crate::target_directory().join("fuzz"))?;
    let corpus = target.join("corpus");
    let _ = fs::remove_dir_all(&corpus);
    seeds(&corpus)?;
    let host = host()?;
    // With --target, cargo applies the flags to the fuzzers only: build scripts must not be instrumented.
    let mut build =
        command::cargo(&["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target", &host]);
    build.arg("--target-dir").arg(&target).env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\u{1f}"));
    command::run(&mut build)?;
    let all = targets()?;
    let chosen: Vec<String> =
        if names.is_empty() { all } else { names.iter().map(|name| (*name).to_owned()).collect() };
    let left = Mutex::new(chosen.into_iter());
    let take_one = || left.lock().map_or(None, |mut left| left.next());
    let programs = target.join(host).join("release");
    let worker =
        || std::iter::from_fn(take_one).map(|name| fuzz(&programs, &corpus, &name, seconds)).collect::<Vec<_>>();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let ended: Vec<Result<String>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let mut found = 0;
    for result in ended {
        match result {
            Ok(line) => println!("{line}"),
            Err(error) => {
                println!("{error:#}");
                found += 1;
            }
        }
    }
    ensure!(found == 0, "{found} fuzzers found a fault");
    Ok(())
}

/// Runs one fuzzer; returns a line with its count of runs.
fn fuzz(programs: &Path, corpus: &Path, name: &str, seconds: u32) -> Result<String> {
    let seeds = corpus.join(name);
    fs::create_dir_all(&seeds)?;
    let output = Command::new(programs.join(name))
        .arg(&seeds)
        .arg(format!("-artifact_prefix={}/{name}-", corpus.display()))
        .arg(format!("-max_total_time={seconds}"))
        .args(["-max_len=65536", "-rss_limit_mb=1024", "-timeout=60", "-print_final_stats=1"])
        .output()
        .with_context(|| format!("run the fuzzer {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let stat = |what: &str| said.lines().find_map(|line| line.strip_prefix(what)).map_or("?", str::trim);
    if !output.status.success() {
        let lines: Vec<_> = said.lines().collect();
        bail!("{name}: {}\n{}", output.status, lines[lines.len().saturating_sub(40)..].join("\n"));
    }
    let (runs, peak) = (stat("stat::number_of_executed_units:"), stat("stat::peak_rss_mb:"));
    Ok(format!("{name}: {runs} inputs in {seconds} s, {peak} MB at most"))
}

/// Returns the names of all fuzzers.
fn targets() -> Result<Vec<String>> {
    let sources = crate::tree::files_under(Path::new("fuzz/fuzz_targets"))?;
    Ok(sources.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect())
}

/// Returns the target triple of the compiler's host.
fn host() -> Result<String> {
    let said = command::output(Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into())).arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not report its target")
}
