//! The kernel's own code: what the recording names of it, and where its text and modules are.

use super::intervals::Intervals;
use bprec_format::state::KernelSymbol;
use std::borrow::Cow;

/// Name of a function, and how far behind its start an address is.
pub(crate) type Found<'n> = (&'n [u8], u64);

/// What a kernel function is to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing special.
    Plain,
    /// The CPU waits in it for something to do.
    Idle,
    /// It exists to run BPF programs.
    Hook,
    /// It exists for events of a tracepoint, of which some run BPF programs.
    Event,
    /// It exists for probes of user space, of which some run BPF programs.
    UserProbe,
    /// A trampoline calls it around a program.
    Guard,
    /// It interprets programs that have no machine code.
    Interpreter,
    /// An interrupt enters the kernel through it, whatever ran.
    Interrupt,
}

/// Kernel functions by address.
#[derive(Debug, Default, Clone)]
pub(crate) struct KernelSymbols {
    /// One per address.
    functions: Intervals<Function>,
}

#[derive(Debug, Clone)]
struct Function {
    /// With the compiler's suffixes, and its module behind a space.
    name: Vec<u8>,
    kind: Kind,
}

/// A symbol without a length reaches no further than this.
const LEN_LIMIT: u64 = 1 << 20;

impl KernelSymbols {
    /// Of several names of an address, the first in the order of their bytes, whichever the recording says first.
    pub(crate) fn new(mut symbols: Vec<KernelSymbol>) -> KernelSymbols {
        symbols.sort_by(|a, b| (a.addr, &a.name).cmp(&(b.addr, &b.name)));
        symbols.dedup_by_key(|symbol| symbol.addr);
        let functions = symbols.into_iter().map(|symbol| {
            let len = if symbol.len_bytes == 0 { LEN_LIMIT } else { symbol.len_bytes.into() };
            let kind = kind(&symbol.name);
            (symbol.addr..symbol.addr.saturating_add(len), Function { name: symbol.name, kind })
        });
        KernelSymbols { functions: Intervals::new(functions.collect()) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Number of the function at an address.
    pub(crate) fn find(&self, addr: u64) -> Option<u32> {
        self.functions.find(addr)
    }

    /// The function at an address, how far behind its start that is, and its module if it is a module's.
    pub(crate) fn at(&self, addr: u64) -> Option<(Found<'_>, Option<&[u8]>)> {
        let (function, offset) = self.functions.at(addr)?;
        let name = function.name.as_slice();
        Some(match name.iter().position(|byte| *byte == b' ') {
            Some(blank) => ((&name[..blank], offset), Some(&name[blank + 1..])),
            None => ((name, offset), None),
        })
    }

    /// Name of a function by its number.
    pub(crate) fn name(&self, number: u32) -> String {
        let function = self.functions.get(number);
        function.map_or_else(String::new, |(_, function)| String::from_utf8_lossy(&function.name).into_owned())
    }

    /// First address of a function by its number.
    pub(crate) fn start(&self, number: u32) -> Option<u64> {
        self.functions.get(number).map(|(addrs, _)| addrs.start)
    }

    /// All functions by number, without the compiler's suffixes and the module.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u32, Cow<'_, str>)> {
        self.functions.iter().enumerate().map(|(number, (_, function))| {
            let stem = function.name.split(|byte| matches!(byte, b'.' | b' ')).next().unwrap_or_default();
            (number as u32, String::from_utf8_lossy(stem))
        })
    }

    /// Kind of the function at an address.
    pub(crate) fn kind_at(&self, addr: u64) -> Kind {
        self.functions.at(addr).map_or(Kind::Plain, |(function, _)| function.kind)
    }

    /// First address and one past the last of the functions of a kind.
    pub(crate) fn of_kind(&self, wanted: Kind) -> impl Iterator<Item = (u64, u64)> + '_ {
        let next = self.functions.iter().skip(1).map(|(addrs, _)| addrs.start).chain([u64::MAX]);
        let of_kind = self.functions.iter().zip(next).filter(move |((_, function), _)| function.kind == wanted);
        of_kind.map(|((addrs, _), next)| (addrs.start, addrs.end.min(next)))
    }
}

