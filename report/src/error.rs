//! Errors of a report.

use std::path::PathBuf;

/// Error that prevents a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call on the input or output failed.
    #[error("{call} {path}: {source}")]
    Io {
        /// The attempted call.
        call: &'static str,
        /// File that the call was about.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file became shorter while it was read, or its disk failed.
    #[error("{path}: was truncated while it was read: offset {offset:#x} does not exist any more")]
    Truncated {
        /// File that the error is about.
        path: PathBuf,
        /// Lowest offset that could not be read.
        offset: u64,
    },
    /// The input is not a recording, or its damage prevents reading it.
    #[error("{path}: {source}")]
    Format {
        /// The input.
        path: PathBuf,
        /// Offset and cause.
        source: bprec_format::Error,
    },
    /// Files that do not belong to one recording.
    #[error("{} and {}: {problem}", first.display(), second.display())]
    Files {
        /// The earlier file.
        first: PathBuf,
        /// The later file.
        second: PathBuf,
        /// Reason why they cannot be read as one recording.
        problem: String,
    },
    /// An option that does not fit the recording.
    #[error("{option} {value}: {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// The given value.
        value: String,
        /// Problem with the value.
        problem: String,
    },
    /// The output could not be written.
    #[error("write: {0}")]
    Write(#[from] std::io::Error),
}

impl Error {
    pub(crate) fn option(option: &'static str, value: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Option { option, value: value.into(), problem: problem.into() }
    }
}

/// Result of reporting.
pub type Result<T, E = Error> = std::result::Result<T, E>;
