//! Memory that is shared with programs.

use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of an array map, shared with the programs that use it: words of 64 bits, each read and written at once.
#[derive(Debug)]
pub(crate) struct SharedWords {
    start: NonNull<AtomicU64>,
    words: NonZeroUsize,
}

// SAFETY: it is memory of the whole process, unmapped by the one owner only, and accessed by atomic operations alone.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `words` of an array that was made for it. Err is the errno.
    pub(crate) fn map(fd: BorrowedFd<'_>, words: NonZeroUsize) -> Result<SharedWords, i32> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place, so that nothing else is mapped there; it refuses what is beyond the array.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), words.get() * 8, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        let refused = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        if start == libc::MAP_FAILED {
            return Err(refused);
        }
        NonNull::new(start.cast()).map(|start| SharedWords { start, words }).ok_or(libc::EFAULT)
    }

    /// The word at `index`; zero beyond the end. What is read after it is as new as it.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.word(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Sets the word at `index`; without effect beyond the end. Who sees it sees all that was set before.
    pub(crate) fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Release);
        }
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: the mapping starts at a page, so that words are aligned, has room for `words` of them, of which `index` is
        // one, and lives as long as `self`. The kernel and this process access it by whole words only.
        (index < self.words.get()).then(|| unsafe { self.start.add(index).as_ref() })
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words.get() * 8) };
    }
}
