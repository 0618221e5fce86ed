//! The trailer of records that are not samples (`struct sample_id`): task, time, CPU and event.
//!
//! The trailer ends the record. The event selects the fields; their order is TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER.
//!
//! KSYMBOL, BPF_EVENT and TEXT_POKE records may be too long. If several events of a CPU receive such a record, the kernel
//! adds the length of each event's trailer to the same `size` (`perf_event_bpf_output` and similar functions do not restore
//! it, up to 7.3). The first receiver gets a correct record. The other receivers get a record that is too long: the trailer follows the payload, and
//! old bytes of the ring follow the trailer. This happens as soon as two recorders run at the same time. The payload gives its own length, so
//! [`oversized_trailer`] can find the trailer. perf reads the id at the end of the record, where old bytes are, and rejects the whole file.

use crate::sample::ABSENT;
use crate::{Endian, Error, Record, RecordType, Result, SampleLayout, SampleType};

/// The trailer of a record that is not a sample: task, time and CPU of the record, and its event. A field that the event does not record is `None`;
/// for records of tools, all fields are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleId {
    /// Process id and thread id.
    pub pid_tid: Option<(u32, u32)>,
    /// Time, in ns of the recording's clock.
    pub time_ns: Option<u64>,
    /// Id of the event (IDENTIFIER, or ID).
    pub id: Option<u64>,
    /// Id of the event's own instance.
    pub stream_id: Option<u64>,
    /// Number of the CPU.
    pub cpu: Option<u32>,
}

impl SampleId {
    /// Appends the trailer of this layout; an unknown field becomes 0.
    pub fn encode(&self, layout: &SampleLayout, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + layout.trailer_bytes(), 0);
        let endian = layout.endian;
        let mut put = |field, bytes: [u8; 8]| {
            let at = layout.trailer.of(field);
            if at != ABSENT {
                let at = start + usize::from(at);
                out[at..at + 8].copy_from_slice(&bytes);
            }
        };
        let pair = |a: u32, b: u32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&endian.bytes_u32(a));
            bytes[4..].copy_from_slice(&endian.bytes_u32(b));
            bytes
        };
        let (pid, tid) = self.pid_tid.unwrap_or_default();
        put(SampleType::TID, pair(pid, tid));
        put(SampleType::TIME, endian.bytes_u64(self.time_ns.unwrap_or_default()));
        put(SampleType::ID, endian.bytes_u64(self.id.unwrap_or_default()));
        put(SampleType::IDENTIFIER, endian.bytes_u64(self.id.unwrap_or_default()));
        put(SampleType::STREAM_ID, endian.bytes_u64(self.stream_id.unwrap_or_default()));
        put(SampleType::CPU, pair(self.cpu.unwrap_or_default(), 0));
    }
}

impl SampleLayout {
    /// Splits the body of a record that is not a sample into payload and trailer.
    ///
    /// # Errors
    /// Fails if the body is shorter than the trailer.
    #[inline]
    pub fn split_trailer<'a>(&self, record: &Record<'a>) -> Result<(&'a [u8], SampleId)> {
        let body = record.body();
        let Some(payload_bytes) = body.len().checked_sub(self.trailer_bytes()) else {
            let needed = self.trailer_bytes() as u64;
            return Err(Error::truncated(record.body_offset(), "sample_id trailer", needed, body.len() as u64));
        };
        if let Some(split) = oversized_trailer(record, self) {
            return Ok((&body[..split], self.read_trailer(&body[split..])));
        }
        Ok((&body[..payload_bytes], self.read_trailer(&body[payload_bytes..])))
    }

    fn read_trailer(&self, trailer: &[u8]) -> SampleId {
        // The offset of a missing field lies beyond any record.
        let at = |field| usize::from(self.trailer.of(field));
        let u64_at = |field| self.endian.u64_at(trailer, at(field));
        let u32_at = |at| self.endian.u32_at(trailer, at);
        SampleId {
            pid_tid: u32_at(at(SampleType::TID)).zip(u32_at(at(SampleType::TID) + 4)),
            time_ns: u64_at(SampleType::TIME),
            id: u64_at(SampleType::IDENTIFIER),
            stream_id: u64_at(SampleType::STREAM_ID),
            cpu: u32_at(at(SampleType::CPU)),
        }
    }
}

