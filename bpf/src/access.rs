//! Access of this process to the kernel's BPF.

use crate::error::Result;
use crate::inspect::prog_ids;
use crate::programs::Refs;
use crate::sys;

/// The kernel's answers, each with the error that says what is missing.
#[derive(Debug)]
pub struct Access {
    /// To a list of all programs.
    pub programs: Result<()>,
    /// To switching run statistics on.
    pub statistics: Result<()>,
    /// To a program of our own, which also tells whether there is BTF.
    pub loading: Result<()>,
}

/// Tries everything once, and leaves nothing behind: no switch is turned, and a program of our own is loaded and let go of.
pub fn access() -> Access {
    Access {
        programs: prog_ids().next().map_or(Ok(()), |answer| answer.map(drop)),
        statistics: sys::try_run_time_stats(),
        loading: Refs::load().map(drop),
    }
}
