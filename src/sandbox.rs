//! Sandbox of commands that only read: a recording that exploits a bug of the reader reaches nothing else.
//!
//! Before the recording is opened: all system calls but those of a list, and writing anywhere but to the directories of the output and of
//! temporary files. After that: calls that take a path, and capabilities. Mechanisms that the kernel lacks are skipped.

#[cfg(target_os = "linux")]
mod kernel;

use std::path::Path;

use crate::args::RUNNING;
use crate::say;
use crate::terminal::is_verbose;

/// Options of commands that read.
#[derive(clap::Args)]
pub(crate) struct SandboxArgs {
    /// Do not confine this command. By default, it cannot execute programs, use the network, or write anything but its output, where
    /// the kernel supports this (Landlock, seccomp).
    #[arg(long, help_heading = RUNNING)]
    no_sandbox: bool,
}

/// Purpose of a command, which decides the calls and files that it needs.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// Printing.
    Print,
    /// Showing an interactive screen.
    Browse,
    /// Writing a new file under this name.
    Write(&'a Path),
    /// The same, or changing the file that has this name.
    Mend(&'a Path),
}

impl<'a> Purpose<'a> {
    /// The file that is written.
    pub(crate) fn output(self) -> Option<&'a Path> {
        match self {
            Purpose::Print | Purpose::Browse => None,
            Purpose::Write(output) | Purpose::Mend(output) => Some(output),
        }
    }
}

/// A confined command.
#[must_use]
pub(crate) struct Sandbox {
    #[cfg(target_os = "linux")]
    inner: Option<kernel::Confined>,
}

impl Sandbox {
    /// Drops privileges that `purpose` does not need, in this thread and in all that start later.
    pub(crate) fn enter(args: &SandboxArgs, purpose: Purpose<'_>) -> Sandbox {
        let sandbox = Sandbox {
            #[cfg(target_os = "linux")]
            inner: (!args.no_sandbox).then(|| kernel::Confined::enter(purpose)),
        };
        #[cfg(not(target_os = "linux"))]
        let _ = (args.no_sandbox, purpose.output());
        sandbox
    }

    /// Drops all calls that take a path, and capabilities. With `needs_files`, the calls stay that create a temporary file for a stream, and
    /// that name an output.
    pub(crate) fn seal(self, needs_files: bool) {
        #[cfg(target_os = "linux")]
        let said = self.inner.map_or_else(|| "none (--no-sandbox)".to_owned(), |inner| inner.seal(needs_files));
        #[cfg(not(target_os = "linux"))]
        let said = {
            let _ = needs_files;
            "none on this system"
        };
        if is_verbose() {
            say(&format!("bprec: sandbox: {said}"));
        }
    }
}
