//! Counts the instructions of `bprec report`, of `bprec script` and of `bprec-format` alone, under callgrind, for generated recordings that are the
//! same on every machine. The check detects slower code, and other load on the machine does not disturb it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::builds::{built, named};

/// File of the committed figures: one line per measurement, with the name and the millions of instructions.
const FIGURES: &str = "report/benches/instructions.tsv";
/// Accepted growth of a figure, in percent: compilers differ.
const TOLERANCE_PERCENT: f64 = 10.0;
/// Accepted growth, in percent, of the figures of `bprec-format` alone: they measure one short loop, which varies less.
const FORMAT_TOLERANCE_PERCENT: f64 = 5.0;

/// Measurements: name, argument of the bench, settings of the generated recording, and accepted growth.
const MEASUREMENTS: [(&str, &str, &str, f64); 10] = [
    ("by-prog", "by-prog", "make", TOLERANCE_PERCENT),
    ("by-func", "by-func", "make", TOLERANCE_PERCENT),
    ("by-comm", "by-comm", "make", TOLERANCE_PERCENT),
    ("by-cgroup", "by-cgroup", "make", TOLERANCE_PERCENT),
    ("by-helper", "by-helper", "make", TOLERANCE_PERCENT),
    ("by-prog, churn", "by-prog", "make-churn", TOLERANCE_PERCENT),
    ("by-prog, zstd", "by-prog", "make-zstd", TOLERANCE_PERCENT),
    ("script", "script", "make", TOLERANCE_PERCENT),
    ("records walked", "walk", "make", FORMAT_TOLERANCE_PERCENT),
    ("samples decoded", "decode", "make", FORMAT_TOLERANCE_PERCENT),
];

/// Makes all measurements. With `check`, compares with the committed figures; otherwise overwrites them.
pub(crate) fn run(sh: &Shell, check: bool) -> Result<()> {
    if cmd!(sh, "valgrind --version").quiet().read().is_err() {
        println!("SKIP instructions: valgrind is not installed");
        return Ok(());
    }
    let build = ["build", "--release", "--package=bprec-report", "--bench=instructions", "--features=zstd"];
    let built = built(cmd!(sh, "cargo {build...}"))?;
    // cargo counts a bench as a test program.
    let bench = &named(&built, "instructions", true)?.path;
    let committed = sh.read_file(FIGURES)?;
    let committed: BTreeMap<&str, f64> = committed
        .lines()
        .filter_map(|line| line.split_once('\t').and_then(|(name, millions)| Some((name, millions.parse().ok()?))))
        .collect();
    let mut text =
        "# Millions of instructions (callgrind), one thread; cargo xtask instructions writes this file.\n".to_owned();
    let (directory, mut grown) = (sh.create_temp_dir()?, Vec::new());
    for (name, what, make, tolerance) in MEASUREMENTS {
        let file = directory.path().join(make);
        if !sh.path_exists(&file) {
            cmd!(sh, "{bench} {make} {file}").quiet().run()?;
        }
        let output = cmd!(sh, "valgrind --tool=callgrind --callgrind-out-file=/dev/null {bench} {what} {file}").quiet();
        let said = String::from_utf8(output.output()?.stderr)?;
        let count = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<f64>().ok());
        let millions = count.with_context(|| format!("valgrind printed no instruction count: {said}"))? / 1e6;
        writeln!(text, "{name}\t{millions:.1}")?;
        if !check {
            println!("{name}: {millions:.1} million instructions");
            continue;
        }
        let before = committed.get(name).with_context(|| format!("{FIGURES} has no figure for {name}"))?;
        let percent = (millions / before - 1.0) * 100.0;
        println!(
            "{name}: {millions:.1} million instructions, {percent:+.1} % of {before:.1} (at most {tolerance:+} %)"
        );
        if percent > tolerance {
            grown.push(name);
        }
    }
    if !check {
        return Ok(sh.write_file(FIGURES, text)?);
    }
    let names = grown.join(", ");
    ensure!(grown.is_empty(), "too far above {FIGURES}: {names}; `cargo xtask instructions` writes the new figures");
    Ok(())
}
