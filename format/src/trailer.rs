//! The trailer of records that are no samples (`struct sample_id`): who was running, when and where, and for which event.
//!
//! It is the end of the record, in a fixed order: TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER, as the event selects.
//!
//! There is one exception. When several events of a CPU receive a KSYMBOL, BPF_EVENT or TEXT_POKE record, the kernel adds
//! the length of each event's trailer to one and the same `size` (`perf_event_bpf_output` and its like do not restore it,
//! up to 7.3 at least): all receivers but the first get a record that is too long, with the trailer right behind the
//! payload and then whatever was in the ring before. Two recorders at once are enough. What these records carry tells how
//! long it is, so that the trailer is found all the same. perf looks at the end, finds a nonsense id there, and gives the
//! whole file up; [`oversized_trailer`] lets a writer mend it.

use crate::sample::ABSENT;
use crate::{Endian, Error, RECORD_HEADER_BYTES, Record, RecordType, Result, SampleLayout};

/// The trailer of a non-sample record: who was running, when and where the record was written. Fields that the event
/// does not record are `None`. Records that a tool synthesized carry zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleId {
    /// Process and thread that were running.
    pub pid_tid: Option<(u32, u32)>,
    /// Time, in ns of the recording's clock.
    pub time_ns: Option<u64>,
    /// Id of the event (IDENTIFIER, or else ID).
    pub id: Option<u64>,
    /// Id of the event's own instance.
    pub stream_id: Option<u64>,
    /// CPU.
    pub cpu: Option<u32>,
}

impl SampleId {
    /// Appends the trailer that `layout` asks for; what is not known is written as 0.
    pub fn encode(&self, layout: &SampleLayout, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + layout.trailer_bytes(), 0);
        let endian = layout.endian;
        let mut put = |at: u16, bytes: [u8; 8]| {
            if at != ABSENT {
                let at = start + at as usize;
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
        put(layout.trailer_tid, pair(pid, tid));
        put(layout.trailer_time, endian.bytes_u64(self.time_ns.unwrap_or_default()));
        put(layout.trailer_plain_id, endian.bytes_u64(self.id.unwrap_or_default()));
        put(layout.trailer_id, endian.bytes_u64(self.id.unwrap_or_default()));
        put(layout.trailer_stream_id, endian.bytes_u64(self.stream_id.unwrap_or_default()));
        put(layout.trailer_cpu, pair(self.cpu.unwrap_or_default(), 0));
    }
}

impl SampleLayout {
    /// Splits the body of a record that is no sample into payload and trailer.
    ///
    /// # Errors
    /// When the body is shorter than the trailer.
    #[inline]
    pub fn split_trailer<'a>(&self, record: &Record<'a>) -> Result<(&'a [u8], SampleId)> {
        let body = record.body();
        let offset = record.offset + RECORD_HEADER_BYTES as u64;
        let Some(payload_bytes) = body.len().checked_sub(self.trailer_bytes()) else {
            return Err(Error::truncated(offset, "sample_id trailer", self.trailer.into(), body.len() as u64));
        };
        if let Some(split) = oversized_trailer(record, self) {
            return Ok((&body[..split], self.read_trailer(&body[split..])));
        }
        Ok((&body[..payload_bytes], self.read_trailer(&body[payload_bytes..])))
    }

    fn read_trailer(&self, trailer: &[u8]) -> SampleId {
        let u64_at = |at: u16| if at == ABSENT { None } else { self.endian.u64_at(trailer, at.into()) };
        let pair_at = |at: u16| {
            let bytes = if at == ABSENT { None } else { trailer.get(at.into()..) }?;
            Some((self.endian.u32_at(bytes, 0)?, self.endian.u32_at(bytes, 4)?))
        };
        SampleId {
            pid_tid: pair_at(self.trailer_tid),
            time_ns: u64_at(self.trailer_time),
            id: u64_at(self.trailer_id),
            stream_id: u64_at(self.trailer_stream_id),
            cpu: pair_at(self.trailer_cpu).map(|(cpu, _)| cpu),
        }
    }
}

/// Offset of the trailer in the body of a record that the kernel made too long, if this is one and `layout` is its
/// event's; `None` for all others, where the trailer is the end.
pub(crate) fn oversized_trailer(record: &Record<'_>, layout: &SampleLayout) -> Option<usize> {
    oversized_trailer_behind(record, payload_bytes(record, layout.endian)?, layout.trailer_bytes())
}

/// The same, where the lengths of the payload and of the trailer are known.
pub(crate) fn oversized_trailer_behind(
    record: &Record<'_>,
    payload_bytes: usize,
    trailer_bytes: usize,
) -> Option<usize> {
    let trailer = record.body().get(payload_bytes..payload_bytes.checked_add(trailer_bytes)?)?;
    // A record that was mended has zeros here and its trailer at the end.
    let is_longer = record.body().len() > payload_bytes + trailer_bytes;
    (is_longer && trailer.iter().any(|byte| *byte != 0)).then_some(payload_bytes)
}

/// Bytes of the payload by its own account, for the kinds that the kernel may make too long.
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
    use crate::{AttrFlags, EventAttr, Events, FileAttr, SampleType, records::Payload};

    /// Written by kernel 6.18 while two events of the CPU listened: 24 bytes, a trailer of 32, and 32 bytes of old ring.
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
        // The old bytes of the ring end in an id that is known, too: it must not win.
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
