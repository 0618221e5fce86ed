//! Sorts records by time.
//!
//! The records of each ring buffer are in the order of their times; a recording holds parts of the ring buffers in
//! turn. A FINISHED_ROUND record means that the recorder has read every ring once since the last FINISHED_ROUND: no
//! later record is older than the newest record in front of the *previous* FINISHED_ROUND, and all records up to that
//! time are ready. Without FINISHED_ROUND, records wait for the end of the input.
//!
//! Waiting records are kept in memory if they were unpacked, or if they belong to a stream that arrives in pieces. If the kept records exceed 12 MiB
//! or a count of 200,000, the older half of all waiting records is ready at once. A record that is older than a returned record is counted as late.

use std::sync::Arc;

use crate::{Endian, Record, Result};

/// Limit on the bytes of waiting records that are kept in memory. Of records in mapped files, only offsets are kept.
const KEPT_BYTES: usize = 12 << 20;
/// Limit on the count of waiting records that are kept in memory.
const KEPT_RECORDS: usize = 200_000;

/// Place of a record that waits or is ready.
#[derive(Debug, Clone, Copy)]
pub struct OrderedRecord {
    time_ns: u64,
    /// Offset in the mapped file, or in the kept bytes.
    at: u64,
    /// Offset in the input.
    offset: u64,
    /// Index of the event; [`NO_EVENT`] for an unknown event.
    event: u32,
    /// Index of the mapped file; [`KEPT`] for kept bytes.
    file: u16,
    len: u16,
}

/// Value of `OrderedRecord::file` for a record with its bytes kept in memory.
const KEPT: u16 = u16::MAX;

/// Value of `OrderedRecord::event` for an unknown event.
const NO_EVENT: u32 = u32::MAX;

impl OrderedRecord {
    /// Index of the record's event; `None` for an unknown event.
    pub fn event(&self) -> Option<usize> {
        (self.event != NO_EVENT).then_some(self.event as usize)
    }
}

/// Sorted records and their bytes.
#[derive(Debug, Default)]
pub struct OrderedRun<'a> {
    /// The records in order.
    pub entries: Vec<OrderedRecord>,
    files: Arc<[&'a [u8]]>,
    kept: Vec<u8>,
}

impl OrderedRun<'_> {
    /// Record of an entry; `None` if the entry does not belong to this run. A record in a mapped file comes with the
    /// data outside its size, too.
    #[inline]
    pub(crate) fn record(&self, entry: &OrderedRecord, endian: Endian) -> Option<Result<Record<'_>>> {
        if entry.file == KEPT {
            let (bytes, offset) = self.bytes(entry)?;
            return Some(Record::parse_alone(bytes, offset, endian));
        }
        let file = self.files.get(usize::from(entry.file))?;
        Some(Record::parse(file.get(entry.at as usize..)?, entry.offset, endian))
    }

    /// Bytes of the record at an entry, and their offset in the input.
    #[inline]
    pub fn bytes(&self, entry: &OrderedRecord) -> Option<(&[u8], u64)> {
        let from =
            if entry.file == KEPT { Some(&self.kept[..]) } else { self.files.get(usize::from(entry.file)).copied() };
        Some((from?.get(entry.at as usize..)?.get(..usize::from(entry.len))?, entry.offset))
    }
}

/// Sorts records by time. Records with the same time keep the order of the input.
#[derive(Debug, Default)]
pub struct TimeOrder<'a> {
    files: Arc<[&'a [u8]]>,
    /// Waiting records. Records up to the last round are sorted; later records are in the order of the input.
    waiting: Vec<OrderedRecord>,
    /// Records to return.
    ready: Vec<OrderedRecord>,
    kept: Vec<u8>,
    /// Kept bytes of waiting records.
    waiting_bytes: usize,
    waiting_kept: usize,
    newest_ns: u64,
    /// Newest time before the last FINISHED_ROUND.
    safe_ns: u64,
    /// Newest time of a record that became ready.
    out_ns: u64,
    late: u64,
}

impl<'a> TimeOrder<'a> {
    /// Sets the mapped files that hold records.
    pub fn set_files(&mut self, files: Vec<&'a [u8]>) {
        self.files = files.into();
    }

    /// Count of records that were added after a newer record had become ready.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Adds a record with a time. `file` is the index of the mapped file that holds the record; if it is `None`, the record is copied.
    pub fn push(&mut self, time_ns: u64, record: &Record<'_>, event: Option<usize>, file: Option<usize>) {
        if time_ns < self.out_ns {
            self.late += 1;
        }
        self.newest_ns = self.newest_ns.max(time_ns);
        let entry = self.entry(time_ns, record, event, file);
        if entry.file == KEPT {
            self.waiting_bytes += record.bytes.len();
            self.waiting_kept += 1;
        }
        self.waiting.push(entry);
    }

    /// Adds a record without a time. The record is ready at once.
    pub fn pass(&mut self, record: &Record<'_>, event: Option<usize>, file: Option<usize>) {
        let entry = self.entry(0, record, event, file);
        self.ready.push(entry);
    }

