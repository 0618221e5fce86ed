//! Offset between the clock of load times (CLOCK_BOOTTIME) and the clock of the recording (CLOCK_MONOTONIC). Each suspend increases the offset.

use std::time::Instant;

use bprec_format::bprec::state::{BootClock, State};

use super::{Context, Event, Source, Tick};
use crate::{Result, sys};

/// Changes of the offset above this limit count as a suspend. Jitter between two readings is smaller; suspends are
/// longer.
const JITTER_NS: u64 = 10_000_000;

/// Source of the offset between the two clocks.
#[derive(Debug)]
pub(crate) struct BootTimeOffset {
    /// Offset that was last recorded.
    said_ns: i64,
}

impl BootTimeOffset {
    /// Reads the offset. To be called before events are opened, because a suspend ends the events of most CPUs.
    pub(crate) fn read() -> BootTimeOffset {
        BootTimeOffset { said_ns: sys::to_boottime_ns() }
    }

    /// Returns true if the offset differs by more than [`JITTER_NS`] from the offset last recorded, and remembers the new offset then.
    fn is_news(&mut self, to_boottime_ns: i64) -> bool {
        let is_news = self.said_ns.abs_diff(to_boottime_ns) > JITTER_NS;
        if is_news {
            self.said_ns = to_boottime_ns;
        }
        is_news
    }
}

impl Source for BootTimeOffset {
    fn tick(&mut self, _tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        let to_boottime_ns = sys::to_boottime_ns();
        if self.is_news(to_boottime_ns) {
            context.events.push(Event::Suspended);
            context.out.state(State::BootClock(BootClock { time_ns: sys::monotonic_ns(), to_boottime_ns }))?;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspend_is_news_once() {
        let second = 1_000_000_000;
        let mut offset = BootTimeOffset { said_ns: 5 * second };
        let readings =
            [5 * second, 5 * second + 3000, 5 * second - 900, 7 * second, 7 * second + 80, 7 * second + 20_000_000];
        assert_eq!(readings.map(|ns| offset.is_news(ns)), [false, false, false, true, false, true]);
    }
}
