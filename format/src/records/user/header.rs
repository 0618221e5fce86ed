//! Description of a stream: HEADER_ATTR, HEADER_EVENT_TYPE, HEADER_BUILD_ID, EVENT_UPDATE (since perf 4.6),
//! HEADER_FEATURE (since perf 4.13), BPF_METADATA (since perf 7.0).

use std::borrow::Cow;

use super::CpuMap;
use crate::layout::meaning::{Event, KernelMapping, Mapping, Symbol, Value};
use crate::layout::{Codec, Fixed, LastText, LongList, Meaning as _, Pair, Rest, until_nul};
use crate::record::misc;
use crate::records::{BuildId, Mmap2File, put_string, string};
use crate::{EventAttr, Reader, Result, Words, Writer};

/// HEADER_ATTR (since 2.6.35): an attr, then ids (u64) up to the end. The ids start at the offset `size` of the attr; a `size` of 0 means 64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderAttr {
    /// Attr of the event.
    pub attr: EventAttr,
    /// Ids of the event.
    pub ids: Vec<u64>,
}

impl HeaderAttr {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<HeaderAttr> {
        let offset = r.offset();
        let endian = r.endian();
        let body = r.rest();
        let attr = EventAttr::parse(body, offset, endian)?;
        let ids = body.get(attr.size as usize..).unwrap_or_default();
        Ok(HeaderAttr { attr, ids: Words::new(ids, endian).iter().collect() })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let mut attr = Vec::new();
        self.attr.encode(&mut attr, w.endian());
        w.bytes(&attr);
        for id in &self.ids {
            w.u64(*id);
        }
    }
}

/// HEADER_EVENT_TYPE (perf before 3.12): `event_id u64, name`. Names have at most 64 bytes; a name of this length has no NUL. `event_id` is the
/// `config` in the attr of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTypeName<'a> {
    /// `attr.config` of the event.
    pub config: u64,
    /// Name of the event.
    pub name: &'a [u8],
}

impl<'a> EventTypeName<'a> {
    const NAME_BYTES: usize = 64;

    pub(super) fn parse(r: &mut Reader<'a>) -> Result<EventTypeName<'a>> {
        let config = r.u64("EVENT_TYPE event_id")?;
        Ok(EventTypeName { config, name: until_nul(r.take(r.remaining().min(Self::NAME_BYTES), "EVENT_TYPE name")?) })
    }

    /// Appends the payload; a name is cut at 64 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let start = w.position();
        w.u64(self.config).bytes(&self.name[..self.name.len().min(Self::NAME_BYTES)]).align(start, 8);
    }
}

/// HEADER_BUILD_ID: `pid s32, data[20], size u8, reserved[3], filename`. The BUILD_ID feature has the same layout.
///
/// The size byte is valid only with [`misc::BUILD_ID_SIZE`]; without this bit, the id has 20 bytes. The CPU mode in `misc` distinguishes files of the
/// kernel from files of user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildIdRecord<'a> {
    /// Process id; −1 for the kernel of the host.
    pub pid: i32,
    /// CPU mode from `misc`.
    pub cpumode: u16,
    /// Build id of the file.
    pub id: BuildId,
    /// Path of the file; `[kernel.kallsyms]` for the kernel.
    pub filename: &'a [u8],
}

