//! Opens recordings, and redacts them with `--redact`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bprec_report::{
    Input, Progress, Redact, Redacting, Redactor, RewriteSummary, Source, TimeRange, WallRange, recordings_of,
};

use crate::args::{FilesArgs, InputArgs, OUTPUT};
use crate::progress::with_progress_of;
use crate::rewrite::print_problems;
use crate::sandbox::{Purpose, Sandbox, SandboxArgs};

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

/// Options of commands that read one file.
#[derive(clap::Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) redact: RedactArgs,

    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

impl ReadArgs {
    /// Confines the command to the calls that `purpose` needs, and opens the recording. Redacts it with `--redact`.
    pub(crate) fn open(&self, purpose: Purpose<'_>) -> bprec_report::Result<(Input, Redacted)> {
        let sandbox = Sandbox::enter(&self.sandbox, purpose);
        let opened = self.redact.open(self.input.path())?;
        sandbox.seal(purpose.output().is_some() || opened.needs_files());
        opened.input(&mut self.redact.redactor())
    }
}

/// Options of commands that read one or more files as one recording.
#[derive(clap::Args)]
pub(crate) struct ReadFilesArgs {
    #[command(flatten)]
    pub(crate) files: FilesArgs,

    #[command(flatten)]
    pub(crate) redact: RedactArgs,

    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}

impl ReadFilesArgs {
    /// Confines the command to the calls that `purpose` needs, and opens the recording. Redacts it with `--redact`. Also returns the time range of
    /// `--since` and `--until`.
    pub(crate) fn open(&self, purpose: Purpose<'_>) -> bprec_report::Result<(Input, Option<TimeRange>, Redacted)> {
        let sandbox = Sandbox::enter(&self.sandbox, purpose);
        let opened = self.redact.open_all(&self.files)?;
        sandbox.seal(purpose.output().is_some() || opened.needs_files());
        opened.input(&mut self.redact.redactor())
    }
}

/// Problems that redaction found, by file.
#[must_use]
pub(crate) struct Redacted(Vec<(PathBuf, RewriteSummary)>);

impl Redacted {
    /// Prints the problems on standard error.
    pub(crate) fn print(self) {
        self.0.iter().for_each(|(path, summary)| print_problems(path, summary));
    }
}

/// A file of a recording, opened.
pub(crate) enum Opened {
    AsItIs(Input),
    ToRedact(PathBuf, Redacting),
}

impl RedactArgs {
    /// Opens a file and the files beside it that belong to it. With `--redact`, parses nothing yet.
    pub(crate) fn open(&self, path: &Path) -> bprec_report::Result<Opened> {
        let progress = Arc::<Progress>::default();
        with_progress_of(&[(path, &progress)], || match self.redact {
            None => Input::open_with(path, &progress).map(Opened::AsItIs),
            Some(_) => {
                let source = Source::open_with(path, &progress)?;
                Ok(Opened::ToRedact(path.to_owned(), Redacting::begin(source)?))
            }
        })
    }

    /// Opens the files of one recording. With `--since` or `--until`, files outside of the range are dropped later.
    fn open_all(&self, files: &FilesArgs) -> bprec_report::Result<OpenedFiles> {
        let (paths, range) = (files.paths(), files.range());
        let paths = paths.iter().map(|path| recordings_of(path)).collect::<bprec_report::Result<Vec<_>>>()?.concat();
        if range.is_all() {
            return Ok(OpenedFiles::All(
                paths.iter().map(|path| self.open(path)).collect::<bprec_report::Result<_>>()?,
            ));
        }
        let inputs = paths.iter().map(Input::open).collect::<bprec_report::Result<_>>()?;
        Ok(OpenedFiles::Within { inputs, range, is_redacted: self.redact.is_some() })
    }

    /// Redactor of a command. All recordings must share it, so that equal names get equal pseudonyms.
    pub(crate) fn redactor(&self) -> Redactor {
        Redactor::new(self.redact.unwrap_or_default())
    }
}

/// The files of one recording, opened.
enum OpenedFiles {
    All(Vec<Opened>),
    /// Files of which only a range of wall time is read.
    Within {
        inputs: Vec<Input>,
        range: WallRange,
        is_redacted: bool,
    },
}

impl OpenedFiles {
    /// Returns true if reading still needs temporary files.
    fn needs_files(&self) -> bool {
        match self {
            OpenedFiles::All(files) => files.iter().any(Opened::needs_files),
            OpenedFiles::Within { is_redacted, .. } => *is_redacted,
        }
    }

    /// Joins the files into one recording, redacted with `--redact`. Also returns the time range of `--since` and `--until`.
    fn input(self, redactor: &mut Redactor) -> bprec_report::Result<(Input, Option<TimeRange>, Redacted)> {
        let (files, time) = match self {
            OpenedFiles::All(files) => (files, None),
            OpenedFiles::Within { inputs, range, is_redacted } => {
                let (inputs, time) = Input::within(inputs, &range)?;
                let files = inputs.into_iter().map(|input| match is_redacted {
                    false => Ok(Opened::AsItIs(input)),
                    true => {
                        let path = input.path().to_owned();
                        Redacting::begin(Source::of(input)).map(|redacting| Opened::ToRedact(path, redacting))
                    }
                });
                (files.collect::<bprec_report::Result<_>>()?, Some(time))
            }
        };
        let read = files.into_iter().map(|file| file.input(redactor));
        let (inputs, redacted): (Vec<Input>, Vec<_>) =
            read.collect::<bprec_report::Result<Vec<_>>>()?.into_iter().unzip();
        let redacted = redacted.into_iter().flat_map(|Redacted(files)| files).collect();
        Ok((Input::join(inputs)?, time, Redacted(redacted)))
    }
}

impl Opened {
    /// Returns true if reading still needs temporary files.
    pub(crate) fn needs_files(&self) -> bool {
        matches!(self, Opened::ToRedact(_, redacting) if redacting.is_stream())
    }

    /// Parses the file, redacted with `--redact`.
    pub(crate) fn input(self, redactor: &mut Redactor) -> bprec_report::Result<(Input, Redacted)> {
        match self {
            Opened::AsItIs(input) => Ok((input, Redacted(Vec::new()))),
            Opened::ToRedact(path, redacting) => {
                let progress = Arc::clone(redacting.progress());
                let (input, summary) = with_progress_of(&[(&path, &progress)], || redacting.finish(redactor))?;
                Ok((input, Redacted(vec![(path, summary)])))
            }
        }
    }
}
