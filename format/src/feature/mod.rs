//! Feature sections: description of a recording's machine, command line and events.
//!
//! Layouts: `tools/perf/util/header.c`. Numbers follow the preceding text without alignment. A text is `len u32` and
//! `len` bytes: the text up to the first NUL, and padding. Writers make `len` a multiple of 64.

mod build_id;
mod check;
mod cpu_topology;
mod event_desc;
mod machine;
mod memory;
mod pmu;
mod times;
pub mod tracing;

pub use build_id::BuildIds;
pub use check::{SectionCheck, SectionWriter};
pub use cpu_topology::{CpuDomain, CpuDomains, CpuPlace, CpuTopology, CpuWithDomains};
pub use event_desc::{DescribedEvent, EventDesc, EventGroup, GroupDesc};
pub use machine::{CacheLineSize, CpuCount, ElfMachine, HostName, Text, TextList, TotalMemory};
pub use memory::{Bitmap, Cache, Caches, MemoryNode, MemoryTopology, NumaNode, NumaTopology};
pub use pmu::{CpuPmuCaps, HybridPmu, HybridTopology, PmuCap, PmuCaps, PmuMappings, PmuWithCaps};
pub use times::{AuxtraceIndex, ClockData, ClockResolution, Compression, DirFormat, SampleTime};

use crate::layout::{Codec, Plain};
use crate::{Endian, Error, Reader, Result, Secrets, Writer};

