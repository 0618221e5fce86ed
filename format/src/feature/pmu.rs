//! PMUs: their numbers, what they can do, which CPUs they are for.

use super::{Payload, read_items, read_text, write_text};
use crate::{Error, Reader, Result, Writer};

/// PMU_MAPPINGS (since 3.7): `nr u32`, then `type u32` and name of each PMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PmuMappings<'a>(pub Vec<(u32, &'a [u8])>);

impl<'a> Payload<'a> for PmuMappings<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<PmuMappings<'a>> {
        let count = r.u32("PMU_MAPPINGS count")?;
        Ok(PmuMappings(read_items(r, u64::from(count), problem, |r| {
            Ok((r.u32("PMU_MAPPINGS type")?, read_text(r, "PMU_MAPPINGS name")?))
        })))
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.0.len() as u32);
        for (kind, name) in &self.0 {
            w.u32(*kind);
            write_text(w, name);
        }
    }
}

/// A capability of a PMU, as sysfs names and gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PmuCap<'a> {
    /// Its name, like `max_precise`.
    pub name: &'a [u8],
    /// Its value as text.
    pub value: &'a [u8],
}

fn read_caps<'a>(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<Vec<PmuCap<'a>>> {
    let count = r.u32("capability count")?;
    Ok(read_items(r, u64::from(count), problem, |r| {
        Ok(PmuCap { name: read_text(r, "capability name")?, value: read_text(r, "capability value")? })
    }))
}

fn write_caps(w: &mut Writer<'_>, caps: &[PmuCap<'_>]) {
    w.u32(caps.len() as u32);
    for cap in caps {
        write_text(w, cap.name);
        write_text(w, cap.value);
    }
}

/// CPU_PMU_CAPS (since 5.8): `n u32`, then name and value of each capability of the PMU `cpu`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuPmuCaps<'a>(pub Vec<PmuCap<'a>>);

impl<'a> Payload<'a> for CpuPmuCaps<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<CpuPmuCaps<'a>> {
        read_caps(r, problem).map(CpuPmuCaps)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        write_caps(w, &self.0);
    }
}

/// PMU_CAPS (since 5.14, for hybrid machines first): `n u32`, then the capabilities and the name of each PMU but `cpu`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PmuCaps<'a>(pub Vec<PmuWithCaps<'a>>);

/// A PMU and what it can do: `ncaps u32`, name and value of each, and only then the PMU's own name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PmuWithCaps<'a> {
    /// Its name.
    pub pmu: &'a [u8],
    /// Its capabilities.
    pub caps: Vec<PmuCap<'a>>,
}

impl<'a> Payload<'a> for PmuCaps<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<PmuCaps<'a>> {
        let count = r.u32("PMU_CAPS count")?;
        Ok(PmuCaps(read_items(r, u64::from(count), problem, |r| {
            // A PMU whose list is cut off lacks its name, too.
            let mut cut = None;
            let caps = read_caps(r, &mut cut)?;
            match cut {
                Some(error) => Err(error),
                None => Ok(PmuWithCaps { caps, pmu: read_text(r, "PMU_CAPS name")? }),
            }
        })))
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.0.len() as u32);
        for PmuWithCaps { pmu, caps } in &self.0 {
            write_caps(w, caps);
            write_text(w, pmu);
        }
    }
}

/// HYBRID_TOPOLOGY (since 5.14): `n u32`, then the PMUs of a machine with several kinds of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HybridTopology<'a>(pub Vec<HybridPmu<'a>>);

/// The PMU of one kind of CPUs: its name and its CPUs as texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HybridPmu<'a> {
    /// Its name, like `cpu_core`.
    pub pmu: &'a [u8],
    /// Its CPUs as a list like `0-3,8`.
    pub cpus: &'a [u8],
}

impl<'a> Payload<'a> for HybridTopology<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<HybridTopology<'a>> {
        let count = r.u32("HYBRID_TOPOLOGY count")?;
        Ok(HybridTopology(read_items(r, u64::from(count), problem, |r| {
            Ok(HybridPmu { pmu: read_text(r, "HYBRID_TOPOLOGY pmu")?, cpus: read_text(r, "HYBRID_TOPOLOGY cpus")? })
        })))
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.0.len() as u32);
        for pmu in &self.0 {
            write_text(w, pmu.pmu);
            write_text(w, pmu.cpus);
        }
    }
}
