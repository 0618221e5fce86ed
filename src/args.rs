//! Options that several commands share.

use std::path::{Path, PathBuf};

use anyhow::bail;
use bprec_report::{CpuList, Options, ProgFilter, TimeRange, WallRange, WallTime};

use crate::values::number;

/// Heading of options that select the measured target, or the part of a recording that is read.
pub(crate) const SELECTION: &str = "Selection";
/// Heading of options that choose the view of a recording.
pub(crate) const VIEWS: &str = "Views";
/// Heading of options that choose the destination and the form of the output.
pub(crate) const OUTPUT: &str = "Output";
/// Heading of options that control start, end, messages and privileges of a command.
pub(crate) const RUNNING: &str = "Running";

/// Refuses combinations in which an option has no effect. Each rule is (true if the options form the combination, message). Fails with the message of
/// the first such rule.
pub(crate) fn refuse_idle(rules: &[(bool, &str)]) -> anyhow::Result<()> {
    match rules.iter().find(|(is_idle, _)| *is_idle) {
        Some((_, problem)) => bail!("{problem}"),
        None => Ok(()),
    }
}

/// The recording that a command reads: the value of `-i`, or the only argument, or perf.data.
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

    /// Adds a file before the other arguments. Fails if `-i` is given.
    pub(crate) fn add_first(&mut self, file: PathBuf) -> anyhow::Result<()> {
        if !self.input.is_empty() {
            bail!("the argument '{}' cannot be used with '--input <FILE>'", file.display());
        }
        self.files.insert(0, file);
        Ok(())
    }

    /// Range of wall time from `--since` and `--until`.
    pub(crate) fn range(&self) -> WallRange {
        WallRange { since: self.since, until: self.until }
    }
}

/// Option `--prog`.
#[derive(clap::Args)]
pub(crate) struct ProgArgs {
    /// Select programs: a name (with * and ?), an id or a tag.
    #[arg(long, value_name = "PROG", value_delimiter = ',', help_heading = SELECTION)]
    pub(crate) prog: Vec<ProgFilter>,
}

/// Options that select and limit the programs in a table.
#[derive(clap::Args)]
pub(crate) struct ProgramArgs {
    #[command(flatten)]
    pub(crate) select: ProgArgs,

    /// Show at most N programs.
    #[arg(long, value_name = "N", value_parser = number, help_heading = OUTPUT)]
    pub(crate) limit: Option<usize>,

    /// Also show programs that have neither samples nor runs.
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) all: bool,
}

impl From<ProgramArgs> for Options {
    fn from(args: ProgramArgs) -> Options {
        Options { programs: args.select.prog, limit: args.limit, all: args.all, ..Options::default() }
    }
}

/// Options that select samples by time, CPU and task name.
#[derive(clap::Args)]
pub(crate) struct PartArgs {
    /// Use only this time range: START,STOP in seconds from the start, @START,STOP in seconds of the recording's clock, or 10%-20%.
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true, help_heading = SELECTION)]
    pub(crate) time: Option<TimeRange>,

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
    /// Replaces the range of `--time` by `time`, the range of `--since` and `--until`. `None` keeps `--time`.
    pub(crate) fn within(self, time: Option<TimeRange>) -> PartArgs {
        PartArgs { time: time.or(self.time), ..self }
    }
}

impl From<PartArgs> for Options {
    fn from(args: PartArgs) -> Options {
        let time = args.time.unwrap_or_default();
        Options { time, cpus: args.cpu, comms: args.comms, must_match: true, ..Options::default() }
    }
}