/// A kind of feature section: the number of its bit in the file header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature(pub u8);

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $bit:literal $(: $content:ty)?;)*) => {
        impl Feature {
            $($(#[$doc])* pub const $name: Feature = Feature($bit);)*

            /// Name of the feature as perf prints it; `None` for a feature that this table lacks.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($bit => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// Reads a section and appends its content again; returns the damage that ended the reading, if any. `None` if the table gives no type
            /// for the feature.
            fn recode(self, bytes: &[u8], w: &mut Writer<'_>) -> Option<Result<Option<Error>>> {
                match self.0 {
                    $($($bit => Some(<$content>::parse(bytes, 0, w.endian()).map(|partial| {
                        partial.value.encode(w);
                        partial.problem
                    })),)?)*
                    _ => None,
                }
            }
        }
    };
}

/// Implements [`SectionContent`] for each layout.
macro_rules! contents {
    ($($ty:ident $(<$life:lifetime>)?),* $(,)?) => {
        $(impl<'a> SectionContent<'a> for $ty $(<$life>)? {
            fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<Self> {
                Plain::get_partial(r, "feature section", problem)
            }

            fn encode(&self, w: &mut Writer<'_>) {
                Plain::put(self, w);
            }
        })*
    };
}

contents! {
    AuxtraceIndex, CacheLineSize, Caches<'a>, ClockData, ClockResolution, Compression, CpuCount, CpuPmuCaps<'a>, DirFormat,
    ElfMachine, GroupDesc<'a>, HostName<'a>, HybridTopology<'a>, MemoryTopology, NumaTopology<'a>, PmuCaps<'a>, PmuMappings<'a>,
    SampleTime, Text<'a>, TextList<'a>, TotalMemory,
}

features! {
    /// Formats of tracepoints: [`TracingData`](tracing::TracingData).
    TRACING_DATA = 1: tracing::TracingData<'_>;
    /// Build ids of binaries that were hit: [`BuildIds`].
    BUILD_ID = 2: BuildIds<'_>;
    /// Node name: [`HostName`].
    HOSTNAME = 3: HostName<'_>;
    /// Kernel release: [`Text`].
    OSRELEASE = 4: Text<'_>;
    /// Version of the recorder: [`Text`].
    VERSION = 5: Text<'_>;
    /// Machine as `uname -m` has it: [`Text`].
    ARCH = 6: Text<'_>;
    /// [`CpuCount`].
    NRCPUS = 7: CpuCount;
    /// Model of the CPU: [`Text`].
    CPUDESC = 8: Text<'_>;
    /// Vendor, family, model, stepping, or the equivalent of other architectures: [`Text`].
    CPUID = 9: Text<'_>;
    /// [`TotalMemory`].
    TOTAL_MEM = 10: TotalMemory;
    /// The recorder's arguments, its path first: [`TextList`].
    CMDLINE = 11: TextList<'_>;
    /// Names of events: [`EventDesc`].
    EVENT_DESC = 12: EventDesc<'_>;
    /// [`CpuTopology`].
    CPU_TOPOLOGY = 13;
    /// [`NumaTopology`].
    NUMA_TOPOLOGY = 14: NumaTopology<'_>;
    /// Flag: samples have branch stacks. Empty.
    BRANCH_STACK = 15;
    /// [`PmuMappings`].
    PMU_MAPPINGS = 16: PmuMappings<'_>;
    /// [`GroupDesc`].
    GROUP_DESC = 17: GroupDesc<'_>;
    /// [`AuxtraceIndex`].
    AUXTRACE = 18;
    /// Flag: counts instead of samples. Empty.
    STAT = 19;
    /// [`Caches`].
    CACHE = 20: Caches<'_>;
    /// [`SampleTime`].
    SAMPLE_TIME = 21: SampleTime;
    /// [`MemoryTopology`].
    MEM_TOPOLOGY = 22: MemoryTopology;
    /// [`ClockResolution`].
    CLOCKID = 23: ClockResolution;
    /// [`DirFormat`].
    DIR_FORMAT = 24;
    /// [`BpfProgInfoSection`](crate::bpf::prog_info::BpfProgInfoSection).
    BPF_PROG_INFO = 25;
    /// [`BpfBtfSection`](crate::bpf::btf::BpfBtfSection).
    BPF_BTF = 26;
    /// [`Compression`].
    COMPRESSED = 27: Compression;
    /// [`CpuPmuCaps`].
    CPU_PMU_CAPS = 28: CpuPmuCaps<'_>;
    /// [`ClockData`].
    CLOCK_DATA = 29: ClockData;
    /// [`HybridTopology`].
    HYBRID_TOPOLOGY = 30: HybridTopology<'_>;
    /// [`PmuCaps`].
    PMU_CAPS = 31: PmuCaps<'_>;
    /// [`CpuDomains`].
    CPU_DOMAIN_INFO = 32: CpuDomains<'_>;
    /// [`ElfMachine`].
    E_MACHINE = 33: ElfMachine;
    /// [`CacheLineSize`].
    CLN_SIZE = 34: CacheLineSize;
}

impl Feature {
    /// Returns a section with `secrets` in place of the secrets that its layout marks; `None` if this library has no layout for the feature, or cannot
    /// read the section.
    pub fn redacted(self, bytes: &[u8], endian: Endian, secrets: &mut dyn Secrets) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.recode(bytes, &mut Writer::new(&mut out, endian).redacting(secrets))?.ok()?;
        Some(out)
    }
}

impl std::fmt::Display for Feature {
    /// Formats the name, or the number if the feature has no name.
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
    /// Damage that ended the reading, if any.
    pub problem: Option<Error>,
}

/// The content of a feature section.
pub trait SectionContent<'a>: Sized {
    /// Reads the content at the position of `r`. If an element cannot be read, keeps the elements before it and sets `problem`.
    ///
    /// # Errors
    /// Fails if nothing useful can be read.
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<Self>;

    /// Appends the content.
    fn encode(&self, w: &mut Writer<'_>);

    /// Reads a section that starts at offset `base` of the file.
    ///
    /// # Errors
    /// Fails if nothing useful can be read.
    fn parse(bytes: &'a [u8], base: u64, endian: Endian) -> Result<Partial<Self>> {
        let mut problem = None;
        let value = Self::read(&mut Reader::new(bytes, base, endian), &mut problem)?;
        Ok(Partial { value, problem })
    }

    /// Encodes the content as a section.
    fn to_bytes(&self, endian: Endian) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut Writer::new(&mut out, endian));
        out
    }
}

/// Reads `count` elements, or the elements before the first unreadable one. A damaged `count` does no harm: no memory is allocated by it, and the
/// work is limited by the available bytes, because every element takes at least one byte.
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

#[cfg(test)]
mod tests;
