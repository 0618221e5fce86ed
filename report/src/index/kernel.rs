//! Kernel functions with a role for BPF programs, each with its source file (Linux 6.18, and its predecessors in older kernels).

use Role::{Event, Guard, Hook, Idle, Interpreter, Interrupt, Plain};
use bprec_format::bpf::names::ProgType;

/// Role of a kernel function in a call chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Role {
    /// No special role.
    Plain,
    /// The CPU is idle in the function.
    Idle,
    /// Runs BPF programs.
    Hook,
    /// Makes a trace event, which may run BPF programs.
    Event,
    /// Handles user probes, which may run BPF programs.
    UserProbe,
    /// Runs next to a program: a trampoline calls the function immediately before or after the program.
    Guard,
    /// Interprets programs without machine code.
    Interpreter,
    /// An interrupt enters the kernel through the function.
    Interrupt,
}

impl Role {
    /// Returns true for roles of code that runs programs.
    pub(crate) fn runs_programs(self) -> bool {
        matches!(self, Hook | Event | Role::UserProbe | Interpreter)
    }
}

/// Programs that a function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// Unknown. The function is no hook, or only a function further out in the call chain identifies the hook.
    NotSaid,
    /// Programs of these types that are attached in these ways.
    Programs(Candidates),
    /// Programs on a kernel probe; the probed function is further out in the call chain.
    Probe(Candidates),
    /// Programs on user probes of a kind.
    UserProbe(UserProbe),
    /// Programs on trace events of perf.
    AnyEvent,
    /// Programs on any raw tracepoint.
    AnyRawTracepoint,
    /// Programs on the raw tracepoint, or class of tracepoints, named by the rest of the function's name.
    RawTracepoint,
    /// Programs on the perf event of a tracepoint, or class of tracepoints, named by the rest of the function's name.
    Event,
    /// Programs on the tracepoint named by the rest of the function's name, raw or as a perf event.
    Tracepoint,
}

/// Programs by their type and the kind of their attachments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Candidates {
    pub(crate) types: &'static [ProgType],
    /// Ways in which the programs are attached, as `kind` or `kind:target`. Kind and target are each a whole name, or a prefix before `*`. An empty
    /// list stands for all kinds except tail calls.
    pub(crate) attached_as: &'static [&'static str],
}

/// Kinds of user probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserProbe {
    Entry,
    Return,
}

impl UserProbe {
    /// Names of the kinds in attachments.
    pub(crate) const NAMES: [&str; 2] = ["uprobe", "uretprobe"];
}

const fn of_type(types: &'static [ProgType]) -> Dispatch {
    attached(types, &[])
}

const fn attached(types: &'static [ProgType], attached_as: &'static [&'static str]) -> Dispatch {
    Dispatch::Programs(Candidates { types, attached_as })
}

const fn probe(attached_as: &'static [&'static str]) -> Dispatch {
    Dispatch::Probe(Candidates { types: &[ProgType::KPROBE], attached_as })
}

const NOT_SAID: Dispatch = Dispatch::NotSaid;
const XDP: Dispatch = Dispatch::Programs(XDP_PROGRAMS);
const SOCKOPT: Dispatch = of_type(&[ProgType::CGROUP_SOCKOPT]);
const KPROBE_MULTI: Dispatch = attached(&[ProgType::KPROBE], &["kprobe_multi", "kretprobe_multi"]);
const UPROBE_MULTI: Dispatch = attached(&[ProgType::KPROBE], &["uprobe_multi", "uretprobe_multi"]);
const SYSCALL_ENTER: Dispatch = attached(&[ProgType::TRACEPOINT], &["tracepoint:syscalls:sys_enter_*"]);
const SYSCALL_EXIT: Dispatch = attached(&[ProgType::TRACEPOINT], &["tracepoint:syscalls:sys_exit_*"]);

