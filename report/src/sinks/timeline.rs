//! What programs cost from interval to interval: the charges of the ledger, by time.

use crate::model::Count;
use crate::pass::attribution::{Attribution, Charge};
use crate::pass::{SampleView, Sink};
use rustc_hash::FxHashMap;

/// Whom a sample is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Charged {
    /// A program, by its number.
    Program(u32),
    /// What runs programs, no telling which.
    Entry,
    /// A program that the interpreter ran.
    Interpreted,
}

/// Adds up charges by interval.
#[derive(Debug, Clone)]
pub(crate) struct TimelineSink {
    start_ns: u64,
    interval_ns: u64,
    /// By event: whom, and in which interval; `None` for samples that do not say when they were taken.
    pub(crate) events: Vec<FxHashMap<(Charged, Option<u64>), Count>>,
}

impl TimelineSink {
    /// Intervals are counted from `start_ns`, and what a clock that is behind says to be earlier is in the first.
    pub(crate) fn new(start_ns: u64, interval_ns: u64, events: usize) -> TimelineSink {
        TimelineSink { start_ns, interval_ns: interval_ns.max(1), events: vec![FxHashMap::default(); events] }
    }
}

impl Sink for TimelineSink {
    fn fork(&self) -> Self {
        TimelineSink::new(self.start_ns, self.interval_ns, self.events.len())
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let charged = match attribution.charge {
            Charge::Program { program, .. } => Charged::Program(program),
            Charge::Entry => Charged::Entry,
            Charge::Interpreted => Charged::Interpreted,
            Charge::Elsewhere | Charge::UnknownCode => return Ok(()),
        };
        let interval = sample.time_ns.map(|time_ns| time_ns.saturating_sub(self.start_ns) / self.interval_ns);
        self.events[sample.event].entry((charged, interval)).or_default().merge(sample.count);
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.events.iter_mut().zip(other.events) {
            theirs.into_iter().for_each(|(key, count)| mine.entry(key).or_default().merge(count));
        }
    }
}
