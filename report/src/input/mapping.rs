//! Files mapped read-only into memory. This module holds the `unsafe` of the mapping.
//!
//! A file may become shorter while it is mapped, and its disk may fail. An access to a lost page raises SIGBUS, which would end the process. A
//! handler instead maps zeros over the lost pages and stores their offset; zeros are never a valid record. A reader asks [`FileMapping::lost_from`]
//! before it trusts its results; it need not check after each read.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};

#[cfg(unix)]
use memmap2::UncheckedAdvice;
use memmap2::{Mmap, MmapOptions};

/// Bytes of a file, mapped.
#[derive(Debug)]
pub(super) struct FileMapping {
    #[cfg(unix)]
    guard: sigbus::Guard,
    bytes: Mmap,
}

impl FileMapping {
    /// Maps a file; `None` for an empty file, which cannot be mapped.
    pub(super) fn new(file: &File) -> io::Result<Option<FileMapping>> {
        let len = length(file)?;
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: the mapping is private and read-only, and this process does not write to the file. Another process may write to it: then bytes
        // change while they are read. Readers tolerate this: they check every value and assume nothing about bytes read before. If the file is
        // truncated, access to the lost pages raises SIGBUS, and the handler maps zeros there.
        let bytes = unsafe { MmapOptions::new().len(len).map(file) }?;
        Ok(Some(FileMapping {
            #[cfg(unix)]
            guard: sigbus::Guard::new(&bytes)?,
            bytes,
        }))
    }

    /// Returns the lowest offset that could not be read; `None` if every access succeeded.
    pub(super) fn lost_from(&self) -> Option<u64> {
        #[cfg(unix)]
        return self.guard.lost_from();
        #[cfg(not(unix))]
        None
    }

    /// Releases the memory of a part of a file that is no longer written. The part can be read again.
    pub(super) fn release(&self, part: Range<u64>) {
        #[cfg(unix)]
        {
            // The largest page size of the supported machines.
            const PAGE_BYTES: u64 = 64 << 10;
            let from = part.start.next_multiple_of(PAGE_BYTES);
            let to = part.end.min(self.bytes.len() as u64) / PAGE_BYTES * PAGE_BYTES;
            if from < to {
                let (from, len) = (from as usize, (to - from) as usize);
                // SAFETY: the mapping is read-only. Its file belongs to this process, has no name and is no longer written, so released pages are
                // read again with the same bytes. The range lies within the mapping.
                let released = unsafe { self.bytes.unchecked_advise_range(UncheckedAdvice::DontNeed, from, len) };
                // Memory that cannot be released merely stays in use.
                drop(released);
            }
        }
        #[cfg(not(unix))]
        drop(part);
    }
}

/// Returns the length of a file in bytes.
fn length(file: &File) -> io::Result<usize> {
    // The standard library uses a system call that also takes a path, which the sandbox forbids.
    #[cfg(unix)]
    let bytes = rustix::fs::fstat(file)?.st_size;
    #[cfg(not(unix))]
    let bytes = file.metadata()?.len();
    usize::try_from(bytes).map_err(io::Error::other)
}

impl Deref for FileMapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The SIGBUS handler, and the mappings that it covers.
#[cfg(unix)]
mod sigbus {
    use std::io;
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A mapping that the handler covers. Only its guard writes the addresses; the handler writes `lost_from`.
    struct MappingSlot {
        /// First address; `FREE`, or `TAKEN` until the guard has filled in the slot.
        start: AtomicUsize,
        end: AtomicUsize,
        /// Lowest offset that could not be read; `NOTHING` if all offsets could be read.
        lost_from: AtomicUsize,
    }

    /// Value of `start` in a slot without a mapping.
    const FREE: usize = 0;
    /// Value of `start` in a slot that a guard has taken but not yet filled in. It is above every address, so the handler skips the slot.
    const TAKEN: usize = usize::MAX;
    /// Value of `lost_from` if all offsets could be read.
    const NOTHING: usize = usize::MAX;
    /// Limit on files mapped at once; opening another file fails. A directory has a file for each CPU.
    const SLOTS: usize = 1 << 13;

