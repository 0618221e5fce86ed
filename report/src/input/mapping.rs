//! Files in memory, read-only. `unsafe` is that of mapping them.
//!
//! A file may get shorter while it is mapped, and its disk may fail: touching what is no longer there raises SIGBUS, which would end the
//! process. A handler puts zeros in place of it instead, which no reader takes for a record, and remembers where: whoever has read asks
//! [`Mapping::lost_from`] before it believes what it found. Nothing is done on the way: reading costs what it did.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};

#[cfg(unix)]
use memmap2::UncheckedAdvice;
use memmap2::{Mmap, MmapOptions};

/// The bytes of a file.
#[derive(Debug)]
pub(super) struct Mapping {
    #[cfg(unix)]
    guard: sigbus::Guard,
    bytes: Mmap,
}

impl Mapping {
    /// `None` for an empty file, which cannot be mapped.
    pub(super) fn new(file: &File) -> io::Result<Option<Mapping>> {
        let len = length(file)?;
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: the mapping is private and read-only, and nothing here writes to the file. Another process could: then bytes
        // change under us, which all readers bear since they check every value they use and keep no assumption about bytes
        // read before. If it is truncated, touching the lost pages raises SIGBUS, upon which they become zeros.
        let bytes = unsafe { MmapOptions::new().len(len).map(file) }?;
        Ok(Some(Mapping {
            #[cfg(unix)]
            guard: sigbus::Guard::new(&bytes)?,
            bytes,
        }))
    }

    /// From where on the file could no longer be read when that was tried, as an offset; `None` if all that was touched was there.
    pub(super) fn lost_from(&self) -> Option<u64> {
        #[cfg(unix)]
        return self.guard.lost_from();
        #[cfg(not(unix))]
        None
    }

    /// Lets go of the memory of a part of a file that nobody writes any more. It can be read again.
    pub(super) fn release(&self, part: Range<u64>) {
        #[cfg(unix)]
        {
            // Whole pages, of any size that machines have.
            const PAGE_BYTES: u64 = 64 << 10;
            let from = part.start.next_multiple_of(PAGE_BYTES);
            let to = part.end.min(self.bytes.len() as u64) / PAGE_BYTES * PAGE_BYTES;
            if from < to {
                let (from, len) = (from as usize, (to - from) as usize);
                // SAFETY: the mapping is read-only, and of a file of our own that has no name and that nobody writes any
                // more: pages that are let go come back from it with the same bytes. The range lies within the mapping.
                let released = unsafe { self.bytes.unchecked_advise_range(UncheckedAdvice::DontNeed, from, len) };
                // Memory that cannot be let go of is merely used.
                drop(released);
            }
        }
        #[cfg(not(unix))]
        drop(part);
    }
}

/// Bytes of a file.
fn length(file: &File) -> io::Result<usize> {
    // The standard library asks by a call that takes a path as well, which a confined reader no longer has.
    #[cfg(unix)]
    let bytes = rustix::fs::fstat(file)?.st_size;
    #[cfg(not(unix))]
    let bytes = file.metadata()?.len();
    usize::try_from(bytes).map_err(io::Error::other)
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The handler, and the mappings that it is for.
#[cfg(unix)]
mod sigbus {
    use std::io;
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A mapping that the handler knows. Only the guard that took it writes addresses; the handler writes `lost_from`.
    struct Slot {
        /// First address; `FREE`, or `TAKEN` while its guard fills it in.
        start: AtomicUsize,
        end: AtomicUsize,
        /// Lowest offset that could not be read; `NOTHING` if all could.
        lost_from: AtomicUsize,
    }

    const FREE: usize = 0;
    /// Behind every end, so that no address lies in such a slot.
    const TAKEN: usize = usize::MAX;
    const NOTHING: usize = usize::MAX;
    /// Files at once. A directory has one for each CPU.
    const SLOTS: usize = 1 << 13;

    static MAPPINGS: [Slot; SLOTS] = [const {
        Slot { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), lost_from: AtomicUsize::new(NOTHING) }
    }; SLOTS];
    static INSTALLED: OnceLock<Result<Installed, i32>> = OnceLock::new();

    /// Facts that the handler needs and cannot ask for itself.
    struct Installed {
        page_bytes: usize,
        /// Earlier handler of SIGBUS, which stays for all other addresses.
        before: libc::sigaction,
    }

    /// Keeps SIGBUS away from a mapping for as long as it lives.
    #[derive(Debug)]
    pub(super) struct Guard(usize);

    impl Guard {
        pub(super) fn new(bytes: &[u8]) -> io::Result<Guard> {
            INSTALLED.get_or_init(install).as_ref().map_err(|errno| io::Error::from_raw_os_error(*errno))?;
            let start = bytes.as_ptr() as usize;
            let take =
                |slot: &Slot| slot.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
            let taken = MAPPINGS.iter().position(take);
            let taken = taken.ok_or_else(|| io::Error::other(format!("more than {SLOTS} files at once")))?;
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
            // ATOMICS: pairs with the exchange of the next guard that takes it. The mapping is still there, and nobody reads it any
            // more: it is dropped together with its guard.
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
        // SAFETY: asks the system for its page size, and for what is done upon the signal now; it writes `before` when it returns 0.
        let page_bytes = unsafe {
            if libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) != 0 {
                return Err(errno());
            }
            libc::sysconf(libc::_SC_PAGESIZE)
        };
        let page_bytes = usize::try_from(page_bytes).map_err(|_| errno())?;
        // SAFETY: the call above has filled it in.
        let installed = Installed { page_bytes, before: unsafe { before.assume_init() } };
        // SAFETY: the handler has the form that SA_SIGINFO asks for and does only what a handler may: see there. Until INSTALLED is set
        // no mapping has a slot, and the handler does what was done before.
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
            return Err(errno());
        }
        Ok(installed)
    }

    /// Puts zeros in place of what a file no longer has. It calls nothing but `mmap`, `sigaction` and `raise`, takes no lock and
    /// allocates nothing: it may run at any instruction of any thread.
    extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
        // SAFETY: the kernel hands a valid siginfo to a handler with SA_SIGINFO.
        let (code, addr) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        let Some(Ok(Installed { page_bytes, before })) = INSTALLED.get() else {
            // SAFETY: all zeros is the default action; setting it makes the access that faulted end the process, as ever.
            unsafe { libc::sigaction(signal, &std::mem::zeroed(), ptr::null_mut()) };
            return;
        };
        // A signal that a process sent has no address.
        let is_fault = code > 0;
        for slot in MAPPINGS.iter().filter(|_| is_fault) {
            // ATOMICS: pairs with the store in `Guard::new`.
            let start = slot.start.load(Ordering::Acquire);
            let end = slot.end.load(Ordering::Relaxed);
            if start == FREE || start > addr || addr >= end {
                continue;
            }
            let page = addr / page_bytes * page_bytes;
            // SAFETY: `__errno_location` is not portable; `mmap` changes errno only when it fails, and then the process ends below.
            // From the page that faulted to the end lies our own read-only mapping, which stays for as long as its slot is taken. All
            // behind the page is gone from the file as well, or is shown as gone.
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
        // SAFETY: what was done before is put back. A fault happens again when this returns; a signal that was sent is sent again.
        unsafe {
            libc::sigaction(signal, before, ptr::null_mut());
            if !is_fault {
                libc::raise(signal);
            }
        }
    }
}