/// Functions that the idle task waits in, on the architectures that BPF is compiled for.
const IDLE: [&str; 18] = [
    "acpi_idle_enter",
    "acpi_idle_do_entry",
    "acpi_safe_halt",
    "arch_cpu_idle",
    "cpu_do_idle",
    "cpu_idle_poll",
    "cpu_startup_entry",
    "cpuidle_enter_state",
    "default_idle",
    "default_idle_call",
    "do_idle",
    "enabled_wait",
    "haltpoll",
    "mwait_idle",
    "native_safe_halt",
    "poll_idle",
    "psw_idle",
    "pv_native_safe_halt",
];

/// Kernel functions between a hook and its programs.
const HOOKS: [&str; 20] = [
    "__bpf_trace_",
    "__cgroup_bpf_",
    "__perf_bpf_",
    "bpf_dispatcher_nop_func",
    "bpf_flow_dissect",
    "bpf_overflow_handler",
    "bpf_prog_run_array",
    "bpf_prog_run_clear_cb",
    "bpf_prog_run_generic_xdp",
    "bpf_trace_run",
    "cls_bpf_classify",
    "kprobe_multi_link_handler",
    "kprobe_multi_link_prog_run",
    "perf_call_bpf_enter",
    "perf_call_bpf_exit",
    "perf_trace_run_bpf_submit",
    "run_bpf_filter",
    "trace_call_bpf",
    "uprobe_multi_link_handler",
    "uprobe_prog_run",
];

/// Kernel functions that make an event of perf of a tracepoint, for its programs or for who samples it: beside these, those with the
/// tracepoint's name or its class's, which begin alike.
const EVENTS: [&str; 2] = ["perf_syscall_enter", "perf_syscall_exit"];
const EVENT: &str = "perf_trace_";

/// Kernel functions between a probe of user space and its programs, where it has some.
const USER_PROBES: [&str; 5] =
    ["__uprobe_perf_func", "uprobe_dispatcher", "uprobe_perf_func", "uretprobe_dispatcher", "uretprobe_perf_func"];

/// Kernel functions that a trampoline calls around each program.
const GUARDS: [&str; 4] = ["__bpf_prog_enter", "__bpf_prog_exit", "__bpf_tramp_enter", "__bpf_tramp_exit"];

/// Where interrupts enter the kernel, on the architectures that BPF is compiled for.
const INTERRUPTS: [&str; 8] = [
    "asm_common_interrupt",
    "asm_sysvec_",
    "common_interrupt",
    "el1_irq",
    "el1h_64_irq",
    "el1h_64_fiq",
    "ext_int_handler",
    "io_int_handler",
];

/// `___bpf_prog_run`, and for each size of stack `__bpf_prog_run32`, `__bpf_prog_run_args32`. Helpers and wrappers of the kernel have
/// names that begin alike: `__bpf_prog_run_save_cb`.
fn is_interpreter(name: &str) -> bool {
    let rest = name.strip_prefix("__bpf_prog_run").map(|rest| rest.strip_prefix("_args").unwrap_or(rest));
    let is_size = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    name == "___bpf_prog_run" || rest.is_some_and(is_size)
}

fn kind(name: &[u8]) -> Kind {
    let name = String::from_utf8_lossy(name);
    // The compiler's suffixes: `.constprop.0`, `.isra.0`, `.cold`.
    let stem = name.split(['.', ' ']).next().unwrap_or_default();
    if IDLE.contains(&stem) || stem.starts_with("intel_idle") || stem.starts_with("mwait_idle") {
        Kind::Idle
    } else if GUARDS.iter().any(|guard| stem.starts_with(guard)) {
        Kind::Guard
    } else if USER_PROBES.contains(&stem) {
        Kind::UserProbe
    } else if is_interpreter(stem) {
        Kind::Interpreter
    } else if INTERRUPTS.iter().any(|entry| stem.starts_with(entry)) {
        Kind::Interrupt
    } else if HOOKS.iter().any(|hook| stem.starts_with(hook)) {
        Kind::Hook
    } else if stem.starts_with(EVENT) || EVENTS.contains(&stem) {
        Kind::Event
    } else {
        Kind::Plain
    }
}

/// Where the kernel's text and its modules are, from the maps that recorders write with pid −1.
#[derive(Debug, Default)]
pub(crate) struct KernelMaps {
    maps: Intervals<String>,
}

impl KernelMaps {
    /// Of start, end and name of each.
    pub(crate) fn new(mut maps: Vec<(u64, u64, String)>) -> KernelMaps {
        maps.sort();
        maps.dedup();
        KernelMaps { maps: Intervals::new(maps.into_iter().map(|(start, end, name)| (start..end, name)).collect()) }
    }

