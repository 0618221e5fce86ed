//! Recordings as commands open them: as they are, or redacted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bprec_report::{
    Input, Progress, Redact, Redacting, Redactor, RewriteSummary, Source, TimeRange, WallRange, recordings_of,
};

use crate::args::{FilesArgs, OUTPUT};
use crate::progress::with_progress_of;
use crate::rewrite::tell;

/// Option of redaction.
#[derive(clap::Args)]
pub(crate) struct RedactArgs {
    /// Replace what identifies the machine: names of hosts, tasks, files and cgroups, command lines, addresses; equal values stay
    /// equal. =+progs also replaces names and code of BPF programs (docs/redact.md).
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

/// A recording whose files are open.
pub(crate) enum Opened {
    AsItIs(Input),
    ToRedact(PathBuf, Redacting),
}

impl RedactArgs {
    /// Opens what is needed to read a recording; none of it is looked at yet if it is to be redacted.
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

    /// Opens the files of one recording; which of them have something of the time that is asked for is looked at later.
    pub(crate) fn open_all(&self, files: &FilesArgs) -> bprec_report::Result<OpenedFiles> {
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

    /// Replacer of secrets; one for all recordings of a command.
    pub(crate) fn redactor(&self) -> Redactor {
        Redactor::new(self.redact.unwrap_or_default())
    }
}

/// The files of one recording, open.
pub(crate) enum OpenedFiles {
    All(Vec<Opened>),
    /// Those that have something of a part of the wall clock's time.
    Within {
        inputs: Vec<Input>,
        range: WallRange,
        is_redacted: bool,
    },
}

/// A recording, the part of its time that was asked for by the wall clock, and what is to be said of files that were redacted.
type ReadFiles = (Input, Option<TimeRange>, Vec<(PathBuf, RewriteSummary)>);

impl OpenedFiles {
    /// Returns true if files have to be made yet.
    pub(crate) fn needs_files(&self) -> bool {
        match self {
            OpenedFiles::All(files) => files.iter().any(Opened::needs_files),
            OpenedFiles::Within { is_redacted, .. } => *is_redacted,
        }
    }

    /// The recording, redacted if that was asked for. Says what could not be read or kept.
    pub(crate) fn input(self, redactor: &mut Redactor) -> bprec_report::Result<(Input, Option<TimeRange>)> {
        let (input, time, copied) = self.input_with_summary(redactor)?;
        copied.iter().for_each(|(path, summary)| tell(path, summary));
        Ok((input, time))
    }

    /// The same; returns what is to be said of files that were redacted.
    pub(crate) fn input_with_summary(self, redactor: &mut Redactor) -> bprec_report::Result<ReadFiles> {
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
        let read = files.into_iter().map(|file| file.input_with_summary(redactor));
        let (inputs, copied): (Vec<Input>, Vec<_>) =
            read.collect::<bprec_report::Result<Vec<_>>>()?.into_iter().unzip();
        Ok((Input::join(inputs)?, time, copied.into_iter().flatten().collect()))
    }
}

impl Opened {
    /// Returns true if files have to be made yet.
    pub(crate) fn needs_files(&self) -> bool {
        matches!(self, Opened::ToRedact(_, redacting) if redacting.is_stream())
    }

    /// The recording, redacted if that was asked for. Says what could not be read or kept.
    pub(crate) fn input(self, redactor: &mut Redactor) -> bprec_report::Result<Input> {
        let (input, copied) = self.input_with_summary(redactor)?;
        copied.iter().for_each(|(path, summary)| tell(path, summary));
        Ok(input)
    }

    /// The same; returns what is to be said of a recording that was redacted.
    pub(crate) fn input_with_summary(
        self,
        redactor: &mut Redactor,
    ) -> bprec_report::Result<(Input, Option<(PathBuf, RewriteSummary)>)> {
        match self {
            Opened::AsItIs(input) => Ok((input, None)),
            Opened::ToRedact(path, redacting) => {
                let progress = Arc::clone(redacting.progress());
                let (input, summary) = with_progress_of(&[(&path, &progress)], || redacting.finish(redactor))?;
                Ok((input, Some((path, summary))))
            }
        }
    }
}
