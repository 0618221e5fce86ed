//! Reasons why a recording cannot be made.

use std::io;
use std::path::PathBuf;

/// Result of recording.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a recording cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call was refused.
    #[error("{call} {object}: {answer}{}", Remedy(remedy))]
    Syscall {
        /// The call ("perf_event_open").
        call: &'static str,
        /// Object of the call ("cycles on cpu 3").
        object: String,
        /// The kernel's answer.
        answer: io::Error,
        /// Remedy; empty where none is known.
        remedy: String,
    },
    /// A file could not be read or written.
    #[error("{}: {answer}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        answer: io::Error,
    },
    /// An event specification that cannot be understood, or that this machine does not have.
    #[error("event '{event}': {problem}")]
    Event {
        /// Event as the user wrote it.
        event: String,
        /// Mistake in it, and the right form.
        problem: String,
    },
    /// A cgroup that is not there.
    #[error("cgroup {}: {problem}", path.display())]
    Cgroup {
        /// Path as the user wrote it.
        path: PathBuf,
        /// Places that were searched, and the right form.
        problem: String,
    },
    /// The command could not be run.
    #[error("cannot run '{command}': {answer}")]
    Command {
        /// Its name.
        command: String,
        /// Why not.
        answer: io::Error,
    },
    /// The output could not be written any further.
    #[error("{}: {answer}; the recording ended there: the {kept_bytes} bytes written before are complete and can be opened", path.display())]
    Incomplete {
        /// The recording.
        path: PathBuf,
        /// Why not.
        answer: io::Error,
        /// Bytes that are whole.
        kept_bytes: u64,
    },
    /// The output has ended before its time. Why, it says itself.
    #[error("the output has ended")]
    OutputEnded,
    /// Answer of the kernel, or error of a BPF object.
    #[error(transparent)]
    Bpf(#[from] bprec_bpf::Error),
    /// Anything that one sentence says.
    #[error("{0}")]
    Other(String),
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>, answer: io::Error) -> Error {
        Error::File { path: path.into(), answer }
    }
}

struct Remedy<'a>(&'a str);

impl std::fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; {}", self.0) }
    }
}
