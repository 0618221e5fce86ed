//! Recordings as commands open them: as they are, or redacted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bprec_report::{Input, Progress, Redact, Redacting, Redactor, RewriteSummary, Source, TimeRange, recordings_of};

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

    /// Opens the files of one recording, those that have something of the time that is asked for. Of the others headers are read.
    pub(crate) fn open_all(&self, files: &FilesArgs) -> bprec_report::Result<OpenedFiles> {
        let (paths, range) = (files.paths(), &files.range());
        let paths = paths.iter().map(|path| recordings_of(path)).collect::<bprec_report::Result<Vec<_>>>()?.concat();
        if range.is_all() {
            let files = paths.iter().map(|path| self.open(path)).collect::<bprec_report::Result<_>>()?;
            return Ok(OpenedFiles { files, time: None });
        }
        let inputs = paths.iter().map(Input::open).collect::<bprec_report::Result<_>>()?;
        let (inputs, time) = Input::within(inputs, range)?;
        let files = inputs.into_iter().map(|input| match self.redact {
            None => Ok(Opened::AsItIs(input)),
            Some(_) => {
                let path = input.path().to_owned();
                Redacting::begin(Source::of(input)).map(|redacting| Opened::ToRedact(path, redacting))
            }
        });
        Ok(OpenedFiles { files: files.collect::<bprec_report::Result<_>>()?, time: Some(time) })
    }

    /// Replacer of secrets; one for all recordings of a command.
    pub(crate) fn redactor(&self) -> Redactor {
        Redactor::new(self.redact.unwrap_or_default())
    }
}

/// The files of one recording, open, and the part of its time that is asked for by the wall clock.
pub(crate) struct OpenedFiles {
    files: Vec<Opened>,
    pub(crate) time: Option<TimeRange>,
}

impl OpenedFiles {
    /// Returns true if files have to be made yet.
    pub(crate) fn needs_files(&self) -> bool {
        self.files.iter().any(Opened::needs_files)
    }

    /// The recording, redacted if that was asked for. Says what could not be read or kept.
    pub(crate) fn input(self, redactor: &mut Redactor) -> bprec_report::Result<Input> {
        let (input, copied) = self.input_with_summary(redactor)?;
        copied.iter().for_each(|(path, summary)| tell(path, summary));
        Ok(input)
    }

    /// The same; returns what is to be said of files that were redacted.
    pub(crate) fn input_with_summary(
        self,
        redactor: &mut Redactor,
    ) -> bprec_report::Result<(Input, Vec<(PathBuf, RewriteSummary)>)> {
        let read = self.files.into_iter().map(|file| file.input_with_summary(redactor));
        let (inputs, copied): (Vec<Input>, Vec<_>) =
            read.collect::<bprec_report::Result<Vec<_>>>()?.into_iter().unzip();
        Ok((Input::join(inputs)?, copied.into_iter().flatten().collect()))
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
