//! Errors of a report.

use std::path::PathBuf;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system would not let us read the input, or write the output.
    #[error("{call} {path}: {source}")]
    Io {
        /// The attempted call.
        call: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file became shorter while it was read, or its disk failed.
    #[error("{path}: was truncated while it was read: nothing at offset {offset:#x}")]
    Truncated {
        /// File that the error is about.
        path: PathBuf,
        /// From where on it could not be read.
        offset: u64,
    },
    /// The bytes are not a recording, or are damaged where nothing can be read without them.
    #[error("{path}: {source}")]
    Format {
        /// The input.
        path: PathBuf,
        /// Offset and cause.
        source: bprec_format::Error,
    },
    /// Files that are not of one recording.
    #[error("{} and {}: {problem}", first.display(), second.display())]
    Files {
        /// The file that is earlier, or was given first.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
        /// Reason why they cannot be read as one recording.
        problem: String,
    },
    /// An option that does not fit the recording, or that says nothing.
    #[error("{option} {value}: {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// The given value.
        value: String,
        /// Its defect.
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
