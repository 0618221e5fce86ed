//! PMUs: their numbers, and what those of CPUs can do.

use bprec_format::feature::{CpuPmuCaps, HybridPmu, HybridTopology, PmuCap, PmuCaps, PmuMappings, PmuWithCaps};

use super::{encoded, line, names, number};

const DEVICES: &str = "/sys/bus/event_source/devices";

/// The PMU of a machine whose CPUs are all of one kind; its capabilities have a section of their own.
const CPU: &str = "cpu";

/// PMU_MAPPINGS.
pub(super) fn mappings() -> Option<Vec<u8>> {
    let typed = |name: String| Some((number(format!("{DEVICES}/{name}/type"))?, name));
    let found: Vec<(u32, String)> = names(DEVICES).into_iter().filter_map(typed).collect();
    let mappings = found.iter().map(|(kind, name)| (*kind, name.as_bytes())).collect();
    (!found.is_empty()).then(|| encoded(&PmuMappings(mappings)))
}

/// Names and values of what a PMU can do.
fn caps(pmu: &str) -> Vec<(String, String)> {
    let directory = format!("{DEVICES}/{pmu}/caps");
    let value = |name: String| Some((line(format!("{directory}/{name}"))?, name));
    names(&directory).into_iter().filter_map(value).map(|(value, name)| (name, value)).collect()
}

fn borrow(caps: &[(String, String)]) -> Vec<PmuCap<'_>> {
    caps.iter().map(|(name, value)| PmuCap { name: name.as_bytes(), value: value.as_bytes() }).collect()
}

/// CPU_PMU_CAPS.
pub(super) fn cpu_caps() -> Option<Vec<u8>> {
    let caps = caps(CPU);
    (!caps.is_empty()).then(|| encoded(&CpuPmuCaps(borrow(&caps))))
}

/// PMU_CAPS.
pub(super) fn other_caps() -> Option<Vec<u8>> {
    let pmus: Vec<String> = names(DEVICES).into_iter().filter(|name| name != CPU).collect();
    let found: Vec<(String, Vec<(String, String)>)> =
        pmus.into_iter().map(|name| (name.clone(), caps(&name))).filter(|(_, caps)| !caps.is_empty()).collect();
    let pmus = found.iter().map(|(pmu, caps)| PmuWithCaps { pmu: pmu.as_bytes(), caps: borrow(caps) });
    (!found.is_empty()).then(|| encoded(&PmuCaps(pmus.collect())))
}

/// HYBRID_TOPOLOGY: which CPUs are of which kind.
pub(super) fn hybrid() -> Option<Vec<u8>> {
    let of_cores = |name: String| {
        let cpus = line(format!("{DEVICES}/{name}/cpus")).filter(|_| name.starts_with("cpu_"))?;
        Some((name, cpus))
    };
    let found: Vec<(String, String)> = names(DEVICES).into_iter().filter_map(of_cores).collect();
    let pmus = found.iter().map(|(pmu, cpus)| HybridPmu { pmu: pmu.as_bytes(), cpus: cpus.as_bytes() });
    (!found.is_empty()).then(|| encoded(&HybridTopology(pmus.collect())))
}