/// Programs on XDP hooks. Dispatchers run these programs, too.
pub(crate) const XDP_PROGRAMS: Candidates = Candidates { types: &[ProgType::XDP], attached_as: &["xdp"] };
/// Programs on raw tracepoints.
pub(crate) const RAW_TRACEPOINTS: Candidates = Candidates {
    types: &[ProgType::RAW_TRACEPOINT, ProgType::RAW_TRACEPOINT_WRITABLE, ProgType::TRACING],
    attached_as: &["raw_tracepoint"],
};
/// Programs on tracepoints as perf events.
pub(crate) const TRACEPOINTS: Candidates = Candidates { types: &[ProgType::TRACEPOINT], attached_as: &["tracepoint"] };
/// Programs on trace events of perf.
pub(crate) const TRACING_EVENTS: Candidates = Candidates {
    types: &[ProgType::TRACEPOINT, ProgType::KPROBE],
    attached_as: &["tracepoint", "kprobe", "kretprobe", "uprobe", "uretprobe"],
};

/// Programs on user probes.
pub(crate) const USER_PROBES: Candidates =
    Candidates { types: &[ProgType::KPROBE], attached_as: &["uprobe*", "uretprobe*"] };
/// Programs on kernel probes.
pub(crate) const KERNEL_PROBES: Candidates =
    Candidates { types: &[ProgType::KPROBE], attached_as: &["kprobe*", "kretprobe*"] };
/// Programs on tracepoints of system calls.
pub(crate) const SYSTEM_CALL_TRACEPOINTS: Candidates = Candidates {
    types: &[ProgType::TRACEPOINT, ProgType::RAW_TRACEPOINT, ProgType::RAW_TRACEPOINT_WRITABLE, ProgType::TRACING],
    attached_as: &["tracepoint:syscalls:*", "tracepoint:raw_syscalls:*", "raw_tracepoint:sys_*", "tp_btf:sys_*"],
};

