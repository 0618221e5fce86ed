//! What the machine has, as far as events depend on it.

/// The CPUs that are online, ascending; where the kernel does not tell, the one that there always is.
pub(crate) fn online_cpus() -> Vec<u32> {
    bprec_host::online_cpus().unwrap_or_else(|_| vec![0])
}

/// One more than the highest number that a CPU may ever have.
pub(crate) fn possible_cpus() -> u32 {
    let highest = bprec_host::possible_cpus().ok().and_then(|cpus| cpus.last().copied());
    highest.or_else(|| online_cpus().last().copied()).map_or(1, |cpu| cpu + 1)
}

/// A number under /proc/sys/kernel.
pub(crate) fn kernel_sysctl(name: &str) -> Option<i64> {
    bprec_host::sysctl_number(&format!("kernel/{name}"))
}

/// The highest sampling frequency that the kernel takes at the moment; it lowers it under load.
pub(crate) fn max_sample_rate() -> u64 {
    kernel_sysctl("perf_event_max_sample_rate").and_then(|rate| u64::try_from(rate).ok()).unwrap_or(100_000).max(1)
}
