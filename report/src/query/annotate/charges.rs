//! What is charged to the parts of programs.

use super::listing::Listing;
use crate::index::Index;
use crate::input::recording::Recording;
use crate::input::window::Window;
use crate::model::{CodeCost, Count, PartOfProgram};
use crate::pass::sinks::instructions::{EventSites, InstructionsSink, Site};
use crate::pass::{self, Selection};
use crate::query::by_prog;
use crate::{Options, Result};
use rustc_hash::FxHashMap;

/// What something cost.
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

/// What a program cost, and by function where.
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

/// What the programs that are asked for cost in an event.
pub(super) struct EventCosts {
    pub(super) event: usize,
    /// All samples, whosever they are.
    pub(super) samples: Count,
    /// Samples tell what programs called.
    pub(super) has_chains: bool,
    has_shared_entry: bool,
    /// By number of the program; those that have samples.
    pub(super) programs: FxHashMap<u32, ProgramCost>,
}

/// By program, whether it is asked for.
pub(super) fn asked(index: &Index, options: &Options) -> Vec<bool> {
    let is_asked = |program: &crate::index::programs::Program| {
        let matches = |filter: &crate::ProgFilter| filter.matches(program.id, program.tag, program.name());
        options.programs.is_empty() || options.programs.iter().any(matches)
    };
    index.programs.list.iter().map(is_asked).collect()
}

/// Counts samples by where they are, for each event that is asked for.
pub(super) fn count(
    recording: &Recording<'_>,
    index: &Index,
    options: &Options,
    programs: &[bool],
) -> Result<Vec<EventCosts>> {
    let window = Window::of(&options.time, recording, index.start_ns())?;
    let selection = Selection::new(recording, index, &window, options)?;
    let sink = InstructionsSink::new(index, programs, recording.events.all().len());
    let (sink, _) = pass::run(recording, index, &selection, sink, |_, _| {});
    let events = sink.events.into_iter().enumerate().filter(|(event, _)| selection.events[*event]);
    Ok(events.map(|(event, sites)| EventCosts::new(recording, index, event, sites)).collect())
}

impl EventCosts {
    fn new(recording: &Recording<'_>, index: &Index, event: usize, sites: EventSites) -> EventCosts {
        let mut programs: FxHashMap<u32, ProgramCost> = FxHashMap::default();
        for (program, count) in sites.entry {
            programs.entry(program).or_default().entry.merge(count);
        }
        for ((program, function, site), count) in sites.sites {
            let of = programs.entry(program).or_default();
            of.cost.add(site, count);
            of.functions.entry(function).or_default().push((site, count));
        }
        let (samples, has_shared_entry) = (sites.samples, sites.has_shared_entry);
        EventCosts { event, samples, has_chains: index.has_chains(recording, event), has_shared_entry, programs }
    }

    /// Adds the shares of what runs several programs, which the report by program finds.
    pub(super) fn share_entry(
        &mut self,
        recording: &Recording<'_>,
        index: &Index,
        options: &Options,
        programs: &[bool],
    ) -> Result<()> {
        if !self.has_shared_entry {
            return Ok(());
        }
        let options = Options {
            by: None,
            programs: Vec::new(),
            events: vec![recording.names[self.event].clone()],
            limit: None,
            all: true,
            ..options.clone()
        };
        let report = by_prog::build(recording, index, &options)?;
        for row in report.events.iter().flat_map(|event| &event.rows) {
            let columns = row.line.as_ref().and_then(|line| line.columns.as_ref());
            let shared = columns.and_then(|columns| columns.entry_shared.value()).map(|share| share.count);
            let number = row.program as u32;
            if let Some(shared) = shared.filter(|shared| *shared != Count::default() && programs[number as usize]) {
                self.programs.entry(number).or_default().entry_shared.merge(shared);
            }
        }
        Ok(())
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
    /// Of a function without a listing no place is known.
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

/// What costs of a program are parts of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    pub(super) cost: Cost,
    pub(super) charged: u64,
    pub(super) has_chains: bool,
    /// Whether samples say nothing of what the program does.
    pub(super) is_blind: bool,
}

impl Whole {
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
