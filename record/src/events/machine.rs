//! Facts about the machine that events depend on.

/// The CPUs that are online, ascending; where the kernel does not tell, the one that there always is.
pub(crate) fn online_cpus() -> Vec<u32> {
    told_online_cpus().unwrap_or_else(|| vec![0])
}

/// The CPUs that are online, ascending, if the kernel tells.
pub(crate) fn told_online_cpus() -> Option<Vec<u32>> {
    bprec_host::online_cpus().ok()
}

/// One more than the highest number that a CPU may ever have.
pub(crate) fn possible_cpus() -> u32 {
    let highest = bprec_host::possible_cpus().ok().and_then(|cpus| cpus.last().copied());
    highest.or_else(|| online_cpus().last().copied()).map_or(1, |cpu| cpu + 1)
}

/// One more than the highest number of a CPU that is there, online or not. Machines that could be given more have hundreds that are
/// possible.
pub(crate) fn present_cpus() -> u32 {
    let highest = bprec_host::present_cpus().ok().and_then(|cpus| cpus.last().copied());
    highest.map_or_else(possible_cpus, |cpu| cpu + 1)
}

/// A number under /proc/sys/kernel.
pub(crate) fn kernel_sysctl(name: &str) -> Option<i64> {
    bprec_host::sysctl_number(&format!("kernel/{name}"))
}

/// The highest sampling frequency that the kernel takes at the moment; it lowers it under load.
pub(crate) fn max_sample_rate() -> u64 {
    kernel_sysctl("perf_event_max_sample_rate").and_then(|rate| u64::try_from(rate).ok()).unwrap_or(100_000).max(1)
}
