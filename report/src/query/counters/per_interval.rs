//! Exact counts of a program between snapshots, for views with their own intervals.

use super::CounterHistory;
use super::over_time::{About, CounterScale};
use super::track::Track;
use crate::index::runs::ProgramKey;

/// Exact counts of a program between two snapshots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counted {
    /// Start, ns of the recording's clock.
    pub(crate) from_ns: u64,
    /// End, ns of the recording's clock.
    pub(crate) to_ns: u64,
    /// Number of runs.
    pub(crate) runs: u64,
    /// Time of all runs, ns; `None` if unknown.
    pub(crate) time_ns: Option<f64>,
    /// Count of each event in all runs; `None` if unknown.
    pub(crate) events: Vec<Option<f64>>,
    /// True if some runs were not measured.
    pub(crate) is_estimate: bool,
}

/// Returns the exact counts of a program; `None` without snapshots, or if the snapshots contradict each other.
pub(crate) fn counted(history: &CounterHistory, key: ProgramKey, cpus: Option<u32>) -> Option<Vec<Counted>> {
    let key = (key.0, key.1, 0);
    let (target, counting) = (history.targets.get(&key)?, history.counting()?);
    let about = About::program(key, "", target);
    let scale = CounterScale { start_ns: 0, cpus };
    let intervals = target.track.intervals.iter().map(|interval| {
        let runs = interval.counts.as_ref().ok()?.runs;
        let row = scale.row(&about, &Track::of(std::slice::from_ref(interval)), &counting);
        let values = row.counts.value().map(|counts| &counts.values);
        let time = values.and_then(|values| values.time.value());
        let events = values.into_iter().flat_map(|values| &values.events);
        Some(Counted {
            from_ns: interval.from_ns,
            to_ns: interval.to_ns,
            runs,
            time_ns: if runs == 0 { Some(0.0) } else { time.map(|time| time.value * runs as f64) },
            events: events
                .map(|event| event.counted.value().map(|counted| counted.per_run.value * runs as f64))
                .collect(),
            is_estimate: values.is_some_and(|values| values.is_estimate),
        })
    });
    let intervals: Vec<Counted> = intervals.collect::<Option<_>>()?;
    (!intervals.is_empty()).then_some(intervals)
}
