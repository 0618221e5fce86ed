//! Ways to get the value of an event in a run, and the times that belong to it. Reading an event is most of the cost of
//! measuring a run: a value that is known otherwise is not read.

use super::per_cpu::EVENTS_MAX;

/// Source of an event's numbers. Those of a group stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Read with the times for which it was enabled and on the hardware: it may have to wait for that, and the group that it leads too.
    Leading,
    /// Read; its times are those of the [`Source::Leading`] before it.
    Following,
    /// Read; it counts all the time, as software events do.
    Always,
    /// A clock of the CPU, which counts the time of the run: not read.
    Clock,
}

// Numbers as profiler.bpf.c has them.
const USED: u8 = 1;
const LEADING: u8 = 2;
const FOLLOWING: u8 = 4;
const CLOCK: u8 = 8;
const PARTIAL: u8 = 16;

/// `event_kinds`: what each event is; those with a bit in `partial` need not be there on every CPU.
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
