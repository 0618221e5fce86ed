//! Records that tools write, types 64 to 86. Layouts: `tools/lib/perf/include/perf/event.h`.
//!
//! These records have no `sample_id` trailer (but see [`BpfMetadata`]). Their sizes are multiples of 8 bytes, except those of
//! HEADER_TRACING_DATA, HEADER_FEATURE and COMPRESSED.

mod auxtrace;
mod header;
mod maps;
mod stat;

pub use auxtrace::{Auxtrace, AuxtraceError, AuxtraceInfo};
pub use header::{BpfMetadata, BuildIdRecord, EventTypeName, EventUpdate, FeatureRecord, HeaderAttr, Update};
pub use maps::{CpuMap, IdIndex, IdIndexEntry, IdIndexGuest, ThreadMap, ThreadMapEntry, TimeConv, TimeConvCycles};
pub use stat::{SchedstatCpu, SchedstatDomain, Stat, StatConfig, StatRound};

use super::{begin_record, end_record};
use crate::{Endian, Reader, Record, RecordType, Result, Writer};

/// Declares the records that tools write: variant and type of the payload, and the record type. An expression after the record type reads the payload
/// if its type has no layout table.
macro_rules! payloads {
    ($life:lifetime, |$r:ident, $record:ident| $($(#[$doc:meta])* $name:ident($ty:ty): $kind:ident $(=> $parse:expr)?;)*) => {
        /// Decoded record of a tool.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum UserPayload<$life> {
            $($(#[$doc])* $name($ty),)*
            /// HEADER_TRACING_DATA: `size u32`, padding (missing in records of old tools). `size` bytes of tracepoint formats,
            /// padded to 8, follow the record, outside its size. simpleperf writes the formats inside the record.
            TracingData {
                /// Bytes of tracepoint formats.
                size_bytes: u32,
                /// Formats inside the record; empty if they follow the record.
                inside: &$life [u8],
            },
            /// FINISHED_ROUND: the tool has read every ring once since the last FINISHED_ROUND. No later record is older than the
            /// newest record in front of the previous FINISHED_ROUND.
            FinishedRound,
            /// FINISHED_INIT (since perf 6.0): the records in front describe the state at the start.
            FinishedInit,
            /// COMPRESSED (since perf 5.2): a slice of a zstd stream, of any size.
            Compressed(&$life [u8]),
            /// COMPRESSED2 (since perf 6.16): `data_size u64`, a slice of a zstd stream, padding.
            Compressed2(&$life [u8]),
            /// Record of a type without a decoder, of simpleperf (from 32768) or of a newer tool.
            Other {
                /// Type of the record.
                kind: RecordType,
                /// Body of the record.
                body: &$life [u8],
            },
        }

        impl<$life> UserPayload<$life> {
            /// Decodes a record of a tool.
            ///
            /// # Errors
            /// Fails if the record is too short for its type, or a string in it has no NUL.
            pub fn decode($record: &Record<$life>, endian: Endian) -> Result<UserPayload<$life>> {
                let $r = &mut Reader::new($record.body(), $record.body_offset(), endian);
                Ok(match $record.kind {
                    $(RecordType::$kind => UserPayload::$name(payload!($r $($parse)?)?),)*
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

            /// Type of the record.
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

            /// Appends the body of the record, without header and padding.
            pub fn encode_body(&self, w: &mut Writer<'_>) {
                match self {
                    $(UserPayload::$name(payload) => payload.encode(w),)*
                    UserPayload::TracingData { size_bytes, inside: [] } => drop(w.u32(*size_bytes).u32(0)),
                    // A record of at most 16 bytes would have its formats after it: a record with formats inside must
                    // be longer.
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
    AuxtraceInfo(AuxtraceInfo): AUXTRACE_INFO;
    /// AUXTRACE.
    Auxtrace(Auxtrace): AUXTRACE;
    /// AUXTRACE_ERROR.
    AuxtraceError(AuxtraceError<'a>): AUXTRACE_ERROR => AuxtraceError::parse(r);
    /// THREAD_MAP.
    ThreadMap(ThreadMap<'a>): THREAD_MAP;
    /// CPU_MAP.
    CpuMap(CpuMap): CPU_MAP => CpuMap::parse(r);
    /// STAT_CONFIG.
    StatConfig(StatConfig): STAT_CONFIG;
    /// STAT.
    Stat(Stat): STAT;
    /// STAT_ROUND.
    StatRound(StatRound): STAT_ROUND;
    /// EVENT_UPDATE.
    EventUpdate(EventUpdate<'a>): EVENT_UPDATE => EventUpdate::parse(r);
    /// TIME_CONV.
    TimeConv(TimeConv): TIME_CONV;
    /// HEADER_FEATURE.
    Feature(FeatureRecord<'a>): HEADER_FEATURE;
    /// BPF_METADATA.
    BpfMetadata(BpfMetadata<'a>): BPF_METADATA;
    /// SCHEDSTAT_CPU.
    SchedstatCpu(SchedstatCpu): SCHEDSTAT_CPU;
    /// SCHEDSTAT_DOMAIN.
    SchedstatDomain(SchedstatDomain): SCHEDSTAT_DOMAIN;
}

impl UserPayload<'_> {
    /// Appends the whole record, padded to 8 bytes; only HEADER_FEATURE, COMPRESSED and `UserPayload::Other` get no padding. The caller appends the
    /// data that follows TRACING_DATA and AUXTRACE, outside their size.
    ///
    /// # Errors
    /// Fails if the record would have more than 65,535 bytes, the limit of its header. Then nothing is appended.
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

/// Reads the slice of the zstd stream in a COMPRESSED2 record.
fn compressed2<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let size = r.u64("COMPRESSED2 data_size")?;
    let size = r.count(size, 1, "COMPRESSED2 data")?;
    let bytes = r.take(size, "COMPRESSED2 data")?;
    r.rest();
    Ok(bytes)
}
