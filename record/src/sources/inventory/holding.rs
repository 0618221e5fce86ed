//! Which programs the recorder keeps a descriptor of.

use std::os::fd::{AsFd, AsRawFd};

use bprec_bpf::{Program, Refs};

use crate::sys;

/// Descriptors reserved for the iterator over programs, `/proc` and files. Without them, no program could be released any more.
const RESERVED: u64 = 64;

/// Rule by which captured programs keep their descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    /// Programs keep it up to the limit of open files.
    WhileThereAreDescriptors,
    /// No program keeps it, because the recorder could not learn when to release it.
    Never,
}

impl Holding {
    /// Chooses the rule: with `refs`, the recorder learns when all others have released a program.
    pub(crate) fn with(refs: Option<&Refs>) -> Holding {
        if refs.is_some() { Holding::WhileThereAreDescriptors } else { Holding::Never }
    }

    /// Returns the program if its descriptor is to be kept.
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
