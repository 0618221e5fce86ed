//! Opens recordings, and redacts them with `--redact`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bprec_report::{Input, Progress, Redact, Redacting, Redactor, RewriteSummary, Source, TimeRange, recordings_of};

use crate::args::{FilesArgs, OUTPUT};
use crate::progress::with_progress_of;
use crate::rewrite::print_problems;
use crate::sandbox::{Purpose, Sandbox, SandboxArgs};

/// Opens a recording that is read once, in the order of its records.
pub(crate) fn open_source(path: &Path) -> bprec_report::Result<Source> {
    with_opening_shown(path, |progress| Source::open_with(path, progress))
}

/// Runs `open` and shows its progress: opening copies a recording that cannot be mapped, such as standard input.
fn with_opening_shown<T>(path: &Path, open: impl FnOnce(&Arc<Progress>) -> T) -> T {
    let progress = Arc::default();
    with_progress_of(&[(path, &progress)], || open(&progress))
}

/// Option `--redact`.
#[derive(clap::Args)]
pub(crate) struct RedactArgs {
    /// Replace names of hosts, tasks, files and cgroups, command lines and addresses by pseudonyms; equal values stay equal. =+progs also
    /// replaces names and code of BPF programs (docs/redact.md).
    #[arg(
        long,
        value_name = "+progs",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        help_heading = OUTPUT
    )]
    pub(crate) redact: Option<Redact>,
}

impl RedactArgs {
    /// Opens a recording with all its files. With `--redact`, parses nothing yet.
    pub(crate) fn open(&self, path: &Path) -> bprec_report::Result<Opened> {
        match self.redact {
            None => with_opening_shown(path, |progress| Input::open_with(path, progress)).map(Opened::AsItIs),
            Some(_) => Opened::to_redact(open_source(path)?),
        }
    }

    /// Redactor of a command. All recordings must share it, so that equal names get equal pseudonyms.
    pub(crate) fn redactor(&self) -> Redactor {
        Redactor::new(self.redact.unwrap_or_default())
    }
}

/// Options of commands that read one or more files as one recording.
#[derive(clap::Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) files: FilesArgs,

    #[command(flatten)]
    redact: RedactArgs,

    #[command(flatten)]
    sandbox: SandboxArgs,
}

impl ReadArgs {
    /// Confines the command to the calls that `purpose` needs, and opens the files as one recording; with `--redact`, redacts the recording. Also
    /// returns the time range of `--since` and `--until`, if given, and the problems that redaction found.
    pub(crate) fn open(&self, purpose: Purpose<'_>) -> bprec_report::Result<(Input, Option<TimeRange>, Redacted)> {
        let sandbox = Sandbox::enter(&self.sandbox, purpose);
        let (range, mut redactor) = (self.files.range(), self.redact.redactor());
        let paths = self.files.paths().iter().map(|path| recordings_of(path)).collect::<Result<Vec<_>, _>>()?.concat();
        let (files, time) = if range.is_all() {
            let files = paths.iter().map(|path| self.redact.open(path)).collect::<Result<Vec<_>, _>>()?;
            sandbox.seal(purpose.output().is_some() || files.iter().any(Opened::needs_files));
            (files, None)
        } else {
            let inputs = paths.iter().map(Input::open).collect::<Result<_, _>>()?;
            sandbox.seal(purpose.output().is_some() || self.redact.redact.is_some());
            let (inputs, time) = Input::within(inputs, &range)?;
            let opened = |input| match self.redact.redact {
                None => Ok(Opened::AsItIs(input)),
                Some(_) => Opened::to_redact(Source::of(input)),
            };
            (inputs.into_iter().map(opened).collect::<Result<_, _>>()?, Some(time))
        };
        let mut redacted = Redacted::default();
        let inputs = files.into_iter().map(|file| file.input(&mut redactor, &mut redacted));
        Ok((Input::join(inputs.collect::<Result<_, _>>()?)?, time, redacted))
    }
}

/// Problems that redaction found, by file.
#[must_use]
#[derive(Default)]
pub(crate) struct Redacted(Vec<(PathBuf, RewriteSummary)>);

impl Redacted {
    /// Prints the problems on standard error.
    pub(crate) fn print(self) {
        self.0.iter().for_each(|(path, summary)| print_problems(path, summary));
    }
}

/// An opened recording, before its redaction if `--redact` is given.
pub(crate) enum Opened {
    AsItIs(Input),
    ToRedact(PathBuf, Redacting),
}

impl Opened {
    fn to_redact(source: Source) -> bprec_report::Result<Opened> {
        let path = source.path().to_owned();
        Ok(Opened::ToRedact(path, Redacting::begin(source)?))
    }

    /// Returns true if a stream has to be redacted, which needs temporary files.
    pub(crate) fn needs_files(&self) -> bool {
        matches!(self, Opened::ToRedact(_, redacting) if redacting.is_stream())
    }

    /// Returns the recording. With `--redact`, redacts it first, and adds the problems that redaction found to `redacted`.
    pub(crate) fn input(self, redactor: &mut Redactor, redacted: &mut Redacted) -> bprec_report::Result<Input> {
        match self {
            Opened::AsItIs(input) => Ok(input),
            Opened::ToRedact(path, redacting) => {
                let progress = Arc::clone(redacting.progress());
                let (input, summary) = with_progress_of(&[(&path, &progress)], || redacting.finish(redactor))?;
                redacted.0.push((path, summary));
                Ok(input)
            }
        }
    }
}
