//! What programs cost from interval to interval: the charges of the ledger, by time.

use crate::index::runners::Group;
use crate::model::Count;
use crate::pass::attribution::{Attribution, Charge};
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::sinks::sharing::{Sharers, share_out};
use crate::pass::{SampleView, Sink};
use rustc_hash::FxHashMap;

/// Whom a sample is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Charged {
    /// A program, by its number.
    Program(u32),
    /// What runs several programs.
    Sharers(Sharers),
    /// What runs programs, no telling which.
    Entry,
    /// A program that the interpreter ran.
    Interpreted,
}

impl Charged {
    /// `None` for what is not charged to BPF.
    #[inline]
    pub(crate) fn of(charge: Charge) -> Option<Charged> {
        match charge {
            Charge::Program { program, .. } => Some(Charged::Program(program)),
            Charge::SharedEntry { group, strangers, interval } => {
                Some(Charged::Sharers(Sharers { group, strangers, interval }))
            }
            Charge::Entry => Some(Charged::Entry),
            Charge::Interpreted => Some(Charged::Interpreted),
            Charge::Elsewhere | Charge::UnknownCode => None,
        }
    }
}

/// Adds up charges by interval.
#[derive(Debug, Clone)]
pub(crate) struct TimelineSink {
    start_ns: u64,
    interval_ns: u64,
    /// By event: whom, and in which interval; `None` for samples that do not say when they were taken.
    pub(crate) events: ByEvent<FxHashMap<(Charged, Option<u64>), Count>>,
}

impl TimelineSink {
    /// Intervals are counted from `start_ns`, and what a clock that is behind says to be earlier is in the first.
    pub(crate) fn new(start_ns: u64, interval_ns: u64, events: usize) -> TimelineSink {
        TimelineSink { start_ns, interval_ns: interval_ns.max(1), events: ByEvent::new(events) }
    }
}

/// Shares what hooks of several programs cost between those, by the weights of each group in each interval; without weights it is nobody's.
pub(crate) fn share_entry(
    counts: &mut FxHashMap<(Charged, Option<u64>), Count>,
    groups: &[Group],
    weights: impl Fn(&Group, Option<u32>) -> Option<Vec<u64>>,
) {
    let mut parts = Vec::new();
    counts.retain(|(charged, interval), count| match charged {
        Charged::Sharers(sharers) => {
            parts.push((*sharers, *interval, *count));
            false
        }
        _ => true,
    });
    share_out(parts, groups, weights, |program, interval, share| {
        let charged = program.map_or(Charged::Entry, Charged::Program);
        counts.entry((charged, *interval)).or_default().merge(share);
    });
}

impl Sink for TimelineSink {
    fn fork(&self) -> Self {
        TimelineSink::new(self.start_ns, self.interval_ns, self.events.len())
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let Some(charged) = Charged::of(attribution.charge) else { return Ok(()) };
        let interval = sample.time_ns.map(|time_ns| time_ns.saturating_sub(self.start_ns) / self.interval_ns);
        self.events.of(sample.event).entry((charged, interval)).or_default().merge(sample.count);
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.events.merge(other.events, |mine, theirs| {
            theirs.into_iter().for_each(|(key, count)| mine.entry(key).or_default().merge(count));
        });
    }
}
