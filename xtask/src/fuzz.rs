//! Runs the fuzzers. Their seeds are made by an example of `bprec-generate`, which knows the format.

use std::path::{Path, absolute};
use std::thread;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

use crate::{in_parallel, target_directory};

/// Compiler flags that report the executed branches of an input to libFuzzer.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Builds the fuzzers and runs each with its seeds for `seconds`; as many fuzzers run at the same time as the machine has CPUs.
pub(crate) fn run(sh: &Shell, seconds: u32, names: &[String]) -> Result<()> {
    let target = absolute(target_directory().join("fuzz"))?;
    let corpus = target.join("corpus");
    sh.remove_path(&corpus)?;
    // The packages are the same as in `cargo xtask test`, so that neither command rebuilds what the other has built.
    cmd!(sh, "cargo build --quiet --locked --workspace --example seeds").quiet().run()?;
    let seeds = target_directory().join("debug/examples/seeds");
    cmd!(sh, "{seeds} {corpus}").quiet().run()?;
    let host = cmd!(sh, "rustc --print host-tuple").quiet().read()?;
    // With --target, cargo applies the flags to the fuzzers only: build scripts must not be instrumented.
    cmd!(sh, "cargo build --release --locked --manifest-path fuzz/Cargo.toml --target {host} --target-dir {target}")
        .env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\u{1f}"))
        .quiet()
        .run()?;
    let sources = crate::tree::files_under("fuzz/fuzz_targets")?;
    let all = sources.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let chosen = if names.is_empty() { all.collect() } else { names.to_vec() };
    let programs = target.join(host).join("release");
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let ended = in_parallel(workers, &chosen, |name| fuzz(&programs.join(name), &corpus.join(name), seconds));
    let mut found = 0;
    for (name, result) in chosen.iter().zip(ended) {
        found += usize::from(result.is_err());
        println!("{name}: {}", result.unwrap_or_else(|why| format!("{why:#}")));
    }
    ensure!(found == 0, "{found} fuzzers found a fault");
    Ok(())
}

/// Runs one fuzzer; returns its statistics.
fn fuzz(program: &Path, seeds: &Path, seconds: u32) -> Result<String> {
    let sh = Shell::new()?;
    sh.create_dir(seeds)?;
    let artifacts = format!("-artifact_prefix={}-", seeds.display());
    let limits = ["-max_len=65536", "-rss_limit_mb=1024", "-timeout=60", "-print_final_stats=1"];
    let time = format!("-max_total_time={seconds}");
    let output = cmd!(sh, "{program} {seeds} {artifacts} {time} {limits...}").quiet().ignore_status().output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said.lines().collect();
    ensure!(output.status.success(), "{}\n{}", output.status, lines[lines.len().saturating_sub(40)..].join("\n"));
    Ok(lines.into_iter().filter_map(|line| line.strip_prefix("stat::")).collect::<Vec<_>>().join(", "))
}
