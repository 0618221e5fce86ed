//! `cargo xtask bench-exact`: exact counters beside the tools that count BPF programs by the same means.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::packages::fresh;
use super::{GUESTS, Guest, Pace, guest, images, payload};

/// The guest, without a PMU: what is read there is software events.
const GUEST: &str = "x86-6.12";
const LIMIT: Duration = Duration::from_secs(900);
/// What is run by the clock, and what by instructions, where the same work takes the same every time.
const RUNS: [(Pace, &[(&str, &str)]); 2] = [
    (Pace::Instructions, &[("cost", "cost ./perf ./bpftool"), ("gate", "gate"), ("budget", "budget ./bprec 1 4")]),
    (Pace::Time, &[("cost", "cost ./perf ./bpftool"), ("attach", "attach"), ("totals", "totals ./perf ./bprec 50")]),
];

/// Runs the bench `exact` of `bpf/` with this perf and this bpftool, which have to run there (static, or built for the same release), and
/// prints its tables.
pub(crate) fn exact(perf: &str, bpftool: &str) -> Result<()> {
    let found = GUESTS.iter().find(|guest| guest.name == GUEST).context("no such guest")?;
    let images = images::prepare(found)?;
    let target = super::checks::target_directory().join("vm").join("bench");
    let payload = target.join("payload");
    fresh(&payload)?;
    payload::with_bench(&payload, "bprec-bpf", "exact")?;
    for (path, name) in [(perf, "perf"), (bpftool, "bpftool")] {
        fs::copy(path, payload.join(name)).with_context(|| format!("copy {path}"))?;
    }
    for (pace, benches) in RUNS {
        let script: String =
            benches.iter().map(|(name, command)| format!("./exact {command} >/out/{name}.md 2>&1\n")).collect();
        fs::write(payload.join("run.sh"), script)?;
        let out = target.join(format!("{pace:?}").to_lowercase());
        let run = guest::run(&Guest { pace, ..*found }, &images, &payload, &out, LIMIT)?;
        println!("\n## {GUEST}, by {}", if pace == Pace::Time { "the clock" } else { "instructions" });
        for (name, command) in benches {
            let table = out.join("out").join(format!("{name}.md"));
            let table =
                fs::read_to_string(&table).with_context(|| format!("{}: no {}", run.outcome, table.display()))?;
            println!("\n### {command}\n\n{table}");
        }
        ensure!(run.outcome == guest::Outcome::Ended(0), "{}; see {}", run.outcome, Path::new(&out).display());
    }
    Ok(())
}
