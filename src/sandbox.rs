//! Sandbox of commands that only read: a recording that exploits a bug of the reader reaches nothing else.
//!
//! Before the recording is opened: all system calls but those of a list, and writing anywhere but to the directories of the output and of
//! temporary files. Once all is open: calls that take a path, and capabilities. What the kernel cannot do is left out.

#[cfg(target_os = "linux")]
mod kernel;

use std::path::Path;

use crate::args::RUNNING;
use crate::say;

/// Options of commands that read.
#[derive(clap::Args)]
pub(crate) struct SandboxArgs {
    /// Do not confine this command. By default, it cannot execute programs, use the network, or write anything but its output, where
    /// the kernel supports this (Landlock, seccomp).
    #[arg(long, help_heading = RUNNING)]
    no_sandbox: bool,

    /// Print how this command is confined.
    #[arg(short, long, help_heading = RUNNING)]
    verbose: bool,
}

/// Purpose of a command, which decides what it needs.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// Printing.
    Print,
    /// Showing a screen that keys drive.
    Browse,
    /// Writing a new file under this name.
    Write(&'a Path),
    /// The same, or changing the file that has this name.
    Mend(&'a Path),
}

impl<'a> Purpose<'a> {
    fn output(self) -> Option<&'a Path> {
        match self {
            Purpose::Print | Purpose::Browse => None,
            Purpose::Write(output) | Purpose::Mend(output) => Some(output),
        }
    }
}

/// A command that has begun to give up what it does not need.
#[must_use]
pub(crate) struct Sandbox {
    is_verbose: bool,
    #[cfg(target_os = "linux")]
    inner: Option<kernel::Confined>,
}

impl Sandbox {
    /// Gives up what `purpose` does not need. Everything that threads do which start from here on is confined as well.
    pub(crate) fn enter(args: &SandboxArgs, purpose: Purpose<'_>) -> Sandbox {
        let sandbox = Sandbox {
            is_verbose: args.verbose,
            #[cfg(target_os = "linux")]
            inner: (!args.no_sandbox).then(|| kernel::Confined::enter(purpose)),
        };
        #[cfg(not(target_os = "linux"))]
        let _ = (args.no_sandbox, purpose.output());
        sandbox
    }

    /// Gives up opening files and everything else that takes a path, and capabilities. A stream that arrives may have to be kept in a temporary file yet, and an output takes its name at
    /// the end: what those need stays.
    pub(crate) fn seal(self, needs_files: bool) {
        #[cfg(target_os = "linux")]
        let said = self.inner.map_or_else(|| "none (--no-sandbox)".to_owned(), |inner| inner.seal(needs_files));
        #[cfg(not(target_os = "linux"))]
        let said = {
            let _ = needs_files;
            "none on this system"
        };
        if self.is_verbose {
            say(&format!("bprec: sandbox: {said}"));
        }
    }
}
