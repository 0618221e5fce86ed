//! Errors in the bytes of an input, with their offset.

/// A structural error in a recording: its place, the structure being read, and the problem.
///
/// `offset` counts from the start of the input given by the caller (for a file: from its first byte). In compressed
/// data, `offset` is the offset of the compressed record, and `problem` has the offset in the decompressed stream. For
/// an error in a field of an unpacked record, `offset` counts from the start of the decompressed stream (see
/// [`Chunk::origin`](crate::Chunk::origin)).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset:#x}: {what}: {problem}")]
#[non_exhaustive]
pub struct Error {
    /// Byte offset in the input.
    pub offset: u64,
    /// The field or structure being read, in the format's own terms ("attr.size", "bpf_prog_info 3").
    pub what: &'static str,
    /// Problem, with the expected and the found value.
    pub problem: Problem,
}

/// Kind of structural error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Fewer bytes than the structure needs.
    #[error("needs {needed} bytes, but only {available} bytes are left")]
    Truncated {
        /// Bytes the structure needs.
        needed: u64,
        /// Bytes that are available.
        available: u64,
    },
    /// A value that the format does not allow.
    #[error("the value is {found:#x}, expected {expected}")]
    Value {
        /// The value found.
        found: u64,
        /// Allowed values.
        expected: &'static str,
    },
    /// String without a terminating NUL.
    #[error("the string has no terminating NUL")]
    NoNul,
    /// Other problem, described in words.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Error for `what` at `offset`: it needs `needed` bytes, but only `available` bytes are left.
    pub fn truncated(offset: u64, what: &'static str, needed: u64, available: u64) -> Error {
        Error { offset, what, problem: Problem::Truncated { needed, available } }
    }

    /// Error for `what` at `offset`: the value `found` is none of the allowed values, which `expected` describes.
    pub fn value(offset: u64, what: &'static str, found: u64, expected: &'static str) -> Error {
        Error { offset, what, problem: Problem::Value { found, expected } }
    }

    /// Error for `what` at `offset`; `problem` describes the error in words.
    pub fn other(offset: u64, what: &'static str, problem: impl Into<String>) -> Error {
        Error { offset, what, problem: Problem::Other(problem.into()) }
    }

    /// Adds `base` to the offset of the error, for an error in a part that was read as a separate slice.
    #[must_use]
    pub fn at(mut self, base: u64) -> Error {
        self.offset = self.offset.saturating_add(base);
        self
    }
}

/// Result of reading.
pub type Result<T, E = Error> = std::result::Result<T, E>;
