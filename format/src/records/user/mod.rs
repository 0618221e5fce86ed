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

use super::{begin_record, end_record};
use crate::{Endian, RECORD_HEADER_BYTES, Reader, Record, RecordType, Result, Writer};

/// Declares the records that tools write: variant and type of the payload, and how a record of the type is read.
macro_rules! payloads {
    ($life:lifetime, |$r:ident, $record:ident| $($(#[$doc:meta])* $name:ident($ty:ty): $kind:ident => $parse:expr;)*) => {
        /// A decoded record of a tool.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum UserPayload<$life> {
            $($(#[$doc])* $name($ty),)*
            /// HEADER_TRACING_DATA: `size u32`, padding that old tools left out; `size` bytes of tracepoint formats follow outside
            /// the record's size, padded to 8. simpleperf has them inside the record.
            TracingData {
                /// Bytes of tracepoint formats.
                size_bytes: u32,
                /// Formats inside the record; empty if they follow behind it.
                inside: &$life [u8],
            },
            /// FINISHED_ROUND: every ring has been read once since the last one. Nothing that follows is older than the newest
            /// record before the previous FINISHED_ROUND.
            FinishedRound,
            /// FINISHED_INIT (since perf 6.0): what existed at the start is described.
            FinishedInit,
            /// COMPRESSED (since perf 5.2): a slice of a zstd stream, of any size.
            Compressed(&$life [u8]),
            /// COMPRESSED2 (since perf 6.16): `data_size u64`, a slice of a zstd stream, padding.
            Compressed2(&$life [u8]),
            /// A type without a decoder here (simpleperf's from 32768, newer tools'): the body as it is.
            Other {
                /// Its type.
                kind: RecordType,
                /// Its body.
                body: &$life [u8],
            },
        }

        impl<$life> UserPayload<$life> {
            /// Decodes a record of a tool.
            ///
            /// # Errors
            /// When the record is shorter than its type says, or a string in it does not end.
            pub fn decode($record: &Record<$life>, endian: Endian) -> Result<UserPayload<$life>> {
                let $r = &mut Reader::new($record.body(), $record.offset + RECORD_HEADER_BYTES as u64, endian);
                Ok(match $record.kind {
                    $(RecordType::$kind => UserPayload::$name($parse?),)*
                    RecordType::HEADER_TRACING_DATA => {
                        let size_bytes = $r.u32("TRACING_DATA size")?;
                        let rest = $r.rest();
                        let inside = if rest.len() > 4 { &rest[..rest.len().min(size_bytes as usize)] } else { &[] };
                        UserPayload::TracingData { size_bytes, inside }
                    }
                    RecordType::FINISHED_ROUND => UserPayload::FinishedRound,
                    RecordType::FINISHED_INIT => UserPayload::FinishedInit,
                    RecordType::COMPRESSED => UserPayload::Compressed($r.rest()),
                    RecordType::COMPRESSED2 => UserPayload::Compressed2(compressed2($r)?),
                    kind => UserPayload::Other { kind, body: $r.rest() },
                })
            }

            /// The record's type.
            pub fn kind(&self) -> RecordType {
                match self {
                    $(UserPayload::$name(_) => RecordType::$kind,)*
                    UserPayload::TracingData { .. } => RecordType::HEADER_TRACING_DATA,
                    UserPayload::FinishedRound => RecordType::FINISHED_ROUND,
                    UserPayload::FinishedInit => RecordType::FINISHED_INIT,
                    UserPayload::Compressed(_) => RecordType::COMPRESSED,
                    UserPayload::Compressed2(_) => RecordType::COMPRESSED2,
                    UserPayload::Other { kind, .. } => *kind,
                }
            }

            fn encode_body(&self, w: &mut Writer<'_>) {
                match self {
                    $(UserPayload::$name(payload) => payload.encode(w),)*
                    UserPayload::TracingData { size_bytes, inside: [] } => drop(w.u32(*size_bytes).u32(0)),
                    // A record of 16 bytes is one whose formats follow behind it.
                    UserPayload::TracingData { size_bytes, inside } => {
                        w.u32(*size_bytes).bytes(inside).zeros(5usize.saturating_sub(inside.len()));
                    }
                    UserPayload::FinishedRound | UserPayload::FinishedInit => {}
                    UserPayload::Compressed2(bytes) => drop(w.u64(bytes.len() as u64).bytes(bytes)),
                    UserPayload::Compressed(bytes) | UserPayload::Other { body: bytes, .. } => drop(w.bytes(bytes)),
                }
            }
        }
    };
}

payloads! {
    'a, |r, record|
    /// HEADER_ATTR.
    Attr(HeaderAttr): HEADER_ATTR => HeaderAttr::parse(r);
    /// HEADER_EVENT_TYPE.
    EventType(EventTypeName<'a>): HEADER_EVENT_TYPE => EventTypeName::parse(r);
    /// HEADER_BUILD_ID.
    BuildId(BuildIdRecord<'a>): HEADER_BUILD_ID => BuildIdRecord::parse(r, record.misc);
    /// ID_INDEX.
    IdIndex(IdIndex): ID_INDEX => IdIndex::parse(r);
    /// AUXTRACE_INFO.
    AuxtraceInfo(AuxtraceInfo): AUXTRACE_INFO => AuxtraceInfo::parse(r);
    /// AUXTRACE.
    Auxtrace(Auxtrace): AUXTRACE => Auxtrace::parse(r);
    /// AUXTRACE_ERROR.
    AuxtraceError(AuxtraceError<'a>): AUXTRACE_ERROR => AuxtraceError::parse(r);
    /// THREAD_MAP.
    ThreadMap(ThreadMap): THREAD_MAP => ThreadMap::parse(r);
    /// CPU_MAP.
    CpuMap(CpuMap): CPU_MAP => CpuMap::parse(r);
    /// STAT_CONFIG.
    StatConfig(StatConfig): STAT_CONFIG => StatConfig::parse(r);
    /// STAT.
    Stat(Stat): STAT => Stat::parse(r);
    /// STAT_ROUND.
    StatRound(StatRound): STAT_ROUND => StatRound::parse(r);
    /// EVENT_UPDATE.
    EventUpdate(EventUpdate<'a>): EVENT_UPDATE => EventUpdate::parse(r);
    /// TIME_CONV.
    TimeConv(TimeConv): TIME_CONV => TimeConv::parse(r);
    /// HEADER_FEATURE.
    Feature(FeatureRecord<'a>): HEADER_FEATURE => FeatureRecord::parse(r);
    /// BPF_METADATA.
    BpfMetadata(BpfMetadata): BPF_METADATA => BpfMetadata::parse(r);
    /// SCHEDSTAT_CPU.
    SchedstatCpu(SchedstatCpu): SCHEDSTAT_CPU => SchedstatCpu::parse(r);
    /// SCHEDSTAT_DOMAIN.
    SchedstatDomain(SchedstatDomain): SCHEDSTAT_DOMAIN => SchedstatDomain::parse(r);
}

impl UserPayload<'_> {
    /// Appends the whole record; what lies outside its size (TRACING_DATA, AUXTRACE) is the caller's to append. Only
    /// HEADER_FEATURE and COMPRESSED keep a size that is no multiple of 8.
    ///
    /// # Errors
    /// When the record would be larger than the 65,535 bytes that its header can say; nothing is appended then.
    pub fn encode(&self, endian: Endian, out: &mut Vec<u8>) -> Result<()> {
        let misc = match self {
            UserPayload::BuildId(id) => id.misc(),
            _ => 0,
        };
        let is_odd = matches!(self, UserPayload::Feature(_) | UserPayload::Compressed(_) | UserPayload::Other { .. });
        let start = begin_record(out, self.kind(), misc, endian);
        let w = &mut Writer::new(out, endian);
        self.encode_body(w);
        if !is_odd {
            w.align(start, 8);
        }
        end_record(out, start, endian)
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
