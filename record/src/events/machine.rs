//! What the machine has, as far as events depend on it.

use std::fs;

/// The CPUs that are online, ascending; where the kernel does not tell, the one that there always is.
pub(crate) fn online_cpus() -> Vec<u32> {
    told_online_cpus().unwrap_or_else(|| vec![0])
}

/// The CPUs that are online, ascending, if the kernel tells.
pub(crate) fn told_online_cpus() -> Option<Vec<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    cpu_list(&text).filter(|cpus| !cpus.is_empty())
}

/// One more than the highest number that a CPU may ever have.
pub(crate) fn possible_cpus() -> u32 {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let highest = cpu_list(&text).and_then(|cpus| cpus.last().copied());
    highest.or_else(|| online_cpus().last().copied()).map_or(1, |cpu| cpu + 1)
}

/// A number under /proc/sys/kernel.
pub(crate) fn kernel_sysctl(name: &str) -> Option<i64> {
    fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
}

/// The highest sampling frequency that the kernel takes at the moment; it lowers it under load.
pub(crate) fn max_sample_rate() -> u64 {
    kernel_sysctl("perf_event_max_sample_rate").and_then(|rate| u64::try_from(rate).ok()).unwrap_or(100_000).max(1)
}

/// CPU numbers written as `0-3,8`; `None` when `text` is no such list.
pub(crate) fn cpu_list(text: &str) -> Option<Vec<u32>> {
    // Beyond what any kernel numbers.
    const LIMIT: u32 = 1 << 20;
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= LIMIT {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}
