//! CPUs: their number, model and topology.

use std::fs;

use bprec_format::feature::{CpuCount, CpuPlace, CpuTopology};
use bprec_format::{Endian, Writer};
use bprec_host::{online_cpus, present_cpus};

use super::{encoded, line, number, text};

const CPUS: &str = "/sys/devices/system/cpu";

/// Value that readers take as "unknown", as for CPUs that are offline.
const UNKNOWN: u32 = u32::MAX;

/// Highest index of a present CPU, plus one.
fn available() -> Option<u32> {
    present_cpus().ok()?.last()?.checked_add(1)
}

/// The NRCPUS section.
pub(super) fn count() -> Option<Vec<u8>> {
    let online = u32::try_from(online_cpus().ok()?.len()).ok()?;
    Some(encoded(&CpuCount { available: available()?, online }))
}

/// Value of the first line `key : value` of /proc/cpuinfo.
fn cpuinfo<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    let values = info.lines().filter_map(|line| line.split_once(':'));
    values.into_iter().find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim())
}

/// The CPUDESC section, if /proc/cpuinfo names the CPU.
pub(super) fn description() -> Option<Vec<u8>> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = cpuinfo(&info, if cfg!(target_arch = "s390x") { "vendor_id" } else { "model name" })?;
    let words: Vec<&str> = name.split_ascii_whitespace().collect();
    (!words.is_empty()).then(|| text(&words.join(" ")))
}

/// The CPUID section in perf's format: vendor, family, model and stepping on x86, the main id register on arm64.
pub(super) fn id() -> Option<Vec<u8>> {
    if cfg!(target_arch = "aarch64") {
        let cpu = online_cpus().ok()?.into_iter().next()?;
        return Some(text(&line(format!("{CPUS}/cpu{cpu}/regs/identification/midr_el1"))?));
    }
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let parts = ["vendor_id", "cpu family", "model", "stepping"].map(|key| cpuinfo(&info, key));
    let parts: Vec<&str> = parts.into_iter().collect::<Option<_>>()?;
    Some(text(&parts.join(",")))
}

/// The CPU_TOPOLOGY section.
pub(super) fn topology() -> Option<Vec<u8>> {
    let (available, online) = (available()?, online_cpus().ok()?);
    // Newer kernels have new names for the lists of cores and of threads. The new name comes first.
    let siblings = |names: &[&str]| -> Option<Vec<String>> {
        let mut lists = Vec::new();
        for cpu in &online {
            let list = names.iter().find_map(|name| line(format!("{CPUS}/cpu{cpu}/topology/{name}")))?;
            if !lists.contains(&list) {
                lists.push(list);
            }
        }
        Some(lists)
    };
    let cores = siblings(&["package_cpus_list", "core_siblings_list"])?;
    let threads = siblings(&["core_cpus_list", "thread_siblings_list"])?;
    let dies = siblings(&["die_cpus_list"]);
    let place = |cpu| {
        let id = |name: &str| number(format!("{CPUS}/cpu{cpu}/topology/{name}"));
        let die_id = dies.is_some().then(|| id("die_id").unwrap_or(UNKNOWN));
        match online.contains(&cpu) {
            true => Some(CpuPlace { core_id: id("core_id")?, socket_id: id("physical_package_id")?, die_id }),
            false => Some(CpuPlace { core_id: UNKNOWN, socket_id: UNKNOWN, die_id: die_id.map(|_| UNKNOWN) }),
        }
    };
    let cpus: Vec<CpuPlace> = (0..available).map(place).collect::<Option<_>>()?;
    // Some firmware reports socket numbers above the number of CPUs. Readers refuse such numbers, so the section is
    // left out.
    if cpus.iter().any(|cpu| cpu.socket_id != UNKNOWN && cpu.socket_id > available) {
        return None;
    }
    let bytes = |lists: &'_ [String]| -> Vec<Vec<u8>> { lists.iter().map(|list| list.clone().into_bytes()).collect() };
    let (cores, threads, dies) = (bytes(&cores), bytes(&threads), bytes(dies.as_deref().unwrap_or_default()));
    let topology = CpuTopology {
        core_siblings: cores.iter().map(Vec::as_slice).collect(),
        thread_siblings: threads.iter().map(Vec::as_slice).collect(),
        die_siblings: dies.iter().map(Vec::as_slice).collect(),
        cpus,
    };
    let mut out = Vec::new();
    topology.encode(&mut Writer::new(&mut out, Endian::NATIVE));
    Some(out)
}
