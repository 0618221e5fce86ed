//! Records that tools write, types 64 to 86. Layouts from `tools/lib/perf/include/perf/event.h`.
//!
//! They carry no `sample_id` trailer (but see [`BuildIdRecord`] and [`BpfMetadata`]). All are multiples of 8 bytes except
//! HEADER_TRACING_DATA, HEADER_FEATURE and COMPRESSED, which may have any size.

mod auxtrace;
mod header;
mod maps;
mod stat;

pub use auxtrace::{Auxtrace, AuxtraceError, AuxtraceInfo};
pub use header::{BpfMetadata, BuildIdRecord, EventTypeName, EventUpdate, FeatureRecord, HeaderAttr, Update};
pub use maps::{CpuMap, IdIndex, IdIndexEntry, ThreadMap, ThreadMapEntry, TimeConv, TimeConvCycles};
pub use stat::{SchedstatCpu, SchedstatDomain, Stat, StatConfig, StatRound};

use crate::{Endian, Error, RECORD_HEADER_BYTES, Reader, Record, RecordType, Result, Writer};

/// A decoded record of a tool.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum UserPayload<'a> {
    /// HEADER_ATTR.
    Attr(HeaderAttr),
    /// HEADER_EVENT_TYPE.
    EventType(EventTypeName<'a>),
    /// HEADER_TRACING_DATA: `size u32`, padding that old tools left out; `size` bytes of tracepoint formats follow outside
    /// the record's size, padded to 8. simpleperf has them inside the record.
    TracingData {
        /// Bytes of tracepoint formats.
        size_bytes: u32,
        /// Formats inside the record; empty if they follow behind it.
        inside: &'a [u8],
    },
    /// HEADER_BUILD_ID.
    BuildId(BuildIdRecord<'a>),
    /// FINISHED_ROUND: every ring has been read once since the last one. Nothing that follows is older than the newest
    /// record before the previous FINISHED_ROUND.
    FinishedRound,
    /// ID_INDEX.
    IdIndex(IdIndex),
    /// AUXTRACE_INFO.
    AuxtraceInfo(AuxtraceInfo),
    /// AUXTRACE.
    Auxtrace(Auxtrace),
    /// AUXTRACE_ERROR.
    AuxtraceError(AuxtraceError<'a>),
    /// THREAD_MAP.
    ThreadMap(ThreadMap),
    /// CPU_MAP.
    CpuMap(CpuMap),
    /// STAT_CONFIG.
    StatConfig(StatConfig),
    /// STAT.
    Stat(Stat),
    /// STAT_ROUND.
    StatRound(StatRound),
    /// EVENT_UPDATE.
    EventUpdate(EventUpdate<'a>),
    /// TIME_CONV.
    TimeConv(TimeConv),
    /// HEADER_FEATURE.
    Feature(FeatureRecord<'a>),
    /// COMPRESSED (since perf 5.2): a slice of a zstd stream, of any size.
    Compressed(&'a [u8]),
    /// FINISHED_INIT (since perf 6.0): what existed at the start is described.
    FinishedInit,
    /// COMPRESSED2 (since perf 6.16): `data_size u64`, a slice of a zstd stream, padding.
    Compressed2(&'a [u8]),
    /// BPF_METADATA.
    BpfMetadata(BpfMetadata),
    /// SCHEDSTAT_CPU.
    SchedstatCpu(SchedstatCpu),
    /// SCHEDSTAT_DOMAIN.
    SchedstatDomain(SchedstatDomain),
    /// A type without a decoder here (simpleperf's from 32768, newer tools'): the body as it is.
    Other {
        /// Its type.
        kind: RecordType,
        /// Its body.
        body: &'a [u8],
    },
}

impl<'a> UserPayload<'a> {
    /// Decodes a record of a tool.
    ///
    /// # Errors
    /// When the record is shorter than its type says, or a string in it does not end.
    pub fn decode(record: &Record<'a>, endian: Endian) -> Result<UserPayload<'a>> {
        let r = &mut Reader::new(record.body(), record.offset + RECORD_HEADER_BYTES as u64, endian);
        Ok(match record.kind {
            RecordType::HEADER_ATTR => UserPayload::Attr(HeaderAttr::parse(r)?),
            RecordType::HEADER_EVENT_TYPE => UserPayload::EventType(EventTypeName::parse(r)?),
            RecordType::HEADER_TRACING_DATA => {
                let size_bytes = r.u32("TRACING_DATA size")?;
                let rest = r.rest();
                let inside = if rest.len() > 4 { &rest[..rest.len().min(size_bytes as usize)] } else { &[] };
                UserPayload::TracingData { size_bytes, inside }
            }
            RecordType::HEADER_BUILD_ID => UserPayload::BuildId(BuildIdRecord::parse(r, record.misc)?),
            RecordType::FINISHED_ROUND => UserPayload::FinishedRound,
            RecordType::ID_INDEX => UserPayload::IdIndex(IdIndex::parse(r)?),
            RecordType::AUXTRACE_INFO => UserPayload::AuxtraceInfo(AuxtraceInfo::parse(r)?),
            RecordType::AUXTRACE => UserPayload::Auxtrace(Auxtrace::parse(r)?),
            RecordType::AUXTRACE_ERROR => UserPayload::AuxtraceError(AuxtraceError::parse(r)?),
            RecordType::THREAD_MAP => UserPayload::ThreadMap(ThreadMap::parse(r)?),
            RecordType::CPU_MAP => UserPayload::CpuMap(CpuMap::parse(r)?),
            RecordType::STAT_CONFIG => UserPayload::StatConfig(StatConfig::parse(r)?),
            RecordType::STAT => UserPayload::Stat(Stat::parse(r)?),
            RecordType::STAT_ROUND => UserPayload::StatRound(StatRound::parse(r)?),
            RecordType::EVENT_UPDATE => UserPayload::EventUpdate(EventUpdate::parse(r)?),
            RecordType::TIME_CONV => UserPayload::TimeConv(TimeConv::parse(r)?),
            RecordType::HEADER_FEATURE => UserPayload::Feature(FeatureRecord::parse(r)?),
            RecordType::COMPRESSED => UserPayload::Compressed(r.rest()),
            RecordType::FINISHED_INIT => UserPayload::FinishedInit,
            RecordType::COMPRESSED2 => UserPayload::Compressed2(compressed2(r)?),
            RecordType::BPF_METADATA => UserPayload::BpfMetadata(BpfMetadata::parse(r)?),
            RecordType::SCHEDSTAT_CPU => UserPayload::SchedstatCpu(SchedstatCpu::parse(r)?),
            RecordType::SCHEDSTAT_DOMAIN => UserPayload::SchedstatDomain(SchedstatDomain::parse(r)?),
            kind => UserPayload::Other { kind, body: r.rest() },
        })
    }

    /// The record's type.
    pub fn kind(&self) -> RecordType {
        match self {
            UserPayload::Attr(_) => RecordType::HEADER_ATTR,
            UserPayload::EventType(_) => RecordType::HEADER_EVENT_TYPE,
            UserPayload::TracingData { .. } => RecordType::HEADER_TRACING_DATA,
            UserPayload::BuildId(_) => RecordType::HEADER_BUILD_ID,
            UserPayload::FinishedRound => RecordType::FINISHED_ROUND,
            UserPayload::IdIndex(_) => RecordType::ID_INDEX,
            UserPayload::AuxtraceInfo(_) => RecordType::AUXTRACE_INFO,
            UserPayload::Auxtrace(_) => RecordType::AUXTRACE,
            UserPayload::AuxtraceError(_) => RecordType::AUXTRACE_ERROR,
            UserPayload::ThreadMap(_) => RecordType::THREAD_MAP,
            UserPayload::CpuMap(_) => RecordType::CPU_MAP,
            UserPayload::StatConfig(_) => RecordType::STAT_CONFIG,
            UserPayload::Stat(_) => RecordType::STAT,
            UserPayload::StatRound(_) => RecordType::STAT_ROUND,
            UserPayload::EventUpdate(_) => RecordType::EVENT_UPDATE,
            UserPayload::TimeConv(_) => RecordType::TIME_CONV,
            UserPayload::Feature(_) => RecordType::HEADER_FEATURE,
            UserPayload::Compressed(_) => RecordType::COMPRESSED,
            UserPayload::FinishedInit => RecordType::FINISHED_INIT,
            UserPayload::Compressed2(_) => RecordType::COMPRESSED2,
            UserPayload::BpfMetadata(_) => RecordType::BPF_METADATA,
            UserPayload::SchedstatCpu(_) => RecordType::SCHEDSTAT_CPU,
            UserPayload::SchedstatDomain(_) => RecordType::SCHEDSTAT_DOMAIN,
            UserPayload::Other { kind, .. } => *kind,
        }
    }

    /// Appends the whole record; what lies outside its size (TRACING_DATA, AUXTRACE) is the caller's to append. Only
    /// HEADER_FEATURE and COMPRESSED keep a size that is no multiple of 8.
    ///
    /// # Errors
    /// When the record would be larger than the 65,535 bytes that its header can say; nothing is appended then.
    pub fn encode(&self, endian: Endian, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let misc = match self {
            UserPayload::BuildId(id) => id.misc(),
            _ => 0,
        };
        let w = &mut Writer::new(out, endian);
        w.u32(self.kind().0).u16(misc).u16(0);
        match self {
            UserPayload::Attr(payload) => payload.encode(w),
            UserPayload::EventType(payload) => payload.encode(w),
            UserPayload::TracingData { size_bytes, inside: [] } => {
                w.u32(*size_bytes).u32(0);
            }
            UserPayload::TracingData { size_bytes, inside } => {
                w.u32(*size_bytes).bytes(inside);
                // A record of 16 bytes is one whose formats follow behind it.
                w.zeros(5usize.saturating_sub(inside.len()));
            }
            UserPayload::BuildId(payload) => payload.encode(w),
            UserPayload::FinishedRound | UserPayload::FinishedInit => {}
            UserPayload::IdIndex(payload) => payload.encode(w),
            UserPayload::AuxtraceInfo(payload) => payload.encode(w),
            UserPayload::Auxtrace(payload) => payload.encode(w),
            UserPayload::AuxtraceError(payload) => payload.encode(w),
            UserPayload::ThreadMap(payload) => payload.encode(w),
            UserPayload::CpuMap(payload) => payload.encode(w),
            UserPayload::StatConfig(payload) => payload.encode(w),
            UserPayload::Stat(payload) => payload.encode(w),
            UserPayload::StatRound(payload) => payload.encode(w),
            UserPayload::EventUpdate(payload) => payload.encode(w),
            UserPayload::TimeConv(payload) => payload.encode(w),
            UserPayload::Feature(payload) => payload.encode(w),
            UserPayload::Compressed(bytes) => {
                w.bytes(bytes);
            }
            UserPayload::Compressed2(bytes) => {
                w.u64(bytes.len() as u64).bytes(bytes);
            }
            UserPayload::BpfMetadata(payload) => payload.encode(w),
            UserPayload::SchedstatCpu(payload) => payload.encode(w),
            UserPayload::SchedstatDomain(payload) => payload.encode(w),
            UserPayload::Other { body, .. } => {
                w.bytes(body);
            }
        }
        if !matches!(self, UserPayload::Feature(_) | UserPayload::Compressed(_) | UserPayload::Other { .. }) {
            w.align(start, 8);
        }
        let size = out.len() - start;
        let Ok(size) = u16::try_from(size) else {
            out.truncate(start);
            return Err(Error::value(start as u64, "record size", size as u64, "at most 65535"));
        };
        Writer::new(out, endian).patch_u16(start + 6, size);
        Ok(())
    }
}

/// The slice of the zstd stream in a COMPRESSED2 record's body.
fn compressed2<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let size = r.u64("COMPRESSED2 data_size")?;
    let size = r.count(size, 1, "COMPRESSED2 data")?;
    let bytes = r.take(size, "COMPRESSED2 data")?;
    r.rest();
    Ok(bytes)
}

/// The text in a field of fixed size: everything in front of the first NUL.
fn fixed_text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|b| *b == 0).unwrap_or(field.len())]
}
