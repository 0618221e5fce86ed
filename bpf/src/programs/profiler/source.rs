//! Sources of the value and times of an event in a run. Reading an event is most of the cost of measuring a run, so an event is not read
//! if its value is known otherwise.

use super::per_cpu::EVENTS_MAX;

/// Source of an event's value and times. The events of a group are adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The event is read with its times enabled and running, because it, and the group that it leads, may have to wait for the hardware.
    Leading,
    /// The event is read without times; its times are those of the [`Source::Leading`] before it.
    Following,
    /// The event is read without times: it never waits for the hardware. Software events are of this kind.
    Always,
    /// The event is not read: it is a CPU clock, and the time of the run is its count.
    Clock,
}

// Flags of profiler.bpf.c.
const USED: u8 = 1;
const LEADING: u8 = 2;
const FOLLOWING: u8 = 4;
const CLOCK: u8 = 8;
const PARTIAL: u8 = 16;

/// Builds `event_kinds`, the flags of each event. An event with its bit set in `partial` may be missing on some CPUs.
pub(super) fn kinds(events: &[Source], partial: u32) -> [u8; EVENTS_MAX] {
    let mut kinds = [0; EVENTS_MAX];
    for (index, (kind, source)) in kinds.iter_mut().zip(events).enumerate() {
        let own = match source {
            Source::Leading => LEADING,
            Source::Following => FOLLOWING,
            Source::Always => 0,
            Source::Clock => CLOCK,
        };
        *kind = USED | own | if partial & 1 << index != 0 { PARTIAL } else { 0 };
    }
    kinds
}
