//! Samples in user space, by event.

use super::by_event::ByEvent;
use crate::model::Count;
use crate::pass::attribution::Attribution;
use crate::pass::{SampleView, Sink};
use bprec_format::misc;

/// Counts the samples that were taken in user space.
pub(crate) struct UserTimeSink(ByEvent<Count>);

impl UserTimeSink {
    /// Makes a sink for a recording with this number of events.
    pub(crate) fn new(events: usize) -> UserTimeSink {
        UserTimeSink(ByEvent::new(events))
    }

    /// Returns the samples of an event in user space.
    pub(crate) fn of(&self, event: usize) -> Count {
        self.0[event]
    }
}

impl Sink for UserTimeSink {
    fn fork(&self) -> UserTimeSink {
        UserTimeSink::new(self.0.len())
    }

    fn sample(&mut self, sample: &SampleView<'_>, _: &Attribution<'_>) -> bprec_format::Result<()> {
        if sample.record.misc & misc::CPUMODE_MASK == misc::USER {
            self.0.of(sample.event).merge(sample.count);
        }
        Ok(())
    }

    fn merge(&mut self, other: UserTimeSink) {
        self.0.merge(other.0, Count::merge);
    }
}
