//! Notes on recordings that are hard to compare.

use super::recorded::Recorded;
use crate::model::{Diff, DiffEvent, DiffNote, DiffSide, FEW_RECORDINGS, Status};
use std::collections::BTreeSet;

/// Number of intervals below which a recording counts as too short.
const SHORT_RECORDING_INTERVALS: usize = 10;
/// Ratio of two sampling rates below which they count as the same.
const SAME_RATE: f64 = 1.05;

/// Name of a fact that the numbers of a recording depend on, and the function that returns the fact.
type Fact = (&'static str, fn(&Recorded) -> Option<String>);

const FACTS: [Fact; 5] = [
    ("machine", |it| it.facts.hostname.clone()),
    ("kernel", |it| it.facts.os_release.clone()),
    ("architecture", |it| it.facts.arch.clone()),
    ("CPUs", |it| it.facts.cpus.map(|cpus| cpus.to_string())),
    ("recorded target", |it| it.target.clone()),
];

/// Returns the notes on the recordings.
pub(super) fn of(
    base: &[Recorded],
    new: &[Recorded],
    events: &[DiffEvent],
    has_places: bool,
    has_tags: bool,
) -> Vec<DiffNote> {
    let mut notes = Vec::new();
    for (what, fact) in FACTS {
        let of = |side: &[Recorded]| {
            let values: BTreeSet<String> =
                side.iter().map(|recorded| fact(recorded).unwrap_or_else(|| "unknown".to_owned())).collect();
            values.into_iter().collect::<Vec<_>>()
        };
        let (before, after) = (of(base), of(new));
        for (side, values) in [(DiffSide::Base, &before), (DiffSide::New, &after)] {
            if values.len() > 1 {
                notes.push(DiffNote::SideIsMixed { side, what, has: values.join(", ") });
            }
        }
        if before != after {
            notes.push(DiffNote::SidesDiffer { what, base: before.join(", "), new: after.join(", ") });
        }
    }
    let lacking =
        |recordings: &[Recorded], name: &str| recordings.iter().any(|recorded| recorded.event(name).is_none());
    let names: BTreeSet<&str> =
        base.iter().chain(new).flat_map(|recorded| &recorded.events).map(|event| event.name.as_str()).collect();
    for name in names {
        for (side, recordings) in [(DiffSide::Base, base), (DiffSide::New, new)] {
            if lacking(recordings, name) {
                notes.push(DiffNote::EventNotCompared { event: name.to_owned(), lacks: side });
            }
        }
    }
    for event in events {
        of_event(&event.name, base, new, &mut notes);
    }
    for (side, recordings) in [(DiffSide::Base, base), (DiffSide::New, new)] {
        if recordings.iter().any(|recorded| recorded.in_windows) {
            notes.push(DiffNote::StatisticsInWindows { side });
        }
        for recorded in recordings {
            let path = || recorded.facts.path.clone();
            if let Some(why) = &recorded.no_runs {
                notes.push(DiffNote::RunsUnknown { path: path(), why: why.clone() });
            }
            if recorded.is_cut_off {
                notes.push(DiffNote::CutOff { path: path() });
            }
            if recorded.facts.intervals < SHORT_RECORDING_INTERVALS {
                notes.push(DiffNote::TooShort { path: path(), intervals: recorded.facts.intervals });
            }
        }
        if (2..FEW_RECORDINGS).contains(&recordings.len()) {
            notes.push(DiffNote::FewRecordings { side, recordings: recordings.len() });
        }
    }
    if !has_tags {
        notes.push(DiffNote::TagsNotCompared);
    }
    if !has_places {
        notes.push(DiffNote::PlacesNotCompared);
    }
    notes
}

fn of_event(name: &str, base: &[Recorded], new: &[Recorded], notes: &mut Vec<DiffNote>) {
    let events = |side: &'_ [Recorded]| {
        let events = side.iter().filter_map(|recorded| recorded.events.get(recorded.event(name)?));
        events
            .map(|event| (event.samples, event.lost.value().copied().unwrap_or(0), event.throttled))
            .collect::<Vec<_>>()
    };
    let (before, after) = (events(base), events(new));
    let mean = |events: &[(crate::model::Count, u64, u64)]| {
        let (samples, weight) = events.iter().fold((0.0, 0.0), |(samples, weight), (count, ..)| {
            (samples + count.samples as f64, weight + count.weight as f64)
        });
        (samples > 0.0 && weight > 0.0).then(|| weight / samples)
    };
    if let (Some(base_weight), Some(new_weight)) = (mean(&before), mean(&after))
        && (base_weight > new_weight * SAME_RATE || new_weight > base_weight * SAME_RATE)
    {
        notes.push(DiffNote::SampledAtOtherRate { event: name.to_owned(), base_weight, new_weight });
    }
    for (side, events) in [(DiffSide::Base, before), (DiffSide::New, after)] {
        let sum = |of: fn(&(crate::model::Count, u64, u64)) -> u64| events.iter().map(of).fold(0, u64::saturating_add);
        let (samples, times, event) = (sum(|it| it.1), sum(|it| it.2), name.to_owned());
        if samples > 0 {
            notes.push(DiffNote::Lost { side, event: event.clone(), samples });
        }
        if times > 0 {
            notes.push(DiffNote::Throttled { side, event, times });
        }
    }
}

/// Adds the notes about the rows: the count of hidden programs, and the meaning of marks.
pub(super) fn of_rows(made: &mut Diff) {
    if made.hidden_programs > 0 {
        made.notes.push(DiffNote::HiddenPrograms { programs: made.hidden_programs });
    }
    let on_both = |status: Status| !matches!(status, Status::New | Status::Gone);
    if made.programs.iter().any(|program| on_both(program.status)) || !made.total.is_empty() {
        let recordings = made.base.len().min(made.new.len());
        made.notes.push(DiffNote::Marks { confidence_percent: made.confidence_percent, recordings });
    }
}
