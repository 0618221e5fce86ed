//! Reasons why the kernel hides code and symbols of programs.

use bprec_host::{hidden_addresses, sysctl_number};

/// Reason why programs and images are not in /proc/kallsyms, if they are not (`bpf_jit_kallsyms_enabled()`). Programs are
/// known from other sources, so the messages name images.
pub(crate) fn hidden_symbols() -> Option<&'static str> {
    if sysctl_number("net/core/bpf_jit_enable") == Some(0) {
        return Some(
            "net.core.bpf_jit_enable is 0: programs are interpreted and have no code to sample; \
             sysctl net.core.bpf_jit_enable=1",
        );
    }
    if sysctl_number("net/core/bpf_jit_harden").is_some_and(|level| level != 0) {
        return Some(
            "net.core.bpf_jit_harden is on, which keeps trampolines and dispatchers out of /proc/kallsyms, so that \
             their samples stay unresolved; sysctl net.core.bpf_jit_harden=0",
        );
    }
    if sysctl_number("net/core/bpf_jit_kallsyms") == Some(0) {
        return Some(
            "net.core.bpf_jit_kallsyms is 0, which keeps trampolines and dispatchers out of /proc/kallsyms, so that \
             their samples stay unresolved; sysctl net.core.bpf_jit_kallsyms=1",
        );
    }
    None
}

/// Reason why the kernel withholds code or addresses of a program. `is_xlated`: its BPF instructions, which are withheld only
/// if their constants are blinded.
pub(crate) fn withheld_reason(is_xlated: bool) -> String {
    let hidden = hidden_addresses().unwrap_or("the kernel hides addresses and machine code from this process");
    if is_xlated { format!("constants are blinded (net.core.bpf_jit_harden), and {hidden}") } else { hidden.to_owned() }
}
