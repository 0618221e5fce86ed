//! A ring buffer shared with the kernel: one control page, then a power of two of data pages.
//!
//! Layout by `struct perf_event_mmap_page`: `data_head u64` at 1024, `data_tail u64` at 1032. Both count bytes since
//! the beginning and never wrap; the position in the data is the count modulo the size. The kernel writes records at
//! the head, and never beyond the tail plus the size.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use bprec_format::RECORD_HEADER_BYTES;

use crate::sys;

const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// The ring of an event. The ring outlives the descriptor, because the mapping holds the event.
#[derive(Debug)]
pub(crate) struct Ring {
    map: MmapRaw,
    page_bytes: usize,
    data_bytes: usize,
    /// Position up to which the recorder has read. Only the recorder writes the copy in the control page.
    tail: u64,
}

/// A ring that the kernel writes backward and overwrites, for an event with `write_backward`. The head starts at 0 and
/// falls; it points at the newest record.
#[derive(Debug)]
pub(crate) struct BackwardRing {
    ring: Ring,
    /// Head when the ring was last read.
    read_to: u64,
    /// Sizes of the records that are being read, newest first.
    sizes: Vec<u16>,
}

/// Data that the kernel has written and the recorder has not consumed: one slice, or two if the data wraps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unread<'a> {
    /// The older part.
    pub(crate) first: &'a [u8],
    /// The part after the wrap, usually empty.
    pub(crate) second: &'a [u8],
    head: u64,
    /// Lost bytes: the distance from the recorder's position to the head if it exceeds the size of the ring, otherwise 0.
    pub(crate) overrun_bytes: u64,
}

impl Unread<'_> {
    /// Number of bytes in both parts.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// Head of the ring when it was read, to pass to [`Ring::consume`].
    pub(crate) fn head(&self) -> u64 {
        self.head
    }
}

impl Ring {
    /// Maps the ring of `event` with `data_bytes`, which is a power of two and at least one page.
    ///
    /// # Errors
    /// Fails with EPERM if the ring exceeds the limit of locked memory.
    pub(crate) fn map(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Ring> {
        let page_bytes = sys::page_bytes();
        debug_assert!(data_bytes.is_power_of_two() && data_bytes >= page_bytes);
        let map = MmapOptions::new().len(page_bytes + data_bytes).map_raw(event.as_raw_fd())?;
        Ok(Ring { map, page_bytes, data_bytes, tail: 0 })
    }

    /// Data that the kernel has written since the last [`Ring::consume`].
    pub(crate) fn unread(&self) -> Unread<'_> {
        // ATOMICS: pairs with the kernel's smp_wmb() before its store of data_head in perf_output_put_handle(): data
        // that the kernel wrote before that store is visible after this load.
        let head = self.control(DATA_HEAD).load(Ordering::Acquire);
        let len = head.wrapping_sub(self.tail) as usize;
        if len > self.data_bytes {
            // The position is lost; reading continues at the head.
            return Unread { first: &[], second: &[], head, overrun_bytes: len as u64 };
        }
        let start = self.tail as usize & (self.data_bytes - 1);
        let first = len.min(self.data_bytes - start);
        Unread { first: self.data(start, first), second: self.data(0, len - first), head, overrun_bytes: 0 }
    }

