//! What a command that only reads gives up, so that a recording which finds a mistake in the reader finds nothing else.
//!
//! Before the recording is opened: executing programs, sockets, watching other processes, and writing anywhere but to the directories of the
//! output and of temporary files. Once all is open: opening anything, and capabilities. What the kernel cannot do is left out.

#[cfg(target_os = "linux")]
mod kernel;

use std::path::Path;

use crate::headings::RUNNING;
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

/// A command that has begun to give up what it does not need.
#[must_use]
pub(crate) struct Sandbox {
    is_verbose: bool,
    #[cfg(target_os = "linux")]
    inner: Option<kernel::Confined>,
}

impl Sandbox {
    /// Gives up what no reader needs. Everything that threads do which start from here on is confined as well. `output` is the file to be
    /// written, if there is one.
    pub(crate) fn enter(args: &SandboxArgs, output: Option<&Path>) -> Sandbox {
        let sandbox = Sandbox {
            is_verbose: args.verbose,
            #[cfg(target_os = "linux")]
            inner: (!args.no_sandbox).then(|| kernel::Confined::enter(output)),
        };
        #[cfg(not(target_os = "linux"))]
        let _ = (args.no_sandbox, output);
        sandbox
    }

    /// Gives up opening files, and capabilities. A stream that arrives may have to be kept in a temporary file yet, and an output takes its name at
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
