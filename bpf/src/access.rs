//! What this process may ask the kernel, and what would let it ask more.

use std::fs;

use crate::prog;
use crate::refs::Refs;
use crate::sys;

/// One thing to be asked of the kernel, and what stands in its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What it is about ("list programs").
    pub what: &'static str,
    /// What is wrong, what is missing because of it, and the remedy; None when nothing is wrong.
    pub problem: Option<String>,
}

/// Tries everything once, and leaves nothing behind: statistics, where allowed, are on for the moment of the call, and a
/// program of our own is loaded and let go of.
pub fn access() -> Vec<Check> {
    let listing = prog::prog_ids().next().and_then(Result::err);
    let stats = sys::enable_run_time_stats().err();
    vec![
        Check {
            what: "list programs",
            problem: listing.map(|error| format!("{error}: programs, maps and links of others stay unknown")),
        },
        Check {
            what: "run statistics",
            problem: stats.map(|error| format!("{error}: runs and time per run stay unknown")),
        },
        Check { what: "kernel addresses", problem: hidden_addresses().map(str::to_owned) },
        Check { what: "images in kallsyms", problem: hidden_symbols().map(str::to_owned) },
        Check {
            what: "load programs",
            problem: Refs::load().err().map(|error| format!("{error}: when programs are let go of stays unknown")),
        },
    ]
}

fn sysctl(path: &str) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Why the kernel hides code and addresses from this process (`kallsyms_show_value()`), or None if it does not.
pub(crate) fn hidden_addresses() -> Option<&'static str> {
    let restrict = sysctl("/proc/sys/kernel/kptr_restrict").unwrap_or(0);
    let paranoid = sysctl("/proc/sys/kernel/perf_event_paranoid").unwrap_or(2);
    if restrict == 0 && paranoid <= 1 || restrict <= 1 && has_capability(CAP_SYSLOG) {
        return None;
    }
    Some(if restrict >= 2 {
        "kernel.kptr_restrict is 2, which hides kernel addresses and machine code even from root; \
         sysctl kernel.kptr_restrict=1"
    } else if restrict == 1 {
        "kernel.kptr_restrict is 1 and CAP_SYSLOG is missing, so kernel addresses and machine code are hidden; \
         run as root or with CAP_SYSLOG"
    } else {
        "kernel.perf_event_paranoid is above 1 and CAP_SYSLOG is missing, so kernel addresses and machine code are \
         hidden; run as root or with CAP_SYSLOG"
    })
}

/// Why programs and images are not in /proc/kallsyms, or None if they are (`bpf_jit_kallsyms_enabled()`). Programs are
/// known without it, so that what is said is about images.
pub(crate) fn hidden_symbols() -> Option<&'static str> {
    if sysctl("/proc/sys/net/core/bpf_jit_enable") == Some(0) {
        return Some(
            "net.core.bpf_jit_enable is 0: programs are interpreted and have no code to sample; \
             sysctl net.core.bpf_jit_enable=1",
        );
    }
    if sysctl("/proc/sys/net/core/bpf_jit_harden").is_some_and(|level| level != 0) {
        return Some(
            "net.core.bpf_jit_harden is on, which keeps trampolines and dispatchers out of /proc/kallsyms, so that \
             their samples stay unresolved; sysctl net.core.bpf_jit_harden=0",
        );
    }
    if sysctl("/proc/sys/net/core/bpf_jit_kallsyms") == Some(0) {
        return Some(
            "net.core.bpf_jit_kallsyms is 0, which keeps trampolines and dispatchers out of /proc/kallsyms, so that \
             their samples stay unresolved; sysctl net.core.bpf_jit_kallsyms=1",
        );
    }
    None
}

/// Why the kernel withholds a program's code or addresses. `is_xlated`: its BPF instructions, which are withheld only
/// where their constants are blinded.
pub(crate) fn withheld_reason(is_xlated: bool) -> String {
    let hidden = hidden_addresses().unwrap_or("the kernel hides addresses and machine code from this process");
    if is_xlated { format!("constants are blinded (net.core.bpf_jit_harden), and {hidden}") } else { hidden.to_owned() }
}

const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYSLOG: u32 = 34;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Whether this process has the privilege that loading and attaching tracing programs takes. Where they are refused all the same, more of
/// it does not help.
pub fn may_trace() -> bool {
    has_capability(CAP_SYS_ADMIN) || has_capability(CAP_BPF) && has_capability(CAP_PERFMON)
}

/// What to do where the kernel refuses to load or to attach a program of ours for lack of permission.
pub(crate) fn permission_remedy() -> &'static str {
    if may_trace() {
        "no privilege is missing: a policy of the kernel (lockdown), of a security module or of the container forbids it"
    } else {
        "needs CAP_BPF and CAP_PERFMON (run as root)"
    }
}

/// Whether this process has a capability in effect.
fn has_capability(capability: u32) -> bool {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> capability & 1 == 1)
}