/// Pattern for a function's name, with the role of the function and the programs that it runs. A pattern is a whole name, a prefix before `*`, or a
/// prefix before `#` that a number follows.
type Pattern = (&'static str, Role, Dispatch);

/// Functions by source file. The first pattern that matches a name counts. `bpf_prog_run_xdp` (net/xdp.h), `tcx_run` (net/core/dev.c) and
/// `netkit_run` (drivers/net/netkit.c) are not listed: they are inlined and so in no call chain.
const FUNCTIONS: [Pattern; 81] = [
    // kernel/bpf/cgroup.c
    ("__cgroup_bpf_check_dev_permission", Hook, of_type(&[ProgType::CGROUP_DEVICE])),
    ("__cgroup_bpf_run_filter_getsockopt", Hook, SOCKOPT),
    ("__cgroup_bpf_run_filter_getsockopt_kern", Hook, SOCKOPT),
    ("__cgroup_bpf_run_filter_setsockopt", Hook, SOCKOPT),
    ("__cgroup_bpf_run_filter_sk", Hook, of_type(&[ProgType::CGROUP_SOCK])),
    ("__cgroup_bpf_run_filter_skb", Hook, of_type(&[ProgType::CGROUP_SKB])),
    ("__cgroup_bpf_run_filter_sock_addr", Hook, of_type(&[ProgType::CGROUP_SOCK_ADDR])),
    ("__cgroup_bpf_run_filter_sock_ops", Hook, of_type(&[ProgType::SOCK_OPS])),
    ("__cgroup_bpf_run_filter_sysctl", Hook, of_type(&[ProgType::CGROUP_SYSCTL])),
    ("__cgroup_bpf_*", Hook, NOT_SAID),
    ("bpf_prog_run_array*", Hook, NOT_SAID),
    // kernel/bpf/core.c
    ("___bpf_prog_run", Interpreter, NOT_SAID),
    ("__bpf_prog_run_args#", Interpreter, NOT_SAID),
    ("__bpf_prog_run#", Interpreter, NOT_SAID),
    // kernel/bpf/dispatcher.c, include/linux/bpf.h
    ("bpf_dispatcher_nop_func*", Hook, NOT_SAID),
    ("bpf_dispatcher_xdp_func", Plain, XDP),
    // kernel/bpf/trampoline.c
    ("__bpf_prog_enter*", Guard, NOT_SAID),
    ("__bpf_prog_exit*", Guard, NOT_SAID),
    ("__bpf_tramp_enter*", Guard, NOT_SAID),
    ("__bpf_tramp_exit*", Guard, NOT_SAID),
    // kernel/trace/bpf_trace.c
    ("trace_call_bpf", Hook, Dispatch::AnyEvent),
    ("trace_call_bpf*", Hook, NOT_SAID),
    ("bpf_trace_run*", Hook, Dispatch::AnyRawTracepoint),
    ("kprobe_multi_link_exit_handler", Plain, KPROBE_MULTI),
    ("kprobe_multi_link_handler", Hook, KPROBE_MULTI),
    ("kprobe_multi_link_prog_run", Hook, KPROBE_MULTI),
    ("uprobe_multi_link_handler", Hook, UPROBE_MULTI),
    ("uprobe_multi_link_ret_handler", Plain, UPROBE_MULTI),
    ("uprobe_prog_run", Hook, UPROBE_MULTI),
    // kernel/trace/trace_kprobe.c
    ("kprobe_dispatcher", Plain, probe(&["kprobe"])),
    ("kprobe_perf_func", Plain, probe(&["kprobe"])),
    ("kretprobe_dispatcher", Plain, probe(&["kretprobe"])),
    ("kretprobe_perf_func", Plain, probe(&["kretprobe"])),
    // kernel/trace/trace_uprobe.c
    ("__uprobe_perf_func", Role::UserProbe, NOT_SAID),
    ("uprobe_dispatcher", Role::UserProbe, Dispatch::UserProbe(UserProbe::Entry)),
    ("uprobe_perf_func", Role::UserProbe, Dispatch::UserProbe(UserProbe::Entry)),
    ("uretprobe_dispatcher", Role::UserProbe, Dispatch::UserProbe(UserProbe::Return)),
    ("uretprobe_perf_func", Role::UserProbe, Dispatch::UserProbe(UserProbe::Return)),
    // kernel/trace/trace_syscalls.c
    ("perf_call_bpf_enter", Hook, SYSCALL_ENTER),
    ("perf_call_bpf_exit", Hook, SYSCALL_EXIT),
    ("perf_syscall_enter", Event, SYSCALL_ENTER),
    ("perf_syscall_exit", Event, SYSCALL_EXIT),
    // kernel/events/core.c, include/trace/perf.h
    ("bpf_overflow_handler", Hook, attached(&[ProgType::PERF_EVENT], &["perf_event"])),
    ("perf_trace_run_bpf_submit", Hook, NOT_SAID),
    ("perf_trace_*", Event, Dispatch::Event),
    // include/trace/bpf_probe.h, include/linux/tracepoint.h
    ("__bpf_trace_*", Hook, Dispatch::RawTracepoint),
    ("__perf_bpf_*", Hook, NOT_SAID),
    ("__traceiter_*", Plain, Dispatch::Tracepoint),
    // include/linux/filter.h
    ("bpf_prog_run_clear_cb", Hook, NOT_SAID),
    ("run_bpf_filter", Hook, NOT_SAID),
    // net/core/dev.c, net/core/flow_dissector.c
    ("bpf_flow_dissect", Hook, of_type(&[ProgType::FLOW_DISSECTOR])),
    ("bpf_prog_run_generic_xdp", Hook, XDP),
    ("do_xdp_generic", Plain, XDP),
    // net/sched/cls_bpf.c
    ("cls_bpf_classify", Hook, attached(&[ProgType::SCHED_CLS, ProgType::SCHED_ACT], &["tc*"])),
    // kernel/sched/idle.c
    ("cpu_idle_poll", Idle, NOT_SAID),
    ("cpu_startup_entry", Idle, NOT_SAID),
    ("default_idle", Idle, NOT_SAID),
    ("default_idle_call", Idle, NOT_SAID),
    ("do_idle", Idle, NOT_SAID),
    // drivers/cpuidle, drivers/acpi/processor_idle.c, drivers/idle/intel_idle.c
    ("acpi_idle_do_entry", Idle, NOT_SAID),
    ("acpi_idle_enter", Idle, NOT_SAID),
    ("acpi_safe_halt", Idle, NOT_SAID),
    ("cpuidle_enter_state", Idle, NOT_SAID),
    ("haltpoll", Idle, NOT_SAID),
    ("intel_idle*", Idle, NOT_SAID),
    ("poll_idle", Idle, NOT_SAID),
    // arch/*/kernel/process.c, arch/*/kernel/idle.c, arch/x86/kernel/paravirt.c
    ("arch_cpu_idle", Idle, NOT_SAID),
    ("cpu_do_idle", Idle, NOT_SAID),
    ("enabled_wait", Idle, NOT_SAID),
    ("mwait_idle*", Idle, NOT_SAID),
    ("native_safe_halt", Idle, NOT_SAID),
    ("psw_idle", Idle, NOT_SAID),
    ("pv_native_safe_halt", Idle, NOT_SAID),
    // arch/x86/include/asm/idtentry.h, arch/arm64/kernel/entry.S, arch/s390/kernel/entry.S
    ("asm_common_interrupt*", Interrupt, NOT_SAID),
    ("asm_sysvec_*", Interrupt, NOT_SAID),
    ("common_interrupt*", Interrupt, NOT_SAID),
    ("el1_irq*", Interrupt, NOT_SAID),
    ("el1h_64_irq*", Interrupt, NOT_SAID),
    ("el1h_64_fiq*", Interrupt, NOT_SAID),
    ("ext_int_handler*", Interrupt, NOT_SAID),
    ("io_int_handler*", Interrupt, NOT_SAID),
];

/// Returns the role of a function, the programs that it runs, and the rest of its name, which `*` or `#` in the pattern stands for. `name` is without
/// the compiler's suffixes.
pub(crate) fn meaning(name: &str) -> (Role, Dispatch, &str) {
    let mut fitting = FUNCTIONS.iter().filter_map(|(pattern, role, runs)| Some((*role, *runs, rest(pattern, name)?)));
    fitting.next().unwrap_or((Plain, NOT_SAID, ""))
}

#[inline]
pub(super) fn rest<'n>(pattern: &str, name: &'n str) -> Option<&'n str> {
    if pattern.as_bytes().first() != name.as_bytes().first() {
        return None;
    }
    let is_number = |rest: &&str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    match (pattern.strip_suffix('*'), pattern.strip_suffix('#')) {
        (Some(start), _) => name.strip_prefix(start),
        (_, Some(start)) => name.strip_prefix(start).filter(is_number),
        _ => (pattern == name).then_some(""),
    }
}

