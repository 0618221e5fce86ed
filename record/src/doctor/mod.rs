//! Checks of the abilities that the recorder has on this machine. The checks leave nothing behind: events are opened
//! disabled and closed, programs are loaded and unloaded, and no setting is changed.

use std::fs;
use std::io;
use std::path::Path;

use bprec_bpf::Profiler;
use bprec_format::{AttrFlags, EventAttr, event_type, software};
use bprec_host::{Answer, Capability, Kallsyms, mounts_of_type, sysctl_number};
use rustix::process::{Resource, getrlimit};

use crate::events::{Abilities, machine};
use crate::limits::Limit;
use crate::options::RingSize;
use crate::sys;

/// Default sampling rate of the recorder, Hz.
const DEFAULT_FREQUENCY: i64 = 4000;
/// Default of `kernel.perf_event_mlock_kb`: ring size that the kernel allows a user without privilege, KiB.
const DEFAULT_RING_KIB: i64 = 516;
/// Locked memory that the recorder's own BPF programs need; a lower limit may be too small.
const LOCKED_BYTES: u64 = 64 << 20;

/// Status of an ability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Nothing is missing.
    Fine,
    /// A recording works, but lacks something.
    Limited,
    /// A recording is impossible.
    Impossible,
    /// The check could not decide.
    Unknown,
}

impl Status {
    /// Word for the status, also in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Status::Fine => "ok",
            Status::Limited => "limited",
            Status::Impossible => "impossible",
            Status::Unknown => "unknown",
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Ability that the check tried.
    pub name: &'static str,
    /// Status of the ability.
    pub status: Status,
    /// Description of the result.
    pub found: String,
    /// Limits that the check found, if any.
    pub limits: Vec<Limit>,
}

impl Finding {
    /// Columns of a table of findings: names in CSV, and headings.
    pub const COLUMNS: [(&'static str, &'static str); 5] =
        [("check", "CHECK"), ("status", "STATUS"), ("found", "FOUND"), ("costs", "COSTS"), ("remedies", "CHANGE WITH")];

    /// Cells of a row, in the order of [`Finding::COLUMNS`]. If there are several limits, semicolons separate their costs and their remedies.
    pub fn cells(&self) -> [String; 5] {
        let of_limits = |of: fn(&Limit) -> &str| self.limits.iter().map(of).collect::<Vec<_>>().join("; ");
        let costs = of_limits(|limit| limit.cost());
        let remedies = of_limits(|limit| limit.command().unwrap_or(limit.remedy()));
        [self.name.to_owned(), self.status.name().to_owned(), self.found.clone(), costs, remedies]
    }

    fn new(name: &'static str, found: impl Into<String>, limit: Option<Limit>) -> Finding {
        let status = match limit {
            None => Status::Fine,
            Some(Limit::NoEvents) => Status::Impossible,
            Some(_) => Status::Limited,
        };
        Finding { name, status, found: found.into(), limits: limit.into_iter().collect() }
    }

    fn unknown(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { name, status: Status::Unknown, found: found.into(), limits: Vec::new() }
    }
}

/// Runs all checks, the most important first.
pub fn doctor() -> Vec<Finding> {
    let mut findings = vec![kernel(), sampling(), pmu()];
    findings.extend(capabilities());
    findings.extend(programs());
    findings.extend([trampolines(), lockdown(), btf()]);
    findings.extend([rings(), rate(), locked_memory()]);
    findings.extend([tracefs(), bpffs(), cgroups(), pid_namespace()]);
    findings
}

fn kernel() -> Finding {
    let mut limits = Abilities::probe().map(|abilities| abilities.limits()).unwrap_or_default();
    if !bprec_bpf::tail_calls_are_counted(&bprec_host::kernel_release()) {
        limits.push(Limit::TailCallBug);
    }
    let status = if limits.is_empty() { Status::Fine } else { Status::Limited };
    Finding { name: "kernel", status, found: bprec_host::kernel_release(), limits }
}

/// Opens and closes a CPU clock event. `pid` and `cpu` are those of perf_event_open; `without_kernel` excludes kernel mode.
fn open_clock(pid: i32, cpu: i32, without_kernel: bool) -> io::Result<()> {
    let mut flags = AttrFlags::DISABLED;
    if without_kernel {
        flags = flags.with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV);
    }
    let attr = EventAttr { kind: event_type::SOFTWARE, config: software::CPU_CLOCK, flags, ..EventAttr::default() };
    sys::perf_event_open(&attr, pid, cpu).map(drop)
}

