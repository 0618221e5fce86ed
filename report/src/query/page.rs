//! Pages, screens and exports: several reports from one pass over the samples.

use super::annotate::{self, frames, lines};
use super::by_prog::advice;
use super::by_prog::bill;
use super::by_prog::facts::{Facts, WantedFacts};
use super::by_prog::over_time::IntervalQuery;
use super::by_prog::payers::{self, PaidByInterval};
use super::by_prog::tree;
use super::counters;
use super::overview::OverviewFacts;
use crate::index::Index;
use crate::index::owners::Owners;
use crate::input::recording::OpenRecording;
use crate::model::{EventBill, EventTrees, LinesReport, Overview, Page, Profile, Report};
use crate::pass::Selection;
use crate::pass::sinks::instructions::InstructionsSink;
use crate::pass::sinks::pivot::KeyBy;
use crate::pass::sinks::stacks::{KeptDetails, StacksSink};
use crate::pass::sinks::tree::TreeSink;
use crate::pass::sinks::user_time::UserTimeSink;
use crate::{AnnotateOptions, By, Options, Payer, Result, Split};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Returns the call chains of the first selected event that has samples, the report by program, and the counters. Frames in programs have source
/// lines if `kept.addresses` is set.
pub(crate) fn profile(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
    kept: KeptDetails,
) -> Result<Profile> {
    let wanted = WantedFacts { comm: true, intervals: kept.samples, ..WantedFacts::default() };
    let stacks = |selection: &Selection<'_>| StacksSink::new(index, selection.asked.clone(), kept);
    let (facts, stacks) = Facts::gather(recording, index, options, wanted, stacks)?;
    let lines = frames::lines(recording, index, stacks.addresses());
    let samples = stacks.named(recording, &facts.selection.events, options, &lines)?;
    let counters = counters::report(recording, index, options, &facts.history, &facts.selection.window);
    Ok(Profile { samples, report: facts.report(), counters })
}

/// Limit on the rows of the page's first screen.
const PAGE_ROWS: usize = 7;
/// Limit on the rows of a terminal screen; the screen scrolls.
const SCREEN_ROWS: usize = 200;

/// Least share of a node in a program's cost, %: smaller nodes of the program's tree are folded.
const LEAST_PART_PERCENT: f64 = 0.5;

