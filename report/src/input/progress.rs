//! Progress of reading, which another thread displays.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Progress of reading an input. An input that cannot be mapped is copied first. The command then reads it in one or more passes.
#[derive(Debug, Default)]
pub struct Progress {
    is_copying: AtomicBool,
    pass: AtomicU32,
    read_bytes: AtomicU64,
    total_bytes: AtomicU64,
}

// The counters are only displayed, so relaxed order is enough: one counter may be ahead of another.
impl Progress {
    /// Number of the current pass, from 1; 0 before the first.
    pub fn pass(&self) -> u32 {
        self.pass.load(Ordering::Relaxed)
    }

    /// Returns true while the input is copied into a temporary file.
    pub fn is_copying(&self) -> bool {
        self.is_copying.load(Ordering::Relaxed)
    }

    /// Bytes that this pass, or the copy, has read; for a gzip file, compressed bytes.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Part of the input that this pass, or the copy, has read, from 0 to 1. `None` if nothing was read yet, or if the length is unknown, as for a
    /// pipe.
    pub fn share(&self) -> Option<f64> {
        let (read, total) = (self.read_bytes.load(Ordering::Relaxed), self.total_bytes.load(Ordering::Relaxed));
        (read > 0 && total > 0).then(|| (read as f64 / total as f64).min(1.0))
    }

    pub(super) fn begin_pass(&self, total_bytes: u64) {
        self.begin(total_bytes, false);
        self.pass.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the bytes that a copy reads; `total_bytes` is 0 if unknown.
    pub(super) fn of_copy<R: Read>(&self, from: R, total_bytes: u64) -> CountedReader<'_, R> {
        self.begin(total_bytes, true);
        CountedReader { from, progress: self }
    }

    fn begin(&self, total_bytes: u64, is_copying: bool) {
        self.read_bytes.store(0, Ordering::Relaxed);
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
        self.is_copying.store(is_copying, Ordering::Relaxed);
    }

    pub(super) fn add_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Reader that counts its bytes.
pub(super) struct CountedReader<'p, R> {
    from: R,
    progress: &'p Progress,
}

impl<R: Read> Read for CountedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.progress.add_read(read as u64);
        Ok(read)
    }
}
