//! CPUs: how many, which, how they hang together, and their caches.

use std::fs;

use bprec_format::feature::{Cache, Caches, CpuCount, CpuPlace, CpuTopology};
use bprec_format::{Endian, Writer};

use super::{encoded, line, number, number_list, numbered, text};

const CPUS: &str = "/sys/devices/system/cpu";

/// What readers take for "not known", as for CPUs that are offline.
const UNKNOWN: u32 = u32::MAX;

fn list(name: &str) -> Option<Vec<u32>> {
    number_list(&line(format!("{CPUS}/{name}"))?).filter(|cpus| !cpus.is_empty())
}

/// One more than the highest number of a CPU that is present.
fn available() -> Option<u32> {
    list("present")?.into_iter().max()?.checked_add(1)
}

/// NRCPUS.
pub(super) fn count() -> Option<Vec<u8>> {
    let online = u32::try_from(list("online")?.len()).ok()?;
    Some(encoded(&CpuCount { available: available()?, online }))
}

/// The value of the first line `key : value` of /proc/cpuinfo.
fn cpuinfo<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    let values = info.lines().filter_map(|line| line.split_once(':'));
    values.into_iter().find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim())
}

/// CPUDESC, where /proc/cpuinfo has one.
pub(super) fn description() -> Option<Vec<u8>> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = cpuinfo(&info, if cfg!(target_arch = "s390x") { "vendor_id" } else { "model name" })?;
    let words: Vec<&str> = name.split_ascii_whitespace().collect();
    (!words.is_empty()).then(|| text(&words.join(" ")))
}

/// CPUID as perf writes it: vendor, family, model and stepping on x86, the main id register on arm64.
pub(super) fn id() -> Option<Vec<u8>> {
    if cfg!(target_arch = "aarch64") {
        let cpu = list("online")?.into_iter().next()?;
        return Some(text(&line(format!("{CPUS}/cpu{cpu}/regs/identification/midr_el1"))?));
    }
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let parts = ["vendor_id", "cpu family", "model", "stepping"].map(|key| cpuinfo(&info, key));
    let parts: Vec<&str> = parts.into_iter().collect::<Option<_>>()?;
    Some(text(&parts.join(",")))
}

/// CPU_TOPOLOGY.
pub(super) fn topology() -> Option<Vec<u8>> {
    let (available, online) = (available()?, list("online")?);
    // Newer kernels renamed both lists.
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
    // Readers refuse sockets with numbers above that of CPUs, which some firmware gives.
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

/// A cache as sysfs describes it, once for all CPUs that share it.
#[derive(PartialEq, Eq)]
struct Described {
    level: u32,
    line_size_bytes: u32,
    sets: u32,
    ways: u32,
    kind: String,
    size: String,
    cpus: String,
}

/// CACHE.
pub(super) fn caches() -> Option<Vec<u8>> {
    let mut found: Vec<Described> = Vec::new();
    for cpu in list("online")? {
        let directory = format!("{CPUS}/cpu{cpu}/cache");
        for index in numbered(&directory, "index") {
            let file = |name: &str| format!("{directory}/index{index}/{name}");
            let cache = Described {
                level: number(file("level"))?,
                line_size_bytes: number(file("coherency_line_size"))?,
                sets: number(file("number_of_sets"))?,
                ways: number(file("ways_of_associativity"))?,
                kind: line(file("type"))?,
                size: line(file("size"))?,
                cpus: line(file("shared_cpu_list"))?,
            };
            if !found.contains(&cache) {
                found.push(cache);
            }
        }
    }
    if found.is_empty() {
        return None;
    }
    found.sort_by_key(|cache| cache.level);
    let caches = found.iter().map(|cache| Cache {
        level: cache.level,
        line_size_bytes: cache.line_size_bytes,
        sets: cache.sets,
        ways: cache.ways,
        kind: cache.kind.as_bytes(),
        size: cache.size.as_bytes(),
        cpus: cache.cpus.as_bytes(),
    });
    Some(encoded(&Caches { version: 1, caches: caches.collect() }))
}
