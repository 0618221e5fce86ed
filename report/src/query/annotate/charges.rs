//! Costs of programs, functions, lines and instructions.

use super::listing::FunctionListing;
use crate::model::{CodeCost, Count, PartOfProgram};
use crate::pass::sinks::instructions::{InstructionsSink, Site};
use crate::pass::sinks::pivot::Charges;
use crate::query::by_prog::facts::Facts;
use crate::query::by_prog::shares::percent;
use rustc_hash::FxHashMap;

/// Cost of a piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SiteCost {
    pub(super) own: Count,
    pub(super) helper: Count,
}

impl SiteCost {
    pub(super) fn sum(&self) -> Count {
        self.own + self.helper
    }

    pub(super) fn merge(&mut self, other: SiteCost) {
        self.own.merge(other.own);
        self.helper.merge(other.helper);
    }

    fn add(&mut self, site: Site, count: Count) {
        match site {
            Site::At(_) => self.own.merge(count),
            Site::Return(_) | Site::Interrupted(_) => self.helper.merge(count),
        }
    }
}

/// Cost of a program, by function and by address.
#[derive(Debug, Default)]
pub(super) struct ProgramSites {
    pub(super) cost: SiteCost,
    pub(super) entry: Count,
    /// Program's estimated share of the entry code of hooks that run several programs. It is not included in `entry`.
    pub(super) entry_shared: Count,
    /// Samples by index of the function.
    pub(super) functions: FxHashMap<u32, Vec<(Site, Count)>>,
}

impl ProgramSites {
    pub(super) fn charged(&self) -> Count {
        self.cost.sum() + self.entry + self.entry_shared
    }
}

/// Costs of the requested programs in an event.
pub(super) struct EventCosts {
    pub(super) event: usize,
    /// All samples of the event.
    pub(super) samples: Count,
    /// True if samples have call chains.
    pub(super) has_chains: bool,
    /// Costs of programs with samples, by number.
    pub(super) programs: FxHashMap<u32, ProgramSites>,
}

impl EventCosts {
    pub(super) fn new(facts: &Facts<'_>, sites: &InstructionsSink<'_>, event: usize) -> EventCosts {
        let ledger = &facts.ledgers[event];
        let charged = ledger
            .programs
            .iter()
            .filter(|(program, charges)| facts.selection.asked.has(*program) && charges.sum() != Count::default());
        let cost = |charges: Charges| ProgramSites {
            cost: SiteCost { own: charges.own, helper: charges.helper },
            entry: charges.entry.without(charges.shared_entry),
            entry_shared: charges.shared_entry,
            functions: FxHashMap::default(),
        };
        let mut programs: FxHashMap<u32, ProgramSites> = charged.map(|(program, it)| (program, cost(it))).collect();
        for ((program, function, site), count) in &sites.events[event] {
            let of = programs.entry(*program).or_default();
            of.functions.entry(*function).or_default().push((*site, *count));
        }
        let has_chains = facts.index.has_chains(facts.recording, event);
        EventCosts { event, samples: ledger.samples, has_chains, programs }
    }
}

/// Costs of a function by line and instruction.
#[derive(Debug)]
pub(super) struct FunctionCosts {
    pub(super) all: SiteCost,
    /// Costs by line of the listing.
    pub(super) lines: Vec<SiteCost>,
    /// Costs by machine instruction of the listing.
    pub(super) insns: Vec<SiteCost>,
    /// Cost at addresses outside of all lines.
    pub(super) elsewhere: SiteCost,
}

impl FunctionCosts {
    /// Adds up the costs of a function. Without a listing, all cost is in `elsewhere`.
    pub(super) fn new(listing: Option<&FunctionListing<'_>>, sites: &[(Site, Count)]) -> FunctionCosts {
        let mut costs = FunctionCosts {
            all: SiteCost::default(),
            lines: vec![SiteCost::default(); listing.map_or(0, |listing| listing.lines.len())],
            insns: vec![SiteCost::default(); listing.map_or(0, |listing| listing.insns.len())],
            elsewhere: SiteCost::default(),
        };
        for (site, count) in sites {
            costs.all.add(*site, *count);
            match listing.and_then(|listing| listing.place(*site)) {
                Some(place) => {
                    costs.lines[place.line].add(*site, *count);
                    if let Some(insn) = place.insn {
                        costs.insns[insn].add(*site, *count);
                    }
                }
                None => costs.elsewhere.add(*site, *count),
            }
        }
        costs
    }
}

/// Total cost of a program. The costs of its functions, lines and instructions are shown as parts of this total.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramWhole {
    pub(super) cost: SiteCost,
    pub(super) charged: u64,
    pub(super) has_chains: bool,
    /// True if samples cannot see the program.
    pub(super) is_blind: bool,
}

impl ProgramWhole {
    /// Returns `count` as a part of the program's own code; `None` if samples cannot see the program.
    pub(super) fn own(&self, count: Count) -> Option<PartOfProgram> {
        let part = PartOfProgram { count, percent: percent(count.weight, Some(self.cost.own.weight)) };
        (!self.is_blind).then_some(part)
    }

    pub(super) fn helper(&self, count: Count) -> Option<PartOfProgram> {
        let part = PartOfProgram { count, percent: percent(count.weight, Some(self.cost.helper.weight)) };
        (self.has_chains && !self.is_blind).then_some(part)
    }

    pub(super) fn cost(&self, cost: SiteCost) -> CodeCost {
        if self.is_blind {
            return CodeCost::default();
        }
        let (samples, percent) = (Some(cost.sum().samples), percent(cost.sum().weight, Some(self.charged)));
        CodeCost { samples, own: self.own(cost.own), helper: self.helper(cost.helper), percent }
    }
}
