//! What programs cost from one moment of the recording to the next: the charges of the ledger, by time.

use crate::pass::attribution::{Attribution, Charge, Column};
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::{SampleView, Sink};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// Weights of a program in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Weights {
    /// Charged to it.
    pub(crate) charged: u64,
    /// In it or in what it called or led to, but not in what runs it: what its runs are made of.
    pub(crate) inside: u64,
}

/// The intervals of an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventIntervals {
    /// By program, for those that have samples.
    pub(crate) programs: FxHashMap<u32, Box<[Weights]>>,
    /// All that is charged to BPF; empty where nothing is.
    pub(crate) bpf: Vec<u64>,
}

/// Adds up charges between moments.
#[derive(Debug, Clone)]
pub(crate) struct IntervalSink {
    /// Moments, upwards: one more than there are intervals.
    moments: Vec<u64>,
    pub(crate) events: ByEvent<EventIntervals>,
}

impl IntervalSink {
    pub(crate) fn new(moments: Vec<u64>, events: usize) -> IntervalSink {
        IntervalSink { moments, events: ByEvent::new(events) }
    }
}

impl EventIntervals {
    fn of(&mut self, program: u32, interval: usize, intervals: usize) -> &mut Weights {
        let of_program = self.programs.entry(program);
        &mut of_program.or_insert_with(|| vec![Weights::default(); intervals].into())[interval]
    }
}

impl Sink for IntervalSink {
    fn fork(&self) -> Self {
        IntervalSink::new(self.moments.clone(), self.events.len())
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let is_bpf = !matches!(attribution.charge, Charge::Elsewhere | Charge::UnknownCode);
        if !is_bpf && attribution.programs().is_empty() {
            return Ok(());
        }
        let Some(time_ns) = sample.time_ns else { return Ok(()) };
        let behind = self.moments.partition_point(|moment| *moment <= time_ns);
        let Some(interval) = behind.checked_sub(1).filter(|_| behind < self.moments.len()) else { return Ok(()) };
        let (event, weight) = (self.events.of(sample.event), sample.count.weight);
        let intervals = self.moments.len() - 1;
        if is_bpf {
            event.bpf.resize(intervals, 0);
            event.bpf[interval] = event.bpf[interval].saturating_add(weight);
        }
        let mut entered = None;
        if let Charge::Program { program, column, .. } = attribution.charge {
            let weights = event.of(program, interval, intervals);
            weights.charged = weights.charged.saturating_add(weight);
            entered = (column == Column::Entry).then_some(program);
        }
        for program in attribution.programs().iter().filter(|program| Some(**program) != entered) {
            let weights = event.of(*program, interval, intervals);
            weights.inside = weights.inside.saturating_add(weight);
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.events.merge(other.events, |mine, theirs| {
            mine.bpf.resize(mine.bpf.len().max(theirs.bpf.len()), 0);
            for (mine, theirs) in mine.bpf.iter_mut().zip(theirs.bpf) {
                *mine = mine.saturating_add(theirs);
            }
            for (program, theirs) in theirs.programs {
                match mine.programs.entry(program) {
                    Entry::Vacant(new) => {
                        new.insert(theirs);
                    }
                    Entry::Occupied(mut known) => {
                        for (mine, theirs) in known.get_mut().iter_mut().zip(theirs) {
                            mine.charged = mine.charged.saturating_add(theirs.charged);
                            mine.inside = mine.inside.saturating_add(theirs.inside);
                        }
                    }
                }
            }
        });
    }
}
