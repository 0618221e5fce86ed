//! PMUs: their numbers, capabilities and CPUs.

use crate::layout::{List, PaddedText, Pair, Plain, Public, layout};

layout! {
    /// PMU_MAPPINGS (since 3.7): `nr u32`, then `type u32` and name of each PMU.
    pub struct PmuMappings<'a>(pub Vec<(u32, &'a [u8])> as List<Pair<Plain, PaddedText<Public>>>);

    /// A capability of a PMU, with its name and value in sysfs.
    #[derive(Copy)]
    pub struct PmuCap<'a> {
        /// Name, like `max_precise`.
        pub name: &'a [u8] as PaddedText<Public>,
        /// Value as text.
        pub value: &'a [u8] as PaddedText<Public>,
    }

    /// CPU_PMU_CAPS (since 5.8): `n u32`, then the capabilities of the PMU `cpu`.
    pub struct CpuPmuCaps<'a>(pub Vec<PmuCap<'a>> as List);

    /// PMU_CAPS (since 5.14, at first only on hybrid machines): `n u32`, then all PMUs other than `cpu`.
    pub struct PmuCaps<'a>(pub Vec<PmuWithCaps<'a>> as List);

    /// A PMU and its capabilities.
    pub struct PmuWithCaps<'a> {
        /// Capabilities of the PMU: `ncaps u32`, then the capabilities.
        pub caps: Vec<PmuCap<'a>> as List,
        /// Name of the PMU.
        pub pmu: &'a [u8] as PaddedText<Public>,
    }

    /// HYBRID_TOPOLOGY (since 5.14): `n u32`, then the PMUs of a machine with several kinds of CPUs.
    pub struct HybridTopology<'a>(pub Vec<HybridPmu<'a>> as List);

    /// The PMU of one kind of CPUs.
    #[derive(Copy)]
    pub struct HybridPmu<'a> {
        /// Name of the PMU, like `cpu_core`.
        pub pmu: &'a [u8] as PaddedText<Public>,
        /// CPUs of the PMU as a list like `0-3,8`.
        pub cpus: &'a [u8] as PaddedText<Public>,
    }
}