/// Strips the compiler's suffixes (`.constprop.0`, `.isra.0`, `.cold`) and the module from a function's name.
pub(crate) fn stem(name: &[u8]) -> &[u8] {
    name.split(|byte| matches!(byte, b'.' | b' ')).next().unwrap_or_default()
}

/// Functions that a hook runs once for each of its programs, by the prefix of their names (kernel/bpf/trampoline.c, kernel/trace/bpf_trace.c,
/// kernel/events/core.c). Other code of a hook runs once for all programs.
const PER_PROGRAM: [&str; 7] = [
    "__bpf_prog_enter",
    "__bpf_prog_exit",
    "__bpf_trace_",
    "bpf_trace_run",
    "kprobe_multi_link_",
    "uprobe_multi_link_",
    "bpf_overflow_handler",
];

/// Returns true if a hook runs a function once for each of its programs. `name` is without the compiler's suffixes.
pub(crate) fn runs_per_program(name: &str) -> bool {
    PER_PROGRAM.iter().any(|begin| name.starts_with(begin))
}

/// Kinds of attachments for which the kernel inlines the code that runs the programs: samples do not show this code.
const INLINED: [&str; 4] = ["tcx_ingress", "tcx_egress", "netkit_primary", "netkit_peer"];

/// Returns true if the kernel inlines the entry code of all these kinds, and at least one kind is given.
pub(crate) fn is_inlined<'a>(kinds: impl IntoIterator<Item = &'a str>) -> bool {
    let mut kinds = kinds.into_iter().peekable();
    kinds.peek().is_some() && kinds.all(|kind| INLINED.contains(&kind))
}

