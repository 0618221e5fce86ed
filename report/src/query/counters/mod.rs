//! Counters: exact counts of each program, and all counters over time. Run statistics come from `index::runs`.
//!
//! The recording has totals since counting began (`bprec_format::bprec::state`, kinds 12 to 14), from which this module computes the counts between
//! snapshots. To limit their cost, the counting programs measure only one run in several (their gate): the values of the other runs are estimated.
//! The overhead of counting is subtracted. Contradictory counts are reported as such and not shown as numbers.

mod estimate;
mod exact;
pub(crate) mod history;
mod live;
pub(crate) mod notes;
mod over_time;
pub(crate) mod per_interval;
mod track;

pub use live::StatAccumulator;

pub(crate) use exact::exact_program;
pub(crate) use over_time::{over_time, report};

use crate::input::window::Window;
use crate::model::Counting;
use bprec_format::bprec::state::{
    Calibration, CounterEvents, CounterTier, ProgramCounters, RunCounts, Session, SharedCounters, SharedScope, StatsOff,
};
use exact::counting_of;
use std::collections::BTreeMap;
use track::Track;

/// Counted function: program id, load time, and position of the function.
pub(crate) type TargetKey = (u32, u64, u32);

/// Counts of one target: of a function of a program or, with shared counters, of the machine, a CPU, a task or a cgroup.
#[derive(Debug, Default)]
pub(crate) struct CountedTarget {
    pub(crate) name: String,
    /// Reason why the target is not counted, or no longer counted; empty while it is counted.
    pub(crate) reason: String,
    /// True if the target was counted at some time.
    pub(crate) counted: bool,
    pub(crate) track: Track,
}

/// All counters of a recording.
#[derive(Debug, Default)]
pub(crate) struct CounterHistory {
    /// True if the counts of each interval between snapshots are kept.
    pub(crate) over_time: bool,
    pub(crate) exact: Option<CounterEvents>,
    /// Calibrations of exact counting, in order of time; `None` where the overhead is unknown. A new calibration begins when run statistics are
    /// switched on or off, because they add to the overhead.
    pub(crate) calibrations: Vec<Option<Calibration>>,
    pub(crate) shared: Option<CounterEvents>,
    pub(crate) targets: BTreeMap<TargetKey, CountedTarget>,
    /// Targets counted on one CPU, by target and CPU number.
    pub(crate) cpu_targets: BTreeMap<(TargetKey, u32), CountedTarget>,
    pub(crate) shared_targets: BTreeMap<(SharedScope, u64), CountedTarget>,
    pub(crate) stats_off: Option<StatsOff>,
    /// Start of the file, ns, if the file continues a recording. Counts from before it belong to earlier files.
    pub(crate) continues_at_ns: Option<u64>,
}

impl CounterHistory {
    /// Begins a recording, or the next file of a recording.
    pub(crate) fn begin(&mut self, session: &Session) {
        self.continues_at_ns = (session.part > 0).then_some(session.start_ns);
    }

    /// Returns the time from which a counter counts; `None` if this is before the start of the file.
    fn since_in_file(&self, since_ns: u64) -> Option<u64> {
        self.continues_at_ns.is_none_or(|continues_at_ns| continues_at_ns <= since_ns).then_some(since_ns)
    }

    pub(crate) fn events(&mut self, events: CounterEvents) {
        match events.tier {
            CounterTier::EXACT => {
                // Each file repeats the calibration.
                if self.calibrations.last() != Some(&events.calibration) {
                    self.calibrations.push(events.calibration.clone());
                }
                self.exact = Some(events);
            }
            CounterTier::SHARED => self.shared = Some(events),
            _ => {}
        }
    }

    /// Describes the exact counters.
    pub(crate) fn counting(&self) -> Option<Counting> {
        self.exact.as_ref().map(|events| counting_of(events, &self.calibrations))
    }