    /// Returns the space up to `head` ([`Unread::head`]) to the kernel.
    pub(crate) fn consume(&mut self, head: u64) {
        self.tail = head;
        // ATOMICS: pairs with the kernel's load of data_tail in __perf_output_begin() and the control dependency there:
        // our reads of the data come before this store, and the kernel's writes to the same bytes come after that load.
        self.control(DATA_TAIL).store(head, Ordering::Release);
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the mapping is at least two pages, lives as long as `self`, and `offset` is one of the two constants
        // above: inside the first page and 8-aligned, as the mapping starts on a page. The kernel reads and writes
        // these words as whole 64-bit words; this side touches them through atomics only.
        unsafe { &*self.map.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    fn data(&self, start: usize, len: usize) -> &[u8] {
        assert!(start + len <= self.data_bytes);
        // SAFETY: the range lies in the data pages of the mapping (asserted), which lives as long as `self`. The range
        // is part of [tail, head): the kernel does not write there until the tail moves, and moving it takes `&mut
        // self`, which the slice excludes while it lives. In an overwritten ring the kernel writes nothing while the
        // output of the event is paused, which `BackwardRing::read` requires.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.page_bytes + start), len) }
    }
}

impl BackwardRing {
    /// Maps the ring of `event` as [`Ring::map`] does, but read-only: the kernel overwrites a ring that is mapped
    /// read-only.
    pub(crate) fn map(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<BackwardRing> {
        let page_bytes = sys::page_bytes();
        debug_assert!(data_bytes.is_power_of_two() && data_bytes >= page_bytes);
        let map = MmapOptions::new().len(page_bytes + data_bytes).map_raw_read_only(event.as_raw_fd())?;
        Ok(BackwardRing { ring: Ring { map, page_bytes, data_bytes, tail: 0 }, read_to: 0, sizes: Vec::new() })
    }

    /// Appends the whole records that were not read before, oldest first. The caller has paused the output of the
    /// event, so no record is half written. Returns the number of bytes that were skipped because they are not records.
    pub(crate) fn read(&mut self, records: &mut Vec<u8>) -> u64 {
        // ATOMICS: as in `Ring::unread`.
        let head = self.ring.control(DATA_HEAD).load(Ordering::Acquire);
        let written = self.read_to.wrapping_sub(head) as usize;
        self.read_to = head;
        let limit = written.min(self.ring.data_bytes);
        self.sizes.clear();
        let mut bytes = 0;
        let mut passed_over = 0;
        while bytes + RECORD_HEADER_BYTES <= limit {
            let mut header = [0; RECORD_HEADER_BYTES];
            self.copy(head, bytes, &mut header);
            let size = u16::from_ne_bytes([header[6], header[7]]);
            let is_header = usize::from(size) >= RECORD_HEADER_BYTES;
            if !is_header || bytes + usize::from(size) > limit {
                // In an overwritten ring, the oldest whole record is followed by the rest of a still older record. This
                // rest does not count as skipped.
                let is_cut_off = is_header && written > limit;
                passed_over = if is_cut_off { 0 } else { limit - bytes };
                break;
            }
            self.sizes.push(size);
            bytes += usize::from(size);
        }
        for size in self.sizes.iter().rev().map(|size| usize::from(*size)) {
            bytes -= size;
            let at = records.len();
            records.resize(at + size, 0);
            self.copy(head, bytes, &mut records[at..]);
        }
        passed_over as u64
    }

    /// Copies from `offset` bytes after `head`.
    fn copy(&self, head: u64, offset: usize, out: &mut [u8]) {
        let start = (head as usize).wrapping_add(offset) & (self.ring.data_bytes - 1);
        let first = out.len().min(self.ring.data_bytes - start);
        let (front, back) = out.split_at_mut(first);
        front.copy_from_slice(self.ring.data(start, first));
        back.copy_from_slice(self.ring.data(0, back.len()));
    }
}

/// Rings in memory, into which tests write in place of the kernel.
#[cfg(test)]
pub(super) mod in_memory {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    /// A record of `size` bytes, filled with the byte `fill`.
    pub(crate) fn record(size: u16, fill: u8) -> Vec<u8> {
        let mut bytes = vec![fill; usize::from(size)];
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        bytes
    }

    impl Ring {
        pub(crate) fn in_memory(data_bytes: usize) -> Ring {
            let page_bytes = sys::page_bytes();
            let map = MmapRaw::from(MmapOptions::new().len(page_bytes + data_bytes).map_anon().unwrap());
            Ring { map, page_bytes, data_bytes, tail: 0 }
        }

        /// Writes at position `at`, as the kernel does, over any older data.
        pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
            for (offset, byte) in bytes.iter().enumerate() {
                let position = (at as usize).wrapping_add(offset) & (self.data_bytes - 1);
                // SAFETY: inside the data pages of a private mapping; no slice of the mapping is borrowed here.
                unsafe { self.map.as_mut_ptr().add(self.page_bytes + position).write(*byte) };
            }
        }

        pub(crate) fn set_head(&self, head: u64) {
            self.control(DATA_HEAD).store(head, Ordering::Release);
        }

        pub(crate) fn published_tail(&self) -> u64 {
            self.control(DATA_TAIL).load(Ordering::Acquire)
        }
    }

    impl BackwardRing {
        pub(crate) fn in_memory(data_bytes: usize) -> BackwardRing {
            BackwardRing { ring: Ring::in_memory(data_bytes), read_to: 0, sizes: Vec::new() }
        }

        /// Writes each record in front of the one before, and publishes the new head.
        pub(crate) fn push(&self, records: &[Vec<u8>]) {
            let mut head = self.ring.control(DATA_HEAD).load(Ordering::Acquire);
            for record in records {
                head = head.wrapping_sub(record.len() as u64);
                self.ring.write(head, record);
            }
            self.ring.set_head(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::in_memory::record;
    use super::*;

    fn ring_bytes() -> usize {
        sys::page_bytes()
    }

    #[test]
    fn what_wraps_is_there_in_two_parts() {
        let mut ring = Ring::in_memory(ring_bytes());
        let size = ring_bytes() as u64;
        // The reader has read all bytes except the last 16.
        ring.consume(size - 16);
        let written = record(48, 7);
        ring.write(size - 16, &written);
        ring.set_head(size + 32);
        let unread = ring.unread();
        assert_eq!((unread.first.len(), unread.second.len(), unread.overrun_bytes), (16, 32, 0));
        assert_eq!([unread.first, unread.second].concat(), written);
        let head = unread.head();
        ring.consume(head);
        assert_eq!((ring.published_tail(), ring.unread().len()), (size + 32, 0));
    }

    #[test]
    fn a_head_that_is_too_far_ahead_is_counted_and_reading_goes_on_there() {
        let mut ring = Ring::in_memory(ring_bytes());
        let size = ring_bytes() as u64;
        ring.consume(96);
        // The ring is full.
        ring.set_head(96 + size);
        assert_eq!((ring.unread().len() as u64, ring.unread().overrun_bytes), (size, 0));
        ring.set_head(96 + size + 8);
        let unread = ring.unread();
        assert_eq!((unread.len(), unread.overrun_bytes), (0, size + 8));
        let head = unread.head();
        ring.consume(head);
        let next = record(24, 3);
        ring.write(head, &next);
        ring.set_head(head + 24);
        let unread = ring.unread();
        assert_eq!(([unread.first, unread.second].concat(), unread.overrun_bytes), (next, 0));
    }

    #[test]
    fn records_that_are_overwritten_come_out_in_the_order_of_time() {
        let mut ring = BackwardRing::in_memory(ring_bytes());
        let (one, two, three) = (record(16, 1), record(40, 2), record(24, 3));
        ring.push(&[one.clone(), two.clone()]);
        let mut records = Vec::new();
        assert_eq!(ring.read(&mut records), 0);
        assert_eq!(records, [one, two].concat());
        ring.push(std::slice::from_ref(&three));
        records.clear();
        assert_eq!((ring.read(&mut records), records), (0, three));
        // More records than fit into the ring: the oldest are overwritten, and the rest of a half-overwritten record does not count as skipped bytes.
        let many: Vec<Vec<u8>> = (0..=ring_bytes() / 40).map(|index| record(40, index as u8)).collect();
        ring.push(&many);
        let mut records = Vec::new();
        assert_eq!(ring.read(&mut records), 0);
        assert_eq!(records, many[many.len() - ring_bytes() / 40..].concat());
    }

    #[test]
    fn what_is_no_record_is_passed_over_and_counted() {
        let newest = record(24, 2);
        for size in [0u16, 7, 4000] {
            let mut damaged = record(32, 1);
            damaged[6..8].copy_from_slice(&size.to_ne_bytes());
            let mut ring = BackwardRing::in_memory(ring_bytes());
            ring.push(&[record(16, 9), damaged, newest.clone()]);
            let mut records = Vec::new();
            assert_eq!(ring.read(&mut records), 32 + 16, "size {size}");
            assert_eq!(records, newest);
            // The reader can still read later records.
            ring.push(&[record(8, 5)]);
            records.clear();
            assert_eq!((ring.read(&mut records), records), (0, record(8, 5)));
        }
        // A record with a damaged size, in a ring that was also overwritten.
        let mut ring = BackwardRing::in_memory(ring_bytes());
        ring.push(&vec![record(64, 0); ring_bytes() / 64]);
        let mut damaged = record(64, 1);
        damaged[6..8].fill(0);
        ring.push(&[damaged, newest.clone()]);
        let mut records = Vec::new();
        assert_eq!(ring.read(&mut records), (ring_bytes() - 24) as u64);
        assert_eq!(records, newest);
    }
}
