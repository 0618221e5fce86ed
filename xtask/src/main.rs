//! Developer tasks, the same on a developer's machine and in CI: `cargo xtask <task>`.
//!
//! Each task is a module that prints its findings and fails if something is wrong. A check that is impossible on this machine prints one line
//! `SKIP <check>: <reason>` and succeeds.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod builds;
mod components;
mod instructions;
mod logged;
mod pictures;
mod release;
mod skips;
mod tally;
mod test;
mod tree;
mod vm;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser};
use xshell::Shell;

/// Developer tasks of bprec
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Count the instructions of reports under callgrind
    Instructions(Mode),
    /// Make the pictures of README.md; needs chromium and tmux
    Pictures(Mode),
    /// Check the conditions for a release, with this tag
    Release {
        #[arg(long, value_name = "TAG", required = true)]
        check: Option<Option<String>>,
    },
    /// Print the components that bprec is linked with, and their licences
    ThirdParty,
    /// Print the components of the static program as CycloneDX JSON, with Debian's libraries
    Sbom,
    /// Check headers, file sizes, stray machine paths, the direction of imports, and the first words of comments
    Tree,
    /// Run `cargo test ARGUMENTS` of the workspace or of `-p CRATE`, and print one line with the totals of all test programs
    Test(Arguments),
    /// Run `test` beside pinned programs, a tracer and another recorder; needs root
    TestBeside(Arguments),
    /// Run all tests as `test-beside` does, then in every guest, and print one line with all totals
    TestEverywhere,
    /// Compare bills and predictions with runs without the agent, in a guest (benches/bill.rs)
    BenchBill { guest: String, experiment: Vec<String> },
    /// Measure the cost of exact counters, perf stat -b and bpftool prog profile, in guests
    BenchExact { perf: PathBuf, bpftool: PathBuf, guest: Option<String> },
    /// Run programs and tests on other kernels, in QEMU guests (docs/vm.md)
    #[command(subcommand)]
    Vm(vm::Task),
}

#[derive(Args)]
struct Mode {
    /// Compare with the committed files; change none
    #[arg(long)]
    check: bool,
}

#[derive(Args)]
struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() {
    if let Err(why) = run(Task::parse()) {
        eprintln!("xtask: {why:#}");
        std::process::exit(1);
    }
}

fn run(task: Task) -> Result<()> {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").context("run this program as `cargo xtask`")?;
    std::env::set_current_dir(Path::new(&manifest).join(".."))?;
    let sh = &Shell::new()?;
    match task {
        Task::Instructions(Mode { check }) => instructions::run(sh, check),
        Task::Pictures(Mode { check }) => pictures::run(sh, check),
        Task::Release { check } => release::check(sh, check.flatten().as_deref()),
        Task::ThirdParty => components::third_party(sh),
        Task::Sbom => components::sbom(sh),
        Task::Tree => tree::check(sh),
        Task::Test(Arguments { arguments }) => test::run(sh, &arguments),
        Task::TestBeside(Arguments { arguments }) => test::beside_others(sh, &arguments),
        Task::TestEverywhere => test::everywhere(sh),
        Task::BenchBill { guest, experiment } => vm::bench_bill(sh, &guest, &experiment),
        Task::BenchExact { perf, bpftool, guest } => vm::bench_exact(sh, &perf, &bpftool, guest.as_deref()),
        Task::Vm(task) => vm::run(sh, &task),
    }
}

/// Returns cargo's target directory.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}
