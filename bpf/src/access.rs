//! Tries the kinds of access to BPF that bprec needs.

use crate::error::Result;
use crate::inspect::prog_ids;
use crate::programs::Refs;
use crate::sys;

/// Result of each access check; an error names the missing privilege or feature.
#[derive(Debug)]
pub struct Access {
    /// Listing all programs.
    pub programs: Result<()>,
    /// Switching run statistics on.
    pub statistics: Result<()>,
    /// Loading a program of bprec; also needs kernel BTF.
    pub loading: Result<()>,
}

/// Tries each access once. Run statistics stay as they are: only the privilege to switch them on is checked. The loaded program is unloaded again.
pub fn access() -> Access {
    Access {
        programs: prog_ids().next().map_or(Ok(()), |answer| answer.map(drop)),
        statistics: sys::try_run_time_stats(),
        loading: Refs::load().map(drop),
    }
}
