//! Clocks.

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// The number of `CLOCK_MONOTONIC`, the clock of a recording.
pub(crate) const CLOCK_MONOTONIC: i32 = ClockId::Monotonic as i32;

/// The clock of a recording, which also is what BPF programs read.
pub(crate) fn monotonic_ns() -> u64 {
    ns(clock_gettime(ClockId::Monotonic))
}

/// The clock of `bpf_prog_info.load_time`: it goes on while the machine is suspended.
pub(crate) fn boottime_ns() -> u64 {
    ns(clock_gettime(ClockId::Boottime))
}

/// Wall time.
pub(crate) fn realtime_unix_ns() -> u64 {
    ns(clock_gettime(ClockId::Realtime))
}

/// The resolution of the recording's clock.
pub(crate) fn monotonic_resolution_ns() -> u64 {
    ns(clock_getres(ClockId::Monotonic))
}

fn ns(time: Timespec) -> u64 {
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
