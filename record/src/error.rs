//! Reasons why a recording cannot be made.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use bprec_host::Answer;

/// Result of recording.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a recording cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call was refused.
    #[error("{call} {object}: {}{}", Answer(answer), Remedy(remedy))]
    Syscall {
        /// The call ("perf_event_open").
        call: &'static str,
        /// Object of the call ("cycles on cpu 3").
        object: String,
        /// The kernel's answer.
        answer: io::Error,
        /// Remedy; empty if none is known.
        remedy: String,
    },
    /// A file could not be read or written.
    #[error("{}: {}", path.display(), Answer(answer))]
    File {
        /// Path of the file, or the name of a stream.
        path: PathBuf,
        /// Answer of the system.
        answer: io::Error,
    },
    /// An event specification that is wrong, or an event that this machine does not have.
    #[error("event '{event}': {problem}")]
    Event {
        /// Event as the user wrote it.
        event: String,
        /// Mistake in the specification, and the right form.
        problem: String,
    },
    /// A cgroup that was not found.
    #[error("cgroup {}: {problem}", path.display())]
    Cgroup {
        /// Path as the user wrote it.
        path: PathBuf,
        /// Places that were searched, and the right form of the path.
        problem: String,
    },
    /// The command could not be run.
    #[error("cannot run '{command}': {}", Answer(answer))]
    Command {
        /// Name of the command.
        command: String,
        /// Answer of the system.
        answer: io::Error,
    },
    /// The output could not be written any further.
    #[error("{}: {}; the recording ended at this error: the file has the {kept_bytes} bytes written before, and can be \
             opened", path.display(), Answer(answer))]
    Incomplete {
        /// Path of the recording.
        path: PathBuf,
        /// Answer of the system.
        answer: io::Error,
        /// Number of bytes at the start of the recording that are complete.
        kept_bytes: u64,
    },
    /// A thread that the output needs (drain, output or finisher) has ended. The error of that thread is the one to report.
    #[error("a thread that writes the recording has ended")]
    OutputEnded,
    /// Answer of the kernel, or error of a BPF object.
    #[error(transparent)]
    Bpf(#[from] bprec_bpf::Error),
    /// Any other error, described by the text.
    #[error("{0}")]
    Other(String),
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>, answer: io::Error) -> Error {
        Error::File { path: path.into(), answer }
    }

    /// Remedy, as a clause that follows the message: only for a command that is missing or not executable.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Error::Command { answer, .. } if answer.kind() == ErrorKind::NotFound => {
                Some("check that it is installed and in PATH")
            }
            Error::Command { answer, .. } if answer.kind() == ErrorKind::PermissionDenied => {
                Some("make it executable: chmod +x")
            }
            _ => None,
        }
    }

    /// Answer of the system about a file that could not be read or written; `None` for other errors.
    pub fn file_answer(&self) -> Option<&io::Error> {
        match self {
            Error::File { answer, .. } | Error::Incomplete { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Returns a function that turns the kernel's answer to `call` on `object` into an error without a remedy.
    pub(crate) fn refused(call: &'static str, object: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        move |answer| Error::Syscall { call, object: object.into(), answer, remedy: String::new() }
    }
}

struct Remedy<'a>(&'a str);

impl std::fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; {}", self.0) }
    }
}
