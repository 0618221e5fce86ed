//! Error about a file under `/proc` or `/sys`.

use std::io;
use std::path::PathBuf;

use crate::Answer;

/// Result of reading a fact of the machine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A file under `/proc` or `/sys` could not be read or parsed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", path.display(), Answer(source))]
pub struct Error {
    /// Path of the file.
    pub path: PathBuf,
    /// Answer of the kernel, or `InvalidData` if parsing failed.
    pub source: io::Error,
}

impl Error {
    pub(crate) fn new(path: impl Into<PathBuf>, source: io::Error) -> Error {
        Error { path: path.into(), source }
    }

    /// Errno of the failed read, if the kernel refused it.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}
