//! Ids of events that were opened again. The kernel gives each descriptor an id; the file has the ids of the first descriptors only.

use bprec_format::{Endian, RECORD_HEADER_BYTES, RecordType, Records};

/// Offset of the lost event's id in a LOST record: first in the body.
const LOST_ID_AT: usize = RECORD_HEADER_BYTES;
/// Offset of the event's id in THROTTLE and UNTHROTTLE records: after the time.
const THROTTLE_ID_AT: usize = RECORD_HEADER_BYTES + 8;

/// Pairs: the id that the kernel gave a descriptor, and the id of its event in the file.
#[derive(Debug, Default)]
pub(super) struct FileIds(Vec<(u64, u64)>);

impl FileIds {
    pub(super) fn new(ids: Vec<(u64, u64)>) -> FileIds {
        FileIds(ids)
    }

    /// Replaces the ids in whole records. All events of a recording have IDENTIFIER, so the id is the first word of a
    /// sample's body and the last word of other records. LOST, THROTTLE and UNTHROTTLE have an id in their body as
    /// well.
    pub(super) fn put_into(&self, bytes: &mut [u8]) {
        if self.0.is_empty() {
            return;
        }
        let mut places = Vec::new();
        for record in Records::new(bytes, 0, Endian::NATIVE).map_while(Result::ok) {
            let (start, end) = (record.offset as usize, record.offset as usize + record.bytes.len());
            places.push(if record.kind == RecordType::SAMPLE {
                start + RECORD_HEADER_BYTES
            } else {
                end - size_of::<u64>()
            });
            match record.kind {
                RecordType::LOST => places.push(start + LOST_ID_AT),
                RecordType::THROTTLE | RecordType::UNTHROTTLE => places.push(start + THROTTLE_ID_AT),
                _ => (),
            }
        }
        for place in places {
            let Some(word) = bytes.get_mut(place..place + size_of::<u64>()) else { continue };
            if let Some((_, id)) = self.0.iter().find(|(own, _)| own.to_ne_bytes() == word) {
                word.copy_from_slice(&id.to_ne_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use bprec_format::records::{Comm, Lost, write_record};
    use bprec_format::{AttrFlags, EventAttr, SampleId, SampleLayout, SampleType};

    use super::*;

    #[test]
    fn samples_and_side_band_have_the_ids_of_the_file() {
        let attr = EventAttr {
            sample_type: SampleType::IDENTIFIER.with(SampleType::TID),
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..EventAttr::default()
        };
        let layout = SampleLayout::new(&attr, Endian::NATIVE);
        let records = |sampled: u64, other: u64| {
            let mut out = Vec::new();
            let id = SampleId { pid_tid: Some((7, 7)), id: Some(other), ..SampleId::default() };
            write_record(&mut out, RecordType::SAMPLE, 0, &layout, &SampleId::default(), |w| {
                // The pid and tid of a sample are no event id, even if they look like one.
                w.u64(sampled).u64(70);
            })
            .unwrap();
            write_record(&mut out, RecordType::COMM, 0, &layout, &id, |w| {
                Comm { pid: 7, tid: 7, comm: b"x" }.encode(w)
            })
            .unwrap();
            write_record(&mut out, RecordType::LOST, 0, &layout, &id, |w| Lost { id: other, lost: 70 }.encode(w))
                .unwrap();
            out
        };
        let ids = FileIds::new(vec![(70, 3), (71, 4)]);
        let mut given = records(70, 71);
        ids.put_into(&mut given);
        assert_eq!(given, records(3, 4));
        // Ids that are already those of the file stay as they are.
        ids.put_into(&mut given);
        assert_eq!(given, records(3, 4));
    }
}