fn sampling() -> Finding {
    let cpu = machine::online_cpus().first().copied().unwrap_or(0) as i32;
    let paranoid = sysctl_number("kernel/perf_event_paranoid");
    let level = paranoid.map_or_else(String::new, |level| format!(" (kernel.perf_event_paranoid is {level})"));
    let (found, limit) = if open_clock(-1, cpu, false).is_ok() {
        ("all CPUs".to_owned(), None)
    } else if open_clock(0, -1, false).is_ok() {
        ("only your own processes, in user space and kernel".to_owned(), Some(Limit::OwnTasksOnly))
    } else {
        match open_clock(0, -1, true) {
            Ok(()) => ("only your own processes, only in user space".to_owned(), Some(Limit::UserSpaceOnly)),
            Err(error) => (format!("perf_event_open: {}", Answer(&error)), Some(Limit::NoEvents)),
        }
    };
    Finding::new("sampling", found + &level, limit)
}

fn pmu() -> Finding {
    let flags = AttrFlags::DISABLED.with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV);
    let attr = EventAttr { kind: event_type::HARDWARE, config: 0, flags, ..EventAttr::default() };
    match sys::perf_event_open(&attr, 0, -1) {
        Ok(_) => Finding::new("hardware counters", "cycles", None),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
                Finding::new("hardware counters", "none", Some(Limit::NoPmu))
            }
            _ => Finding::unknown("hardware counters", format!("perf_event_open: {}", Answer(&error))),
        },
    }
}

fn capabilities() -> [Finding; 4] {
    let is_real = bprec_host::is_initial_user_namespace() != Some(false);
    let held = |name, capability: Capability, limit| match capability.is_effective() {
        true if is_real => Finding::new(name, "held", None),
        true => Finding::new(name, "held in a user namespace only, which is not enough", Some(limit)),
        false => Finding::new(name, "missing", Some(limit)),
    };
    // CAP_SYS_ADMIN includes CAP_PERFMON and CAP_BPF.
    let or_admin = |name, capability: Capability, limit| match Capability::SYS_ADMIN.is_effective() && is_real {
        true if !capability.is_effective() => Finding::new(name, "missing, but CAP_SYS_ADMIN includes it", None),
        _ => held(name, capability, limit),
    };
    [
        or_admin("CAP_PERFMON", Capability::PERFMON, Limit::NoPerfmon),
        or_admin("CAP_BPF", Capability::BPF, Limit::NoBpfCapability),
        held("CAP_SYS_ADMIN", Capability::SYS_ADMIN, Limit::NoSysAdmin),
        held("CAP_SYSLOG", Capability::SYSLOG, Limit::NoSyslog),
    ]
}

/// Checks access to BPF programs and run statistics, loading of programs, visibility of kernel addresses, and the JIT compiler.
fn programs() -> Vec<Finding> {
    let access = bprec_bpf::access();
    let mut findings: Vec<Finding> = [
        ("BPF programs of others", access.programs, Limit::ProgramsHidden),
        ("run statistics", access.statistics, Limit::NoStatistics),
        ("BPF programs of bprec", access.loading, Limit::NoLoading),
    ]
    .into_iter()
    .map(|(name, answer, limit)| match answer {
        Ok(()) => Finding::new(name, "allowed", None),
        Err(error) => Finding::new(name, error.to_string(), Some(limit)),
    })
    .collect();
    let hidden = bprec_host::hidden_addresses();
    let restrict = sysctl_number("kernel/kptr_restrict");
    let level = restrict
        .map_or_else(|| "kernel.kptr_restrict unknown".to_owned(), |it| format!("kernel.kptr_restrict is {it}"));
    findings.push(match hidden {
        None if Kallsyms::is_masked() => {
            Finding::new("kernel addresses", "/proc/kallsyms has no symbols", Some(Limit::KallsymsMasked))
        }
        None => Finding::new("kernel addresses", format!("shown ({level})"), None),
        Some(_) if restrict.is_some_and(|it| it >= 2) => {
            Finding::new("kernel addresses", format!("hidden ({level})"), Some(Limit::AddressesHidden))
        }
        Some(_) => Finding::new("kernel addresses", format!("hidden ({level})"), Some(Limit::AddressesHiddenFromUser)),
    });
    let jit = |name| sysctl_number(&format!("net/core/bpf_jit_{name}"));
    let limit = if jit("enable") == Some(0) {
        Some(Limit::NoJit)
    } else if jit("harden").is_some_and(|level| level != 0) {
        Some(Limit::JitHardened)
    } else if jit("kallsyms") == Some(0) {
        Some(Limit::JitSymbolsOff)
    } else {
        None
    };
    let said: Vec<String> = ["enable", "harden", "kallsyms"]
        .into_iter()
        .filter_map(|name| Some(format!("bpf_jit_{name} {}", jit(name)?)))
        .collect();
    findings.push(match said.is_empty() {
        true => Finding::unknown("JIT compiler", "only root can read the settings"),
        false => Finding::new("JIT compiler", said.join(", "), limit),
    });
    findings
}