    static MAPPINGS: [MappingSlot; SLOTS] = [const {
        MappingSlot { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), lost_from: AtomicUsize::new(NOTHING) }
    }; SLOTS];
    static INSTALLED: OnceLock<Result<Installed, i32>> = OnceLock::new();

    /// Values read before the handler is installed: a handler may not read them itself.
    struct Installed {
        page_bytes: usize,
        /// Earlier handler of SIGBUS, which still handles all other addresses.
        before: libc::sigaction,
    }

    /// Guard of a mapping: the handler covers the mapping until the guard is dropped.
    #[derive(Debug)]
    pub(super) struct Guard(usize);

    impl Guard {
        pub(super) fn new(bytes: &[u8]) -> io::Result<Guard> {
            INSTALLED.get_or_init(install).as_ref().map_err(|errno| io::Error::from_raw_os_error(*errno))?;
            let start = bytes.as_ptr() as usize;
            let take = |slot: &MappingSlot| {
                slot.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
            };
            let taken = MAPPINGS.iter().position(take);
            let taken =
                taken.ok_or_else(|| io::Error::other(format!("bprec can open at most {SLOTS} files at once")))?;
            let slot = &MAPPINGS[taken];
            slot.lost_from.store(NOTHING, Ordering::Relaxed);
            slot.end.store(start + bytes.len(), Ordering::Relaxed);
            // ATOMICS: pairs with the handler's load, which then sees `end` as well.
            slot.start.store(start, Ordering::Release);
            Ok(Guard(taken))
        }

        pub(super) fn lost_from(&self) -> Option<u64> {
            let at = MAPPINGS[self.0].lost_from.load(Ordering::Acquire);
            (at != NOTHING).then_some(at as u64)
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            // ATOMICS: pairs with the exchange of the next guard that takes the slot. The mapping is dropped right after its guard; no reader is
            // left.
            MAPPINGS[self.0].start.store(FREE, Ordering::Release);
        }
    }

    fn install() -> Result<Installed, i32> {
        let errno = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        let mut before = MaybeUninit::uninit();
        // SAFETY: all zeros is a value of the C struct: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the calls only read the page size and the present action of the signal; `sigaction` writes `before` if it returns 0.
        let page_bytes = unsafe {
            if libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) != 0 {
                return Err(errno());
            }
            libc::sysconf(libc::_SC_PAGESIZE)
        };
        let page_bytes = usize::try_from(page_bytes).map_err(|_| errno())?;
        // SAFETY: the call above has filled in `before`.
        let installed = Installed { page_bytes, before: unsafe { before.assume_init() } };
        // SAFETY: the handler has the signature for SA_SIGINFO and makes only calls that a handler may make. Until INSTALLED is set, no mapping has a
        // slot, and the handler restores the default action.
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
            return Err(errno());
        }
        Ok(installed)
    }

    /// Maps zeros over the lost pages of a file. It calls nothing but `mmap`, `sigaction` and `raise`, takes no lock and allocates nothing: it may
    /// run at any instruction of any thread.
    extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
        // SAFETY: the kernel hands a valid siginfo to a handler with SA_SIGINFO.
        let (code, addr) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        let Some(Ok(Installed { page_bytes, before })) = INSTALLED.get() else {
            // SAFETY: all zeros is the default action, with which the faulting access ends the process.
            unsafe { libc::sigaction(signal, &std::mem::zeroed(), ptr::null_mut()) };
            return;
        };
        // The code is positive for a fault. A signal that a process sent has no address.
        let is_fault = code > 0;
        for slot in MAPPINGS.iter().filter(|_| is_fault) {
            // ATOMICS: pairs with the store in `Guard::new`.
            let start = slot.start.load(Ordering::Acquire);
            let end = slot.end.load(Ordering::Relaxed);
            if start == FREE || start > addr || addr >= end {
                continue;
            }
            let page = addr / page_bytes * page_bytes;
            // SAFETY: `mmap` changes errno only if it fails, and then the process ends below. The range from the faulting page to `end` lies in our
            // own read-only mapping, which stays as long as its slot is taken. If pages after the faulting page could still be read, they are
            // reported as lost as well.
            let zeros = unsafe {
                libc::mmap(
                    page as *mut libc::c_void,
                    end - page,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            if zeros != libc::MAP_FAILED {
                slot.lost_from.fetch_min(page.saturating_sub(start), Ordering::AcqRel);
                return;
            }
        }
        // SAFETY: the earlier action is restored. After the handler returns, a fault happens again; a signal that a process sent is raised again.
        unsafe {
            libc::sigaction(signal, before, ptr::null_mut());
            if !is_fault {
                libc::raise(signal);
            }
        }
    }
}
