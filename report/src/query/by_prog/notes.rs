//! Notes about the numbers of a report.

use super::facts::{EventFacts, Facts};
use super::rows::ProgramRow;
use crate::query::counters::notes;
use bprec_format::bprec::state::UserSymbols;

use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{BlindedEvent, EventReport, Exact, Known, LateTicks, Note, Program, Reason};

/// Returns the notes about an event. The rest of the event's report must be complete. `rows` are the shown programs, in rows or in groups. `left_out`
/// is the number of programs that have no row because there would be too many rows.
pub(super) fn of_event(facts: &Facts<'_>, event: &EventReport, rows: &[&ProgramRow], left_out: usize) -> Vec<Note> {
    let common = &facts.common;
    let has_runs = rows.iter().any(|row| facts.programs[row.program].runs.is_value())
        || event.groups.iter().any(|group| group.runs.is_value());
    let shown: Vec<&Program> = rows.iter().map(|row| &facts.programs[row.program]).collect();
    let mut all = Vec::new();
    // Groups have no exact counts.
    if let Some(counting) = facts.counting.as_ref().filter(|_| event.groups.is_empty()) {
        let exact: Vec<(String, &Exact)> = shown.iter().flat_map(|program| counted(program)).collect();
        all.extend(notes::how(counting, exact.iter().map(|(_, exact)| *exact)));
        let others = shown.iter().filter(|program| !program.counts_others);
        all.extend(notes::refused(others.filter_map(|program| Some((program.exact.why()?, program.label_with_id())))));
        all.extend(notes::of_targets(&exact));
        all.extend(notes::not_measured(&exact));
    }
    all.extend(blind(
        rows.iter().zip(&shown).filter_map(|(row, program)| Some((row.blind.as_ref()?, program.label()))),
    ));
    let is_from_windows = |program: &&Program| program.runs.value().is_some_and(|runs| runs.is_from_windows());
    if !facts.index.runs.is_corrected() && shown.iter().any(is_from_windows) {
        all.push(Note::RunsInWindows);
    }
    let missed = shown.iter().filter_map(|program| {
        let misses = program.probe_misses.filter(|misses| *misses > 0)?;
        Some((misses, program.label_with_id()))
    });
    let missed: Vec<(u64, String)> = missed.collect();
    if !missed.is_empty() {
        all.push(Note::ProbesMissed { hits: missed });
    }
    if event.quiet_programs > 0 {
        all.push(Note::QuietPrograms { programs: event.quiet_programs });
    }
    if left_out > 0 {
        all.push(Note::UnsampledLeftOut { programs: left_out });
    }
    let carried = common.carried.get(&event.name).into_iter().flatten().filter_map(|at| facts.programs.get(*at));
    all.extend(carried.map(|program| Note::CarriesProgram { program: program.label_with_id() }));
    if !event.has_chains {
        all.push(Note::NoCallChains);
    }
    all.extend(common.no_runs.clone());
    if let Some(aggregated) = &event.aggregated {
        all.push(Note::CountedInKernel { interval_ns: aggregated.interval_ns });
        all.push(Note::BlindSpot { is_timer: event.is_timer });
        if aggregated.overflow.samples > 0 {
            all.push(Note::Overflow { entries: aggregated.entries });
        }
    }
    all.extend(event.late_ticks.map(LateTicks::note));
    if event.unsampled.is_some() {
        all.push(Note::UnsampledTime);
    }
    if let Known::Unknown(reason) = &event.machine {
        all.push(Note::MachineUnknown { reason: reason.clone() });
    }
    match &event.idle {
        Known::Value(_) if !facts.recorded.has_kernel_symbols => all.push(Note::IdleWithoutSymbols),
        Known::Unknown(reason @ Reason::ForeignTasks) => all.push(Note::IdleUnknown { reason: reason.clone() }),
        _ => {}
    }
    if let Some(cause) = facts.narrowed().filter(|_| has_runs) {
        all.push(Note::RunsOfMachine { cause });
    }
    if !event.unknown_kernel_code.is_value() {
        all.push(Note::NoKernelMap);
    }
    all
}

/// Returns those of `programs` that ran and whose cost samples of an event cannot show or show only in part, with the time that is missing, by run
/// statistics, if it is known.
pub(super) fn unseen(
    facts: &Facts<'_>,
    event: &EventFacts<'_>,
    programs: impl Iterator<Item = usize>,
) -> BTreeMap<usize, Option<u64>> {
    let did_run = |program: &Program| program.runs.value().is_none_or(|runs| runs.count > 0);
    let lacking = programs.filter_map(|program| {
        let known = &facts.programs[program];
        let row = facts.row(event, program, Arc::new(event.ledger.programs.get(program as u32)));
        (row.lack().is_some() && did_run(known) && !known.counts_others).then_some((program, row.unsampled_ns))
    });
    lacking.collect()
}

