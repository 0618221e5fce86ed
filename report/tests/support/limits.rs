//! The limits on memory and time for reading an input, for tests and for the fuzzers: allocated memory, and CPU time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Counts allocated bytes.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed unchanged to the system's allocator; counting does not access its memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller guarantees for `layout` what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `ptr` came from `alloc` with this `layout`, that is, from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }

    // The system's allocator remaps the pages of a large allocation. The trait's default would copy it, and hold the old and the new memory at the
    // same time.
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let now = NOW.fetch_add(new_size, Ordering::Relaxed) + new_size - layout.size();
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: `ptr` came from `alloc` with this `layout`, that is, from the system's allocator; the caller vouches for the new size.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Limit on fixed memory for reading: buffers, tables of names, the text of one record in hexadecimal.
const FIXED_BYTES: usize = 4 << 20;
/// Limit on memory per byte of input.
const BYTES_PER_BYTE: usize = 10;

/// Limit on the fixed CPU time for reading an input and making all outputs, in a build with little optimization and with checks, on a busy
/// machine. Damaged and fuzzed recordings have less than 100 kB, and take about 10 ms.
const FIXED_TIME: Duration = Duration::from_secs(1);
/// Limit on CPU time per byte of input: one second per megabyte.
const TIME_PER_BYTE: Duration = Duration::from_micros(1);

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("a time since the start")
}

/// Reads an input of `input_bytes` bytes and asserts the limits. Other work of the process at the same time would count as well.
pub(crate) fn within_limits<T>(about: &str, input_bytes: usize, read: impl FnOnce() -> T) -> T {
    let (before, start) = (NOW.load(Ordering::Relaxed), cpu_time());
    PEAK.store(before, Ordering::Relaxed);
    let result = read();
    let (used, took) = (PEAK.load(Ordering::Relaxed).saturating_sub(before), cpu_time() - start);
    assert!(used <= FIXED_BYTES + BYTES_PER_BYTE * input_bytes, "{about}: {used} bytes for {input_bytes}");
    let allowed = FIXED_TIME + TIME_PER_BYTE * u32::try_from(input_bytes).unwrap_or(u32::MAX);
    assert!(took <= allowed, "{about}: {took:?} for {input_bytes} bytes");
    result
}
