//! Benches in guests: `cargo xtask bench-exact` compares exact counters with other tools that count BPF programs by the same means, `cargo xtask
//! bench-bill` compares bills with the CPU time that a guest saves without an agent.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xshell::Shell;

use super::{Guest, guest, named, payload};

const LIMIT: Duration = Duration::from_secs(5400);
const COST: &str = "./exact cost ./perf ./bpftool";
const ATTACH: &str = "./exact attach";
const CAUSES: &str = "./exact causes 4";
/// Runs of the bench: guest, true if its clock counts instructions, and commands. Each guest runs with the host's clock, and with a clock that counts
/// instructions, so that the same work takes the same time. On one kernel bprec counts with pairs of fentry and fexit programs, on the other with
/// fsession programs. These guests have no PMU, so the events are software events.
const RUNS: [(&str, bool, &[&str]); 4] = [
    ("x86-6.12", true, &[COST, "./exact gate", CAUSES, "./exact budget ./bprec 1 4", "./exact gauge 2"]),
    ("x86-6.12", false, &[COST, CAUSES, ATTACH, "./exact totals ./perf ./bprec 50"]),
    ("x86-new", true, &[COST]),
    ("x86-new", false, &[COST, ATTACH]),
];

/// Runs the bench `exact` of `bpf/` in the guest `only`, or in all guests of the bench, and prints its tables. The files `perf` and `bpftool` must
/// run in the guest: they are static, or built for the same release.
pub(crate) fn exact(sh: &Shell, perf: &Path, bpftool: &Path, only: Option<&str>) -> Result<()> {
    let payload = payload::with_bench(sh, "bprec-bpf", "exact")?;
    sh.copy_file(perf, payload.join("perf"))?;
    sh.copy_file(bpftool, payload.join("bpftool"))?;
    let runs: Vec<_> = RUNS.iter().filter(|(guest, ..)| only.is_none_or(|only| only == *guest)).collect();
    ensure!(!runs.is_empty(), "the benchmark does not run in guest {}", only.unwrap_or_default());
    runs.iter().try_for_each(|(guest, icount, commands)| in_guest(sh, &payload, guest, *icount, commands))
}

/// Runs an experiment of the bench `bill` in a guest whose clock counts instructions, and prints its table. With the host's clock, each emulated
/// instruction takes a different time, and the guest's CPU clocks also count what the host does meanwhile.
pub(crate) fn bill(sh: &Shell, guest: &str, experiment: &[String]) -> Result<()> {
    let payload = payload::with_bench(sh, "bprec", "bill")?;
    in_guest(sh, &payload, guest, true, &[&format!("./bill ./bprec ./bprec-load {}", experiment.join(" "))])
}

/// Runs commands in a guest and prints their outputs.
fn in_guest(sh: &Shell, payload: &Path, name: &str, icount: bool, commands: &[&str]) -> Result<()> {
    let clock = if icount { "its instruction count (1 ns each)" } else { "the host's clock" };
    let out = payload.with_file_name(format!("{name}-icount-{icount}"));
    let script = commands.iter().zip(1..).map(|(command, number)| format!("{command} >/out/{number}.md 2>&1\n"));
    sh.write_file(payload.join("run.sh"), script.collect::<String>())?;
    let found = named(name)?;
    let cpus = if icount { 1 } else { found.cpus };
    let run = guest::run(sh, &Guest { icount, cpus, ..found.clone() }, payload, &out, LIMIT)?;
    println!("\n## {name}, guest paced by {clock}");
    for (command, number) in commands.iter().zip(1..) {
        let output = sh.read_file(out.join(format!("out/{number}.md"))).context(run.ended.clone())?;
        println!("\n### {command}\n\n{output}");
    }
    run.succeeded()
}
