//! Developer tasks, the same on a developer's machine and in CI: `cargo xtask <task>`.
//!
//! Each task is a module that prints its findings and fails if something is wrong. A check that is impossible on this machine prints one line
//! `SKIP <check>: <reason>` and succeeds.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bpf;
mod command;
mod components;
mod fuzz;
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
                    build the fuzzers, and run each for SECONDS
  instructions      count the instructions of reports under callgrind, and overwrite the committed figures
  instructions --check
                    compare with the committed figures
  pictures          make the pictures of README.md; needs chromium and tmux
  pictures --check  compare the committed pictures with new pictures of the page and screens
  release --check [TAG]
                    check the conditions for a release, with this tag
  third-party       print the components that bprec is linked with, and their licences
  sbom [static]     print them as CycloneDX JSON; with `static`, also Debian's libraries in the static program
  tree              check headers, file sizes, stray machine paths, the direction of imports, and the first words of comments
  check             format, lints, rules of the tree, and the tests that need no root and change nothing
  test [ARGS]       cargo test ARGS of the workspace or of `-p CRATE`, and one line with the totals of all test programs
  test-beside [ARGS]
                    run `test` beside pinned programs, a tracer and another recorder; needs root
  test-everywhere   run all tests as `test-beside` does, then in every guest, and print one line with all totals
  bench-bill GUEST EXPERIMENT [COUNT]
                    compare bills and predictions with runs without the agent, in a guest (benches/bill.rs)
  bench-exact PERF BPFTOOL [GUEST]
                    measure the cost of exact counters, perf stat -b and bpftool prog profile, in guests
  vm setup [GUEST…]            fetch and unpack the packages of the guests, and build for Arm
  vm run GUEST PAYLOAD OUT     boot the guest, run PAYLOAD/run.sh in it as root, copy its /out to OUT/out
  vm static                    build bprec for Arm without shared libraries, and try it in a guest
  vm test [GUEST…]             run the tests of each guest";

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
        ("fuzz-seeds", []) => fuzz::seeds("fuzz/corpus".as_ref()),
        ("fuzz", [seconds, names @ ..]) => fuzz::run(seconds, names),
        ("instructions", []) => instructions::run(false),
        ("instructions", ["--check"]) => instructions::run(true),
        ("pictures", []) => pictures::make(),
        ("pictures", ["--check"]) => pictures::check(),
        ("release", ["--check"]) => release::check(None),
        ("release", ["--check", tag]) => release::check(Some(tag)),
        ("third-party", []) => components::third_party(),
        ("sbom", []) => components::sbom(false),
        ("sbom", ["static"]) => components::sbom(true),
        ("tree", []) => tree::check().and_then(|()| imports::check()),
        ("check", []) => test::offline(),
        ("test", arguments) => test::run(arguments),
        ("test-beside", arguments) => test::beside_others(arguments),
        ("test-everywhere", []) => test::everywhere(),
        ("bench-exact", [perf, bpftool]) => vm::bench_exact(perf, bpftool, None),
        ("bench-exact", [perf, bpftool, guest]) => vm::bench_exact(perf, bpftool, Some(guest)),
        ("bench-bill", [guest, experiment @ ..]) => vm::bench_bill(guest, experiment),
        ("vm", arguments) => vm::main(arguments),
        _ => bail!("{USAGE}"),
    }
}

/// Returns the repository's root: the parent directory of this crate.
fn root() -> Result<PathBuf> {
    let manifest = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").context("run this program as `cargo xtask`")?);
    Ok(manifest.parent().context("the crate has no parent directory")?.to_owned())
}

/// Returns cargo's target directory.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
