//! Charges of the parts of programs.

use super::listing::Listing;
use crate::model::{CodeCost, Count, PartOfProgram};
use crate::pass::sinks::instructions::{InstructionsSink, Site};
use crate::pass::sinks::pivot::Charges;
use crate::query::by_prog::facts::Facts;
use rustc_hash::FxHashMap;

/// Cost of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cost {
    pub(super) own: Count,
    pub(super) helper: Count,
}

impl Cost {
    pub(super) fn sum(&self) -> Count {
        self.own + self.helper
    }

    pub(super) fn merge(&mut self, other: Cost) {
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

/// Cost of a program, by function and place.
#[derive(Debug, Default)]
pub(super) struct ProgramCost {
    pub(super) cost: Cost,
    pub(super) entry: Count,
    /// Its share of what runs several programs, which is no part of `entry`.
    pub(super) entry_shared: Count,
    /// By number of the function.
    pub(super) functions: FxHashMap<u32, Vec<(Site, Count)>>,
}

impl ProgramCost {
    pub(super) fn charged(&self) -> Count {
        self.cost.sum() + self.entry + self.entry_shared
    }
}

/// Costs of the programs that are asked for in an event.
pub(super) struct EventCosts {
    pub(super) event: usize,
    /// All samples, whosever they are.
    pub(super) samples: Count,
    /// Samples tell what programs called.
    pub(super) has_chains: bool,
    /// By number of the program; those that have samples.
    pub(super) programs: FxHashMap<u32, ProgramCost>,
}

impl EventCosts {
    pub(super) fn new(facts: &Facts<'_>, sites: &InstructionsSink<'_>, event: usize) -> EventCosts {
        let ledger = &facts.ledgers[event];
        let charged = ledger
            .programs
            .iter()
            .filter(|(program, charges)| facts.selection.asked.has(*program) && charges.sum() != Count::default());
        let cost = |charges: &Charges| ProgramCost {
            cost: Cost { own: charges.own, helper: charges.helper },
            entry: charges.entry.without(charges.shared_entry),
            entry_shared: charges.shared_entry,
            functions: FxHashMap::default(),
        };
        let mut programs: FxHashMap<u32, ProgramCost> = charged.map(|(program, it)| (program, cost(it))).collect();
        for ((program, function, site), count) in &sites.events[event] {
            let of = programs.entry(*program).or_default();
            of.functions.entry(*function).or_default().push((*site, *count));
        }
        let has_chains = facts.index.has_chains(facts.recording, event);
        EventCosts { event, samples: ledger.samples, has_chains, programs }
    }
}

/// The costs of a function, put where they belong.
#[derive(Debug)]
pub(super) struct FunctionCosts {
    pub(super) all: Cost,
    /// By line of the listing.
    pub(super) lines: Vec<Cost>,
    /// By machine instruction of the listing.
    pub(super) insns: Vec<Cost>,
    /// At addresses that are in no line.
    pub(super) elsewhere: Cost,
}

impl FunctionCosts {
    /// Costs of a function; without a listing no sample has a place.
    pub(super) fn new(listing: Option<&Listing<'_>>, sites: &[(Site, Count)]) -> FunctionCosts {
        let mut costs = FunctionCosts {
            all: Cost::default(),
            lines: vec![Cost::default(); listing.map_or(0, |listing| listing.lines.len())],
            insns: vec![Cost::default(); listing.map_or(0, |listing| listing.insns.len())],
            elsewhere: Cost::default(),
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

/// Whole that costs of a program are parts of.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramWhole {
    pub(super) cost: Cost,
    pub(super) charged: u64,
    pub(super) has_chains: bool,
    /// True if samples say nothing of what the program does.
    pub(super) is_blind: bool,
}

impl ProgramWhole {
    /// `None` where samples do not tell, as for all of these.
    pub(super) fn own(&self, count: Count) -> Option<PartOfProgram> {
        let part = PartOfProgram { count, percent: percent(count.weight, self.cost.own.weight) };
        (!self.is_blind).then_some(part)
    }

    pub(super) fn helper(&self, count: Count) -> Option<PartOfProgram> {
        let part = PartOfProgram { count, percent: percent(count.weight, self.cost.helper.weight) };
        (self.has_chains && !self.is_blind).then_some(part)
    }

    pub(super) fn cost(&self, cost: Cost) -> CodeCost {
        if self.is_blind {
            return CodeCost::default();
        }
        let (samples, percent) = (Some(cost.sum().samples), percent(cost.sum().weight, self.charged));
        CodeCost { samples, own: self.own(cost.own), helper: self.helper(cost.helper), percent }
    }
}

/// A part in per cent; `None` of nothing.
pub(super) fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}
