//! Description of a stream: HEADER_ATTR, HEADER_EVENT_TYPE, HEADER_BUILD_ID, EVENT_UPDATE (since perf 4.6),
//! HEADER_FEATURE (since perf 4.13), BPF_METADATA (since perf 7.0).

use super::{CpuMap, fixed_text};
use crate::layout::{Fixed, LongList, Pair, Rest};
use crate::record::misc;
use crate::records::{BuildId, put_string, string};
use crate::{EventAttr, Reader, Result, Words, Writer};

/// HEADER_ATTR (since 2.6.35): an attr in its own size, then ids (u64) to the end. The place of the ids follows from the
/// attr's `size`, 0 standing for 64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderAttr {
    /// The attr.
    pub attr: EventAttr,
    /// Its ids.
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

/// HEADER_EVENT_TYPE (perf before 3.12): `event_id u64, name`, 64 bytes at most and without a NUL where it fills them;
/// `event_id` is the `config` of the attr it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTypeName<'a> {
    /// `attr.config` of the event.
    pub config: u64,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> EventTypeName<'a> {
    const NAME_BYTES: usize = 64;

    pub(super) fn parse(r: &mut Reader<'a>) -> Result<EventTypeName<'a>> {
        let config = r.u64("EVENT_TYPE event_id")?;
        Ok(EventTypeName { config, name: fixed_text(r.take(r.remaining().min(Self::NAME_BYTES), "EVENT_TYPE name")?) })
    }

    /// Appends the payload; a name beyond 63 bytes is cut.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let start = w.position();
        w.u64(self.config).bytes(&self.name[..self.name.len().min(Self::NAME_BYTES)]).align(start, 8);
    }
}

/// HEADER_BUILD_ID: `pid s32, data[20], size u8, reserved[3], filename`. Also the entry of the BUILD_ID feature.
///
/// The size byte counts only with [`misc::BUILD_ID_SIZE`]; without, the id has 20 bytes. The CPU mode in `misc` says
/// whether the file belongs to kernel or user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildIdRecord<'a> {
    /// Process; −1 for the host's kernel.
    pub pid: i32,
    /// CPU mode, as in `misc`.
    pub cpumode: u16,
    /// The id.
    pub id: BuildId,
    /// The file's path, `[kernel.kallsyms]` for the kernel.
    pub filename: &'a [u8],
}

impl<'a> BuildIdRecord<'a> {
    pub(super) fn parse(r: &mut Reader<'a>, record_misc: u16) -> Result<BuildIdRecord<'a>> {
        let pid = r.u32("BUILD_ID pid")? as i32;
        let record = BuildIdRecord::parse_id(r, record_misc, pid)?;
        Ok(BuildIdRecord { filename: string(r, "BUILD_ID filename")?, ..record })
    }

    /// Reads the fields between `pid` and the file's path.
    pub(crate) fn parse_id(r: &mut Reader<'a>, record_misc: u16, pid: i32) -> Result<BuildIdRecord<'a>> {
        let data: [u8; 20] = r.array("BUILD_ID data")?;
        let [size, ..] = r.array::<4>("BUILD_ID size")?;
        let size = if record_misc & misc::BUILD_ID_SIZE != 0 { usize::from(size).min(20) } else { 20 };
        let cpumode = record_misc & misc::CPUMODE_MASK;
        Ok(BuildIdRecord { pid, cpumode, id: BuildId::new(&data[..size]), filename: &[] })
    }

    /// The header's misc bits for this record.
    pub fn misc(&self) -> u16 {
        self.cpumode | misc::BUILD_ID_SIZE
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        self.encode_ids(w);
        put_string(w, self.filename);
    }

    /// Appends the fields in front of the file's path.
    pub(crate) fn encode_ids(&self, w: &mut Writer<'_>) {
        let id = self.id.as_bytes();
        w.u32(self.pid as u32).bytes(id).zeros(20 - id.len()).u8(id.len() as u8).zeros(3);
    }
}

/// EVENT_UPDATE (since perf 4.6): `type u64, id u64`, then what the type says. More about the event that has this id.
#[derive(Debug, Clone, PartialEq)]
pub struct EventUpdate<'a> {
    /// An id of the event.
    pub id: u64,
    /// The addition.
    pub update: Update<'a>,
}

/// Addition of an EVENT_UPDATE.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Update<'a> {
    /// 0: unit of the count.
    Unit(&'a [u8]),
    /// 1: factor from count to unit.
    Scale(f64),
    /// 2: the event's name.
    Name(&'a [u8]),
    /// 3: the CPUs that the event can count on.
    Cpus(CpuMap),
    /// A type this crate does not know.
    Other {
        /// Its number.
        kind: u64,
        /// Its bytes.
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
            Update::Unit(text) | Update::Name(text) => put_string(w, text),
            Update::Scale(scale) => drop(w.u64(scale.to_bits())),
            Update::Cpus(cpus) => cpus.encode(w),
            Update::Other { bytes, .. } => drop(w.bytes(bytes)),
        }
    }
}

record! {
    /// HEADER_FEATURE (since perf 4.13): a feature, with the bytes that its section has in a file. A number without bytes beyond the last
    /// feature ends the list.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FeatureRecord<'a> {
        /// The feature's bit.
        pub feature: u64,
        /// Its section.
        pub bytes: &'a [u8] as Rest,
    }
}

record! {
    /// BPF_METADATA: the `bpf_metadata_*` variables of the program with a function of this name. perf appends a trailer of zeros. Texts
    /// beyond their field are cut.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BpfMetadata {
        /// Symbol name of a function of the program (`bpf_prog_<tag>_<name>`).
        pub prog_name: Vec<u8> as Fixed<512>,
        /// Variable name without its prefix, and value as text: `nr u64`, then these.
        pub entries: Vec<(Vec<u8>, Vec<u8>)> as LongList<Pair<Fixed<64>, Fixed<256>>>,
    }
}
