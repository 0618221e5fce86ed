//! Privilege to load and attach tracing programs.

use bprec_host::Capability;

/// Returns true if this process has the privilege to load and attach tracing programs. If the kernel still refuses such programs, more privilege
/// does not help.
pub fn may_trace() -> bool {
    Capability::SYS_ADMIN.is_effective() || Capability::BPF.is_effective() && Capability::PERFMON.is_effective()
}

/// Remedy if the kernel refuses to load or attach a program of bprec with EPERM or EACCES.
pub(crate) fn permission_remedy() -> &'static str {
    if may_trace() {
        "bprec has sufficient privileges: kernel lockdown, a security module or the container forbids the call"
    } else {
        "needs CAP_BPF and CAP_PERFMON (run as root)"
    }
}