/// Makes a page about the first selected event that has samples.
pub(crate) fn page(recording: &OpenRecording<'_>, index: &Index, options: &Options) -> Result<Page> {
    let events = recording.events.all().len();
    let intervals = IntervalQuery::of_selected(recording, index, options)?;
    let mut wanted = WantedFacts { comm: true, ..intervals.wanted() };
    let keys = vec![Payer::Comm];
    wanted.pivots.push(payers::key(keys.clone()));
    wanted.pivots.push(KeyBy::PayersByInterval { payers: keys.clone(), intervals: intervals.intervals() });
    let owners = Arc::new(Owners::new(index));
    // Advice needs costs by helper.
    let by_helper = Options { by: Some(By::Split(Split::Helper)), ..options.clone() };
    let sinks = |selection: &Selection<'_>| {
        let asked = &selection.asked;
        let of_time = Some(intervals.intervals());
        let kept = KeptDetails { intervals: of_time.clone(), ..KeptDetails::default() };
        let stacks = StacksSink::new(index, asked.clone(), kept);
        let code = (InstructionsSink::new(index, asked.clone(), events), TreeSink::new(index, events, of_time));
        ((stacks, UserTimeSink::new(events)), (code, bill::sink(recording, index, &owners)))
    };
    let (mut facts, ((stacks, user), ((sites, mut trees), billed))) =
        Facts::gather(recording, index, &by_helper, wanted, sinks)?;
    let named = stacks.named(recording, &facts.selection.events, options, &FxHashMap::default())?;
    let (stacks, stacks_by_interval) = (named.stacks, named.by_interval);
    // The page shows only this event, because a recording may have thousands of events.
    let named = |event: &usize| recording.names[*event] == stacks.event;
    let same_name: Vec<usize> = facts.events().filter(named).collect();
    let event = same_name.first().copied();
    (0..events).for_each(|other| facts.selection.events[other] = Some(other) == event);
    let mut over_time = intervals.report(&facts, 0, options.limit, &facts.selection.asked);
    let lines: LinesReport = lines::report(&facts, &sites, facts.events());
    let mut report = facts.report();
    let advice = advice::all(&report, index, options);
    over_time.programs = Arc::clone(&report.programs);
    let payers = payers::of(&facts, 1, keys);
    // A name can have a megabyte; the page has it from `stacks`.
    let bill = bill::events(&facts, &owners, billed, None).0.pop().filter(|_| event.is_some());
    let bill = bill.map(|bill| EventBill { name: String::new(), ..bill });
    let of_event = Options { by: None, limit: None, ..options.clone() };
    let query = AnnotateOptions { query: of_event, ..AnnotateOptions::default() };
    // If no program has samples, `of_first` would list the code of all programs, so the page has no code.
    let code = match report.events.iter().any(|event| event.total.count.samples > 0) {
        true => Some(annotate::of_first(&facts, &sites, same_name.into_iter(), &query)?),
        false => None,
    };
    let mut overview = Overview::default();
    let mut of_event = EventTrees::default();
    if let (Some(number), [event], [paying], [timed], [lined]) =
        (event, &report.events[..], &payers.events[..], &over_time.events[..], &lines.events[..])
    {
        of_event = tree::of_event(&facts, &mut trees, (number, event), LEAST_PART_PERCENT, &facts.pivots[0]);
        let parts = OverviewFacts {
            report: &report,
            event,
            payers: paying,
            over_time: timed,
            interval_ns: over_time.interval_ns,
            lines: lined,
            paid: payers::by_interval(&facts, 2, number, paying),
            user: facts.selection.asked.is_all().then(|| user.of(number)),
            max_rows: PAGE_ROWS,
        };
        overview = parts.overview();
    }
    report.by = None;
    report.events.iter_mut().flat_map(|event| &mut event.rows).for_each(|row| row.parts = None);
    Ok(Page {
        overview,
        trees: of_event,
        advice,
        code,
        stacks,
        stacks_by_interval,
        report,
        over_time,
        payers,
        bill,
        lines,
    })
}

/// Makes the report by program, and the bills of the owners of all its events that have samples.
pub(crate) fn report_and_bills(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
) -> Result<(Report, Vec<EventBill>)> {
    let owners = Arc::new(Owners::new(index));
    let (facts, sink) =
        Facts::gather(recording, index, options, WantedFacts::default(), |_| bill::sink(recording, index, &owners))?;
    let (bills, _) = bill::events(&facts, &owners, sink, None);
    Ok((facts.report(), bills))
}

/// Makes the report by program, and an overview of each of its events.
pub(crate) fn overviews(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
) -> Result<(Report, Vec<Overview>)> {
    let events = recording.events.all().len();
    let intervals = IntervalQuery::of_selected(recording, index, options)?;
    let mut wanted = WantedFacts { comm: true, ..intervals.wanted() };
    wanted.pivots.push(payers::key(vec![Payer::Comm]));
    let by_helper = Options { by: Some(By::Split(Split::Helper)), ..options.clone() };
    let sinks = |selection: &Selection<'_>| {
        (UserTimeSink::new(events), InstructionsSink::new(index, selection.asked.clone(), events))
    };
    let (facts, (user, sites)) = Facts::gather(recording, index, &by_helper, wanted, sinks)?;
    let over_time = intervals.report(&facts, 0, None, &facts.selection.asked);
    let lines = lines::report(&facts, &sites, facts.events());
    let paying = payers::events(&facts, 1);
    let mut report = facts.report();
    let parts = facts.events().zip(&report.events).zip(paying.iter().zip(&over_time.events).zip(&lines.events));
    let parts = parts.map(|((number, event), ((payers, over_time_of_event), lines))| OverviewFacts {
        report: &report,
        event,
        payers,
        over_time: over_time_of_event,
        interval_ns: over_time.interval_ns,
        lines,
        paid: PaidByInterval::default(),
        user: facts.selection.asked.is_all().then(|| user.of(number)),
        max_rows: SCREEN_ROWS,
    });
    let overviews = parts.map(|parts| parts.overview()).collect();
    report.by = None;
    report.events.iter_mut().flat_map(|event| &mut event.rows).for_each(|row| row.parts = None);
    Ok((report, overviews))
}
