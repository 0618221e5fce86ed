//! Where in the code of programs samples were: counts by address.

use crate::index::Index;
use crate::index::symbols::Kind;
use crate::model::Count;
use crate::pass::attribution::{Attribution, Charge, Column};
use crate::pass::{SampleView, Sink};
use rustc_hash::FxHashMap;

/// Where a function was when a sample was taken in it, or in what it called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Site {
    /// The processor was at this address.
    At(u64),
    /// What the function called returns to this address. Without names of the kernel's functions it may also be
    /// [`Site::Interrupted`].
    Return(u64),
    /// An interrupt came at this address.
    Interrupted(u64),
}

/// Counts of one event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventSites {
    /// All samples that were asked for, whosever they are.
    pub(crate) samples: Count,
    /// By program: what runs it.
    pub(crate) entry: FxHashMap<u32, Count>,
    /// There were samples in what runs several programs that were asked for, or some of these.
    pub(crate) has_shared_entry: bool,
    /// By program, function and place.
    pub(crate) sites: FxHashMap<(u32, u32, Site), Count>,
}

/// Counts where in the functions of programs samples were.
pub(crate) struct InstructionsSink<'i> {
    index: &'i Index,
    /// By program: whether it is asked for.
    programs: &'i [bool],
    /// By event.
    pub(crate) events: Vec<EventSites>,
}

impl<'i> InstructionsSink<'i> {
    pub(crate) fn new(index: &'i Index, programs: &'i [bool], events: usize) -> InstructionsSink<'i> {
        InstructionsSink { index, programs, events: vec![EventSites::default(); events] }
    }
}

impl Sink for InstructionsSink<'_> {
    fn fork(&self) -> Self {
        InstructionsSink::new(self.index, self.programs, self.events.len())
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let event = &mut self.events[sample.event];
        event.samples.merge(sample.count);
        let is_asked = |program: &u32| self.programs.get(*program as usize) == Some(&true);
        event.has_shared_entry |= attribution.sharers().iter().any(is_asked);
        let Charge::Program { program, function, column, called } = attribution.charge else { return Ok(()) };
        if !is_asked(&program) {
            return Ok(());
        }
        let is_interrupt = || called.is_some_and(|called| self.index.symbols.kind_at(called) == Kind::Interrupt);
        let site = match (column, attribution.frame()) {
            (Column::Own, Some(addr)) => Site::At(addr),
            (Column::Helper, Some(addr)) if is_interrupt() => Site::Interrupted(addr),
            (Column::Helper, Some(addr)) => Site::Return(addr),
            (Column::Entry, _) | (_, None) => {
                event.entry.entry(program).or_default().merge(sample.count);
                return Ok(());
            }
        };
        event.sites.entry((program, function.unwrap_or(0), site)).or_default().merge(sample.count);
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.events.iter_mut().zip(other.events) {
            mine.samples.merge(theirs.samples);
            mine.has_shared_entry |= theirs.has_shared_entry;
            theirs.entry.into_iter().for_each(|(key, count)| mine.entry.entry(key).or_default().merge(count));
            theirs.sites.into_iter().for_each(|(key, count)| mine.sites.entry(key).or_default().merge(count));
        }
    }
}
