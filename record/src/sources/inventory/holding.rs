//! Programs that the recorder keeps a descriptor of.

use std::os::fd::{AsFd, AsRawFd};

use bprec_bpf::{Program, Refs};

use crate::sys;

/// Descriptors that no program gets: those of the iterator over programs, of `/proc` and of files, without which none would ever be free again.
const RESERVED: u64 = 64;

/// Captured programs that keep their descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    /// Programs up to the limit of descriptors.
    WhileThereAreDescriptors,
    /// None: nobody would say when to give it up.
    Never,
}

impl Holding {
    /// `refs` says when everyone else has let go of a program.
    pub(crate) fn with(refs: Option<&Refs>) -> Holding {
        if refs.is_some() { Holding::WhileThereAreDescriptors } else { Holding::Never }
    }

    /// The program's descriptor, if it is to be kept.
    pub(super) fn keep(self, program: Program) -> Option<Program> {
        (self == Holding::WhileThereAreDescriptors && is_spare(&program)).then_some(program)
    }
}

/// Returns true if there are enough descriptors besides this one. The kernel gives the lowest number that is free: one near the limit says that few are
/// left.
pub(super) fn is_spare(descriptor: &impl AsFd) -> bool {
    let number = u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0);
    sys::open_files_max().is_none_or(|max| number < max - RESERVED.min(max / 4))
}
