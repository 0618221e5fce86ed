//! Filling the processor's cache ahead of what is read, with the instruction that does only that. The `unsafe` of it is here.

/// Records are brought into the cache when the one this many bytes before them is looked at,
const READ_AHEAD_BYTES: usize = 2048;
/// and so many lines: what a record of usual size takes.
const READ_AHEAD_LINES: usize = 3;

/// Asks for bytes that will be read soon: where the next record starts is known only when this one has been read, so that the
/// processor cannot do it by itself.
#[inline]
pub(crate) fn read_ahead(rest: &[u8]) {
    const LINE_BYTES: usize = 64;
    if let Some(ahead) = rest.get(READ_AHEAD_BYTES..READ_AHEAD_BYTES + LINE_BYTES * READ_AHEAD_LINES) {
        ahead.iter().step_by(LINE_BYTES).for_each(prefetch);
    }
}

/// Asks for what will be read soon, without waiting for it. On other processors this does nothing.
#[inline]
pub(crate) fn prefetch<T>(soon: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has it, and it changes nothing but what the cache holds.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(soon).cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) soon, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = soon;
}
