//! Run statistics: what the kernel counted between two snapshots.

use crate::window::Window;
use bprec_format::state::{ProgramRuns, RunStats};
use std::collections::BTreeMap;

/// By part of the window: the first and last snapshot in it.
type Snapshots = BTreeMap<usize, [(u64, ProgramRuns); 2]>;

/// First and last snapshot of each program in each part of the window.
#[derive(Debug, Default)]
pub(crate) struct RunHistory {
    snapshots: BTreeMap<(u32, u64), Snapshots>,
    /// Snapshots were taken.
    pub(crate) any: bool,
}

/// What happened between snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunDelta {
    pub(crate) runs: u64,
    pub(crate) time_ns: u64,
    pub(crate) misses: Option<u64>,
    /// From when to when, ns of the recording's clock.
    pub(crate) span: (u64, u64),
}

impl RunHistory {
    pub(crate) fn add(&mut self, stats: &RunStats, window: &Window) {
        let Some(part) = window.part_of(stats.time_ns) else { return };
        self.any = true;
        for program in &stats.programs {
            let snapshot = (stats.time_ns, *program);
            let parts = self.snapshots.entry((program.id, program.load_time_ns)).or_default();
            let [first, last] = parts.entry(part).or_insert([snapshot, snapshot]);
            if stats.time_ns < first.0 {
                *first = snapshot;
            }
            if stats.time_ns >= last.0 {
                *last = snapshot;
            }
        }
    }

    /// What the program did in the window. One that was loaded in the window, at `loaded_ns`, started from 0; of any other
    /// there must be two snapshots in a part of it. `None` also when the counts do not grow, as nothing can be said then.
    pub(crate) fn delta(
        &self,
        id: u32,
        load_time_ns: u64,
        loaded_ns: Option<u64>,
        window: &Window,
    ) -> Option<RunDelta> {
        let loaded = loaded_ns.and_then(|loaded_ns| Some((window.part_of(loaded_ns)?, loaded_ns)));
        let zero = ProgramRuns { recursion_misses: Some(0), ..ProgramRuns::default() };
        let mut sum: Option<RunDelta> = None;
        for (part, [first, last]) in self.snapshots.get(&(id, load_time_ns))? {
            let (from_ns, from, to) = match loaded {
                Some((loaded_in, loaded_ns)) if loaded_in == *part => (loaded_ns, &zero, &last.1),
                _ if first.0 == last.0 => continue,
                _ => (first.0, &first.1, &last.1),
            };
            let delta = between(from, to, (from_ns, last.0))?;
            sum = Some(sum.map_or(delta, |sum| sum.and(&delta)));
        }
        sum
    }
}

fn between(from: &ProgramRuns, to: &ProgramRuns, span: (u64, u64)) -> Option<RunDelta> {
    Some(RunDelta {
        runs: to.run_cnt.checked_sub(from.run_cnt)?,
        time_ns: to.run_time_ns.checked_sub(from.run_time_ns)?,
        misses: to.recursion_misses.zip(from.recursion_misses).and_then(|(to, from)| to.checked_sub(from)),
        span,
    })
}

impl RunDelta {
    /// With what happened in another part of the window.
    fn and(&self, other: &RunDelta) -> RunDelta {
        RunDelta {
            runs: self.runs.saturating_add(other.runs),
            time_ns: self.time_ns.saturating_add(other.time_ns),
            misses: self.misses.zip(other.misses).map(|(mine, theirs)| mine.saturating_add(theirs)),
            span: (self.span.0.min(other.span.0), self.span.1.max(other.span.1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimeRange;

    fn stats(time_ns: u64, run_cnt: u64, run_time_ns: u64, misses: Option<u64>) -> RunStats {
        let runs = ProgramRuns { id: 7, load_time_ns: 100, run_time_ns, run_cnt, recursion_misses: misses };
        RunStats { time_ns, programs: vec![runs] }
    }

    #[test]
    fn runs_are_the_difference_of_the_outermost_snapshots_in_the_window() {
        let all = Window::new(&TimeRange::All, None).unwrap();
        let mut history = RunHistory::default();
        for snapshot in [stats(20, 15, 1500, Some(3)), stats(10, 10, 1000, Some(3)), stats(30, 40, 4100, Some(4))] {
            history.add(&snapshot, &all);
        }
        assert_eq!(
            history.delta(7, 100, None, &all),
            Some(RunDelta { runs: 30, time_ns: 3100, misses: Some(1), span: (10, 30) })
        );
        assert_eq!(
            history.delta(7, 100, Some(5), &all),
            Some(RunDelta { runs: 40, time_ns: 4100, misses: Some(4), span: (5, 30) })
        );
        assert_eq!(history.delta(7, 101, None, &all), None, "another program of that id");

        let part = Window::new(&TimeRange::Absolute(Some(15), None), None).unwrap();
        let mut history = RunHistory::default();
        for snapshot in [stats(10, 10, 1000, None), stats(20, 15, 1500, None), stats(30, 40, 4100, None)] {
            history.add(&snapshot, &part);
        }
        assert_eq!(
            history.delta(7, 100, None, &part),
            Some(RunDelta { runs: 25, time_ns: 2600, misses: None, span: (20, 30) })
        );
    }

    #[test]
    fn what_lies_between_parts_of_the_window_is_not_counted() {
        let window = Window::new(&"0%-35%,75%-100%".parse().unwrap(), Some((0, 1000))).unwrap();
        let mut history = RunHistory::default();
        for at in 1..=10 {
            history.add(&stats(at * 100, at * at, at, None), &window);
        }
        // From 1 at 100 to 9 at 300; from 64 at 800 to 100 at 1000.
        let delta = history.delta(7, 100, None, &window).unwrap();
        assert_eq!((delta.runs, delta.time_ns, delta.span), (8 + 36, 2 + 2, (100, 1000)));
        assert_eq!(history.delta(7, 100, Some(50), &window).unwrap().runs, 9 + 36, "loaded at 50");
    }

    #[test]
    fn one_snapshot_or_a_falling_count_say_nothing() {
        let all = Window::new(&TimeRange::All, None).unwrap();
        let mut history = RunHistory::default();
        history.add(&stats(10, 10, 1000, None), &all);
        assert_eq!(history.delta(7, 100, None, &all), None);
        history.add(&stats(20, 9, 1000, None), &all);
        assert_eq!(history.delta(7, 100, None, &all), None);
    }
}