/// Returns a note about the programs of [`unseen`], if any: what is made of samples alone lacks their cost.
pub(super) fn of_unseen(facts: &Facts<'_>, number: usize, unseen: &BTreeMap<usize, Option<u64>>) -> Option<Note> {
    let names: BTreeSet<String> = unseen.keys().map(|program| facts.programs[*program].label()).collect();
    let time_ns = unseen.values().flatten().copied().reduce(u64::saturating_add);
    let machine_percent = time_ns.and_then(|ns| facts.event(number).whole.unsampled(ns).machine_percent);
    let event = facts.recording.names[number].clone();
    let programs: Vec<String> = names.into_iter().collect();
    (!programs.is_empty()).then_some(Note::NotInSamples { event, programs, machine_percent })
}

/// Returns a note for each reason, with the programs that samples cannot see for this reason, each name once.
fn blind<'r>(programs: impl Iterator<Item = (&'r Reason, String)>) -> Vec<Note> {
    let mut reasons: FxHashMap<String, &Reason> = FxHashMap::default();
    let mut known: FxHashSet<(String, String)> = FxHashSet::default();
    let named = programs.filter_map(|(reason, name)| {
        let key = (reason.to_string(), name);
        reasons.entry(key.0.clone()).or_insert(reason);
        known.insert(key.clone()).then_some(key)
    });
    let by_reason = notes::grouped_by(named);
    let note = |(text, programs): (String, _)| Some(Note::Blind { programs, reason: (*reasons.get(&text)?).clone() });
    by_reason.into_iter().filter_map(note).collect()
}

/// Returns the exact counts of a program with their names.
fn counted(program: &Program) -> Vec<(String, &Exact)> {
    let of = |exact: &Exact| {
        let name = match exact.function {
            0 => program.label(),
            _ => format!("{}/{}", program.label(), exact.name),
        };
        program.id.map_or_else(|| name.clone(), |id| format!("{name} ({id})"))
    };
    program
        .exact
        .value()
        .map(AsRef::as_ref)
        .into_iter()
        .chain(&program.exact_functions)
        .map(|exact| (of(exact), exact))
        .collect()
}

/// Returns the recording's own events to which programs are attached, by name, with the positions of these programs.
pub(super) fn carried(blinded_events: &[BlindedEvent]) -> FxHashMap<String, Vec<usize>> {
    let mut carried: FxHashMap<String, Vec<usize>> = FxHashMap::default();
    for blinded in blinded_events.iter().filter(|blinded| blinded.own) {
        carried.entry(blinded.event.clone()).or_default().push(blinded.position);
    }
    carried
}

/// Returns a note if the runs of all programs are unknown.
pub(super) fn no_runs(programs: &[Program]) -> Option<Note> {
    let Known::Unknown(reason) = &programs.first()?.runs else { return None };
    let none = programs.iter().all(|program| !program.runs.is_value());
    none.then(|| Note::RunsUnknown { reason: reason.clone() })
}

/// Returns the notes about the recording as a whole. `side_band_lost` has the side-band events with lost records, and the count of these records.
pub(super) fn of_recording(
    facts: &Facts<'_>,
    side_band_lost: Vec<(String, u64)>,
    user_symbols: Option<&UserSymbols>,
    unheld: u32,
) -> Vec<Note> {
    let foreign = facts.blinded_events.iter().filter(|blinded| !blinded.own);
    let mut all: Vec<Note> = foreign
        .filter_map(|blinded| {
            let program = facts.programs.get(blinded.position)?;
            let (event, holders) = (blinded.event.clone(), program.holders());
            Some(Note::ForeignEventCarriesProgram { program: program.label_with_id(), holders, event })
        })
        .collect();
    all.extend(side_band_lost.into_iter().map(|(event, records)| Note::SideBandLost { event, records }));
    if let Some(traces) = &facts.recorded.trace_data {
        all.push(Note::TracesNotDecoded { kind: traces.kind.clone(), bytes: traces.bytes });
    }
    if let Some(cause) = user_symbols.map(|symbols| &symbols.cut).filter(|cause| !cause.is_empty()) {
        all.push(Note::UserSymbolsCut { cause: cause.clone() });
    }
    if unheld > 0 {
        all.push(Note::LastRunsUnknown { programs: unheld.into() });
    }
    if let Some(longest) = facts.recorded.gaps.iter().max_by_key(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns)) {
        let lengths = facts.recorded.gaps.iter().map(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns).unsigned_abs());
        let (gaps, length_ns) = (facts.recorded.gaps.len() as u64, lengths.fold(0, u64::saturating_add));
        all.push(Note::Gaps { gaps, length_ns, longest: *longest });
    }
    if facts.recorded.unfinished {
        all.push(Note::CutOff);
    }
    all
}
