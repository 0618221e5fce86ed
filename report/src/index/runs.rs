//! Run statistics: what the kernel counted between two snapshots.

use crate::input::window::Window;
use bprec_format::state::{ProgramRuns, RunStats};
use rustc_hash::FxHashMap;

/// By part of the window, in order: the first and last snapshot in it. Nearly always there is one part.
type Snapshots = Vec<(usize, Part)>;

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
    time_ns: f64,
    on_squared: f64,
    runs_squared: f64,
    on_runs: f64,
}

/// First and last snapshot of each program in each part of the window.
#[derive(Debug, Default)]
pub(crate) struct RunHistory {
    snapshots: FxHashMap<(u32, u64), Snapshots>,
    first_on: Option<On>,
    last_on: Option<On>,
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

/// Why nothing is known of the runs in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRuns {
    /// No two snapshots, or counts that do not grow.
    NoSnapshots,
    /// Statistics were hardly on while the program was there.
    NoWindows,
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
        if let Some(on_ns) = stats.on_ns {
            let on = (stats.time_ns, on_ns);
            self.first_on = Some(self.first_on.map_or(on, |first| first.min(on)));
            self.last_on = Some(self.last_on.map_or(on, |last| last.max(on)));
        }
        for program in &stats.programs {
            let snapshot = Snapshot { time_ns: stats.time_ns, on_ns: stats.on_ns, runs: *program };
            let parts = self.snapshots.entry((program.id, program.load_time_ns)).or_default();
            let at = parts.partition_point(|(number, _)| *number < part);
            if parts.get(at).is_none_or(|(number, _)| *number != part) {
                // The first is as large as it has to be: there is one for each program.
                parts.reserve_exact(usize::from(parts.is_empty()));
                parts.insert(at, (part, Part { first: snapshot, last: snapshot, windows: Windows::default() }));
            }
            let (_, part) = &mut parts[at];
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
    /// there must be two snapshots in a part of it.
    ///
    /// # Errors
    /// When nothing can be said: also when the counts do not grow.
    pub(crate) fn delta(
        &self,
        id: u32,
        load_time_ns: u64,
        loaded_ns: Option<u64>,
        window: &Window,
    ) -> Result<RunDelta, NoRuns> {
        let loaded = loaded_ns.and_then(|loaded_ns| Some((window.part_of(loaded_ns)?, loaded_ns)));
        let zero = ProgramRuns { recursion_misses: Some(0), ..ProgramRuns::default() };
        let mut sum: Option<RunDelta> = None;
        for (part, Part { first, last, windows }) in
            self.snapshots.get(&(id, load_time_ns)).ok_or(NoRuns::NoSnapshots)?
        {
            let loaded = loaded.filter(|(loaded_in, _)| loaded_in == part).map(|(_, loaded_ns)| loaded_ns);
            let (from_ns, from, to) = match loaded {
                Some(loaded_ns) => (loaded_ns, &zero, &last.runs),
                None if first.time_ns == last.time_ns => continue,
                None => (first.time_ns, &first.runs, &last.runs),
            };
            let delta = between(from, to, (from_ns, last.time_ns)).ok_or(NoRuns::NoSnapshots)?;
            let is_estimate = self.in_windows() && (loaded.is_some() || !is_throughout(first.on(), last.on()));
            let delta = match is_estimate {
                true => windows.estimate(&delta, loaded.is_some()).ok_or(NoRuns::NoWindows)?,
                false => delta,
            };
            sum = Some(sum.map_or(delta, |sum| sum.and(&delta)));
        }
        sum.ok_or(NoRuns::NoSnapshots)
    }

    /// Statistics were on for a part of the time only.
    fn in_windows(&self) -> bool {
        self.first_on.zip(self.last_on).is_some_and(|(first, last)| !is_throughout(Some(first), Some(last)))
    }
}

/// For how long statistics had been on at a time.
pub(crate) type On = (u64, u64);

/// Whether they were on all the time, as they are where nothing is told of it.
pub(crate) fn is_throughout(first: Option<On>, last: Option<On>) -> bool {
    first.zip(last).is_none_or(|((first_ns, first_on_ns), (last_ns, last_on_ns))| {
        last_on_ns.saturating_sub(first_on_ns) as f64 >= last_ns.saturating_sub(first_ns) as f64 * ALWAYS
    })
}

impl Snapshot {
    fn on(&self) -> Option<On> {
        Some((self.time_ns, self.on_ns?))
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
            self.time_ns += to.runs.run_time_ns.saturating_sub(from.runs.run_time_ns) as f64;
            self.on_squared += on * on;
            self.runs_squared += runs * runs;
            self.on_runs += on * runs;
        }
    }

    /// What happened in all of the time, by what happened while statistics were on; `None` where that was hardly ever. What came during
    /// the recording may have been there for a moment only, which says nothing unless windows met it several times.
    fn estimate(&self, all: &RunDelta, came_meanwhile: bool) -> Option<RunDelta> {
        if self.on == 0.0 || came_meanwhile && self.count < FEW_WINDOWS {
            return None;
        }
        let span_ns = all.span.1.saturating_sub(all.span.0) as f64;
        let scaled = |counted: f64| (counted * (span_ns / self.on).max(1.0)).round() as u64;
        let estimate = Estimate { on_ns: self.on as u64, runs_margin: self.margin(span_ns) };
        Some(RunDelta { runs: scaled(self.runs), time_ns: scaled(self.time_ns), estimate: Some(estimate), ..*all })
    }

