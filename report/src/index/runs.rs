//! Run statistics: what the kernel counted between two snapshots.

use crate::window::Window;
use bprec_format::state::{ProgramRuns, RunStats};
use std::collections::BTreeMap;

/// By part of the window: the first and last snapshot in it.
type Snapshots = BTreeMap<usize, Part>;

/// What the snapshots in one part of the window come to.
#[derive(Debug, Clone, Copy)]
struct Part {
    first: Snapshot,
    last: Snapshot,
    windows: Windows,
}

/// Counts of a program at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Snapshot {
    time_ns: u64,
    /// For how long statistics had been on; as long as time has passed where they always are.
    on_ns: Option<u64>,
    runs: ProgramRuns,
}

/// Sums over the times that statistics were on, from which follows how far an estimate may be off.
#[derive(Debug, Clone, Copy, Default)]
struct Windows {
    count: f64,
    on: f64,
    runs: f64,
    on_squared: f64,
    runs_squared: f64,
    on_runs: f64,
}

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
    /// Set where statistics were on for a part of that time only: runs and time are estimates from this part.
    pub(crate) estimate: Option<Estimate>,
}

/// How a number was estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// For how long of the time statistics were on.
    pub(crate) on_ns: u64,
    /// Half of the 95 % confidence interval of the runs; `None` when there were too few windows to tell.
    pub(crate) runs_margin: Option<u64>,
}

