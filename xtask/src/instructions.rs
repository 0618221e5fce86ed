//! Counts the instructions of `bprec report`, of `bprec script` and of `bprec-format` alone, under callgrind, for generated recordings that are the
//! same on every machine. The check detects slower code, and other load on the machine does not disturb it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::command;

/// File of the committed figures: one line per measurement, with the name and the millions of instructions.
const FIGURES: &str = "report/benches/instructions.tsv";
/// Accepted growth of a figure, in percent: compilers differ.
const TOLERANCE_PERCENT: f64 = 10.0;
/// Accepted growth, in percent, of the figures of `bprec-format` alone: they measure one short loop, which varies less.
const FORMAT_TOLERANCE_PERCENT: f64 = 5.0;

/// Measurements: name, argument of the bench, and settings of the generated recording.
const MEASUREMENTS: [(&str, &str, &str); 10] = [
    ("by-prog", "by-prog", "make"),
    ("by-func", "by-func", "make"),
    ("by-comm", "by-comm", "make"),
    ("by-cgroup", "by-cgroup", "make"),
    ("by-helper", "by-helper", "make"),
    ("by-prog, churn", "by-prog", "make-churn"),
    ("by-prog, zstd", "by-prog", "make-zstd"),
    ("script", "script", "make"),
    ("records walked", "walk", "make"),
    ("samples decoded", "decode", "make"),
];

/// Makes all measurements. With `check`, compares with the committed figures; otherwise overwrites them.
pub(crate) fn run(check: bool) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIP instructions: valgrind is not installed");
        return Ok(());
    }
    let bench = bench()?;
    let directory = std::env::temp_dir().join(format!("bprec-instructions-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let counted = MEASUREMENTS.iter().map(|(name, what, make)| {
        let file = directory.join(make);
        if !file.exists() {
            command::run(Command::new(&bench).arg(make).arg(&file))?;
        }
        Ok((*name, instructions(&bench, what, &file)? / 1e6))
    });
    let counted: Result<Vec<(&str, f64)>> = counted.collect();
    fs::remove_dir_all(&directory)?;
    let counted = counted?;
    if check { compare(&counted) } else { write(&counted) }
}

/// Builds the bench and returns its path.
fn bench() -> Result<PathBuf> {
    let mut build =
        command::cargo(&["build", "--release", "--locked", "--package", "bprec-report", "--bench", "instructions"]);
    build.args(["--features", "zstd", "--message-format", "json-render-diagnostics"]);
    let messages = command::output(&mut build)?;
    let mut executable = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "instructions").then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executable.next_back().context("cargo reported no executable for the bench `instructions`")
}

/// Runs the bench once and returns callgrind's count of instructions.
fn instructions(bench: &Path, what: &str, file: &Path) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(bench)
        .arg(what)
        .arg(file)
        .output()
        .context("run valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind {what}: {said}");
    let count = said
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .context("valgrind printed no instruction count")?
        .1;
    count.trim().parse().with_context(|| format!("{count}: expected a count of instructions"))
}

fn compare(counted: &[(&str, f64)]) -> Result<()> {
    let committed = fs::read_to_string(FIGURES).with_context(|| format!("read {FIGURES}"))?;
    let committed: BTreeMap<&str, f64> = committed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t').and_then(|(name, millions)| Some((name, millions.parse().ok()?))))
        .collect();
    let mut grown = Vec::new();
    for (name, millions) in counted {
        let Some(before) = committed.get(name) else { bail!("{FIGURES} has no figure for {name}") };
        let percent = (millions / before - 1.0) * 100.0;
        let is_of_format = ["records walked", "samples decoded"].contains(name);
        let tolerance = if is_of_format { FORMAT_TOLERANCE_PERCENT } else { TOLERANCE_PERCENT };
        println!(
            "{name}: {millions:.1} million instructions, {percent:+.1} % of {before:.1} (at most {tolerance:+} %)"
        );
        if percent > tolerance {
            grown.push(*name);
        }
    }
    ensure!(
        grown.is_empty(),
        "too far above {FIGURES}: {}; `cargo xtask instructions` writes the new figures",
        grown.join(", ")
    );
    Ok(())
}

fn write(counted: &[(&str, f64)]) -> Result<()> {
    let mut text = String::from(
        "# Millions of instructions (callgrind), one thread; cargo xtask instructions writes this file.\n",
    );
    for (name, millions) in counted {
        println!("{name}: {millions:.1} million instructions");
        text.push_str(&format!("{name}\t{millions:.1}\n"));
    }
    fs::write(FIGURES, text).with_context(|| format!("write {FIGURES}"))
}
