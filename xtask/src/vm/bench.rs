//! Benches in guests: `cargo xtask bench-exact` compares exact counters with other tools that count BPF programs by the same means, `cargo xtask
//! bench-bill` compares bills with the CPU time that a guest saves without an agent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xshell::Shell;

use super::{Guest, Pace, guest, named, payload};
use crate::target_directory;

const LIMIT: Duration = Duration::from_secs(5400);
/// A part of the bench: the name of its table, and the arguments with which the bench runs it.
type Part = (&'static str, &'static str);
const COST: Part = ("cost", "cost ./perf ./bpftool");
const ATTACH: Part = ("attach", "attach");
const CAUSES: Part = ("causes", "causes 4");
/// Runs of the bench: guest, clock and parts. Each guest runs with the host's clock, and with a clock that counts instructions, so that the same work
/// takes the same time. On one kernel bprec counts with pairs of fentry and fexit programs, on the other with fsession programs. These guests have no
/// PMU, so the events are software events.
const RUNS: [(&str, Pace, &[Part]); 4] = [
    (
        "x86-6.12",
        Pace::Instructions,
        &[COST, ("gate", "gate"), CAUSES, ("budget", "budget ./bprec 1 4"), ("gauge", "gauge 2")],
    ),
    ("x86-6.12", Pace::Time, &[COST, CAUSES, ATTACH, ("totals", "totals ./perf ./bprec 50")]),
    ("x86-new", Pace::Instructions, &[COST]),
    ("x86-new", Pace::Time, &[COST, ATTACH]),
];

/// Runs the bench `exact` of `bpf/` in the guest `only`, or in all guests of the bench, and prints its tables. The files `perf` and `bpftool` must
/// run in the guest: they are static, or built for the same release.
pub(crate) fn exact(sh: &Shell, perf: &Path, bpftool: &Path, only: Option<&str>) -> Result<()> {
    let payload = directory().join("payload");
    payload::with_bench(sh, &payload, "bprec-bpf", "exact")?;
    sh.copy_file(perf, payload.join("perf"))?;
    sh.copy_file(bpftool, payload.join("bpftool"))?;
    let runs: Vec<_> = RUNS.iter().filter(|(guest, ..)| only.is_none_or(|only| only == *guest)).collect();
    ensure!(!runs.is_empty(), "the benchmark does not run in guest {}", only.unwrap_or_default());
    for (guest, pace, parts) in runs {
        let commands = parts.iter().map(|(name, command)| (*name, format!("./exact {command}")));
        in_guest(sh, guest, *pace, &commands.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Runs an experiment of the bench `bill` in a guest whose clock counts instructions, and prints its table. With the host's clock, each emulated
/// instruction takes a different time, and the guest's CPU clocks also count what the host does meanwhile.
pub(crate) fn bill(sh: &Shell, guest: &str, experiment: &[String]) -> Result<()> {
    payload::with_bench(sh, &directory().join("payload"), "bprec", "bill")?;
    let command = format!("./bill ./bprec ./bprec-load {}", experiment.join(" "));
    in_guest(sh, guest, Pace::Instructions, &[("bill", command)])
}

fn directory() -> PathBuf {
    target_directory().join("vm/bench")
}

/// Runs commands in a guest, each with a name for its output, and prints their outputs.
fn in_guest(sh: &Shell, name: &str, pace: Pace, commands: &[(&str, String)]) -> Result<()> {
    let (payload, out) = (directory().join("payload"), directory().join(format!("{name}-{pace:?}").to_lowercase()));
    let script: String = commands.iter().map(|(name, command)| format!("{command} >/out/{name}.md 2>&1\n")).collect();
    sh.write_file(payload.join("run.sh"), script)?;
    let found = named(name)?;
    let cpus = if pace == Pace::Time { found.cpus } else { 1 };
    let run = guest::run(sh, &Guest { pace, cpus, ..found.clone() }, &payload, &out, LIMIT)?;
    let clock = if pace == Pace::Time { "the host's clock" } else { "its instruction count (1 ns each)" };
    println!("\n## {name}, guest paced by {clock}");
    for (name, command) in commands {
        println!("\n### {command}\n\n{}", sh.read_file(out.join(format!("out/{name}.md"))).context(run.ended.clone())?);
    }
    run.succeeded()
}