impl RunHistory {
    pub(crate) fn add(&mut self, stats: &RunStats, window: &Window) {
        let Some(part) = window.part_of(stats.time_ns) else { return };
        self.any = true;
        for program in &stats.programs {
            let snapshot = Snapshot { time_ns: stats.time_ns, on_ns: stats.on_ns, runs: *program };
            let parts = self.snapshots.entry((program.id, program.load_time_ns)).or_default();
            let new = Part { first: snapshot, last: snapshot, windows: Windows::default() };
            let part = parts.entry(part).or_insert(new);
            if stats.time_ns < part.first.time_ns {
                part.first = snapshot;
            }
            if stats.time_ns >= part.last.time_ns {
                part.windows.add(&part.last, &snapshot);
                part.last = snapshot;
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
        for (part, Part { first, last, windows }) in self.snapshots.get(&(id, load_time_ns))? {
            let (from_ns, from, to) = match loaded {
                Some((loaded_in, loaded_ns)) if loaded_in == *part => (loaded_ns, &zero, &last.runs),
                _ if first.time_ns == last.time_ns => continue,
                _ => (first.time_ns, &first.runs, &last.runs),
            };
            let on_ns = last.on_ns.zip(first.on_ns).map(|(to, from)| to.saturating_sub(from));
            let delta = between(from, to, (from_ns, last.time_ns))?.scaled(on_ns, windows);
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
        estimate: None,
    })
}

impl Windows {
    fn add(&mut self, from: &Snapshot, to: &Snapshot) {
        let (Some(from_on), Some(to_on)) = (from.on_ns, to.on_ns) else { return };
        let on = to_on.saturating_sub(from_on) as f64;
        let runs = to.runs.run_cnt.saturating_sub(from.runs.run_cnt) as f64;
        if on > 0.0 {
            self.count += 1.0;
            self.on += on;
            self.runs += runs;
            self.on_squared += on * on;
            self.runs_squared += runs * runs;
            self.on_runs += on * runs;
        }
    }

    /// Half of the 95 % confidence interval of the runs in `span_ns`: that of a ratio of two sums over windows.
    fn margin(&self, span_ns: f64) -> Option<u64> {
        if self.count < 2.0 {
            return None;
        }
        let rate = self.runs / self.on;
        let squares = self.runs_squared - 2.0 * rate * self.on_runs + rate * rate * self.on_squared;
        let unseen = (1.0 - self.on / span_ns).max(0.0);
        let variance = squares.max(0.0) * self.count / (self.count - 1.0) * unseen;
        Some((1.96 * variance.sqrt() / self.on * span_ns).ceil() as u64)
    }
}

/// Statistics that are on for less than this part of the time are on in windows.
const ALWAYS: f64 = 0.98;

impl RunDelta {
    /// As of all of its time, where statistics were on for `on_ns` of it.
    fn scaled(self, on_ns: Option<u64>, windows: &Windows) -> RunDelta {
        let span_ns = self.span.1.saturating_sub(self.span.0) as f64;
        match on_ns {
            Some(on_ns) if on_ns > 0 && (on_ns as f64) < span_ns * ALWAYS => {
                let all = |counted: u64| (counted as f64 * span_ns / on_ns as f64).round() as u64;
                let estimate = Estimate { on_ns, runs_margin: windows.margin(span_ns) };
                RunDelta { runs: all(self.runs), time_ns: all(self.time_ns), estimate: Some(estimate), ..self }
            }
            _ => self,
        }
    }

    /// With what happened in another part of the window.
    fn and(&self, other: &RunDelta) -> RunDelta {
        RunDelta {
            runs: self.runs.saturating_add(other.runs),
            time_ns: self.time_ns.saturating_add(other.time_ns),
            misses: self.misses.zip(other.misses).map(|(mine, theirs)| mine.saturating_add(theirs)),
            span: (self.span.0.min(other.span.0), self.span.1.max(other.span.1)),
            estimate: match (self.estimate, other.estimate) {
                (Some(mine), Some(theirs)) => Some(Estimate {
                    on_ns: mine.on_ns.saturating_add(theirs.on_ns),
                    runs_margin: mine
                        .runs_margin
                        .zip(theirs.runs_margin)
                        .map(|(mine, theirs)| mine.saturating_add(theirs)),
                }),
                (mine, theirs) => mine.or(theirs),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimeRange;

    fn stats(time_ns: u64, run_cnt: u64, run_time_ns: u64, misses: Option<u64>) -> RunStats {
        let runs = ProgramRuns { id: 7, load_time_ns: 100, run_time_ns, run_cnt, recursion_misses: misses };
        RunStats { time_ns, programs: vec![runs], on_ns: None }
    }

    #[test]
    fn sums_over_parts_do_not_wrap() {
        let delta = RunDelta {
            runs: u64::MAX - 1,
            time_ns: u64::MAX - 1,
            misses: Some(u64::MAX - 1),
            span: (0, 1),
            estimate: Some(Estimate { on_ns: u64::MAX - 1, runs_margin: Some(u64::MAX - 1) }),
        };
        let sum = delta.and(&delta);
        assert_eq!((sum.runs, sum.time_ns, sum.misses), (u64::MAX, u64::MAX, Some(u64::MAX)));
        assert_eq!(sum.estimate, Some(Estimate { on_ns: u64::MAX, runs_margin: Some(u64::MAX) }));
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
            Some(RunDelta { runs: 30, time_ns: 3100, misses: Some(1), span: (10, 30), estimate: None })
        );
        assert_eq!(
            history.delta(7, 100, Some(5), &all),
            Some(RunDelta { runs: 40, time_ns: 4100, misses: Some(4), span: (5, 30), estimate: None })
        );
        assert_eq!(history.delta(7, 101, None, &all), None, "another program of that id");

        let part = Window::new(&TimeRange::Absolute(Some(15), None), None).unwrap();
        let mut history = RunHistory::default();
        for snapshot in [stats(10, 10, 1000, None), stats(20, 15, 1500, None), stats(30, 40, 4100, None)] {
            history.add(&snapshot, &part);
        }
        assert_eq!(
            history.delta(7, 100, None, &part),
            Some(RunDelta { runs: 25, time_ns: 2600, misses: None, span: (20, 30), estimate: None })
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

    /// 10 windows of 10 in 1000: what ran evenly is known to the run, what ran in one of them alone hardly at all.
    #[test]
    fn runs_in_windows_are_scaled_to_all_of_the_time() {
        let all = Window::new(&TimeRange::All, None).unwrap();
        let history = |runs_in: fn(u64) -> u64| {
            let mut history = RunHistory::default();
            let mut runs = 0;
            history.add(&RunStats { on_ns: Some(0), ..stats(0, 0, 0, None) }, &all);
            for window in 1..=10 {
                runs += runs_in(window);
                history.add(&RunStats { on_ns: Some(window * 10), ..stats(window * 100, runs, runs * 5, None) }, &all);
            }
            history.delta(7, 100, None, &all).unwrap()
        };
        let even = history(|_| 20);
        assert_eq!((even.runs, even.time_ns), (2000, 10_000));
        assert_eq!(even.estimate, Some(Estimate { on_ns: 100, runs_margin: Some(0) }));
        let bursts = history(|window| if window == 3 { 200 } else { 0 });
        assert_eq!(bursts.runs, 2000);
        // Deviations of the windows from their mean of 20: 180² + 9 · 20²; of ten windows, 90 % of the time unseen.
        let expected = 1.96 * f64::sqrt((180.0 * 180.0 + 9.0 * 400.0) * 10.0 / 9.0 * 0.9) * 10.0;
        let margin = bursts.estimate.unwrap().runs_margin.unwrap();
        assert!((margin as f64 - expected).abs() <= 1.0, "{margin} {expected}");
    }
}