impl<'a> BuildIdRecord<'a> {
    pub(super) fn parse(r: &mut Reader<'a>, record_misc: u16) -> Result<BuildIdRecord<'a>> {
        let pid = r.u32("BUILD_ID pid")? as i32;
        let record = BuildIdRecord::parse_id(r, record_misc, pid)?;
        Ok(BuildIdRecord { filename: string(r, "BUILD_ID filename")?, ..record })
    }

    /// Reads the fields between `pid` and the path.
    pub(crate) fn parse_id(r: &mut Reader<'a>, record_misc: u16, pid: i32) -> Result<BuildIdRecord<'a>> {
        let data: [u8; 20] = r.array("BUILD_ID data")?;
        let [size, ..] = r.array::<4>("BUILD_ID size")?;
        let size = if record_misc & misc::BUILD_ID_SIZE != 0 { usize::from(size).min(20) } else { 20 };
        let cpumode = record_misc & misc::CPUMODE_MASK;
        Ok(BuildIdRecord { pid, cpumode, id: BuildId::new(&data[..size]), filename: &[] })
    }

    /// Misc bits of the record's header.
    pub fn misc(&self) -> u16 {
        self.cpumode | misc::BUILD_ID_SIZE
    }

    /// Returns true for a file of a kernel. Its build id is public: it says no more than the kernel's release.
    fn is_of_kernel(&self) -> bool {
        matches!(self.cpumode, misc::KERNEL | misc::GUEST_KERNEL)
    }

    /// Returns the path to write.
    pub(crate) fn written_path(&self, w: &mut Writer<'_>) -> Cow<'a, [u8]> {
        match self.is_of_kernel() {
            true => KernelMapping::written(self.filename, w),
            false => Mapping::written(self.filename, w),
        }
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        self.encode_ids(w);
        let path = self.written_path(w);
        put_string(w, &path);
    }

    /// Appends the fields in front of the path.
    pub(crate) fn encode_ids(&self, w: &mut Writer<'_>) {
        let id = match self.is_of_kernel() {
            true => Mmap2File::BuildId(self.id),
            false => w.replaced(Mmap2File::BuildId(self.id), |secrets, file| secrets.file(file)),
        };
        let Mmap2File::BuildId(id) = id else { return };
        let id = id.as_bytes();
        w.u32(self.pid as u32).bytes(id).zeros(20 - id.len()).u8(id.len() as u8).zeros(3);
    }
}

/// EVENT_UPDATE (since perf 4.6): `type u64, id u64`, then a property of the event with this id.
#[derive(Debug, Clone, PartialEq)]
pub struct EventUpdate<'a> {
    /// Id of the event.
    pub id: u64,
    /// Property of the event.
    pub update: Update<'a>,
}

/// Property in an EVENT_UPDATE, with the number of its type.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Update<'a> {
    /// 0: unit of the count.
    Unit(&'a [u8]),
    /// 1: factor from count to unit.
    Scale(f64),
    /// 2: name of the event.
    Name(&'a [u8]),
    /// 3: CPUs on which the event can count.
    Cpus(CpuMap),
    /// Property of an unknown type.
    Other {
        /// Number of the type.
        kind: u64,
        /// Bytes of the property.
        bytes: &'a [u8],
    },
}

impl<'a> EventUpdate<'a> {
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<EventUpdate<'a>> {
        let kind = r.u64("EVENT_UPDATE type")?;
        let id = r.u64("EVENT_UPDATE id")?;
        let update = match kind {
            0 => Update::Unit(string(r, "EVENT_UPDATE unit")?),
            1 => Update::Scale(f64::from_bits(r.u64("EVENT_UPDATE scale")?)),
            2 => Update::Name(string(r, "EVENT_UPDATE name")?),
            3 => Update::Cpus(CpuMap::parse(r)?),
            kind => Update::Other { kind, bytes: r.rest() },
        };
        Ok(EventUpdate { id, update })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let kind = match &self.update {
            Update::Unit(_) => 0,
            Update::Scale(_) => 1,
            Update::Name(_) => 2,
            Update::Cpus(_) => 3,
            Update::Other { kind, .. } => *kind,
        };
        w.u64(kind).u64(self.id);
        match &self.update {
            Update::Unit(text) => put_string(w, text),
            Update::Name(text) => LastText::<Event>::put(text, w),
            Update::Scale(scale) => drop(w.u64(scale.to_bits())),
            Update::Cpus(cpus) => cpus.encode(w),
            Update::Other { bytes, .. } => drop(w.bytes(bytes)),
        }
    }
}

record! {
    /// HEADER_FEATURE (since perf 4.13): a feature with the bytes of its section. The last record has a number beyond the last
    /// feature, and no bytes.
    #[derive(Copy)]
    pub struct FeatureRecord<'a> {
        /// Number of the feature.
        pub feature: u64,
        /// Bytes of the section.
        pub bytes: &'a [u8] as Rest,
    }

    /// BPF_METADATA: the `bpf_metadata_*` variables of a program. perf appends a trailer of zeros. Writers cut texts that are
    /// longer than their field.
    pub struct BpfMetadata<'a> {
        /// Symbol of a function of the program (`bpf_prog_<tag>_<name>`).
        pub prog_name: &'a [u8] as Fixed<Symbol, 512>,
        /// `nr u64`, then names of the variables without their prefix, and values as text.
        pub entries: Vec<(&'a [u8], &'a [u8])> as LongList<Pair<Fixed<Value, 64>, Fixed<Value, 256>>>,
    }
}
