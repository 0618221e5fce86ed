//! Sources of the value and times of an event in a run. Reading an event is most of the cost of measuring a run, so an event is not read
//! if its value is known otherwise.

use super::per_cpu::EVENTS_MAX;

/// Source of an event's value and times. The events of a group are adjacent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Read together with its enabled and running times, because the event may have to wait for the hardware, and so may the group that it leads.
    Leading,
    /// Read; its times are the times of the [`Source::Leading`] before it.
    Following,
    /// Read without times: the event counts all the time, as software events do.
    Always,
    /// Not read: a CPU clock, with the time of the run as its count.
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