    fn entry(&mut self, time_ns: u64, record: &Record<'_>, event: Option<usize>, file: Option<usize>) -> OrderedRecord {
        let file = file.and_then(|file| u16::try_from(file).ok()).filter(|file| *file != KEPT);
        let at = match file {
            Some(_) => record.offset,
            None => {
                self.kept.extend_from_slice(record.bytes);
                (self.kept.len() - record.bytes.len()) as u64
            }
        };
        // The size of a record has 16 bits.
        let len = record.bytes.len() as u16;
        OrderedRecord {
            time_ns,
            at,
            offset: record.offset,
            event: event.map_or(NO_EVENT, |event| event as u32),
            file: file.unwrap_or(KEPT),
            len,
        }
    }

    /// Returns true if the kept records exceed a limit; see [`TimeOrder::make_room`].
    pub fn is_full(&self) -> bool {
        self.waiting_bytes > KEPT_BYTES || self.waiting_kept > KEPT_RECORDS
    }

    /// Handles a FINISHED_ROUND record: makes the records ready that no later record can precede.
    pub fn round(&mut self) {
        let safe_ns = std::mem::replace(&mut self.safe_ns, self.newest_ns);
        self.release(|waiting| waiting.partition_point(|entry| entry.time_ns <= safe_ns));
    }

    /// Makes the older half of the waiting records ready.
    pub fn make_room(&mut self) {
        self.release(|waiting| waiting.len().div_ceil(2));
    }

    /// Makes all waiting records ready.
    pub fn finish(&mut self) {
        self.release(|waiting| waiting.len());
    }

    fn release(&mut self, count: impl FnOnce(&[OrderedRecord]) -> usize) {
        // The standard sort detects sorted runs and merges them.
        self.waiting.sort_by_key(|entry| entry.time_ns);
        let count = count(&self.waiting);
        if let Some(last) = count.checked_sub(1).and_then(|last| self.waiting.get(last)) {
            self.out_ns = self.out_ns.max(last.time_ns);
        }
        self.ready.extend(self.waiting.drain(..count));
        if self.waiting_kept > 0 {
            let kept = self.waiting.iter().filter(|entry| entry.file == KEPT);
            (self.waiting_kept, self.waiting_bytes) =
                kept.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + usize::from(entry.len)));
        }
    }

    /// Count of records that are ready.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns the records that are ready.
    pub fn take(&mut self) -> OrderedRun<'a> {
        let entries = std::mem::take(&mut self.ready);
        let mut kept = Vec::new();
        if !self.kept.is_empty() {
            for entry in self.waiting.iter_mut().filter(|entry| entry.file == KEPT) {
                let from = entry.at as usize;
                let to = from + usize::from(entry.len);
                entry.at = kept.len() as u64;
                kept.extend_from_slice(&self.kept[from..to]);
            }
        }
        let kept = std::mem::replace(&mut self.kept, kept);
        OrderedRun { entries, files: self.files.clone(), kept }
    }
}

#[cfg(test)]
mod tests {
    use crate::RecordType;

    use super::*;

    fn push(order: &mut TimeOrder<'_>, time_ns: u64) {
        let bytes = time_ns.to_le_bytes();
        let record = Record { offset: 0, kind: RecordType::SAMPLE, misc: 0, bytes: &bytes, outside: &[] };
        order.push(time_ns, &record, Some(0), None);
    }

    /// Times of the ready records.
    fn taken(order: &mut TimeOrder<'_>) -> Vec<u64> {
        let run = order.take();
        let bytes = run.entries.iter().filter_map(|entry| run.bytes(entry));
        bytes.map(|(bytes, _)| u64::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    #[test]
    fn a_round_hands_out_what_was_newest_before_the_round_before() {
        let mut order = TimeOrder::default();
        for time in [10, 30, 20] {
            push(&mut order, time);
        }
        order.round();
        assert!(taken(&mut order).is_empty(), "another ring may still contain an older record");
        for time in [25, 40] {
            push(&mut order, time);
        }
        order.round();
        assert_eq!(taken(&mut order), [10, 20, 25, 30]);
        order.finish();
        assert_eq!((taken(&mut order), order.late()), (vec![40], 0));
    }

    #[test]
    fn what_is_too_late_is_counted_and_kept() {
        let mut order = TimeOrder::default();
        push(&mut order, 100);
        order.round();
        push(&mut order, 200);
        order.round();
        push(&mut order, 50);
        order.finish();
        assert_eq!((order.late(), taken(&mut order)), (1, vec![100, 50, 200]));
    }

    #[test]
    fn half_goes_when_there_is_no_room() {
        let mut order = TimeOrder::default();
        for time in (0..10).rev() {
            push(&mut order, time);
        }
        order.make_room();
        assert_eq!(taken(&mut order), [0, 1, 2, 3, 4]);
        assert_eq!((order.kept.len(), order.waiting_bytes, order.waiting_kept), (5 * 8, 5 * 8, 5));
        order.finish();
        assert_eq!(taken(&mut order), [5, 6, 7, 8, 9]);
    }
}
