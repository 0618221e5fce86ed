//! Prefetching: fills the processor's cache ahead of the reader. This module holds the `unsafe` of the prefetch instruction.

/// Distance of the prefetch ahead of the reader.
const READ_AHEAD_BYTES: usize = 2048;
/// Cache lines per prefetch: the size of a usual record.
const READ_AHEAD_LINES: usize = 3;

/// Prefetches the bytes that the reader needs soon. The processor cannot predict them: the start of a record is known only after the record before it
/// was read.
#[inline]
pub(crate) fn read_ahead(rest: &[u8]) {
    const LINE_BYTES: usize = 64;
    if let Some(ahead) = rest.get(READ_AHEAD_BYTES..READ_AHEAD_BYTES + LINE_BYTES * READ_AHEAD_LINES) {
        ahead.iter().step_by(LINE_BYTES).for_each(prefetch);
    }
}

/// Prefetches a value without waiting for it. Does nothing on processors other than x86-64 and aarch64.
#[inline]
pub(crate) fn prefetch<T>(soon: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, and it changes nothing but the cache.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(soon).cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every aarch64 processor has the instruction, and it changes nothing but the cache.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) soon, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = soon;
}
