//! Cost of source lines, over all programs.

use super::ProgramCode;
use super::charges::{EventCosts, FunctionCosts, SiteCost};
use crate::index::Index;
use crate::input::recording::OpenRecording;
use crate::model::{Count, EventLines, JSON_VERSION, LineRow, LinesReport, OtherLines, Reason, SourceLine};
use crate::pass::sinks::instructions::InstructionsSink;
use crate::query::by_prog::facts::Facts;
use crate::query::by_prog::shares::percent;
use crate::{Options, Result};
use bprec_format::feature::Feature;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reports the cost of source lines of the requested programs.
pub(crate) fn lines(recording: &OpenRecording<'_>, index: &Index, options: &Options) -> Result<LinesReport> {
    let (facts, sites) = super::gather(recording, index, options)?;
    Ok(report(&facts, &sites, facts.events()))
}

/// Reports the cost of source lines of the requested programs in these events.
pub(crate) fn report(
    facts: &Facts<'_>,
    sites: &InstructionsSink<'_>,
    events: impl Iterator<Item = usize>,
) -> LinesReport {
    let (recording, index, options) = (facts.recording, facts.index, facts.options);
    let costs: Vec<EventCosts> = events.map(|event| EventCosts::new(facts, sites, event)).collect();
    let mut numbers: Vec<u32> = costs.iter().flat_map(|event| event.programs.keys().copied()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let arch = recording.text(Feature::ARCH);
    let code = ProgramCode::new(recording, index, &numbers, arch.as_deref());
    let events = costs.iter().map(|event| {
        let rows = rows(index, &code, event);
        let kept = options.limit.unwrap_or(usize::MAX).min(rows.len());
        let cost = |rows: &[(SiteCost, LineRow)]| {
            let mut sum = SiteCost::default();
            rows.iter().for_each(|(cost, _)| sum.merge(*cost));
            sum
        };
        let (all, others) = (cost(&rows), cost(&rows[kept..]));
        let helper = |count: Count| event.has_chains.then_some(count);
        EventLines {
            name: recording.names[event.event].clone(),
            unit: index.unit(recording, event.event),
            samples: event.samples,
            others: OtherLines { lines: (rows.len() - kept) as u64, own: others.own, helper: helper(others.helper) },
            own: all.own,
            helper: helper(all.helper),
            no_helper: (!event.has_chains).then_some(Reason::NoCallChains),
            rows: rows.into_iter().take(kept).map(|(_, row)| row).collect(),
        }
    });
    LinesReport { format: "bprec lines", version: JSON_VERSION, events: events.collect() }
}

/// Name of a file, and line number.
type FileAndLine = (Arc<str>, u32);

/// Returns the lines with samples in an event, the costliest first.
fn rows(index: &Index, code: &ProgramCode<'_>, event: &EventCosts) -> Vec<(SiteCost, LineRow)> {
    let mut rows = Vec::new();
    for (number, cost) in &event.programs {
        let program = &index.programs.list[*number as usize];
        let mut sources = code.sources(*number);
        for (at, listing) in code.listings(*number, |at| cost.functions.contains_key(&at)) {
            let sites = cost.functions.get(&at).map_or(&[][..], Vec::as_slice);
            let costs = FunctionCosts::new(listing.as_ref(), sites);
            // Costs by file and line. A source line may have code at several column numbers: the column number of the first code is kept.
            let mut by_line: BTreeMap<Option<FileAndLine>, (SiteCost, Option<SourceLine>)> = BTreeMap::new();
            by_line.entry(None).or_default().0.merge(costs.elsewhere);
            let lines = listing.iter().flat_map(|listing| &listing.lines).zip(&costs.lines);
            for (line, cost) in lines.filter(|(_, cost)| **cost != SiteCost::default()) {
                let source = line.info.as_ref().and_then(|info| sources.line(info));
                let key = source.as_ref().map(|source| (Arc::clone(&source.file), source.line));
                let (sum, _) = by_line.entry(key).or_insert((SiteCost::default(), source));
                sum.merge(*cost);
            }
            for (cost, source) in by_line.into_values().filter(|(cost, _)| *cost != SiteCost::default()) {
                let row = LineRow {
                    id: program.id,
                    load_time_ns: program.info.map(|info| info.load_time_ns),
                    program: program.name().to_owned(),
                    function: program.functions.get(at as usize).map(|it| it.name.clone()).unwrap_or_default(),
                    source,
                    own: cost.own,
                    helper: event.has_chains.then_some(cost.helper),
                    percent: percent(cost.sum().weight, Some(event.samples.weight)),
                };
                rows.push((cost, *number, at, row));
            }
        }
    }
    rows.sort_by(|(a_cost, a, a_function, a_row), (b_cost, b, b_function, b_row)| {
        let key = |cost: &SiteCost, number: u32| {
            let sum = cost.sum();
            (Reverse((sum.weight, sum.samples)), number)
        };
        let order = key(a_cost, *a).cmp(&key(b_cost, *b));
        order.then_with(|| (a_function, &a_row.source).cmp(&(b_function, &b_row.source)))
    });
    rows.into_iter().map(|(cost, _, _, row)| (cost, row)).collect()
}