    /// True when the recorder was not allowed to see where the kernel is.
    pub(crate) fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// The map that an address is in: `[kernel.kallsyms]`, `[module]`.
    pub(crate) fn find(&self, addr: u64) -> Option<&str> {
        self.maps.at(addr).map(|(name, _)| name.as_str())
    }

    /// From the first module to the end of the last.
    pub(crate) fn module_area(&self) -> Option<(u64, u64)> {
        let modules = self.maps.iter().filter(|(_, name)| !name.starts_with("[kernel.kallsyms]"));
        let areas = modules.map(|(addrs, _)| (addrs.start, addrs.end));
        areas.reduce(|(low, high), (start, end)| (low.min(start), high.max(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(addr: u64, len_bytes: u32, name: &str) -> KernelSymbol {
        KernelSymbol { addr, len_bytes, name: name.as_bytes().to_vec() }
    }

    #[test]
    fn functions_are_found_and_known_for_what_they_do() {
        let symbols = KernelSymbols::new(vec![
            symbol(0x3000, 0x100, "pv_native_safe_halt"),
            symbol(0x1000, 0x10, "vfs_read"),
            symbol(0x2000, 0, "trace_call_bpf"),
            symbol(0x4000, 0x40, "__bpf_prog_enter_recur"),
            symbol(0x5000, 0x40, "bpf_trace_run2.constprop.0 [mod]"),
        ]);
        let name = |addr| symbols.find(addr).map(|n| symbols.name(n));
        assert_eq!(name(0x100f).as_deref(), Some("vfs_read"));
        assert_eq!(name(0x1010), None);
        assert_eq!(name(0x2fff).as_deref(), Some("trace_call_bpf"));
        assert_eq!(symbols.kind_at(0x1000), Kind::Plain);
        assert_eq!(symbols.kind_at(0x3010), Kind::Idle);
        assert_eq!(symbols.kind_at(0x4000), Kind::Guard);
        assert_eq!(symbols.of_kind(Kind::Hook).collect::<Vec<_>>(), [(0x2000, 0x3000), (0x5000, 0x5040)]);
    }

    #[test]
    fn kernel_functions_end_and_modules_are_told_apart() {
        let symbols =
            KernelSymbols::new(vec![symbol(0x1000, 0x10, "vfs_read"), symbol(0x2000, 0, "loop_queue_rq [loop]")]);
        assert_eq!(symbols.at(0x100f), Some(((&b"vfs_read"[..], 15), None)));
        assert_eq!(symbols.at(0x1010), None);
        assert_eq!(symbols.at(0x2010), Some(((&b"loop_queue_rq"[..], 16), Some(&b"[loop]"[..]))));
    }

    /// As `T` and `t` of the kernel's own list, in either order.
    #[test]
    fn names_of_one_address_do_not_depend_on_their_order() {
        let (one, other) = (symbol(0x1000, 0x10, "__x64_sys_read"), symbol(0x1000, 0x10, "sys_read"));
        for symbols in [vec![one.clone(), other.clone()], vec![other, one]] {
            assert_eq!(KernelSymbols::new(symbols).at(0x1001), Some(((&b"__x64_sys_read"[..], 1), None)));
        }
    }

    #[test]
    fn only_the_interpreter_interprets() {
        for name in ["___bpf_prog_run", "__bpf_prog_run32", "__bpf_prog_run_args512", "___bpf_prog_run.cold"] {
            assert_eq!(kind(name.as_bytes()), Kind::Interpreter, "{name}");
        }
        for name in ["__bpf_prog_run_save_cb", "bpf_prog_run_clear_cb", "__bpf_prog_run_array"] {
            assert_ne!(kind(name.as_bytes()), Kind::Interpreter, "{name}");
        }
        assert_eq!(kind(b"asm_sysvec_apic_timer_interrupt"), Kind::Interrupt);
    }

    #[test]
    fn maps_tell_text_from_modules() {
        let maps = KernelMaps::new(vec![
            (0xc000, 0xd000, "[loop]".into()),
            (0x1000, 0x9000, "[kernel.kallsyms]_text".into()),
            (0xa000, 0xb000, "[xfs]".into()),
        ]);
        assert_eq!(maps.find(0x8fff), Some("[kernel.kallsyms]_text"));
        assert_eq!(maps.find(0x9000), None);
        assert_eq!(maps.module_area(), Some((0xa000, 0xd000)));
    }
}
