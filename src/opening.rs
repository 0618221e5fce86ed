//! Opening of recordings, redacted on request.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bprec_report::{Input, Progress, Redact, Redacting, Redactor, RewriteSummary, Source};

use crate::args::{InputArgs, OUTPUT};
use crate::progress::with_progress_of;
use crate::rewrite::tell;
use crate::sandbox::{Purpose, Sandbox, SandboxArgs};

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

/// Options of commands that read one recording.
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
    /// Confines the command to what `purpose` needs, and opens the recording, redacted if that was asked for.
    pub(crate) fn open(&self, purpose: Purpose<'_>) -> bprec_report::Result<(Input, Redacted)> {
        let sandbox = Sandbox::enter(&self.sandbox, purpose);
        let opened = self.redact.open(self.input.path())?;
        sandbox.seal(purpose.output().is_some() || opened.needs_files());
        opened.input(&mut self.redact.redactor())
    }
}

/// Problems and losses of a recording that was redacted.
#[must_use]
pub(crate) struct Redacted(Option<(PathBuf, RewriteSummary)>);

impl Redacted {
    /// Prints it on standard error.
    pub(crate) fn tell(self) {
        self.0.iter().for_each(|(path, summary)| tell(path, summary));
    }
}

/// A recording whose files are open.
pub(crate) enum Opened {
    AsItIs(Input),
    ToRedact(PathBuf, Redacting),
}

impl RedactArgs {
    /// Opens all files of a recording. Parses nothing yet if it is to be redacted.
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

    /// Replacer of secrets; one for all recordings of a command.
    pub(crate) fn redactor(&self) -> Redactor {
        Redactor::new(self.redact.unwrap_or_default())
    }
}

impl Opened {
    /// Returns true if temporary files are still needed.
    pub(crate) fn needs_files(&self) -> bool {
        matches!(self, Opened::ToRedact(_, redacting) if redacting.is_stream())
    }

    /// The recording, redacted if that was asked for.
    pub(crate) fn input(self, redactor: &mut Redactor) -> bprec_report::Result<(Input, Redacted)> {
        match self {
            Opened::AsItIs(input) => Ok((input, Redacted(None))),
            Opened::ToRedact(path, redacting) => {
                let progress = Arc::clone(redacting.progress());
                let (input, summary) = with_progress_of(&[(&path, &progress)], || redacting.finish(redactor))?;
                Ok((input, Redacted(Some((path, summary)))))
            }
        }
    }
}
