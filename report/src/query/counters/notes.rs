//! Notes on counts.

use crate::model::{CountedEvent, Counting, Exact, NotMeasured, Note};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// Returns the notes on how exact counters count.
pub(crate) fn how<'e>(counting: &Counting, exact: impl Iterator<Item = &'e Exact> + Clone) -> Vec<Note> {
    let mut notes = Vec::new();
    match counting.overhead_ns {
        Some(overhead_ns) => {
            let overhead = |event: &CountedEvent| Some((event.name.clone(), event.overhead?));
            let events = counting.events.iter().filter_map(overhead).collect();
            notes.push(Note::OverheadTakenOff { overhead_ns, events, runs: counting.calibration_runs });
        }
        None if exact.clone().next().is_some() => notes.push(Note::OverheadUnknown),
        None => {}
    }
    if let Some(measured_ns) = counting.added_to_measured_ns {
        let skipped_ns = counting.added_to_skipped_ns;
        notes.push(Note::StatisticsIncludeCounting { measured_ns, skipped_ns });
    }
    if exact.clone().any(|exact| exact.is_estimate) {
        notes.push(Note::Estimated { budget_percent: counting.budget_percent });
    }
    let is_below = |exact: &Exact| {
        let events = exact.events.iter().filter_map(|event| event.counted.value()).map(|event| event.per_run);
        events.chain(exact.time.value().copied()).any(|per_run| per_run.is_below_overhead())
    };
    if exact.clone().any(is_below) {
        notes.push(Note::BelowOverhead);
    }
    let takes_turns =
        |exact: &Exact| exact.events.iter().filter_map(|event| event.counted.value()).any(|event| event.running < 1.0);
    if exact.clone().any(takes_turns) {
        notes.push(Note::EventsTookTurns);
    }
    notes.extend(absent(counting));
    if !counting.note.is_empty() {
        notes.push(Note::HowCounted { said: counting.note.clone() });
    }
    notes
}

/// Returns the notes on how perf counters count.
pub(crate) fn how_shared(counting: &Counting) -> Vec<Note> {
    let mut notes = absent(counting);
    if !counting.note.is_empty() {
        notes.push(Note::HowShared { said: counting.note.clone() });
    }
    notes
}

/// Returns the notes on events that were requested but are not counted.
fn absent(counting: &Counting) -> Vec<Note> {
    let absent = counting.absent.iter().map(|absent| (absent.reason.clone(), absent.name.clone()));
    grouped_by(absent).into_iter().map(|(why, events)| Note::EventsNotCounted { events, why }).collect()
}

/// Returns the notes on anomalies and early ends of named targets.
pub(crate) fn of_targets(targets: &[(String, &Exact)]) -> Vec<Note> {
    let anomalies = targets.iter().flat_map(|(of, exact)| {
        let note =
            |anomaly: &_| Note::Impossible { of: of.clone(), interval: None, anomaly: Box::new(Clone::clone(anomaly)) };
        exact.anomalies.iter().map(note)
    });
    let mut notes: Vec<Note> = anomalies.collect();
    let ended = targets.iter().filter_map(|(name, exact)| Some((exact.ended.clone()?, name.clone())));
    notes.extend(grouped_by(ended).into_iter().map(|(why, programs)| Note::NoLongerCounted { programs, why }));
    notes
}

/// Returns the notes on unmeasured runs of exact counters. The misses of run statistics are different: the kernel refused runs of the program itself.
pub(crate) fn not_measured(targets: &[(String, &Exact)]) -> Vec<Note> {
    let mut notes = Vec::new();
    let unmeasured = |cause: NotMeasured, runs: fn(&Exact) -> u64| {
        let of = |(name, exact): &(String, &Exact)| Some((runs(exact), name.clone())).filter(|(runs, _)| *runs > 0);
        let runs: Vec<(u64, String)> = targets.iter().filter_map(of).collect();
        (!runs.is_empty()).then_some(Note::NotMeasured { cause, runs })
    };
    notes.extend(unmeasured(NotMeasured::NestingOverflow, |exact| exact.nesting_overflow));
    notes.extend(unmeasured(NotMeasured::Discarded, |exact| exact.discarded));
    notes.extend(unmeasured(NotMeasured::Missed, |exact| exact.misses.unwrap_or(0)));
    notes
}

/// Returns the notes on programs that are not counted exactly, each with the reason and its name.
pub(crate) fn refused(programs: impl Iterator<Item = (String, String)>) -> Vec<Note> {
    grouped_by(programs).into_iter().map(|(why, programs)| Note::NotCountedExactly { programs, why }).collect()
}

/// Groups names by reason, in the order of the reasons' first appearance.
pub(crate) fn grouped_by(items: impl Iterator<Item = (String, String)>) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let mut positions: FxHashMap<String, usize> = FxHashMap::default();
    for (reason, name) in items {
        match positions.entry(reason) {
            Entry::Occupied(known) => groups[*known.get()].1.push(name),
            Entry::Vacant(new) => {
                groups.push((new.key().clone(), vec![name]));
                new.insert(groups.len() - 1);
            }
        }
    }
    groups
}