fn trampolines() -> Finding {
    let name = "trampolines";
    if Profiler::unsafe_here().is_some() {
        return Finding::new(name, "not tried: this kernel is older than Linux 6.1", Some(Limit::TrampolinesUntried));
    }
    match Profiler::load(&[], 0, machine::present_cpus()) {
        Ok(profiler) if profiler.has_sessions() => Finding::new(name, "fsession", None),
        Ok(_) => Finding::new(name, "fentry and fexit", None),
        Err(error) => {
            Finding::new(name, crate::sources::exact::not_allowed(error).to_string(), Some(Limit::NoTrampolines))
        }
    }
}

fn lockdown() -> Finding {
    let Ok(text) = fs::read_to_string("/sys/kernel/security/lockdown") else {
        return Finding::unknown("lockdown", "unknown (securityfs is not mounted, or the kernel has no lockdown)");
    };
    let mode = text.split(['[', ']']).nth(1).unwrap_or("none").to_owned();
    let limit = (mode == "confidentiality").then_some(Limit::Confidential);
    Finding::new("lockdown", mode, limit)
}

fn btf() -> Finding {
    let path = "/sys/kernel/btf/vmlinux";
    match fs::File::open(path) {
        Ok(_) => Finding::new("kernel types (BTF)", path, None),
        Err(error) => Finding::new("kernel types (BTF)", format!("{path}: {}", Answer(&error)), Some(Limit::NoBtf)),
    }
}

fn rings() -> Finding {
    let Some(kib) = sysctl_number("kernel/perf_event_mlock_kb") else {
        return Finding::unknown("ring buffers", "kernel.perf_event_mlock_kb unknown");
    };
    let ring_kib = RingSize::Default.bytes() / 1024;
    let found = format!("{ring_kib} KiB for each CPU (kernel.perf_event_mlock_kb is {kib})");
    Finding::new("ring buffers", found, (kib < DEFAULT_RING_KIB).then_some(Limit::SmallRings))
}

fn rate() -> Finding {
    let Some(hz) = sysctl_number("kernel/perf_event_max_sample_rate") else {
        return Finding::unknown("sampling rate", "kernel.perf_event_max_sample_rate unknown");
    };
    let throttle = match sysctl_number("kernel/perf_cpu_time_max_percent") {
        None => String::new(),
        Some(0 | 100) => "; the kernel never lowers it".to_owned(),
        Some(percent) => format!("; the kernel lowers it if sampling takes more than {percent} % of a CPU"),
    };
    let limit = (hz < DEFAULT_FREQUENCY).then_some(Limit::LowRate);
    Finding::new("sampling rate", format!("up to {hz} Hz{throttle}"), limit)
}

fn locked_memory() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let found = limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{} KiB", bytes / 1024));
    // Since Linux 5.11 maps are charged to the memory cgroup, not to the limit of locked memory.
    if bprec_host::kernel_version() >= (5, 11) {
        return Finding::new("locked memory", format!("{found}; not needed since Linux 5.11"), None);
    }
    Finding::new("locked memory", found, limit.is_some_and(|bytes| bytes < LOCKED_BYTES).then_some(Limit::LittleMemory))
}

/// Looks for a mount of a file system of type `kind`; a bind mount of a subdirectory does not count.
fn mounted(name: &'static str, kind: &[u8], limit: Limit) -> Finding {
    match mounts_of_type(kind) {
        Ok(places) => match places.first() {
            Some(place) => Finding::new(name, place.display().to_string(), None),
            None => Finding::new(name, "not mounted", Some(limit)),
        },
        Err(error) => Finding::unknown(name, error.to_string()),
    }
}

fn tracefs() -> Finding {
    let found = mounted("tracefs", b"tracefs", Limit::NoTracefs);
    let places = mounts_of_type(b"tracefs").unwrap_or_default();
    match places.first().map(|place| fs::read_dir(place.join("events"))) {
        Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Finding::unknown("tracefs", format!("{}; this user cannot read it", found.found))
        }
        _ => found,
    }
}

fn bpffs() -> Finding {
    mounted("BPF file system", b"bpf", Limit::NoBpffs)
}

fn cgroups() -> Finding {
    let found = mounted("cgroup version 2", b"cgroup2", Limit::NoCgroup2);
    let hybrid = Path::new("/sys/fs/cgroup/unified").exists();
    match (hybrid, found.status) {
        (true, Status::Fine) => Finding { found: format!("{}, alongside version 1", found.found), ..found },
        _ => found,
    }
}

fn pid_namespace() -> Finding {
    match bprec_host::is_initial_pid_namespace() {
        Some(true) => Finding::new("PID namespace", "the initial one", None),
        Some(false) => Finding::new("PID namespace", "not the initial one", Some(Limit::PidNamespace)),
        None => Finding::unknown("PID namespace", "/proc/self/ns/pid cannot be read"),
    }
}
