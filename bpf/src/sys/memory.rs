//! Memory that is shared with BPF programs.

use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of an array map, shared with the programs that use the map: words of 64 bits, each read and written atomically.
#[derive(Debug)]
pub(crate) struct SharedWords {
    start: NonNull<AtomicU64>,
    words: NonZeroUsize,
}

// SAFETY: the memory belongs to the whole process, only its single owner unmaps it, and all accesses are atomic.
unsafe impl Send for SharedWords {}
// SAFETY: the same reasons as for `Send`.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `words` words of an array map that was created as mappable. `Err` holds the errno.
    pub(crate) fn map(fd: BorrowedFd<'_>, words: NonZeroUsize) -> Result<SharedWords, i32> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so that no other mapping is replaced; it refuses a length beyond the array.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), words.get() * 8, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        let refused = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        if start == libc::MAP_FAILED {
            return Err(refused);
        }
        NonNull::new(start.cast()).map(|start| SharedWords { start, words }).ok_or(libc::EFAULT)
    }

    /// Reads the word at `index`; 0 beyond the end. Acquire: later reads see memory at least as new as this word.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.word(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Sets the word at `index`; no effect beyond the end. Release: a reader that sees this value also sees all earlier writes.
    pub(crate) fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Release);
        }
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: the mapping starts at a page, so words are aligned. It has `words` words, and `index` is below this number. It lives as long as
        // `self`. The kernel and this process access it only by whole words.
        (index < self.words.get()).then(|| unsafe { self.start.add(index).as_ref() })
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words.get() * 8) };
    }
}
