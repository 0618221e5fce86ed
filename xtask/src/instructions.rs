//! Counts the instructions of `bprec report`, of `bprec script` and of `bprec-format` alone, under callgrind, for generated recordings that are the
//! same on every machine. The check detects slower code, and other load on the machine does not disturb it.

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::builds::{built, named};

/// Table of the measurements, with the committed figures.
const FIGURES: &str = "report/benches/instructions.tsv";

/// Makes all measurements and compares them with the committed figures. Without `check`, overwrites the figures.
pub(crate) fn run(sh: &Shell, check: bool) -> Result<()> {
    if cmd!(sh, "valgrind --version").quiet().read().is_err() {
        println!("SKIP instructions: valgrind is not installed");
        return Ok(());
    }
    let built = built(cmd!(sh, "cargo build --release --package bprec-report --bench instructions --features zstd"))?;
    // cargo counts a bench as a test program.
    let bench = &named(&built, "instructions", true)?.path;
    let (directory, mut table, mut grown) = (sh.create_temp_dir()?, String::new(), Vec::new());
    let committed = sh.read_file(FIGURES)?;
    for line in committed.lines() {
        let [what, make, limit, before] = line.split('\t').collect::<Vec<_>>()[..] else {
            ensure!(line.starts_with('#'), "{FIGURES}: expected four columns: {line}");
            table += &format!("{line}\n");
            continue;
        };
        let file = directory.path().join(make);
        if !sh.path_exists(&file) {
            cmd!(sh, "{bench} {make} {file}").quiet().run()?;
        }
        let output = cmd!(sh, "valgrind --tool=callgrind --callgrind-out-file=/dev/null {bench} {what} {file}").quiet();
        let said = String::from_utf8(output.output()?.stderr)?;
        let count = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<f64>().ok());
        let millions = count.with_context(|| format!("valgrind printed no instruction count: {said}"))? / 1e6;
        let percent = (millions / before.parse::<f64>()? - 1.0) * 100.0;
        println!("{what} {make}: {millions:.1} million instructions, {percent:+.1} % of {before} (at most +{limit} %)");
        if percent > limit.parse()? {
            grown.push(format!("{what} {make}"));
        }
        table += &format!("{what}\t{make}\t{limit}\t{millions:.1}\n");
    }
    if !check {
        return Ok(sh.write_file(FIGURES, table)?);
    }
    let names = grown.join(", ");
    ensure!(grown.is_empty(), "too far above {FIGURES}: {names}; `cargo xtask instructions` writes the new figures");
    Ok(())
}
