//! Access of this process to the kernel's BPF, and the use of more privilege where the kernel refuses.

use bprec_host::Capability;

use crate::error::Result;
use crate::inspect::prog_ids;
use crate::programs::Refs;
use crate::sys;

/// Whether this process has the privilege that loading and attaching tracing programs takes. Where they are refused all the same, more of
/// it does not help.
pub fn may_trace() -> bool {
    Capability::SYS_ADMIN.is_effective() || Capability::BPF.is_effective() && Capability::PERFMON.is_effective()
}

/// What to do where the kernel refuses to load or to attach a program of ours for lack of permission.
pub(crate) fn permission_remedy() -> &'static str {
    if may_trace() {
        "EPERM despite sufficient privileges: forbidden by kernel lockdown, a security module or the container"
    } else {
        "needs CAP_BPF and CAP_PERFMON (run as root)"
    }
}

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
