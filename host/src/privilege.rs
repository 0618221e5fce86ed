//! Privileges of this process, and the facts that the kernel hides from it.

use std::fs;

use crate::sysctl_number;

/// A capability, by the kernel's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability(pub u32);

impl Capability {
    /// `CAP_SYS_ADMIN`
    pub const SYS_ADMIN: Capability = Capability(21);
    /// `CAP_SYSLOG`
    pub const SYSLOG: Capability = Capability(34);
    /// `CAP_PERFMON`
    pub const PERFMON: Capability = Capability(38);
    /// `CAP_BPF`
    pub const BPF: Capability = Capability(39);

    /// Returns true if the capability is effective in this process.
    pub fn is_effective(self) -> bool {
        let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> self.0 & 1 == 1)
    }
}

/// Reason why the kernel hides code and addresses from this process (`kallsyms_show_value()`), with the remedy; `None` if nothing is hidden.
pub fn hidden_addresses() -> Option<&'static str> {
    let restrict = sysctl_number("kernel/kptr_restrict").unwrap_or(0);
    let paranoid = sysctl_number("kernel/perf_event_paranoid").unwrap_or(2);
    if restrict == 0 && paranoid <= 1 || restrict <= 1 && Capability::SYSLOG.is_effective() {
        return None;
    }
    Some(if restrict >= 2 {
        "kernel.kptr_restrict is 2, which hides kernel addresses and machine code even from root; \
         to show them, run sysctl kernel.kptr_restrict=1"
    } else if restrict == 1 {
        "kernel.kptr_restrict is 1 and CAP_SYSLOG is missing, so kernel addresses and machine code are hidden; \
         run as root or with CAP_SYSLOG"
    } else {
        "kernel.perf_event_paranoid is above 1 and CAP_SYSLOG is missing, so kernel addresses and machine code are \
         hidden; run as root or with CAP_SYSLOG"
    })
}
