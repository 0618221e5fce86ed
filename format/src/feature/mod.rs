//! Feature sections: what a recording says about its machine, its command line and its events.
//!
//! Layouts: `tools/perf/util/header.c`. Numbers stand wherever the text before them ends, without alignment. A text is
//! `len u32` and `len` bytes, of which those up to the first NUL count; writers make `len` a multiple of 64.

mod build_id;
mod check;
mod cpu_topology;
mod event_desc;
mod machine;
mod memory;
mod pmu;
mod times;
pub mod tracing;

pub use build_id::{BuildId, BuildIds};
pub use check::{SectionCheck, SectionWriter};
pub use cpu_topology::{CpuDomain, CpuDomains, CpuPlace, CpuTopology, CpuWithDomains};
pub use event_desc::{DescribedEvent, EventDesc, EventGroup, GroupDesc};
pub use machine::{CacheLineSize, CpuCount, ElfMachine, Text, TextList, TotalMemory};
pub use memory::{Bitmap, Cache, Caches, MemoryNode, MemoryTopology, NumaNode, NumaTopology};
pub use pmu::{CpuPmuCaps, HybridPmu, HybridTopology, PmuCap, PmuCaps, PmuMappings, PmuWithCaps};
pub use times::{AuxtraceIndex, ClockData, ClockResolution, Compression, DirFormat, SampleTime};

use crate::{Endian, Error, Reader, Result, Section, Writer};

/// A kind of feature section: the number of its bit in the file header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature(pub u8);

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl Feature {
            $($(#[$doc])* pub const $name: Feature = Feature($bit);)*

            /// Its name as perf prints it, `None` for one this table does not know.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($bit => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

features! {
    /// Formats of tracepoints: [`TracingData`](tracing::TracingData).
    TRACING_DATA = 1;
    /// Build ids of binaries that were hit: [`BuildIds`].
    BUILD_ID = 2;
    /// Node name: [`Text`].
    HOSTNAME = 3;
    /// Kernel release: [`Text`].
    OSRELEASE = 4;
    /// Version of the recorder: [`Text`].
    VERSION = 5;
    /// Machine as `uname -m` has it: [`Text`].
    ARCH = 6;
    /// [`CpuCount`].
    NRCPUS = 7;
    /// Model of the CPU: [`Text`].
    CPUDESC = 8;
    /// Vendor, family, model, stepping, or what an architecture has instead: [`Text`].
    CPUID = 9;
    /// [`TotalMemory`].
    TOTAL_MEM = 10;
    /// The recorder's arguments, its path first: [`TextList`].
    CMDLINE = 11;
    /// Names of events: [`EventDesc`].
    EVENT_DESC = 12;
    /// [`CpuTopology`].
    CPU_TOPOLOGY = 13;
    /// [`NumaTopology`].
    NUMA_TOPOLOGY = 14;
    /// Flag: samples have branch stacks. Empty.
    BRANCH_STACK = 15;
    /// [`PmuMappings`].
    PMU_MAPPINGS = 16;
    /// [`GroupDesc`].
    GROUP_DESC = 17;
    /// [`AuxtraceIndex`].
    AUXTRACE = 18;
    /// Flag: counts instead of samples. Empty.
    STAT = 19;
    /// [`Caches`].
    CACHE = 20;
    /// [`SampleTime`].
    SAMPLE_TIME = 21;
    /// [`MemoryTopology`].
    MEM_TOPOLOGY = 22;
    /// [`ClockResolution`].
    CLOCKID = 23;
    /// [`DirFormat`].
    DIR_FORMAT = 24;
    /// [`BpfProgInfoSection`](crate::bpf::prog_info::BpfProgInfoSection).
    BPF_PROG_INFO = 25;
    /// [`BpfBtfSection`](crate::bpf::btf::BpfBtfSection).
    BPF_BTF = 26;
    /// [`Compression`].
    COMPRESSED = 27;
    /// [`CpuPmuCaps`].
    CPU_PMU_CAPS = 28;
    /// [`ClockData`].
    CLOCK_DATA = 29;
    /// [`HybridTopology`].
    HYBRID_TOPOLOGY = 30;
    /// [`PmuCaps`].
    PMU_CAPS = 31;
    /// [`CpuDomains`].
    CPU_DOMAIN_INFO = 32;
    /// [`ElfMachine`].
    E_MACHINE = 33;
    /// [`CacheLineSize`].
    CLN_SIZE = 34;
}

impl std::fmt::Display for Feature {
    /// The name, or the number where there is none.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => std::fmt::Display::fmt(&self.0, f),
        }
    }
}

/// Readable part of a section: elements before the damage, and the damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial<T> {
    /// Elements that were read.
    pub value: T,
    /// Why it is not all, if it is not.
    pub problem: Option<Error>,
}

/// The content of a feature section.
pub trait Payload<'a>: Sized {
    /// Reads the content that `r` stands at. Where elements are missing it keeps those before and fills `problem`.
    ///
    /// # Errors
    /// When nothing of use can be read.
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<Self>;

    /// Appends the content.
    fn encode(&self, w: &mut Writer<'_>);

    /// Reads a section that starts at offset `base` of the file.
    ///
    /// # Errors
    /// When nothing of use can be read.
    fn parse(bytes: &'a [u8], base: u64, endian: Endian) -> Result<Partial<Self>> {
        let mut problem = None;
        let value = Self::read(&mut Reader::new(bytes, base, endian), &mut problem)?;
        Ok(Partial { value, problem })
    }

    /// The content as a section.
    fn to_bytes(&self, endian: Endian) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut Writer::new(&mut out, endian));
        out
    }
}

/// Length that texts are padded to a multiple of.
const TEXT_ALIGN_BYTES: usize = 64;

fn read_text<'a>(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
    let len = r.u32(what)?;
    let bytes = r.take(len as usize, what)?;
    Ok(bytes.split(|b| *b == 0).next().unwrap_or_default())
}

fn write_text(w: &mut Writer<'_>, text: &[u8]) {
    let len = (text.len() + 1).next_multiple_of(TEXT_ALIGN_BYTES);
    w.u32(len as u32).bytes(text).zeros(len - text.len());
}

/// `count` elements, or those before the first that cannot be read. Every element takes at least one byte, so that the
/// bytes there are bound the work; `count` itself sizes nothing.
fn read_items<'a, T>(
    r: &mut Reader<'a>,
    count: u64,
    problem: &mut Option<Error>,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T>,
) -> Vec<T> {
    let mut items = Vec::new();
    for _ in 0..count {
        if problem.is_some() {
            break;
        }
        match item(r) {
            Ok(value) => items.push(value),
            Err(error) => *problem = Some(error),
        }
    }
    items
}

/// `nr u32`, then that many texts.
fn read_texts<'a>(r: &mut Reader<'a>, problem: &mut Option<Error>, what: &'static str) -> Result<Vec<&'a [u8]>> {
    let count = r.u32(what)?;
    Ok(read_items(r, u64::from(count), problem, |r| read_text(r, what)))
}

fn write_texts(w: &mut Writer<'_>, texts: &[&[u8]]) {
    w.u32(texts.len() as u32);
    for text in texts {
        write_text(w, text);
    }
}

#[cfg(test)]
mod tests;
