//! How far reading has come, for whoever waits for it in another thread.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How far reading of an input has come. It is read in passes, how many depends on what is asked for.
#[derive(Debug, Default)]
pub struct Progress {
    pass: AtomicU32,
    read_bytes: AtomicU64,
    total_bytes: AtomicU64,
}

// The numbers are for people alone: none of them orders anything, and one may be ahead of another.
impl Progress {
    /// The pass that goes on, from 1 on; 0 before the first.
    pub fn pass(&self) -> u32 {
        self.pass.load(Ordering::Relaxed)
    }

    /// The part that this pass has read; `None` where it does not tell.
    pub fn share(&self) -> Option<f64> {
        let (read, total) = (self.read_bytes.load(Ordering::Relaxed), self.total_bytes.load(Ordering::Relaxed));
        (read > 0 && total > 0).then(|| (read as f64 / total as f64).min(1.0))
    }

    pub(super) fn begin_pass(&self, total_bytes: u64) {
        self.read_bytes.store(0, Ordering::Relaxed);
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
        self.pass.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
