//! Checks the recordings of a guest: compares them with perf in the guest, and with the same `bprec` on this machine.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

/// Checks the recording `directory/name.data` with the files that the guest left beside it. Returns the name and the result of each check.
pub(crate) fn checks(sh: &Shell, directory: &Path, name: &str, bprec: &Path) -> Vec<(String, Result<()>)> {
    let recording = Recording { sh, directory, name };
    let mut checks = vec![
        ("is_made", recording.is_made()),
        ("reads_the_same_elsewhere", recording.reads_the_same(bprec)),
        ("has_the_samples_that_perf_counts", recording.has_perfs_samples()),
        ("knows_every_program_of_the_load", recording.knows_the_load()),
        ("adds_up", recording.adds_up()),
    ];
    if name == "trampoline" {
        checks.push(("charges_entry", recording.charges_entry()));
    }
    checks.into_iter().map(|(check, result)| (format!("recording_{name}_{check}"), result)).collect()
}

struct Recording<'a> {
    sh: &'a Shell,
    directory: &'a Path,
    name: &'a str,
}

impl Recording<'_> {
    fn text(&self, what: &str) -> Result<String> {
        let bytes = self.sh.read_binary_file(self.directory.join(format!("{}.{what}", self.name)))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn report(&self) -> Result<Value> {
        serde_json::from_str(&self.text("json")?).context("the guest's report is no JSON")
    }

    fn is_made(&self) -> Result<()> {
        let status = self.text("record.status")?;
        ensure!(status.trim() == "0", "bprec record ended with {}: {}", status.trim(), self.text("record.txt")?.trim());
        let complaints = self.text("report.err")?;
        ensure!(complaints.is_empty(), "bprec report says {}", complaints.trim());
        Ok(())
    }

    /// Checks that this machine, with another kernel, prints the same bytes for the file as the guest.
    fn reads_the_same(&self, bprec: &Path) -> Result<()> {
        for (option, what) in [("--by-prog", "report.txt"), ("--json", "json")] {
            let recording = self.directory.join(format!("{}.data", self.name));
            let ours = cmd!(self.sh, "{bprec} report {option} -i {recording}").quiet().output()?.stdout;
            let theirs = self.text(what)?;
            ensure!(!theirs.is_empty(), "{what} of the guest is empty");
            ensure!(ours == theirs.as_bytes(), "report {option} differs from the guest's {what}");
        }
        Ok(())
    }

    /// Checks that perf opens the file without a message, and finds the same number of samples of the event as bprec.
    fn has_perfs_samples(&self) -> Result<()> {
        let complaints = self.text("perf.err")?;
        ensure!(complaints.trim().is_empty(), "perf says {}", complaints.trim());
        let event = &self.report()?["events"][0];
        let (name, ours) = (event["name"].as_str().unwrap_or_default(), event["samples"]["samples"].as_u64());
        let is_it = |line: &&str| line.trim().trim_end_matches(':') == name;
        let theirs = self.text("perf.txt")?.lines().filter(is_it).count() as u64;
        ensure!(theirs > 0 && ours == Some(theirs), "{name}: {ours:?} samples, perf counts {theirs}");
        Ok(())
    }

    /// Checks that the report has the ids and full names that the loader got from libbpf and the kernel.
    fn knows_the_load(&self) -> Result<()> {
        let report = self.report()?;
        let programs = report["programs"].as_array().context("the report has no programs")?;
        let mut loaded = 0;
        for line in self.text("load.txt")?.lines().filter(|line| line.starts_with("program ")) {
            let (id, name) = (field(line, "id")?.parse::<u64>()?, field(line, "name")?);
            let known = programs.iter().find(|program| program["id"] == id);
            let known = &known.with_context(|| format!("program {id} {name} is not in the report"))?["name"];
            // Without BTF, the kernel keeps only 15 characters of a name.
            let is_cut = name == "counted_without_type_information" && known == &name[..15];
            ensure!(known == name || is_cut, "program {name} has the name {known} in the report");
            loaded += 1;
        }
        ensure!(loaded > 0, "nothing was loaded: {}", self.text("load.err")?.trim());
        Ok(())
    }

    /// Checks that the rows and lines of the report by program add up to its total.
    fn adds_up(&self) -> Result<()> {
        let event = &self.report()?["events"][0];
        for unit in ["samples", "weight"] {
            let of = |line: &Value| line[unit].as_u64().unwrap_or(0);
            let rows: u64 = event["rows"].as_array().context("no rows")?.iter().map(of).sum();
            let lines = ["others", "entry_unattributed", "interpreted", "counting_programs"];
            let rest: u64 = lines.iter().map(|line| of(&event[line])).sum();
            let total = of(&event["total"]);
            let is_whole = total > 0 && rows + rest == total;
            ensure!(is_whole, "{unit}: {rows} in rows and {rest} in other lines, total {total}");
        }
        Ok(())
    }

    /// Checks that the BPF program with its own trampoline is charged for the trampoline.
    fn charges_entry(&self) -> Result<()> {
        let event = &self.report()?["events"][0];
        let rows = event["rows"].as_array().context("no rows")?;
        let is_charged = |row: &Value| row["entry"]["samples"].as_u64().is_some_and(|samples| samples > 0);
        let without = &event["entry_unattributed"]["samples"];
        let mut traced = rows.iter().filter(|row| row["name"] == "run_alone_at_function_entry");
        ensure!(
            traced.any(is_charged),
            "no trampoline is charged to the only program on it, {without} are unattributed"
        );
        Ok(())
    }
}

/// Returns the value of `key=value` in a line of the loader's output.
fn field<'a>(line: &'a str, key: &str) -> Result<&'a str> {
    let found = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    found.with_context(|| format!("no {key} in {line:?}"))
}
