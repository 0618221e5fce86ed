//! Limits that a machine can set for the recorder: the effect of each on a report, and the command that lifts it. The
//! notices of the recorder and `bprec doctor` share these texts.

/// Ability that the machine lacks or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The kernel refuses every perf event.
    NoEvents,
    /// The kernel refuses events on whole CPUs; this user can record only their own tasks.
    OwnTasksOnly,
    /// The kernel does not announce to this user the programs that others load.
    LoadsOfOthers,
    /// This user can sample only the user space of their own tasks.
    UserSpaceOnly,
    /// The machine has no hardware counters.
    NoPmu,
    /// The kernel does not count lost samples per event.
    NoLostCounts,
    /// Mappings have no build ids.
    NoBuildIds,
    /// Samples have no cgroups.
    NoCgroups,
    /// The kernel does not announce BPF programs.
    NoBpfEvents,
    /// Events use the scheduler's clock.
    NoClock,
    /// CAP_PERFMON is missing.
    NoPerfmon,
    /// CAP_BPF is missing.
    NoBpfCapability,
    /// CAP_SYS_ADMIN is missing.
    NoSysAdmin,
    /// CAP_SYSLOG is missing.
    NoSyslog,
    /// The recorder cannot list programs of others.
    ProgramsHidden,
    /// The recorder cannot switch run statistics on.
    NoStatistics,
    /// The kernel hides addresses: `kptr_restrict` is 2.
    AddressesHidden,
    /// The kernel hides addresses from this user.
    AddressesHiddenFromUser,
    /// The kernel interprets programs instead of compiling them.
    NoJit,
    /// The kernel blinds constants of programs and keeps their images out of kallsyms.
    JitHardened,
    /// The kernel keeps images out of kallsyms.
    JitSymbolsOff,
    /// The recorder cannot load its own programs.
    NoLoading,
    /// The recorder cannot attach programs to other programs.
    NoTrampolines,
    /// The kernel is too old for reliable trampolines.
    TrampolinesUntried,
    /// Trampolines lose count of tail calls.
    TailCallBug,
    /// The kernel hides its memory, even from root.
    Confidential,
    /// The kernel provides no BTF of its own.
    NoBtf,
    /// Locked memory is limited.
    LittleMemory,
    /// Rings are small.
    SmallRings,
    /// The sampling rate is limited below the default.
    LowRate,
    /// The recorder cannot find tracepoints.
    NoTracefs,
    /// The recorder cannot find pinned programs.
    NoBpffs,
    /// The machine has no unified cgroup hierarchy.
    NoCgroup2,
    /// Process ids differ from those of the initial PID namespace.
    PidNamespace,
}

