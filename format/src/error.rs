//! Errors in bytes, with their offset.

/// A structural error in a recording: where it is, what was being read, and what is wrong with it.
///
/// `offset` counts from the start of the input that was handed in (for a file: from its first byte). Of a fault in a compressed
/// record it is that of the record; `problem` has the offset in the decompressed stream. Fields of a record that was unpacked count from
/// the start of that stream ([`Chunk::origin`](crate::Chunk::origin) tells).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset:#x}: {what}: {problem}")]
#[non_exhaustive]
pub struct Error {
    /// Byte offset in the input.
    pub offset: u64,
    /// The field or structure being read, in the format's own terms ("attr.size", "bpf_prog_info 3").
    pub what: &'static str,
    /// Expected and found values.
    pub problem: Problem,
}

/// The ways in which bytes can fail to be what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Fewer bytes than the structure needs.
    #[error("needs {needed} bytes, {available} are there")]
    Truncated {
        /// Bytes the structure needs.
        needed: u64,
        /// Bytes that are there.
        available: u64,
    },
    /// A value outside what the format allows.
    #[error("{found:#x} is not allowed, expected {expected}")]
    Value {
        /// The value found.
        found: u64,
        /// Allowed values.
        expected: &'static str,
    },
    /// A string without its end, or bytes that are not what a string may hold.
    #[error("string without a terminating NUL")]
    NoNul,
    /// Anything that needs words.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// `what` at `offset` needs `needed` bytes of which `available` are there.
    pub fn truncated(offset: u64, what: &'static str, needed: u64, available: u64) -> Error {
        Error { offset, what, problem: Problem::Truncated { needed, available } }
    }

    /// `what` at `offset` holds `found`, which the format does not allow.
    pub fn value(offset: u64, what: &'static str, found: u64, expected: &'static str) -> Error {
        Error { offset, what, problem: Problem::Value { found, expected } }
    }

    /// `what` at `offset` is wrong in a way that `problem` says in words.
    pub fn other(offset: u64, what: &'static str, problem: impl Into<String>) -> Error {
        Error { offset, what, problem: Problem::Other(problem.into()) }
    }

    /// The same error, `base` bytes further on: for errors of a part, read as a slice of its own.
    #[must_use]
    pub fn at(mut self, base: u64) -> Error {
        self.offset = self.offset.saturating_add(base);
        self
    }
}

/// Result of reading.
pub type Result<T, E = Error> = std::result::Result<T, E>;
