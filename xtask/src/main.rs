//! Developer tasks, the same on a developer's machine and in CI: `cargo xtask <task>`.
//!
//! Each task is a module that prints its findings and fails if something is wrong. A check that is impossible on this machine prints one line
//! `SKIP <check>: <reason>` and succeeds.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bpf;
mod builds;
mod components;
mod fuzz;
mod imports;
mod instructions;
mod neighbours;
mod pictures;
mod release;
mod skips;
mod tally;
mod test;
mod tree;
mod vm;

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use xshell::Shell;

const USAGE: &str = "usage: cargo xtask <task>
  bpf               rebuild every *.bpf.o from its source
  bpf --check       compare the committed objects with a rebuild
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
  sbom              print those of the static program as CycloneDX JSON, with Debian's libraries
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
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let manifest = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").context("run this program as `cargo xtask`")?);
    std::env::set_current_dir(manifest.parent().context("the crate has no parent directory")?)?;
    let sh = &Shell::new()?;
    match arguments[..] {
        ["bpf"] => bpf::rebuild(sh),
        ["bpf", "--check"] => bpf::check(sh),
        ["fuzz", seconds, ref names @ ..] => fuzz::run(sh, seconds, names),
        ["instructions"] => instructions::run(sh, false),
        ["instructions", "--check"] => instructions::run(sh, true),
        ["pictures"] => pictures::make(sh),
        ["pictures", "--check"] => pictures::check(sh),
        ["release", "--check"] => release::check(sh, None),
        ["release", "--check", tag] => release::check(sh, Some(tag)),
        ["third-party"] => components::third_party(sh),
        ["sbom"] => components::sbom(sh),
        ["tree"] => tree::check(sh),
        ["check"] => test::offline(sh),
        ["test", ref arguments @ ..] => test::run(sh, arguments),
        ["test-beside", ref arguments @ ..] => test::beside_others(sh, arguments),
        ["test-everywhere"] => test::everywhere(sh),
        ["bench-exact", perf, bpftool] => vm::bench_exact(sh, perf, bpftool, None),
        ["bench-exact", perf, bpftool, guest] => vm::bench_exact(sh, perf, bpftool, Some(guest)),
        ["bench-bill", guest, ref experiment @ ..] => vm::bench_bill(sh, guest, experiment),
        ["vm", ref arguments @ ..] => vm::main(sh, arguments),
        _ => bail!("{USAGE}"),
    }
}

/// Returns cargo's target directory.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Does `work` for all items, for at most `workers` of them at the same time; returns the results in the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(workers: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take_one = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < items.len());
    let worker = || std::iter::from_fn(take_one).map(|at| (at, work(&items[at]))).collect::<Vec<_>>();
    let mut done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