/// Prefixes of tracepoints that fire with interrupts off.
const IRQS_OFF: [&str; 9] = [
    "sched_switch",
    "sched_wakeup",
    "sched_waking",
    "sched_stat_",
    "sched_migrate_task",
    "hrtimer_",
    "irq_handler_",
    "local_timer_",
    "irq_disable",
];

/// Table of a scheduler's operations (sched_ext), and operations that the kernel may call with interrupts on. It calls the others with the lock of a
/// run queue or of a task (kernel/sched/ext.c).
const SCHEDULER: &str = "sched_ext_ops ";
const IRQS_ON: [&str; 5] = ["init", "exit", "dump", "cgroup_", "cpu_o"];

/// Returns the name of a hook if its programs run with interrupts off, where no timer can sample. `target` is the target of an attachment.
pub(crate) fn interrupts_off(target: &str) -> Option<&str> {
    let name = target.rsplit(':').next()?;
    let is_operation = |operation: &&str| IRQS_ON.iter().all(|prefix| !operation.starts_with(prefix));
    match target.strip_prefix(SCHEDULER).and_then(|table| table.rsplit('.').next()) {
        Some(operation) => Some(operation).filter(is_operation),
        None => IRQS_OFF.iter().any(|prefix| name.starts_with(prefix)).then_some(name),
    }
}

/// Function relative to which the kernel encodes calls of helpers (kernel/bpf/core.c).
pub(crate) const CALL_BASE: &str = "__bpf_call_base";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_interpreter_interprets() {
        for name in ["___bpf_prog_run", "__bpf_prog_run32", "__bpf_prog_run_args512"] {
            assert_eq!(meaning(name).0, Interpreter, "{name}");
        }
        for name in ["__bpf_prog_run_save_cb", "bpf_prog_run_clear_cb", "__bpf_prog_run_array", "__bpf_prog_run"] {
            assert_ne!(meaning(name).0, Interpreter, "{name}");
        }
    }

    #[test]
    fn hooks_under_locks_of_the_scheduler_have_interrupts_off() {
        assert_eq!(interrupts_off("sched:sched_switch"), Some("sched_switch"));
        assert_eq!(interrupts_off("sched_ext_ops simple.enqueue"), Some("enqueue"));
        for target in
            ["syscalls:sys_enter_read", "sched_ext_ops simple.init_task", "tcp_congestion_ops sched_switch.init"]
        {
            assert_eq!(interrupts_off(target), None, "{target}");
        }
    }

    #[test]
    fn names_are_found_whole_before_the_begin_of_others() {
        assert_eq!(meaning("perf_trace_run_bpf_submit"), (Hook, NOT_SAID, ""));
        assert_eq!(meaning("perf_trace_sched_switch"), (Event, Dispatch::Event, "sched_switch"));
        assert_eq!(meaning("trace_call_bpf_faultable"), (Hook, NOT_SAID, "_faultable"));
        assert_eq!(meaning("__cgroup_bpf_run_filter_skb").1, of_type(&[ProgType::CGROUP_SKB]));
        assert_eq!(meaning("asm_sysvec_apic_timer_interrupt").0, Interrupt);
        assert_eq!(meaning("vfs_read"), (Plain, NOT_SAID, ""));
        assert_eq!(stem(b"bpf_trace_run2.constprop.0 [mod]"), b"bpf_trace_run2");
    }
}
