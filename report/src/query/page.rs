//! Reports of several kinds by one pass.

use super::annotate::{self, lines};
use super::by_prog::facts::{Facts, WantedFacts};
use super::by_prog::over_time::IntervalQuery;
use super::by_prog::payers;
use super::counters;
use crate::index::Index;
use crate::input::recording::Recording;
use crate::model::{JSON_VERSION, LinesReport, Page, Payers, Profile};
use crate::pass::Selection;
use crate::pass::sinks::instructions::InstructionsSink;
use crate::pass::sinks::stacks::StacksSink;
use crate::{AnnotateOptions, Options, Payer, Result};
use std::sync::Arc;

/// Call chains of an event over time, with the programs and their counters.
pub(crate) fn profile(recording: &Recording<'_>, index: &Index, options: &Options) -> Result<Profile> {
    let wanted = WantedFacts { comm: true, intervals: true, ..WantedFacts::default() };
    let stacks = |selection: &Selection<'_>| StacksSink::new(index, selection.asked.clone(), true);
    let (facts, stacks) = Facts::gather(recording, index, options, wanted, stacks)?;
    let samples = stacks.named(recording, &facts.selection.events, options)?;
    let counters = counters::report(recording, index, options, &facts.history, &facts.selection.window);
    Ok(Profile { samples, report: facts.report(), counters })
}

/// Everything that a page shows of an event: of the first that is asked for and has samples.
pub(crate) fn page(recording: &Recording<'_>, index: &Index, options: &Options) -> Result<Page> {
    let events = recording.events.all().len();
    let intervals = IntervalQuery::new(recording, index, options, None)?;
    let mut wanted = WantedFacts { comm: true, ..intervals.wanted() };
    let keys = vec![Payer::Comm];
    wanted.pivots.push(payers::key(keys.clone()));
    let sinks = |selection: &Selection<'_>| {
        let asked = &selection.asked;
        let stacks = StacksSink::new(index, asked.clone(), false);
        (stacks, InstructionsSink::new(index, asked.clone(), events))
    };
    let (mut facts, (stacks, sites)) = Facts::gather(recording, index, options, wanted, sinks)?;
    let stacks = stacks.named(recording, &facts.selection.events, options)?.stacks;
    // All of it is of this event: others there may be thousands of.
    let named = |event: &usize| recording.names[*event] == stacks.event;
    let same_name: Vec<usize> = facts.events().filter(named).collect();
    let event = same_name.first().copied();
    (0..events).for_each(|other| facts.selection.events[other] = Some(other) == event);
    let mut over_time = intervals.report(&facts, 0, options.limit, &facts.selection.asked);
    let lines: LinesReport = lines::report(&facts, &sites, facts.events());
    let report = facts.report();
    over_time.programs = Arc::clone(&report.programs);
    let payers = Payers {
        format: "bprec payers",
        version: JSON_VERSION,
        recording: report.recording.clone(),
        keys,
        events: payers::events(&facts, 1),
        programs: Arc::clone(&report.programs),
        problems: report.problems.clone(),
        notes: report.notes.clone(),
    };
    let of_event = Options { by: None, limit: None, ..options.clone() };
    let query = AnnotateOptions { query: of_event, ..AnnotateOptions::default() };
    // Where no program has samples, the code of all would be listed.
    let code = match report.events.iter().any(|event| event.total.count.samples > 0) {
        true => Some(annotate::of_first(&facts, &sites, same_name.into_iter(), &query)?),
        false => None,
    };
    Ok(Page { code, stacks, report, over_time, payers, lines })
}
