//! Options that several commands share, and the parser of each kind of value.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bprec_report::{CpuList, DiffOptions, Options, ProgFilter, ScriptOptions, TimeRange, WallRange, WallTime};

/// Heading of options that select the measured target, or the part of a recording that is read.
pub(crate) const SELECTION: &str = "Selection";
/// Heading of options that choose the view of a recording.
pub(crate) const VIEWS: &str = "Views";
/// Heading of options that choose the destination and the form of the output.
pub(crate) const OUTPUT: &str = "Output";
/// Heading of options that control start, end, messages and privileges of a command.
pub(crate) const RUNNING: &str = "Running";

/// The recording that a command reads: the value of `-i`, or the only argument.
#[derive(clap::Args)]
pub(crate) struct InputArgs {
    /// Recording to read; `-` is standard input. Can be gzip-compressed [default: perf.data].
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Recording to read, as with -i.
    #[arg(value_name = "FILE", conflicts_with = "input")]
    file: Option<PathBuf>,
}

impl InputArgs {
    /// Path of the recording.
    pub(crate) fn path(&self) -> &Path {
        self.input.as_deref().or(self.file.as_deref()).unwrap_or(Path::new("perf.data"))
    }
}

/// The files of a recording, and the range of wall time that the command reads.
#[derive(clap::Args)]
pub(crate) struct FilesArgs {
    /// Recording to read; `-` is standard input. Can be gzip-compressed. Several files, or a directory of them (record --switch-output), are
    /// read as one recording in time order [default: perf.data].
    #[arg(short, long, value_name = "FILE")]
    input: Vec<PathBuf>,

    /// Recordings to read, as with -i.
    #[arg(value_name = "FILE", conflicts_with = "input")]
    files: Vec<PathBuf>,

    /// Read only samples after this time: 03:00, '2026-11-25 03:00' (UTC, or with a zone: 03:00+01:00), or -10m before the end. Skips files
    /// that end earlier.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "time", help_heading = SELECTION)]
    since: Option<WallTime>,

    /// Read only samples before this time, written as for --since.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "time", help_heading = SELECTION)]
    until: Option<WallTime>,
}

impl FilesArgs {
    /// Paths of the files.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let given = if self.input.is_empty() { &self.files } else { &self.input };
        if given.is_empty() { vec![PathBuf::from("perf.data")] } else { given.clone() }
    }

    /// The range of wall time.
    pub(crate) fn range(&self) -> WallRange {
        WallRange { since: self.since, until: self.until }
    }
}

/// Selection of the programs in a table.
#[derive(clap::Args)]
pub(crate) struct ProgramArgs {
    /// Show only these programs: a name (with * and ?), an id or a tag.
    #[arg(long, value_name = "PROG", value_delimiter = ',', help_heading = SELECTION)]
    pub(crate) prog: Vec<ProgFilter>,

    /// Show at most N programs.
    #[arg(long, value_name = "N", value_parser = number, help_heading = OUTPUT)]
    pub(crate) limit: Option<usize>,

    /// Also show programs without samples and runs.
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) all: bool,
}

impl From<ProgramArgs> for Options {
    fn from(args: ProgramArgs) -> Options {
        Options { programs: args.prog, limit: args.limit, all: args.all, ..Options::default() }
    }
}

impl From<ProgramArgs> for DiffOptions {
    fn from(args: ProgramArgs) -> DiffOptions {
        DiffOptions { programs: args.prog, limit: args.limit, all: args.all, ..DiffOptions::default() }
    }
}

/// Selection of samples.
#[derive(clap::Args)]
pub(crate) struct PartArgs {
    /// Use only this time range: START,STOP in seconds from the start, @START,STOP in seconds of the recording's clock, or 10%-20%.
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true, help_heading = SELECTION)]
    time: Option<TimeRange>,

    /// Use only samples on these CPUs: 0,2-5.
    #[arg(short = 'C', long, value_name = "LIST", help_heading = SELECTION)]
    pub(crate) cpu: Option<CpuList>,

    /// Use only samples of tasks with these names (with * and ?).
    #[arg(
        short,
        long,
        alias = "comm",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "redact",
        help_heading = SELECTION
    )]
    pub(crate) comms: Vec<String>,
}

impl PartArgs {
    /// Replaces the time range by that of --since and --until, if given.
    pub(crate) fn within(self, time: Option<TimeRange>) -> PartArgs {
        PartArgs { time: time.or(self.time), ..self }
    }
}

impl From<PartArgs> for Options {
    fn from(args: PartArgs) -> Options {
        let time = args.time.unwrap_or_default();
        Options { time, cpus: args.cpu, comms: args.comms, ..Options::default() }
    }
}

impl From<PartArgs> for ScriptOptions {
    fn from(args: PartArgs) -> ScriptOptions {
        let time = args.time.unwrap_or_default();
        ScriptOptions { time, cpus: args.cpu, comms: args.comms, ..ScriptOptions::default() }
    }
}

/// Splits `1.5ms` into 1.5 and `ms`; the number is `None` unless it is above 0.
fn number_and_unit(text: &str) -> (Option<f64>, &str) {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let value = number.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    (value, &text[number.len()..])
}

/// Parses a duration above 0. A number without a unit counts units of `bare` seconds; `bare: None` requires a unit.
pub(crate) fn time(text: &str, bare: Option<f64>) -> Option<Duration> {
    let (number, unit) = number_and_unit(text);
    let unit_seconds = match unit {
        "" => bare?,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number? * unit_seconds).ok().filter(|time| !time.is_zero())
}

/// Parses a duration that must have a unit.
pub(crate) fn time_with_unit(text: &str) -> Result<Duration, &'static str> {
    time(text, None).ok_or("expected a time with a unit: 500us, 100ms, 1s")
}

/// Parses a whole number.
pub(crate) fn number(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "expected a whole number")
}

/// Parses a process or thread id.
pub(crate) fn task_id(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "expected a numeric id; `pgrep NAME` finds it by name")
}

/// Parses a percentage from 0 to 100; the sign `%` is optional.
pub(crate) fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text.trim_end_matches('%').parse::<f64>().ok();
    number.filter(|number| (0.0..=100.0).contains(number)).ok_or("expected a number from 0 to 100")
}

/// Names similar to a pattern, the most similar first.
pub(crate) fn near<'n>(pattern: &str, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    const NAMES_MAX: usize = 3;
    const LEAST_LIKENESS: f64 = 0.8;
    let plain = pattern.replace(['*', '?'], "");
    let likeness = |name: &str| match !plain.is_empty() && (name.contains(&plain) || plain.contains(name)) {
        true => 1.0,
        false => strsim::jaro_winkler(&plain, name),
    };
    let mut near: Vec<(f64, &str)> = names.filter(|name| !name.is_empty()).map(|name| (likeness(name), name)).collect();
    near.retain(|(likeness, _)| *likeness >= LEAST_LIKENESS);
    near.sort_by(|(a, name), (b, other)| b.total_cmp(a).then(name.cmp(other)));
    near.dedup_by_key(|(_, name)| *name);
    near.into_iter().take(NAMES_MAX).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_close_are_found() {
        let names = ["sched_switch", "account_syscall_enter", "account_syscall_exit", "xdp_count"];
        assert_eq!(near("shed_switch", names.into_iter()), ["sched_switch"]);
        assert_eq!(near("*syscall*", names.into_iter()), ["account_syscall_enter", "account_syscall_exit"]);
        assert!(near("nosuch*", names.into_iter()).is_empty());
    }
}
