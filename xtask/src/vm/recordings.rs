//! Checks the recordings of a guest: compares them with perf in the guest, and with the same `bprec` on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

/// A recording, with the files that the guest left beside it.
struct Recording<'a> {
    sh: &'a Shell,
    /// Path without the extension.
    path: PathBuf,
    report: Value,
}

/// Checks the recording `directory/load.data` of a load. Returns the name and the result of each check.
pub(crate) fn checks(sh: &Shell, directory: &Path, load: &str, bprec: &Path) -> Vec<(String, Result<()>)> {
    let mut it = Recording { sh, path: directory.join(load), report: Value::Null };
    let mut checks = vec![
        ("is_made", it.is_made()),
        ("reads_the_same_elsewhere", it.reads_the_same(bprec)),
        ("has_the_samples_that_perf_counts", it.has_perfs_samples()),
        ("knows_every_program_of_the_load", it.knows_the_load()),
        ("adds_up", it.adds_up()),
    ];
    if load == "trampoline" {
        checks.push(("charges_entry", it.charges_entry()));
    }
    checks.into_iter().map(|(check, result)| (format!("recording_{load}_{check}"), result)).collect()
}

impl Recording<'_> {
    /// Returns a file that the guest left, without space around its text.
    fn text(&self, what: &str) -> Result<String> {
        let bytes = self.sh.read_binary_file(self.path.with_extension(what))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Checks that recording and reporting in the guest ended without a complaint, and reads the report.
    fn is_made(&mut self) -> Result<()> {
        self.report = serde_json::from_str(&self.text("json")?).context("the guest's report is no JSON")?;
        let status = self.text("record.status")?;
        ensure!(status == "0", "bprec record ended with {status}: {}", self.text("record.txt")?);
        let complaints = self.text("report.err")?;
        ensure!(complaints.is_empty(), "bprec report says {complaints}");
        Ok(())
    }

    /// Checks that this machine, with another kernel, prints the same bytes for the file as the guest.
    fn reads_the_same(&self, bprec: &Path) -> Result<()> {
        for (option, what) in [("--by-prog", "report.txt"), ("--json", "json")] {
            let recording = self.path.with_extension("data");
            let ours = cmd!(self.sh, "{bprec} report {option} -i {recording}").quiet().output()?.stdout;
            let theirs = self.sh.read_binary_file(self.path.with_extension(what))?;
            ensure!(!theirs.is_empty(), "{what} of the guest is empty");
            ensure!(ours == theirs, "report {option} differs from the guest's {what}");
        }
        Ok(())
    }

    /// Checks that perf opens the file without a message, and finds the same number of samples of the event as bprec.
    fn has_perfs_samples(&self) -> Result<()> {
        let complaints = self.text("perf.err")?;
        ensure!(complaints.is_empty(), "perf says {complaints}");
        let event = &self.report["events"][0];
        let (name, ours) = (event["name"].as_str().unwrap_or_default(), &event["samples"]["samples"]);
        let theirs = self.text("perf.txt")?.lines().filter(|line| line.trim().trim_end_matches(':') == name).count();
        ensure!(theirs > 0 && *ours == theirs, "{name}: {ours} samples, perf counts {theirs}");
        Ok(())
    }

    /// Checks that the report has the ids and full names that the loader got from libbpf and the kernel.
    fn knows_the_load(&self) -> Result<()> {
        let programs = self.report["programs"].as_array().context("the report has no programs")?;
        let text = self.text("load.txt")?;
        let loaded: Vec<_> = text.lines().filter(|line| line.starts_with("program ")).collect();
        ensure!(!loaded.is_empty(), "nothing was loaded: {}", self.text("load.err")?);
        for line in loaded {
            let field = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)).context(line.to_owned());
            let (id, name) = (field("id=")?.parse::<u64>()?, field("name=")?);
            let known = programs.iter().find(|program| program["id"] == id);
            let known = &known.with_context(|| format!("program {id} {name} is not in the report"))?["name"];
            // Without BTF, the kernel keeps only 15 characters of a name.
            let is_cut = name == "counted_without_type_information" && known == &name[..15];
            ensure!(known == name || is_cut, "program {name} has the name {known} in the report");
        }
        Ok(())
    }

    /// Checks that the rows and lines of the report by program add up to its total.
    fn adds_up(&self) -> Result<()> {
        let event = &self.report["events"][0];
        for unit in ["samples", "weight"] {
            let of = |line: &Value| line[unit].as_u64().unwrap_or(0);
            let rows: u64 = event["rows"].as_array().context("no rows")?.iter().map(of).sum();
            let lines = ["others", "entry_unattributed", "interpreted", "counting_programs"];
            let rest: u64 = lines.iter().map(|line| of(&event[line])).sum();
            let total = of(&event["total"]);
            ensure!(total > 0 && rows + rest == total, "{unit}: {rows} in rows, {rest} in other lines, total {total}");
        }
        Ok(())
    }

    /// Checks that the BPF program with its own trampoline is charged for the trampoline.
    fn charges_entry(&self) -> Result<()> {
        let event = &self.report["events"][0];
        let mut rows = event["rows"].as_array().context("no rows")?.iter();
        let is_charged = rows.any(|row| {
            row["name"] == "run_alone_at_function_entry" && row["entry"]["samples"].as_u64().is_some_and(|it| it > 0)
        });
        let without = &event["entry_unattributed"]["samples"];
        ensure!(is_charged, "no trampoline is charged to the only program on it, {without} are unattributed");
        Ok(())
    }
}
