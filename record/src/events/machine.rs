//! Facts about the machine that events depend on.

/// Online CPUs, ascending. CPU 0 if the kernel does not list them.
pub(crate) fn online_cpus() -> Vec<u32> {
    stated_online_cpus().unwrap_or_else(|| vec![0])
}

/// Online CPUs, ascending; `None` if the kernel does not list them.
pub(crate) fn stated_online_cpus() -> Option<Vec<u32>> {
    bprec_host::online_cpus().ok()
}

/// Highest index of a possible CPU, plus one.
pub(crate) fn possible_cpus() -> u32 {
    let highest = bprec_host::possible_cpus().ok().and_then(|cpus| cpus.last().copied());
    highest.or_else(|| online_cpus().last().copied()).map_or(1, |cpu| cpu + 1)
}

/// Highest index of a present CPU, online or not, plus one. Machines with CPU hotplug may have hundreds of possible CPUs that
/// are not present.
pub(crate) fn present_cpus() -> u32 {
    let highest = bprec_host::present_cpus().ok().and_then(|cpus| cpus.last().copied());
    highest.map_or_else(possible_cpus, |cpu| cpu + 1)
}

/// Value of a numeric sysctl under `/proc/sys/kernel`.
pub(crate) fn kernel_sysctl(name: &str) -> Option<i64> {
    bprec_host::sysctl_number(&format!("kernel/{name}"))
}

/// The highest sampling frequency that the kernel accepts now, in Hz; the kernel lowers the limit under load.
pub(crate) fn max_sample_rate() -> u64 {
    kernel_sysctl("perf_event_max_sample_rate").and_then(|rate| u64::try_from(rate).ok()).unwrap_or(100_000).max(1)
}
