//! `cargo xtask bench-exact`: compares exact counters with other tools that count BPF programs by the same means.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::packages::fresh;
use super::{GUESTS, Guest, Pace, guest, images, payload};

const LIMIT: Duration = Duration::from_secs(900);
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
    for (name, pace, benches) in runs {
        let found = GUESTS.iter().find(|guest| guest.name == *name).context("no such guest")?;
        let images = images::prepare(found)?;
        let script: String =
            benches.iter().map(|(name, command)| format!("./exact {command} >/out/{name}.md 2>&1\n")).collect();
        fs::write(payload.join("run.sh"), script)?;
        let out = target.join(format!("{name}-{pace:?}").to_lowercase());
        let run = guest::run(
            &Guest { pace: *pace, cpus: if *pace == Pace::Time { found.cpus } else { 1 }, ..*found },
            &images,
            &payload,
            &out,
            LIMIT,
        )?;
        println!(
            "\n## {name}, guest paced by {}",
            if *pace == Pace::Time { "the host's clock" } else { "its instruction count (1 ns each)" }
        );
        for (name, command) in *benches {
            let table = out.join("out").join(format!("{name}.md"));
            let table =
                fs::read_to_string(&table).with_context(|| format!("{}: no {}", run.outcome, table.display()))?;
            println!("\n### {command}\n\n{table}");
        }
        ensure!(run.outcome == guest::Outcome::Ended(0), "{}; see {}", run.outcome, Path::new(&out).display());
    }
    Ok(())
}