    /// Half of the 95 % confidence interval of the runs in `span_ns`: that of a ratio of two sums over windows. What never ran in a
    /// window may have run between them, nobody knows how often.
    fn margin(&self, span_ns: f64) -> Option<u64> {
        if self.count < 2.0 || self.runs == 0.0 {
            return None;
        }
        let rate = self.runs / self.on;
        let squares = self.runs_squared - 2.0 * rate * self.on_runs + rate * rate * self.on_squared;
        let unseen = (1.0 - self.on / span_ns).max(0.0);
        let variance = squares.max(0.0) * self.count / (self.count - 1.0) * unseen;
        Some((student_95(self.count - 1.0) * variance.sqrt() / self.on * span_ns).ceil() as u64)
    }
}

/// Statistics that are on for less than this part of the time are on in windows.
const ALWAYS: f64 = 0.98;
/// What came during the recording has to have met so many windows.
const FEW_WINDOWS: f64 = 3.0;

/// Quantile of Student's distribution for a two-sided interval of 95 %.
fn student_95(degrees: f64) -> f64 {
    const FIRST: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    // Beyond the table: the first terms of its expansion around the normal distribution's 1.96, right to 0.01 from there on.
    FIRST.get(degrees as usize - 1).copied().unwrap_or(1.96 + 2.37 / degrees + 2.8 / (degrees * degrees))
}

impl RunDelta {
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
            Ok(RunDelta { runs: 30, time_ns: 3100, misses: Some(1), span: (10, 30), estimate: None })
        );
        assert_eq!(
            history.delta(7, 100, Some(5), &all),
            Ok(RunDelta { runs: 40, time_ns: 4100, misses: Some(4), span: (5, 30), estimate: None })
        );
        assert_eq!(history.delta(7, 101, None, &all), Err(NoRuns::NoSnapshots), "another program of that id");

        let part = Window::new(&TimeRange::Absolute(Some(15), None), None).unwrap();
        let mut history = RunHistory::default();
        for snapshot in [stats(10, 10, 1000, None), stats(20, 15, 1500, None), stats(30, 40, 4100, None)] {
            history.add(&snapshot, &part);
        }
        assert_eq!(
            history.delta(7, 100, None, &part),
            Ok(RunDelta { runs: 25, time_ns: 2600, misses: None, span: (20, 30), estimate: None })
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
        assert_eq!(history.delta(7, 100, None, &all), Err(NoRuns::NoSnapshots));
        history.add(&stats(20, 9, 1000, None), &all);
        assert_eq!(history.delta(7, 100, None, &all), Err(NoRuns::NoSnapshots));
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
        let expected = 2.262 * f64::sqrt((180.0 * 180.0 + 9.0 * 400.0) * 10.0 / 9.0 * 0.9) * 10.0;
        let margin = bursts.estimate.unwrap().runs_margin.unwrap();
        assert!((margin as f64 - expected).abs() <= 1.0, "{margin} {expected}");
    }

    /// Windows of 10 in 100, in each 20 runs, read when each begins and ends. Somebody else has the kernel count 1000 runs between them.
    #[test]
    fn what_others_have_counted_between_windows_is_not_scaled() {
        let all = Window::new(&TimeRange::All, None).unwrap();
        let mut history = RunHistory::default();
        let (mut on, mut runs) = (0, 0);
        for window in 0..10 {
            runs += 1000;
            history.add(&RunStats { on_ns: Some(on), ..stats(window * 100 + 50, runs, runs, None) }, &all);
            (on, runs) = (on + 10, runs + 20);
            history.add(&RunStats { on_ns: Some(on), ..stats(window * 100 + 60, runs, runs, None) }, &all);
        }
        // 2 runs and 2 ns a ns, from 50 to 960.
        let delta = history.delta(7, 100, None, &all).unwrap();
        assert_eq!((delta.runs, delta.time_ns, delta.estimate.unwrap().on_ns), (1820, 1820, 100));
    }

    /// Windows of 10 in 100 go on while a program comes, runs, and goes.
    #[test]
    fn nothing_is_known_of_what_came_and_went_between_windows() {
        let all = Window::new(&TimeRange::All, None).unwrap();
        let other = |time_ns, on_ns| {
            let runs = ProgramRuns { id: 8, load_time_ns: 1, ..ProgramRuns::default() };
            RunStats { time_ns, programs: vec![runs], on_ns: Some(on_ns) }
        };
        let mut history = RunHistory::default();
        (0..10).for_each(|window| history.add(&other(window * 100, window * 10), &all));
        history.add(&RunStats { on_ns: Some(20), ..stats(230, 0, 0, None) }, &all);
        assert_eq!(history.delta(7, 100, Some(229), &all), Err(NoRuns::NoWindows), "one look");
        history.add(&RunStats { on_ns: Some(20), ..stats(260, 0, 0, None) }, &all);
        assert_eq!(history.delta(7, 100, Some(229), &all), Err(NoRuns::NoWindows), "two looks, no window");
        history.add(&RunStats { on_ns: Some(30), ..stats(320, 500, 500, None) }, &all);
        assert_eq!(
            history.delta(7, 100, Some(229), &all),
            Err(NoRuns::NoWindows),
            "one window says nothing of another time"
        );
        assert_eq!(history.delta(8, 1, None, &all).unwrap().runs, 0);
        assert_eq!(
            history.delta(8, 1, None, &all).unwrap().estimate.unwrap().runs_margin,
            None,
            "of none there is no spread"
        );
    }
}
