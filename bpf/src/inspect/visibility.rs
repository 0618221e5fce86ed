//! Reasons why the kernel hides code and symbols of programs.

use bprec_host::{hidden_addresses, sysctl_number};

/// Reason why /proc/kallsyms lacks the symbols of programs and images (`bpf_jit_kallsyms_enabled()`); `None` if it has them. For compiled programs,
/// the messages name only the missing images, because other sources have the addresses of programs.
pub(crate) fn hidden_symbols() -> Option<&'static str> {
    if sysctl_number("net/core/bpf_jit_enable") == Some(0) {
        return Some(
            "net.core.bpf_jit_enable is 0: the kernel interprets programs, so they have no machine code to sample; to \
             compile them, run sysctl net.core.bpf_jit_enable=1",
        );
    }
    if sysctl_number("net/core/bpf_jit_harden").is_some_and(|level| level != 0) {
        return Some(
            "net.core.bpf_jit_harden is on: /proc/kallsyms does not list trampolines and dispatchers, and their samples \
             stay unresolved; to resolve them, run sysctl net.core.bpf_jit_harden=0",
        );
    }
    if sysctl_number("net/core/bpf_jit_kallsyms") == Some(0) {
        return Some(
            "net.core.bpf_jit_kallsyms is 0: /proc/kallsyms does not list trampolines and dispatchers, and their samples \
             stay unresolved; to resolve them, run sysctl net.core.bpf_jit_kallsyms=1",
        );
    }
    None
}

/// Reason why the kernel withholds code or addresses of a program. `is_xlated` is true for BPF instructions, which the kernel withholds only if it
/// blinds their constants.
pub(crate) fn withheld_reason(is_xlated: bool) -> String {
    let hidden = hidden_addresses().unwrap_or("the kernel hides addresses and machine code from this process");
    if is_xlated {
        format!("the kernel blinds constants in programs (net.core.bpf_jit_harden), and {hidden}")
    } else {
        hidden.to_owned()
    }
}
