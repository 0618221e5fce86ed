//! Sandbox of the commands that read recordings: limits the damage if a recording exploits a bug of the reader.
//!
//! Before the command opens the recording, it gives up the system calls that are not in a list. It can then write only to the directories of the
//! output and of temporary files. After opening, the command gives up calls that take a path, and capabilities. Mechanisms that the kernel lacks are
//! skipped.

use std::path::Path;

#[cfg(target_os = "linux")]
use bprec_host::sandbox::{Confined, KeptAccess};

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

/// Purpose of a command, which determines the system calls and directories that stay allowed.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// Printing to standard output.
    Print,
    /// Showing an interactive screen.
    Browse,
    /// Writing a new file under this name.
    Write(&'a Path),
    /// Writing a new file under this name, or changing the existing one.
    Mend(&'a Path),
}

impl<'a> Purpose<'a> {
    /// Path of the output file; `None` for standard output.
    pub(crate) fn output(self) -> Option<&'a Path> {
        match self {
            Purpose::Print | Purpose::Browse => None,
            Purpose::Write(output) | Purpose::Mend(output) => Some(output),
        }
    }
}

#[cfg(target_os = "linux")]
impl<'a> From<Purpose<'a>> for KeptAccess<'a> {
    fn from(purpose: Purpose<'a>) -> KeptAccess<'a> {
        KeptAccess {
            screen: matches!(purpose, Purpose::Browse),
            output: purpose.output(),
            in_place: matches!(purpose, Purpose::Mend(_)),
            directories: false,
        }
    }
}

/// State of the sandbox after [`Sandbox::enter`]. `--no-sandbox` confines nothing.
#[must_use]
pub(crate) struct Sandbox {
    #[cfg(target_os = "linux")]
    inner: Option<Confined>,
}

impl Sandbox {
    /// Drops privileges that `purpose` does not need, in this thread and in all threads that start later.
    pub(crate) fn enter(args: &SandboxArgs, purpose: Purpose<'_>) -> Sandbox {
        let sandbox = Sandbox {
            #[cfg(target_os = "linux")]
            inner: (!args.no_sandbox).then(|| Confined::enter(purpose.into())),
        };
        #[cfg(not(target_os = "linux"))]
        let _ = (args.no_sandbox, purpose.output());
        sandbox
    }

    /// Forbids all system calls that take a path, and drops all capabilities. With `needs_files`, keeps the capabilities, and the calls that create a
    /// temporary file or give the output its name. With `--verbose`, prints the active mechanisms.
    pub(crate) fn seal(self, needs_files: bool) {
        #[cfg(target_os = "linux")]
        let said = self.inner.map_or_else(|| "none (--no-sandbox)".to_owned(), |inner| inner.seal(needs_files));
        #[cfg(not(target_os = "linux"))]
        let said = {
            let _ = needs_files;
            "this system has no sandbox"
        };
        if is_verbose() {
            say(&format!("bprec: sandbox: {said}"));
        }
    }
}
