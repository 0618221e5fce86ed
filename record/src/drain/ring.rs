//! A ring buffer shared with the kernel: one control page, then a power of two of data pages.
//!
//! Layout from `struct perf_event_mmap_page`: `data_head u64` at 1024, `data_tail u64` at 1032. Both count bytes since
//! the beginning and never wrap; a position is taken modulo the size. The kernel writes records behind the head and
//! never beyond the tail plus the size.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use bprec_format::RECORD_HEADER_BYTES;

use crate::sys;

const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// The ring of an event. It outlives the descriptor: the mapping holds the event.
#[derive(Debug)]
pub(crate) struct Ring {
    map: MmapRaw,
    page_bytes: usize,
    data_bytes: usize,
    /// What this side has read up to; the kernel's copy is only ever written by us.
    tail: u64,
}

/// A ring that the kernel writes backward and over, for an event with `write_backward`: its head falls from 0, and the newest
/// record is in front.
#[derive(Debug)]
pub(crate) struct BackwardRing {
    ring: Ring,
    /// Where the head was when the ring was read last.
    read_to: u64,
    /// Sizes of the records that are being read, the newest first.
    sizes: Vec<u16>,
}

/// What the kernel has written and we have not taken yet: one piece, and a second one where it wraps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unread<'a> {
    /// The older part.
    pub(crate) first: &'a [u8],
    /// The part behind the wrap, usually empty.
    pub(crate) second: &'a [u8],
    head: u64,
    /// Bytes that the kernel has written over: not to be had any more.
    pub(crate) overrun_bytes: u64,
}

impl Unread<'_> {
    /// Bytes in both parts.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// Where the kernel was, to hand to [`Ring::consume`].
    pub(crate) fn head(&self) -> u64 {
        self.head
    }
}

impl Ring {
    /// Maps the ring of `event` with `data_bytes`, a power of two of at least one page.
    ///
    /// # Errors
    /// EPERM when it is more than may be locked.
    pub(crate) fn map(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Ring> {
        let page_bytes = sys::page_bytes();
        debug_assert!(data_bytes.is_power_of_two() && data_bytes >= page_bytes);
        let map = MmapOptions::new().len(page_bytes + data_bytes).map_raw(event.as_raw_fd())?;
        Ok(Ring { map, page_bytes, data_bytes, tail: 0 })
    }

    /// What the kernel has written since the last [`Ring::consume`].
    pub(crate) fn unread(&self) -> Unread<'_> {
        // ATOMICS: pairs with the kernel's smp_wmb() before its store of data_head in perf_output_put_handle(): what it
        // wrote before that store is visible behind this load.
        let head = self.control(DATA_HEAD).load(Ordering::Acquire);
        let len = head.wrapping_sub(self.tail) as usize;
        if len > self.data_bytes {
            // The only way on is to start again at the head.
            return Unread { first: &[], second: &[], head, overrun_bytes: len as u64 };
        }
        let start = self.tail as usize & (self.data_bytes - 1);
        let first = len.min(self.data_bytes - start);
        Unread { first: self.data(start, first), second: self.data(0, len - first), head, overrun_bytes: 0 }
    }

    /// Gives the space up to `head`, as an [`Unread`] had it, back to the kernel.
    pub(crate) fn consume(&mut self, head: u64) {
        self.tail = head;
        // ATOMICS: pairs with the kernel's load of data_tail in __perf_output_begin() and the control dependency there:
        // our reads of the data come before this store, its writes to the same bytes after that load.
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
        // SAFETY: the range lies in the data pages of the mapping (asserted), which lives as long as `self`. It is part
        // of [tail, head): the kernel does not write there until the tail is moved, which takes `&mut self` and so
        // cannot happen while the slice lives. In a ring that is overwritten the kernel writes nowhere while its output is
        // paused, which `BackwardRing::read` asks for.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.page_bytes + start), len) }
    }
}

impl BackwardRing {
    /// Maps the ring of `event` as [`Ring::map`] does. That it cannot be written to has the kernel overwrite it.
    ///
    /// # Errors
    /// As [`Ring::map`].
    pub(crate) fn map(event: BorrowedFd<'_>, data_bytes: usize) -> io::Result<BackwardRing> {
        let page_bytes = sys::page_bytes();
        debug_assert!(data_bytes.is_power_of_two() && data_bytes >= page_bytes);
        let map = MmapOptions::new().len(page_bytes + data_bytes).map_raw_read_only(event.as_raw_fd())?;
        Ok(BackwardRing { ring: Ring { map, page_bytes, data_bytes, tail: 0 }, read_to: 0, sizes: Vec::new() })
    }

    /// Appends the whole records that are there and were not read before, the oldest first. The event's output is paused: what
    /// was being written then is there, or is left out.
    pub(crate) fn read(&mut self, records: &mut Vec<u8>) {
        // ATOMICS: as in `Ring::unread`.
        let head = self.ring.control(DATA_HEAD).load(Ordering::Acquire);
        let written = self.read_to.wrapping_sub(head) as usize;
        self.read_to = head;
        let limit = written.min(self.ring.data_bytes);
        self.sizes.clear();
        let mut bytes = 0;
        while bytes + RECORD_HEADER_BYTES <= limit {
            let mut header = [0; RECORD_HEADER_BYTES];
            self.copy(head, bytes, &mut header);
            let size = u16::from_ne_bytes([header[6], header[7]]);
            // Behind the oldest record that is whole lies a part of the one before it.
            if usize::from(size) < RECORD_HEADER_BYTES || bytes + usize::from(size) > limit {
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
    }

    /// Copies from `offset` bytes behind `head`.
    fn copy(&self, head: u64, offset: usize, out: &mut [u8]) {
        let start = (head as usize).wrapping_add(offset) & (self.ring.data_bytes - 1);
        let first = out.len().min(self.ring.data_bytes - start);
        let (front, back) = out.split_at_mut(first);
        front.copy_from_slice(self.ring.data(start, first));
        back.copy_from_slice(self.ring.data(0, back.len()));
    }
}
