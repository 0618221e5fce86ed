//! Limits that a machine can set for the recorder: the effect of each limit on a recording, and its remedy. The notices of
//! the recorder and `bprec doctor` share these texts.

/// Remedy of a limit.
enum Remedy {
    /// Command to run as root. A command with `sudo` is for the user's own shell.
    Command(&'static str),
    /// Advice, where no single command lifts the limit.
    Hint(&'static str),
}

/// Declares each limit once: `Name = "name in JSON", "effect", remedy`.
macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $cost:literal, $remedy:ident($text:literal);)*) => {
        /// Ability that the machine lacks or denies.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Limit {
            $($(#[$doc])* $name,)*
        }

        impl Limit {
            /// Effect of the limit on a recording or its report.
            pub fn cost(self) -> &'static str {
                match self {
                    $(Limit::$name => $cost,)*
                }
            }

            /// Name of the limit in JSON.
            pub fn id(self) -> &'static str {
                match self {
                    $(Limit::$name => $id,)*
                }
            }

            fn how_to_lift(self) -> Remedy {
                match self {
                    $(Limit::$name => Remedy::$remedy($text),)*
                }
            }
        }
    };
}

limits! {
    /// The kernel refuses every perf event.
    NoEvents = "no-events", "nothing can be recorded",
        Command("sysctl kernel.perf_event_paranoid=2");
    /// The kernel refuses events on whole CPUs; this user can record only their own tasks.
    OwnTasksOnly = "own-tasks-only", "only your own processes can be recorded, not whole CPUs",
        Command("sysctl kernel.perf_event_paranoid=0");
    /// The kernel does not announce to this user the programs that other users load.
    LoadsOfOthers = "loads-of-others", "BPF programs that others load while recording are not seen",
        Command("sysctl kernel.perf_event_paranoid=0");
    /// This user can sample only the user space of their own tasks.
    UserSpaceOnly = "user-space-only", "only user space is sampled, BPF programs are not",
        Command("sysctl kernel.perf_event_paranoid=1");
    /// The machine has no hardware counters.
    NoPmu = "no-pmu", "sampling by timer cannot see code that runs with interrupts off",
        Hint("give the virtual machine a PMU");
    /// The kernel does not count lost samples per event.
    NoLostCounts = "no-lost-counts", "lost samples are not counted per event (needs Linux 6.0)",
        Hint("a newer kernel");
    /// Mappings have no build ids.
    NoBuildIds = "no-build-ids", "mapped files have no build ids (needs Linux 5.12)",
        Hint("a newer kernel");
    /// Samples have no cgroups.
    NoCgroups = "no-cgroups", "samples have no cgroups (needs Linux 5.7)",
        Hint("a newer kernel");
    /// The kernel does not announce BPF programs.
    NoBpfEvents = "no-bpf-events", "BPF programs loaded while recording are not seen (needs Linux 5.1)",
        Hint("a newer kernel");
    /// CAP_PERFMON is missing.
    NoPerfmon = "no-perfmon", "whole CPUs are sampled only if kernel.perf_event_paranoid is 0 or less",
        Command("sysctl kernel.perf_event_paranoid=0");
    /// CAP_BPF is missing.
    NoBpfCapability = "no-bpf-capability", "bprec cannot load its BPF programs: --aggregate, --bpf-sampler and exact \
                                            counters do not work",
        Command("sudo bprec …");
    /// CAP_SYS_ADMIN is missing.
    NoSysAdmin = "no-sys-admin", "BPF programs of other processes have no names, runs or attach points",
        Command("sudo bprec …");
    /// CAP_SYSLOG is missing.
    NoSyslog = "no-syslog", "samples of BPF programs are n/a and kernel functions have no names, unless the kernel shows its \
                             addresses to everyone",
        Command("sudo bprec …");
    /// The recorder cannot list programs of other processes.
    ProgramsHidden = "programs-hidden", "programs, maps and links of other processes are unknown",
        Command("sudo bprec …");
    /// The recorder cannot switch run statistics on.
    NoStatistics = "no-statistics", "runs and time per run are unknown",
        Command("sudo bprec …");
    /// The kernel hides addresses: `kptr_restrict` is 2.
    AddressesHidden = "addresses-hidden", "samples of BPF programs are n/a and kernel functions have no names",
        Command("sysctl kernel.kptr_restrict=1");
    /// The kernel hides addresses from this user.
    AddressesHiddenFromUser = "addresses-hidden-from-user", "samples of BPF programs are n/a and kernel functions have no names",
        Command("sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1");
    /// /proc/kallsyms is empty in this mount namespace or cannot be opened.
    KallsymsMasked = "kallsyms-masked", "kernel functions have no names, and samples in trampolines and dispatchers are not charged \
                                         to programs",
        Hint("a mount namespace with /proc/kallsyms: systemd's ProtectKernelTunables= hides it");
    /// `bpf_jit_enable` is 0: the kernel interprets programs instead of compiling them.
    NoJit = "no-jit", "the kernel interprets programs: they have no machine code, and their samples are not charged to them",
        Command("sysctl net.core.bpf_jit_enable=1");
    /// `bpf_jit_harden` is not 0: the kernel keeps JIT images out of kallsyms, and at level 2 blinds constants of all programs.
    JitHardened = "jit-hardened", "samples in trampolines and dispatchers are not charged to programs; at level 2, the \
                                   kernel also blinds constants in programs",
        Command("sysctl net.core.bpf_jit_harden=0");
    /// `bpf_jit_kallsyms` is 0: the kernel keeps JIT images out of kallsyms.
    JitSymbolsOff = "jit-symbols-off", "samples in trampolines and dispatchers are not charged to programs",
        Command("sysctl net.core.bpf_jit_kallsyms=1");
    /// The recorder cannot load its own programs.
    NoLoading = "no-loading", "bprec keeps no descriptors of programs, so their last runs before unload are unknown; \
                               --aggregate, --bpf-sampler and exact counters do not work",
        Command("sudo bprec …");
    /// The recorder cannot attach programs to other programs.
    NoTrampolines = "no-trampolines", "exact counters (--counters exact, stat -b) do not work: runs and times come from the \
                                       kernel's run statistics",
        Hint("root, and a kernel and security policy (lockdown, LSM) that allow fentry");
    /// The kernel is too old (before Linux 6.1) for reliable trampolines.
    TrampolinesUntried = "trampolines-untried", "exact counters do not work before Linux 6.1",
        Hint("a newer kernel");
    /// Trampolines lose count of tail calls.
    TailCallBug = "tail-call-bug",
        "programs that make tail calls are not counted exactly: trampolines lose count of tail calls (fixed in Linux 6.7 on \
                 x86-64, 6.12 elsewhere)",
        Hint("a newer kernel");
    /// Kernel lockdown is in confidentiality mode: the kernel hides its memory, even from root.
    Confidential = "confidential", "kernel lockdown hides kernel memory: the kernel refuses bprec's BPF programs",
        Hint("boot without lockdown=confidentiality");
    /// The kernel provides no BTF of its own.
    NoBtf = "no-btf", "exact counters do not work; bprec keeps no descriptors of programs, so their last runs before unload \
                       are unknown",
        Hint("a kernel with CONFIG_DEBUG_INFO_BTF");
    /// The limit of locked memory (`ulimit -l`) is below 64 MiB on a kernel before Linux 5.11.
    LittleMemory = "little-memory", "the kernel may refuse bprec's maps (before Linux 5.11)",
        Command("ulimit -l unlimited");
    /// `kernel.perf_event_mlock_kb` is below its default of 516, so rings are small.
    SmallRings = "small-rings", "more samples are lost while the machine is busy",
        Command("sysctl kernel.perf_event_mlock_kb=516");
    // The command sets perf_cpu_time_max_percent, too: while it is 0 or 100, the kernel refuses to change the rate.
    /// `kernel.perf_event_max_sample_rate` is below the default rate of 4000 Hz.
    LowRate = "low-rate", "fewer samples per second than the default of 4000",
        Command("sysctl kernel.perf_cpu_time_max_percent=25 kernel.perf_event_max_sample_rate=100000");
    /// tracefs is not mounted, so the recorder cannot find tracepoints.
    NoTracefs = "no-tracefs", "tracepoints cannot be recorded (-e sched:sched_switch)",
        Command("mount -t tracefs tracefs /sys/kernel/tracing");
    /// No BPF file system is mounted, so the recorder cannot find pinned programs.
    NoBpffs = "no-bpffs", "pinned paths of programs and maps stay unknown; counters are not shared (--bpf-counters)",
        Command("mount -t bpf bpf /sys/fs/bpf");
    /// No cgroup file system of version 2 is mounted.
    NoCgroup2 = "no-cgroup2", "cgroups have no names (report --by cgroup)",
        Command("mount -t cgroup2 cgroup2 /sys/fs/cgroup");
    /// Process ids differ from those of the initial PID namespace.
    PidNamespace = "pid-namespace", "process ids are those of this PID namespace, and processes outside of it are not seen",
        Hint("run bprec outside of the container, or with the host's PID namespace");
}

impl Limit {
    /// Command that lifts the limit; `None` if no command does.
    pub fn command(self) -> Option<&'static str> {
        match self.how_to_lift() {
            Remedy::Command(command) => Some(command),
            Remedy::Hint(_) => None,
        }
    }

    /// Remedy: a command, or a hint about the machine.
    pub fn remedy(self) -> &'static str {
        match self.how_to_lift() {
            Remedy::Command(text) | Remedy::Hint(text) => text,
        }
    }
}
