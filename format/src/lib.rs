//! perf.data, BPF blobs and BTF: bytes ⇄ types.
//!
//! Everything here is a function of the bytes that are handed in. Reading borrows from them and copies only what has to
//! be turned; writing appends to a buffer. Both byte orders are read and written everywhere.
//!
//! This crate must not know where bytes come from or go to: no files, no operating system, no policy about what to do
//! with a damaged recording beyond saying precisely what is wrong and how far it could be read. It contains no `unsafe`.
#![forbid(unsafe_code)]

mod endian;
mod error;

pub use endian::{Endian, Reader, Writer};
pub use error::{Error, Problem, Result};