/// Remedy of a limit.
enum Way {
    /// Command that root runs, unless the command itself says otherwise.
    Command(&'static str),
    Hint(&'static str),
}

impl Limit {
    /// Effect of the limit: the data that a recording, or its report, lacks.
    pub fn cost(self) -> &'static str {
        match self {
            Limit::NoEvents => "nothing can be recorded",
            Limit::OwnTasksOnly => "only your own processes can be recorded, not whole CPUs",
            Limit::LoadsOfOthers => "BPF programs that others load while recording are not seen",
            Limit::UserSpaceOnly => "only user space is sampled, BPF programs are not",
            Limit::NoPmu => "sampling by timer cannot see code that runs with interrupts off",
            Limit::NoLostCounts => "lost samples are not counted per event (needs Linux 6.0)",
            Limit::NoBuildIds => "no build ids of mapped files (needs Linux 5.12)",
            Limit::NoCgroups => "no cgroups (needs Linux 5.7)",
            Limit::NoBpfEvents => "BPF programs loaded while recording are not seen (needs Linux 5.1)",
            Limit::NoClock => "times are of the scheduler's clock (needs Linux 4.1 for CLOCK_MONOTONIC)",
            Limit::NoPerfmon => "whole CPUs are sampled only if kernel.perf_event_paranoid is 0 or less",
            Limit::NoBpfCapability => {
                "the recorder cannot load programs: no --aggregate, --bpf-sampler, exact counters"
            }
            Limit::NoSysAdmin => "BPF programs of others are unknown: no names, runs or attach points",
            Limit::NoSyslog => {
                "samples of BPF programs are n/a and kernel functions have no names, unless everyone may see addresses"
            }
            Limit::ProgramsHidden => "programs, maps and links of others are unknown",
            Limit::NoStatistics => "runs and time per run are unknown",
            Limit::AddressesHidden | Limit::AddressesHiddenFromUser => {
                "samples of BPF programs are n/a and kernel functions have no names"
            }
            Limit::NoJit => "programs are interpreted: they have no machine code, and their samples stay unresolved",
            Limit::JitHardened => {
                "samples in trampolines and dispatchers stay unresolved; at level 2, constants are blinded"
            }
            Limit::JitSymbolsOff => "samples in trampolines and dispatchers stay unresolved",
            Limit::NoLoading => {
                "programs are not held, so their last runs are unknown; no --aggregate, --bpf-sampler, exact counters"
            }
            Limit::NoTrampolines => {
                "no exact counters (--counters exact, stat -b): runs and times come from the kernel's statistics"
            }
            Limit::TrampolinesUntried => "no exact counters: these need Linux 6.1",
            Limit::TailCallBug => {
                "programs that make tail calls are not counted exactly: trampolines lose count of tail calls (fixed in Linux 6.7 on \
                 x86-64, 6.12 elsewhere)"
            }
            Limit::Confidential => "kernel memory is hidden: the kernel refuses the recorder's programs",
            Limit::NoBtf => "no exact counters; programs are not held, so their last runs are unknown",
            Limit::LittleMemory => "the kernel may refuse the recorder's maps (before Linux 5.11)",
            Limit::SmallRings => "more samples are lost while the machine is busy",
            Limit::LowRate => "fewer samples per second than the default of 4000",
            Limit::NoTracefs => "tracepoints cannot be recorded (-e sched:sched_switch)",
            Limit::NoBpffs => {
                "pinned paths of programs and maps stay unknown; counters are not shared (--bpf-counters)"
            }
            Limit::NoCgroup2 => "cgroups have no names (report --by cgroup)",
            Limit::PidNamespace => "process ids are those of this PID namespace; processes outside are not seen",
        }
    }

    /// Name of the limit in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Limit::NoEvents => "no-events",
            Limit::OwnTasksOnly => "own-tasks-only",
            Limit::LoadsOfOthers => "loads-of-others",
            Limit::UserSpaceOnly => "user-space-only",
            Limit::NoPmu => "no-pmu",
            Limit::NoLostCounts => "no-lost-counts",
            Limit::NoBuildIds => "no-build-ids",
            Limit::NoCgroups => "no-cgroups",
            Limit::NoBpfEvents => "no-bpf-events",
            Limit::NoClock => "no-clock",
            Limit::NoPerfmon => "no-perfmon",
            Limit::NoBpfCapability => "no-bpf-capability",
            Limit::NoSysAdmin => "no-sys-admin",
            Limit::NoSyslog => "no-syslog",
            Limit::ProgramsHidden => "programs-hidden",
            Limit::NoStatistics => "no-statistics",
            Limit::AddressesHidden => "addresses-hidden",
            Limit::AddressesHiddenFromUser => "addresses-hidden-from-user",
            Limit::NoJit => "no-jit",
            Limit::JitHardened => "jit-hardened",
            Limit::JitSymbolsOff => "jit-symbols-off",
            Limit::NoLoading => "no-loading",
            Limit::NoTrampolines => "no-trampolines",
            Limit::TrampolinesUntried => "trampolines-untried",
            Limit::TailCallBug => "tail-call-bug",
            Limit::Confidential => "confidential",
            Limit::NoBtf => "no-btf",
            Limit::LittleMemory => "little-memory",
            Limit::SmallRings => "small-rings",
            Limit::LowRate => "low-rate",
            Limit::NoTracefs => "no-tracefs",
            Limit::NoBpffs => "no-bpffs",
            Limit::NoCgroup2 => "no-cgroup2",
            Limit::PidNamespace => "pid-namespace",
        }
    }

    /// Command that lifts the limit; `None` if no command does.
    pub fn command(self) -> Option<&'static str> {
        match self.way() {
            Way::Command(command) => Some(command),
            Way::Hint(_) => None,
        }
    }

    /// Remedy: a command, or a hint about the machine.
    pub fn remedy(self) -> &'static str {
        match self.way() {
            Way::Command(text) | Way::Hint(text) => text,
        }
    }

    fn way(self) -> Way {
        match self {
            Limit::NoEvents => Way::Command("sysctl kernel.perf_event_paranoid=2"),
            Limit::OwnTasksOnly | Limit::LoadsOfOthers | Limit::NoPerfmon => {
                Way::Command("sysctl kernel.perf_event_paranoid=0")
            }
            Limit::UserSpaceOnly => Way::Command("sysctl kernel.perf_event_paranoid=1"),
            Limit::NoPmu => Way::Hint("give the virtual machine a PMU"),
            Limit::NoLostCounts
            | Limit::NoBuildIds
            | Limit::NoCgroups
            | Limit::NoBpfEvents
            | Limit::NoClock
            | Limit::TrampolinesUntried
            | Limit::TailCallBug => Way::Hint("a newer kernel"),
            Limit::NoBpfCapability
            | Limit::NoSysAdmin
            | Limit::NoSyslog
            | Limit::ProgramsHidden
            | Limit::NoStatistics
            | Limit::NoLoading => Way::Command("sudo bprec …"),
            Limit::AddressesHidden => Way::Command("sysctl kernel.kptr_restrict=1"),
            Limit::AddressesHiddenFromUser => {
                Way::Command("sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1")
            }
            Limit::NoJit => Way::Command("sysctl net.core.bpf_jit_enable=1"),
            Limit::JitHardened => Way::Command("sysctl net.core.bpf_jit_harden=0"),
            Limit::JitSymbolsOff => Way::Command("sysctl net.core.bpf_jit_kallsyms=1"),
            Limit::NoTrampolines => {
                Way::Hint("root, and a kernel and security policy (lockdown, LSM) that allow fentry")
            }
            Limit::Confidential => Way::Hint("boot without lockdown=confidentiality"),
            Limit::NoBtf => Way::Hint("a kernel with CONFIG_DEBUG_INFO_BTF"),
            Limit::LittleMemory => Way::Command("ulimit -l unlimited"),
            Limit::SmallRings => Way::Command("sysctl kernel.perf_event_mlock_kb=516"),
            // The kernel refuses to change the rate while perf_cpu_time_max_percent is 0 or 100.
            Limit::LowRate => {
                Way::Command("sysctl kernel.perf_cpu_time_max_percent=25 kernel.perf_event_max_sample_rate=100000")
            }
            Limit::NoTracefs => Way::Command("mount -t tracefs tracefs /sys/kernel/tracing"),
            Limit::NoBpffs => Way::Command("mount -t bpf bpf /sys/fs/bpf"),
            Limit::NoCgroup2 => Way::Command("mount -t cgroup2 cgroup2 /sys/fs/cgroup"),
            Limit::PidNamespace => Way::Hint("run bprec outside of the container, or with the host's PID namespace"),
        }
    }
}
