//! True if more privilege would help where the kernel refuses.

use bprec_host::Capability;

/// True if this process has the privilege that loading and attaching tracing programs takes. Where they are refused all the same, more of
/// it does not help.
pub fn may_trace() -> bool {
    Capability::SYS_ADMIN.is_effective() || Capability::BPF.is_effective() && Capability::PERFMON.is_effective()
}

/// Remedy if the kernel refuses to load or to attach a program of ours for lack of permission.
pub(crate) fn permission_remedy() -> &'static str {
    if may_trace() {
        "EPERM despite sufficient privileges: forbidden by kernel lockdown, a security module or the container"
    } else {
        "needs CAP_BPF and CAP_PERFMON (run as root)"
    }
}