    /// Describes the shared counters.
    pub(crate) fn shared_counting(&self) -> Option<Counting> {
        self.shared.as_ref().map(|events| counting_of(events, std::slice::from_ref(&events.calibration)))
    }

    /// Stores the first state that says that run statistics ended. Later states are ignored.
    pub(crate) fn stats_off(&mut self, off: &StatsOff) {
        self.stats_off.get_or_insert_with(|| off.clone());
    }

    pub(crate) fn programs(&mut self, snapshot: &ProgramCounters, window: &Window) {
        let period = self.calibrations.len().saturating_sub(1);
        for it in &snapshot.targets {
            let key = (it.id, it.load_time_ns, it.function);
            let since = self.since_in_file(it.since_ns);
            let target = match it.cpu {
                None => self.targets.entry(key).or_default(),
                Some(cpu) => self.cpu_targets.entry((key, cpu)).or_default(),
            };
            target.name = String::from_utf8_lossy(&it.name).into_owned();
            target.reason = it.reason.clone();
            if let Some(counts) = &it.counts {
                target.counted = true;
                // A miss is a run, too: only the counting program was refused by the recursion guard, while the counted program ran.
                let runs = counts.runs.saturating_add(counts.misses.unwrap_or(0));
                let counts = RunCounts { runs, ..counts.clone() };
                target.track.add(snapshot.time_ns, &counts, since, period, window, self.over_time);
            }
        }
    }

    pub(crate) fn shared(&mut self, snapshot: &SharedCounters, window: &Window) {
        for it in &snapshot.targets {
            let since = self.since_in_file(it.since_ns);
            let target = self.shared_targets.entry((it.scope, it.id)).or_default();
            target.name = String::from_utf8_lossy(&it.name).into_owned();
            target.reason = it.reason.clone();
            if !it.readings.is_empty() {
                target.counted = true;
                let counts = RunCounts { readings: it.readings.clone(), ..RunCounts::default() };
                target.track.add(snapshot.time_ns, &counts, since, 0, window, self.over_time);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bprec_format::bprec::state::TargetCounters;

    use super::*;

    fn snapshot(time_ns: u64, runs: u64) -> ProgramCounters {
        let counts = RunCounts { runs, measured: runs, every: 1, ..RunCounts::default() };
        let target = TargetCounters { id: 7, since_ns: 50, counts: Some(counts), ..TargetCounters::default() };
        ProgramCounters { time_ns, targets: vec![target] }
    }

    /// 30 runs from before the start of the file belong to the previous file.
    #[test]
    fn a_file_has_what_was_counted_since_it_began() {
        for (part, expected) in [(0, 45), (1, 15)] {
            let mut history = CounterHistory::default();
            history.begin(&Session { start_ns: 100, part, ..Session::default() });
            history.programs(&snapshot(100, 30), &Window::everything());
            history.programs(&snapshot(200, 45), &Window::everything());
            assert_eq!(history.targets.values().next().map(|target| target.track.sum.runs), Some(expected), "{part}");
        }
    }
    /// In total, 34 runs at the first snapshot and 54 at the second. Of these, the counting programs saw 30 and 45. In the other 4 and 9 runs, the
    /// recursion guard refused the counting programs, but the counted program ran.
    #[test]
    fn runs_that_were_missed_are_runs() {
        for (part, expected) in [(0, (54, 45, 9)), (1, (20, 15, 5))] {
            let mut history = CounterHistory::default();
            history.begin(&Session { start_ns: 100, part, ..Session::default() });
            for (time_ns, runs, missed) in [(100, 30, 4), (200, 45, 9)] {
                let mut snapshot = snapshot(time_ns, runs);
                snapshot.targets[0].counts.as_mut().unwrap().misses = Some(missed);
                history.programs(&snapshot, &Window::everything());
            }
            let sum = &history.targets.values().next().unwrap().track.sum;
            assert_eq!((sum.runs, sum.measured, sum.misses.unwrap()), expected, "{part}");
        }
    }
}
