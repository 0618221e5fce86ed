//! Benches in guests: `cargo xtask bench-exact` compares exact counters with other tools that count BPF programs by the same means, `cargo xtask
//! bench-bill` compares bills with the CPU time that a guest saves without an agent.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::packages::fresh;
use super::{GUESTS, Guest, Pace, guest, images, payload};

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
pub(crate) fn exact(perf: &str, bpftool: &str, only: Option<&str>) -> Result<()> {
    let target = crate::target_directory().join("vm").join("bench");
    let payload = target.join("payload");
    fresh(&payload)?;
    payload::with_bench(&payload, "bprec-bpf", "exact")?;
    for (path, name) in [(perf, "perf"), (bpftool, "bpftool")] {
        fs::copy(path, payload.join(name)).with_context(|| format!("copy {path}"))?;
    }
    let runs: Vec<_> = RUNS.iter().filter(|(guest, ..)| only.is_none_or(|only| only == *guest)).collect();
    ensure!(!runs.is_empty(), "the benchmark does not run in guest {}", only.unwrap_or_default());
    for (guest, pace, benches) in runs {
        let commands: Vec<(&str, String)> =
            benches.iter().map(|(name, command)| (*name, format!("./exact {command}"))).collect();
        in_guest(guest, *pace, &payload, &commands)?;
    }
    Ok(())
}

/// Runs an experiment of the bench `bill` in a guest whose clock counts instructions, and prints its table. With the host's clock, each emulated
/// instruction takes a different time, and the guest's CPU clocks also count what the host does meanwhile.
pub(crate) fn bill(guest: &str, experiment: &[&str]) -> Result<()> {
    let payload = crate::target_directory().join("vm").join("bench").join("payload");
    fresh(&payload)?;
    payload::with_bench(&payload, "bprec", "bill")?;
    in_guest(guest, Pace::Instructions, &payload, &[("bill", format!("./bill ./bprec ./bprec-load {}", experiment.join(" ")))])
}

/// Runs commands in a guest, each with a name for its output, and prints their outputs.
fn in_guest(name: &str, pace: Pace, payload: &Path, commands: &[(&str, String)]) -> Result<()> {
    let found = GUESTS.iter().find(|guest| guest.name == name).with_context(|| format!("there is no guest {name}"))?;
    let images = images::prepare(found)?;
    let script: String = commands.iter().map(|(name, command)| format!("{command} >/out/{name}.md 2>&1\n")).collect();
    fs::write(payload.join("run.sh"), script)?;
    let out = payload.with_file_name(format!("{name}-{pace:?}").to_lowercase());
    let cpus = if pace == Pace::Time { found.cpus } else { 1 };
    let run = guest::run(&Guest { pace, cpus, ..*found }, &images, payload, &out, LIMIT)?;
    let clock = if pace == Pace::Time { "the host's clock" } else { "its instruction count (1 ns each)" };
    println!("\n## {name}, guest paced by {clock}");
    for (name, command) in commands {
        let table = out.join("out").join(format!("{name}.md"));
        let table = fs::read_to_string(&table).with_context(|| format!("{}: no {}", run.outcome, table.display()))?;
        println!("\n### {command}\n\n{table}");
    }
    ensure!(run.outcome == guest::Outcome::Ended(0), "{}; see {}", run.outcome, out.display());
    Ok(())
}