/// Offset of the trailer in the body of a record that the kernel made too long; `None` if the trailer is the end of the
/// record. `layout` is the layout of the record's event.
pub(crate) fn oversized_trailer(record: &Record<'_>, layout: &SampleLayout) -> Option<usize> {
    oversized_trailer_behind(record, payload_bytes(record, layout.endian)?, layout.trailer_bytes())
}

/// Offset of the trailer like [`oversized_trailer`], for these lengths of payload and trailer.
pub(crate) fn oversized_trailer_behind(
    record: &Record<'_>,
    payload_bytes: usize,
    trailer_bytes: usize,
) -> Option<usize> {
    let trailer = record.body().get(payload_bytes..payload_bytes.checked_add(trailer_bytes)?)?;
    // A repaired record is also longer, but has zeros after the payload, and its trailer at the end.
    let is_longer = record.body().len() > payload_bytes + trailer_bytes;
    (is_longer && trailer.iter().any(|byte| *byte != 0)).then_some(payload_bytes)
}

/// Length of the payload, computed from its fields, for the types that the kernel may make too long.
pub(crate) fn payload_bytes(record: &Record<'_>, endian: Endian) -> Option<usize> {
    let body = record.body();
    match record.kind {
        RecordType::BPF_EVENT => Some(16),
        RecordType::KSYMBOL => {
            let name = body.get(16..)?;
            let with_nul = name.iter().position(|byte| *byte == 0)? + 1;
            Some(16 + with_nul.next_multiple_of(8))
        }
        RecordType::TEXT_POKE => {
            let (old, new) = (endian.u16_at(body, 8)?, endian.u16_at(body, 10)?);
            Some(8 + (4 + usize::from(old) + usize::from(new)).next_multiple_of(8))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttrFlags, EventAttr, Events, FileAttr, records::Payload};

    /// Record that kernel 6.18 wrote for two events of the CPU: 24 bytes, a trailer of 32 bytes, and 32 old bytes of the ring.
    const LOAD: [u8; 88] = [
        0x12, 0, 0, 0, 0, 0, 0x58, 0, 2, 0, 0, 0, 0x08, 0x22, 0, 0, 0x59, 0xf4, 0xa9, 0x31, 0x74, 0x4d, 0xcd,
        0xc6, //
        0x1b, 0x52, 0, 0, 0x1b, 0x52, 0, 0, 0xb7, 0xd9, 0xf3, 0x54, 0x4e, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
        0xdc, 6, 0, 0, 0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xdd, 6, 0, 0, 0, 0, 0, 0, //
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xde, 6, 0, 0, 0, 0, 0, 0,
    ];

    fn events() -> Events {
        let fields = [SampleType::TID, SampleType::TIME, SampleType::CPU, SampleType::IDENTIFIER];
        let sample_type = fields.iter().fold(SampleType(0), |all, bit| all.with(*bit));
        let attr = EventAttr { sample_type, flags: AttrFlags::SAMPLE_ID_ALL, ..EventAttr::default() };
        // The old bytes of the ring also end in a known id. It must not be used.
        let ids = [0x6de, 0x6dc];
        let attrs = ids.map(|id| FileAttr { attr: attr.clone(), ids: vec![id] });
        Events::new(&attrs, Endian::Little).unwrap()
    }

    fn check(bytes: &[u8]) {
        let events = events();
        let record = Record::parse(bytes, 0, Endian::Little).unwrap();
        assert_eq!(events.index_of(&record), Some(1));
        let (payload, id) = Payload::decode(&record, &events.all()[1].layout).unwrap();
        let Payload::BpfEvent(event) = payload else { panic!("{payload:?}") };
        assert_eq!((event.kind.0, event.id), (2, 8712));
        let expected = SampleId {
            pid_tid: Some((21019, 21019)),
            time_ns: Some(0x44e_54f3_d9b7),
            id: Some(0x6dc),
            stream_id: None,
            cpu: Some(0),
        };
        assert_eq!(id, expected);
    }

    #[test]
    fn the_trailer_of_a_record_that_is_too_long_is_found() {
        check(&LOAD);
    }

    #[test]
    fn so_is_that_of_one_that_was_mended() {
        let mut mended = LOAD;
        mended.copy_within(24..56, 56);
        mended[24..56].fill(0);
        check(&mended);
    }

    #[test]
    fn and_that_of_one_as_it_should_be() {
        let mut plain = LOAD[..56].to_vec();
        plain[6] = 56;
        check(&plain);
    }
}
