//! Developer tasks, the same on a developer's machine and in CI: `cargo xtask <task>`.
//!
//! Each task is a module that prints its findings and fails if something is wrong. A check that is impossible on this machine prints one line
//! `SKIP <check>: <reason>` and succeeds.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bpf;
mod components;
mod fuzz;
mod generate;
mod imports;
mod instructions;
mod neighbours;
mod pictures;
mod release;
mod repeats;
mod skips;
mod tally;
mod test;
mod tree;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask <task>
  bpf               rebuild every *.bpf.o from its source
  bpf --check       compare the committed objects with a rebuild
  fuzz-seeds        write seeds for the fuzzers into fuzz/corpus
  fuzz SECONDS [FUZZER...]
                    build the fuzzers, and run each for so long
  generate FILE [size=135M] [programs=10] [churned=0] [frames=7] [user-frames=2] [bpf=66] [tasks=2] [cpus=2] [zstd=3] [pipe] [seed=1]
                    make up a recording: bytes of records, BPF programs from start to end and short-lived ones, frames of a call
                    chain, samples in BPF in percent, new tasks per 1000 samples, compressed or as a stream
  instructions      count the instructions of reports under callgrind, and write the figures down
  instructions --check
                    compare with the figures
  pictures          make the pictures of README again; needs chromium
  release --check   check what has to hold before a version is given out
  third-party       print what the program is linked with, and its licences
  sbom              print the same as CycloneDX JSON
  tree              check headers, file sizes, stray machine paths, the direction of imports, and openings of comments
  check             format, lints, rules of the tree, and the tests that take no root and change nothing
  test [ARGS]       cargo test ARGS of the workspace or of `-p CRATE`, with one closing line over all test binaries
  test-beside [ARGS]
                    the same beside pinned programs, a tracer and another recorder, as root
  test-everywhere   the same without ARGS, then in every guest, with one closing line over all
  bench-exact PERF BPFTOOL [GUEST]
                    what exact counters cost beside perf stat -b and bpftool prog profile, in guests
  vm setup [GUEST…]            fetch and unpack what the guests are made of
  vm run GUEST PAYLOAD OUT     boot, run PAYLOAD/run.sh in it as root, bring its /out back as OUT/out
  vm static                    build the program without libraries for Arm, and try it in a guest
  vm test [GUEST…]             what each guest is there to test";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = arguments.split_first().context(USAGE)?;
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    std::env::set_current_dir(root()?)?;
    match (task.as_str(), rest.as_slice()) {
        ("bpf", []) => bpf::rebuild(),
        ("bpf", ["--check"]) => bpf::check(),
        ("fuzz-seeds", []) => fuzz::seeds(),
        ("fuzz", [seconds, names @ ..]) => fuzz::run(seconds, names),
        ("generate", [path, settings @ ..]) => generate::write(path, settings),
        ("instructions", []) => instructions::run(false),
        ("instructions", ["--check"]) => instructions::run(true),
        ("pictures", []) => pictures::make(),
        ("release", ["--check"]) => release::check(),
        ("third-party", []) => components::third_party(),
        ("sbom", []) => components::sbom(),
        ("tree", []) => tree::check().and_then(|()| imports::check()),
        ("check", []) => test::offline(),
        ("test", arguments) => test::run(arguments),
        ("test-beside", arguments) => test::beside_others(arguments),
        ("test-everywhere", []) => test::everywhere(),
        ("bench-exact", [perf, bpftool]) => vm::bench_exact(perf, bpftool, None),
        ("bench-exact", [perf, bpftool, guest]) => vm::bench_exact(perf, bpftool, Some(guest)),
        ("vm", arguments) => vm::main(arguments),
        _ => bail!("{USAGE}"),
    }
}

/// Returns the repository's root: the parent directory of this crate.
fn root() -> Result<PathBuf> {
    let manifest = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").context("run me as `cargo xtask`")?);
    Ok(manifest.parent().context("the crate has no parent directory")?.to_owned())
}

/// Returns cargo's target directory.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
