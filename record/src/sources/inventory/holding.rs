//! Rule for the descriptors of programs that the recorder keeps.

use std::os::fd::{AsFd, AsRawFd};

use bprec_bpf::{Program, Refs};

use crate::sys;

/// Descriptors reserved for reading references (BPF iterator), `/proc` and files. Without them, no program could be released any more.
const RESERVED: u64 = 64;

/// Rule by which the recorder keeps the descriptors of captured programs open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    /// The recorder keeps the descriptor of each program, up to the limit of open files.
    WhileThereAreDescriptors,
    /// The recorder keeps no descriptors, because it could not learn when to release the programs.
    Never,
}

impl Holding {
    /// Chooses the rule. With `refs`, the recorder learns when all other processes have released a program.
    pub(crate) fn with(refs: Option<&Refs>) -> Holding {
        if refs.is_some() { Holding::WhileThereAreDescriptors } else { Holding::Never }
    }

    /// Returns the program if the recorder keeps its descriptor.
    pub(super) fn keep(self, program: Program) -> Option<Program> {
        (self == Holding::WhileThereAreDescriptors && is_spare(&program)).then_some(program)
    }
}

/// Returns true if enough descriptors are free besides this one. The kernel gives the lowest free number, so a number near the limit means that few
/// are free.
pub(super) fn is_spare(descriptor: &impl AsFd) -> bool {
    let number = u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0);
    sys::open_files_max().is_none_or(|max| number < max - RESERVED.min(max / 4))
}
