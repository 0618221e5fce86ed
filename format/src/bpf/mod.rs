//! Facts that the kernel reports about BPF programs: `bpf_prog_info` with its arrays, instructions, BTF, and the names
//! of the kernel's constants.

pub mod btf;
mod elements;
mod filter;
mod insn;
pub mod names;
pub mod prog_info;
mod section;

pub use elements::{Element, Elements};
pub use filter::{FunctionFilter, MapFilter, ProgFilter};
pub use insn::Insn;
pub use section::CountedSection;

use std::fmt;

/// The kernel's digest of the instructions of a program or function. It depends on the kernel's hash (SHA-1 before 6.18, SHA-256 since) and, for
/// functions, on addresses. Tags are comparable within one recording, but not between machines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub [u8; 8]);

impl fmt::Display for Tag {
    /// Sixteen hexadecimal digits, as in `bpf_prog_<tag>_<name>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:016x}", u64::from_be_bytes(self.0)))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({self})")
    }
}
