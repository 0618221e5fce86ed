//! Records in the order of their times.
//!
//! A recording is a few sorted runs, one per ring buffer, laid behind each other piece by piece. FINISHED_ROUND says that
//! every ring has been read once since the last one: nothing that comes later is older than the newest record before the
//! *previous* FINISHED_ROUND, so that everything up to there can be handed out. Without such marks a file is handed out
//! at its end; a stream, whose records have to be kept, when [`KEPT_BYTES`] of them wait. What comes later than it should
//! is handed out at once, and counted.

/// The most bytes of records that are kept in memory. Records in mapped files are not kept, only where they are.
const KEPT_BYTES: usize = 12 << 20;
/// The most records of a stream that are kept.
const KEPT_RECORDS: usize = 200_000;

/// A record that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    time_ns: u64,
    /// Offset in the mapped file, or in the bytes kept.
    at: u64,
    /// Offset in the input.
    offset: u64,
    len: u16,
    /// The mapped file; [`KEPT`] for the bytes kept.
    file: u16,
}

/// Marks a record whose bytes are kept.
const KEPT: u16 = u16::MAX;

/// Puts records into the order of their times. Records with the same time stay in the order of the input.
#[derive(Debug, Default)]
pub(crate) struct Order<'a> {
    files: Vec<&'a [u8]>,
    /// Sorted up to `sorted`, then as they came.
    waiting: Vec<Waiting>,
    kept: Vec<u8>,
    kept_records: usize,
    newest_ns: u64,
    /// The newest time before the last FINISHED_ROUND.
    safe_ns: u64,
    /// The last time that was handed out.
    out_ns: u64,
    late: u64,
}

impl<'a> Order<'a> {
    /// The mapped files that records may lie in.
    pub(crate) fn set_files(&mut self, files: Vec<&'a [u8]>) {
        self.files = files;
    }

    /// Records that came after a newer one had been handed out.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Adds a record. `file` is the mapped file it lies in.
    pub(crate) fn push(&mut self, time_ns: u64, bytes: &[u8], offset: u64, file: Option<usize>) {
        if time_ns < self.out_ns {
            self.late += 1;
        }
        self.newest_ns = self.newest_ns.max(time_ns);
        let file = file.and_then(|file| u16::try_from(file).ok()).filter(|file| *file != KEPT);
        let at = match file {
            Some(_) => offset,
            None => {
                self.kept.extend_from_slice(bytes);
                self.kept_records += 1;
                (self.kept.len() - bytes.len()) as u64
            }
        };
        // A record's size is 16 bits wide.
        let len = bytes.len() as u16;
        self.waiting.push(Waiting { time_ns, at, offset, len, file: file.unwrap_or(KEPT) });
    }

    /// True when records have to be handed out for want of room.
    pub(crate) fn is_full(&self) -> bool {
        self.kept.len() > KEPT_BYTES || self.kept_records > KEPT_RECORDS
    }

    /// All rings were read: hands out what nothing can precede any more.
    pub(crate) fn round<E>(&mut self, out: &mut impl FnMut(&[u8], u64) -> Result<(), E>) -> Result<(), E> {
        let safe_ns = std::mem::replace(&mut self.safe_ns, self.newest_ns);
        self.flush(|waiting| waiting.partition_point(|record| record.time_ns <= safe_ns), out)
    }

    /// Hands out the older half.
    pub(crate) fn make_room<E>(&mut self, out: &mut impl FnMut(&[u8], u64) -> Result<(), E>) -> Result<(), E> {
        self.flush(|waiting| waiting.len().div_ceil(2), out)
    }

    /// Hands out everything.
    pub(crate) fn finish<E>(&mut self, out: &mut impl FnMut(&[u8], u64) -> Result<(), E>) -> Result<(), E> {
        self.flush(|waiting| waiting.len(), out)
    }

    fn flush<E>(
        &mut self,
        count: impl FnOnce(&[Waiting]) -> usize,
        out: &mut impl FnMut(&[u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        // The standard sort finds the runs that are there and merges them.
        self.waiting.sort_by_key(|record| record.time_ns);
        let count = count(&self.waiting);
        for record in &self.waiting[..count] {
            let from =
                if record.file == KEPT { Some(&self.kept[..]) } else { self.files.get(record.file as usize).copied() };
            let at = record.at as usize;
            if let Some(bytes) = from.and_then(|from| from.get(at..at + usize::from(record.len))) {
                out(bytes, record.offset)?;
            }
        }
        if let Some(last) = count.checked_sub(1).and_then(|last| self.waiting.get(last)) {
            self.out_ns = self.out_ns.max(last.time_ns);
        }
        self.waiting.drain(..count);
        self.compact();
        Ok(())
    }

    /// Frees the bytes of records that were handed out.
    fn compact(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let mut kept = Vec::new();
        self.kept_records = 0;
        for record in self.waiting.iter_mut().filter(|record| record.file == KEPT) {
            let at = record.at as usize;
            record.at = kept.len() as u64;
            kept.extend_from_slice(self.kept.get(at..at + usize::from(record.len)).unwrap_or_default());
            self.kept_records += 1;
        }
        self.kept = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(order: &mut Order<'_>, time_ns: u64) {
        order.push(time_ns, &time_ns.to_le_bytes(), 0, None);
    }

    fn collect(out: &mut Vec<u64>) -> impl FnMut(&[u8], u64) -> Result<(), ()> + '_ {
        |bytes, _| {
            out.push(u64::from_le_bytes(bytes.try_into().unwrap()));
            Ok(())
        }
    }

    #[test]
    fn a_round_hands_out_what_was_newest_before_the_round_before() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        for time in [10, 30, 20] {
            push(&mut order, time);
        }
        order.round(&mut collect(&mut out)).unwrap();
        assert!(out.is_empty(), "another ring may still have something older");
        for time in [25, 40] {
            push(&mut order, time);
        }
        order.round(&mut collect(&mut out)).unwrap();
        assert_eq!(out, [10, 20, 25, 30]);
        order.finish(&mut collect(&mut out)).unwrap();
        assert_eq!(out, [10, 20, 25, 30, 40]);
        assert_eq!(order.late(), 0);
    }

    #[test]
    fn what_is_too_late_is_counted_and_kept() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        push(&mut order, 100);
        order.round(&mut collect(&mut out)).unwrap();
        push(&mut order, 200);
        order.round(&mut collect(&mut out)).unwrap();
        push(&mut order, 50);
        order.finish(&mut collect(&mut out)).unwrap();
        assert_eq!((order.late(), out), (1, vec![100, 50, 200]));
    }

    #[test]
    fn half_goes_when_there_is_no_room() {
        let (mut order, mut out) = (Order::default(), Vec::new());
        for time in (0..10).rev() {
            push(&mut order, time);
        }
        order.make_room(&mut collect(&mut out)).unwrap();
        assert_eq!(out, [0, 1, 2, 3, 4]);
        assert_eq!(order.kept.len(), 5 * 8);
    }
}
