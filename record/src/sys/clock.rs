//! Clocks of the recording, of the wall time and of CPU time.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// Id of the clock of a recording.
pub(crate) const CLOCK_MONOTONIC: i32 = ClockId::Monotonic as i32;

/// Attempts to read two clocks at the same moment; the quickest attempt counts.
const CLOCK_READINGS: usize = 4;

/// Reads the clock of a recording. BPF programs read the same clock.
pub(crate) fn monotonic_ns() -> u64 {
    ns(clock_gettime(ClockId::Monotonic))
}

/// Returns the CPU time that this thread has used.
pub(crate) fn thread_time() -> Duration {
    Duration::from_nanos(ns(clock_gettime(ClockId::ThreadCPUTime)))
}

/// Returns the CPU time that a process has used, ns, by the clock of the scheduler; `None` if the process does not exist.
pub(crate) fn process_time_ns(pid: u32) -> Option<u64> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both calls write to locals. The second call is made only if the first has set the clock.
    let is_read = unsafe {
        libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    is_read.then(|| time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// Returns CLOCK_BOOTTIME, the clock of `bpf_prog_info.load_time`, minus CLOCK_MONOTONIC, the clock of the recording. The difference grows
/// while the machine is suspended.
pub(crate) fn to_boottime_ns() -> i64 {
    // An interruption between the readings of the two clocks would increase the offset, so the quickest of some readings counts.
    let readings = (0..CLOCK_READINGS).map(|_| {
        let before_ns = monotonic_ns();
        let boottime_ns = ns(clock_gettime(ClockId::Boottime));
        (monotonic_ns() - before_ns, boottime_ns.wrapping_sub(before_ns).cast_signed())
    });
    readings.min().map_or(0, |(_, offset_ns)| offset_ns)
}

/// Wall time, ns since 1970.
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

/// Formats a wall time as perf appends it to file names: year to hundredths of a second, in local time.
pub(crate) fn file_timestamp(unix_ns: u64) -> String {
    let seconds = (unix_ns / 1_000_000_000).cast_signed();
    let mut local = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to locals. If the call fails, the `tm` is all zeros, a valid value.
    let local = unsafe {
        libc::localtime_r(&raw const seconds, local.as_mut_ptr());
        local.assume_init()
    };
    format!(
        "{:04}{:02}{:02}{:02}{:02}{:02}{:02}",
        local.tm_year + 1900,
        local.tm_mon + 1,
        local.tm_mday,
        local.tm_hour,
        local.tm_min,
        local.tm_sec,
        unix_ns % 1_000_000_000 / 10_000_000
    )
}
