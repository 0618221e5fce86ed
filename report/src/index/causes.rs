//! Kernel functions that run because of BPF programs but outside of them: wake-ups of consumers, probe traps, deferred frees (Linux 6.18, and its
//! predecessors in older kernels). Code that the attribution already charges as `entry` is not listed.

use super::kernel::rest;
use super::symbols::KernelSymbols;
use rustc_hash::FxHashMap;

/// Work that a kernel function does because of BPF programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum BpfCause {
    /// Wakes the consumer of a BPF ring buffer.
    RingBufferWakeup,
    /// Wakes the consumer of a perf event buffer.
    PerfBufferWakeup,
    /// Handles a user probe: the trap, the single step, the return.
    UserProbe,
    /// Handles an exception of user mode, possibly the trap of a user probe. Counts as a cause only if no kernel frame is further out.
    UserException,
    /// Dispatches a hit of a kernel probe to the probe's programs.
    KernelProbe,
    /// Dispatches a hit of a tracepoint to the tracepoint's programs. Counts as a cause only if the function is the leaf.
    Tracepoint,
    /// Dispatches a system call to the programs on its tracepoints. Counts as a cause only if the function is the leaf.
    SystemCall,
    /// Frees maps, programs or map elements after a grace period.
    Free,
    /// Serves the system call `bpf()`.
    BpfCall,
    /// Loads a program. Counts as a cause only in the system call `bpf()`, as do the next two.
    Load,
    /// Verifies a program.
    Verifier,
    /// Compiles a program. Socket filters and seccomp filters are compiled, too, but not in the system call `bpf()`.
    Jit,
}

use BpfCause::{
    BpfCall, Free, Jit, KernelProbe, Load, PerfBufferWakeup, RingBufferWakeup, SystemCall, Tracepoint, UserException,
    UserProbe, Verifier,
};

/// Functions by source file, with patterns as in [`super::kernel::rest`]. If several patterns match a name, the first counts.
const FUNCTIONS: [(&str, BpfCause); 66] = [
    // kernel/bpf/ringbuf.c
    ("bpf_ringbuf_notify", RingBufferWakeup),
    // kernel/events/core.c
    ("perf_pending_event", PerfBufferWakeup),
    ("perf_pending_irq", PerfBufferWakeup),
    // kernel/events/uprobes.c
    ("__ia32_sys_uprobe", UserProbe),
    ("__ia32_sys_uretprobe", UserProbe),
    ("__x64_sys_uprobe", UserProbe),
    ("__x64_sys_uretprobe", UserProbe),
    ("uprobe_handle_trampoline", UserProbe),
    ("uprobe_notify_resume", UserProbe),
    ("uprobe_post_sstep_notifier", UserProbe),
    ("uprobe_pre_sstep_notifier", UserProbe),
    // arch/arm64/kernel/probes/uprobes.c
    ("uprobe_breakpoint_handler", UserProbe),
    ("uprobe_brk_handler", UserProbe),
    ("uprobe_single_step_handler", UserProbe),
    // arch/x86/include/asm/idtentry.h, arch/arm64/kernel/entry-common.c
    ("asm_exc_debug", UserException),
    ("asm_exc_int3", UserException),
    ("el0_brk64", UserException),
    ("el0_softstp", UserException),
    // kernel/kprobes.c, kernel/trace/rethook.c, kernel/trace/fprobe.c, kernel/trace/ftrace.c
    ("arch_rethook_trampoline*", KernelProbe),
    ("__kretprobe_trampoline*", KernelProbe),
    ("kretprobe_rethook_handler", KernelProbe),
    ("kretprobe_trampoline*", KernelProbe),
    ("rethook_trampoline_handler", KernelProbe),
    ("fprobe_entry", KernelProbe),
    ("fprobe_exit_handler", KernelProbe),
    ("fprobe_ftrace_entry", KernelProbe),
    ("fprobe_handler", KernelProbe),
    ("fprobe_return", KernelProbe),
    ("arch_ftrace_ops_list_func", KernelProbe),
    ("ftrace_ops_list_func", KernelProbe),
    ("function_graph_enter*", KernelProbe),
    ("ftrace_return_to_handler*", KernelProbe),
    ("return_to_handler", KernelProbe),
    // kernel/trace/trace_kprobe.c
    ("kprobe_dispatcher", KernelProbe),
    ("kprobe_perf_func", KernelProbe),
    ("kretprobe_dispatcher", KernelProbe),
    ("kretprobe_perf_func", KernelProbe),
    // arch/x86/kernel/ftrace_64.S, arch/x86/kernel/kprobes, arch/arm64/kernel/entry-ftrace.S, arch/arm64/kernel/probes/kprobes.c
    ("ftrace_caller", KernelProbe),
    ("ftrace_regs_caller", KernelProbe),
    ("kprobe_breakpoint_handler", KernelProbe),
    ("kprobe_brk_handler", KernelProbe),
    ("kprobe_ftrace_handler", KernelProbe),
    ("kprobe_int3_handler", KernelProbe),
    ("optimized_callback", KernelProbe),
    ("optprobe_template_*", KernelProbe),
    // include/linux/tracepoint.h
    ("__traceiter_sys_enter", SystemCall),
    ("__traceiter_sys_exit", SystemCall),
    ("__traceiter_*", Tracepoint),
    // kernel/entry/common.c
    ("syscall_exit_work", SystemCall),
    ("syscall_trace_enter", SystemCall),
    ("trace_syscall_enter", SystemCall),
    ("trace_syscall_exit", SystemCall),
    // kernel/bpf/syscall.c, kernel/bpf/core.c, kernel/bpf/hashtab.c, kernel/bpf/memalloc.c
    ("__bpf_prog_put_rcu", Free),
    ("bpf_map_free_deferred", Free),
    ("bpf_map_free_mult_rcu_gp", Free),
    ("bpf_map_free_rcu_gp", Free),
    ("bpf_mem_refill", Free),
    ("bpf_prog_free_deferred", Free),
    ("free_mem_alloc_deferred", Free),
    ("htab_elem_free_rcu", Free),
    ("__sys_bpf", BpfCall),
    ("__x64_sys_bpf", BpfCall),
    ("__arm64_sys_bpf", BpfCall),
    ("bpf_prog_load", Load),
    // kernel/bpf/verifier.c
    ("bpf_check", Verifier),
    // arch/*/net
    ("bpf_int_jit_compile", Jit),
];

/// Returns the causes, by the number of the kernel function.
pub(crate) fn causes(symbols: &KernelSymbols) -> FxHashMap<u32, BpfCause> {
    symbols.names().filter_map(|(function, name)| Some((function, cause(&name)?))).collect()
}

/// Returns the cause of a function. `name` is without the compiler's suffixes.
fn cause(name: &str) -> Option<BpfCause> {
    FUNCTIONS.iter().find(|(pattern, _)| rest(pattern, name).is_some()).map(|(_, cause)| *cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_names() {
        assert_eq!(cause("bpf_ringbuf_notify"), Some(RingBufferWakeup));
        assert_eq!(
            cause("__traceiter_sys_enter"),
            Some(SystemCall),
            "the name has priority over the pattern of all tracepoints"
        );
        assert_eq!(cause("__traceiter_sched_switch"), Some(Tracepoint));
        assert_eq!(cause("kprobe_dispatcher"), Some(KernelProbe));
        assert_eq!(cause("vfs_read"), None);
        assert_eq!(cause("uprobe_mmap"), None, "the function runs for each mapping, with and without probes");
    }
}
