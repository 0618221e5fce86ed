//! What programs cost from one moment of the recording to the next: the charges of the ledger, by time.

use crate::pass::attribution::{Attribution, Charge, Column};
use crate::pass::{SampleView, Sink};

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
    pub(crate) programs: Vec<Option<Box<[Weights]>>>,
    /// All that is charged to BPF.
    pub(crate) bpf: Vec<u64>,
}

/// Adds up charges between moments.
#[derive(Debug, Clone)]
pub(crate) struct IntervalSink {
    /// Moments, upwards: one more than there are intervals.
    moments: Vec<u64>,
    programs: usize,
    pub(crate) events: Vec<EventIntervals>,
}

impl IntervalSink {
    pub(crate) fn new(moments: Vec<u64>, programs: usize, events: usize) -> IntervalSink {
        let intervals = moments.len().saturating_sub(1);
        let event = EventIntervals { programs: vec![None; programs], bpf: vec![0; intervals] };
        IntervalSink { moments, programs, events: vec![event; events] }
    }
}

impl EventIntervals {
    fn of(&mut self, program: u32, interval: usize) -> &mut Weights {
        let intervals = self.bpf.len();
        let of_program = &mut self.programs[program as usize];
        &mut of_program.get_or_insert_with(|| vec![Weights::default(); intervals].into())[interval]
    }
}

impl Sink for IntervalSink {
    fn fork(&self) -> Self {
        IntervalSink::new(self.moments.clone(), self.programs, self.events.len())
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let is_bpf = !matches!(attribution.charge, Charge::Elsewhere | Charge::UnknownCode);
        if !is_bpf && attribution.programs().is_empty() {
            return Ok(());
        }
        let Some(time_ns) = sample.time_ns else { return Ok(()) };
        let behind = self.moments.partition_point(|moment| *moment <= time_ns);
        let Some(interval) = behind.checked_sub(1).filter(|_| behind < self.moments.len()) else { return Ok(()) };
        let (event, weight) = (&mut self.events[sample.event], sample.count.weight);
        if is_bpf {
            event.bpf[interval] = event.bpf[interval].saturating_add(weight);
        }
        let mut entered = None;
        if let Charge::Program { program, column, .. } = attribution.charge {
            let weights = event.of(program, interval);
            weights.charged = weights.charged.saturating_add(weight);
            entered = (column == Column::Entry).then_some(program);
        }
        for program in attribution.programs().iter().filter(|program| Some(**program) != entered) {
            let weights = event.of(*program, interval);
            weights.inside = weights.inside.saturating_add(weight);
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.events.iter_mut().zip(other.events) {
            for (mine, theirs) in mine.bpf.iter_mut().zip(theirs.bpf) {
                *mine = mine.saturating_add(theirs);
            }
            for (mine, theirs) in mine.programs.iter_mut().zip(theirs.programs) {
                match (mine, theirs) {
                    (Some(mine), Some(theirs)) => {
                        for (mine, theirs) in mine.iter_mut().zip(theirs) {
                            mine.charged = mine.charged.saturating_add(theirs.charged);
                            mine.inside = mine.inside.saturating_add(theirs.inside);
                        }
                    }
                    (mine @ None, theirs) => *mine = theirs,
                    (Some(_), None) => {}
                }
            }
        }
    }
}
