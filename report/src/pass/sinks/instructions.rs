//! Sample counts by address in the code of programs.

use crate::index::Index;
use crate::index::kernel::Role;
use crate::model::Count;
use crate::pass::attribution::{Attribution, Charge, ChargeColumn};
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::{Asked, SampleView, Sink};
use rustc_hash::FxHashMap;

/// Place in a function where a sample was taken, or where the function called the sampled code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Site {
    /// The CPU was at this address.
    At(u64),
    /// Return address of a call. If the kernel's functions have no names, also the address at which an interrupt came.
    Return(u64),
    /// An interrupt came at this address.
    Interrupted(u64),
}

/// Counts by program, function and place.
pub(crate) type Sites = FxHashMap<(u32, u32, Site), Count>;

/// Counts samples by place in the functions of programs.
pub(crate) struct InstructionsSink<'i> {
    index: &'i Index,
    asked: Asked,
    pub(crate) events: ByEvent<Sites>,
}

impl<'i> InstructionsSink<'i> {
    /// Makes an empty sink for the requested programs.
    pub(crate) fn new(index: &'i Index, asked: Asked, events: usize) -> InstructionsSink<'i> {
        InstructionsSink { index, asked, events: ByEvent::new(events) }
    }
}

impl Sink for InstructionsSink<'_> {
    fn fork(&self) -> Self {
        InstructionsSink::new(self.index, self.asked.clone(), self.events.len())
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let Charge::Program { program, function, column, called } = attribution.charge else { return Ok(()) };
        let Some(addr) = attribution.frame().filter(|_| self.asked.has(program)) else { return Ok(()) };
        let is_interrupt = || called.is_some_and(|called| self.index.code.kernel.role_at(called) == Role::Interrupt);
        let site = match column {
            ChargeColumn::Own => Site::At(addr),
            ChargeColumn::Helper if is_interrupt() => Site::Interrupted(addr),
            ChargeColumn::Helper => Site::Return(addr),
            ChargeColumn::Entry => return Ok(()),
        };
        let sites = self.events.of(sample.event);
        sites.entry((program, function.unwrap_or(0), site)).or_default().merge(sample.count);
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.events.merge(other.events, |mine, theirs| {
            theirs.into_iter().for_each(|(key, count)| mine.entry(key).or_default().merge(count));
        });
    }
}
