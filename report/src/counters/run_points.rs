//! Run statistics at moments that a recording is cut at: how much programs ran from each to the next.

use super::history::Snapshots;
use crate::index::Index;
use crate::index::run_moments::RunMoments;
use crate::index::runs::{On, is_throughout};
use crate::input::recording::Recording;
use bprec_format::state::{RunStats, State};
use rustc_hash::{FxHashMap, FxHashSet};

/// Totals of programs at moments of the recording. Memory grows with the programs, not with the length of the recording.
#[derive(Debug, Default)]
pub(crate) struct RunPoints {
    moments: Vec<Moment>,
    /// By id and load time: totals, by position of the moment.
    programs: FxHashMap<(u32, u64), Vec<Totals>>,
    /// The programs that are asked about; `None`: any.
    asked: Option<FxHashSet<(u32, u64)>>,
}

/// When a snapshot was taken.
#[derive(Debug, Clone, Copy)]
struct Moment {
    time_ns: u64,
    /// For how long statistics had been on; as long as time has passed where they always are.
    on_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Totals {
    moment: usize,
    runs: u64,
    time_ns: u64,
}

/// What a program did from one moment to the next.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct RunInterval {
    /// Runs that were counted.
    pub(crate) runs: f64,
    /// Time in them, ns.
    pub(crate) time_ns: f64,
    /// For how long runs were counted, ns.
    pub(crate) on_ns: f64,
}

impl Moment {
    fn on(&self) -> Option<On> {
        Some((self.time_ns, self.on_ns?))
    }
}

impl RunPoints {
    /// For the snapshots at these moments.
    fn new(moments: &RunMoments) -> RunPoints {
        let moments = moments.times_ns().iter().map(|time_ns| Moment { time_ns: *time_ns, on_ns: None });
        RunPoints { moments: moments.collect(), ..RunPoints::default() }
    }

    /// For those of programs that share a hook with others.
    pub(crate) fn of_sharers(index: &Index) -> RunPoints {
        let groups = index.hooks.groups().iter().filter(|group| group.programs.len() > 1);
        let programs = groups.flat_map(|group| &group.programs);
        let keys = programs.filter_map(|program| index.programs.list.get(*program as usize)?.key());
        RunPoints { asked: Some(keys.collect()), ..RunPoints::new(&index.run_moments) }
    }

    /// Those of a recording.
    pub(crate) fn of(recording: &Recording<'_>, index: &Index) -> RunPoints {
        let mut points = RunPoints::new(&index.run_moments);
        Snapshots::new(recording, index).all(|state| {
            if let State::RunStats(stats) = state
                && index.states.has_run_stats_at(stats.time_ns)
            {
                points.add(&stats);
            }
        });
        points
    }

    /// Takes in a snapshot, or a part of one. What does not follow is the matter of whoever shows these numbers.
    pub(crate) fn add(&mut self, stats: &RunStats) {
        if self.asked.as_ref().is_some_and(FxHashSet::is_empty) {
            return;
        }
        let Ok(position) = self.moments.binary_search_by_key(&stats.time_ns, |moment| moment.time_ns) else { return };
        self.moments[position].on_ns = stats.on_ns;
        for program in &stats.programs {
            let key = (program.id, program.load_time_ns);
            if self.asked.as_ref().is_some_and(|asked| !asked.contains(&key)) {
                continue;
            }
            let totals = self.programs.entry(key).or_default();
            if totals.last().is_none_or(|last| last.moment < position) {
                totals.push(Totals { moment: position, runs: program.run_cnt, time_ns: program.run_time_ns });
            }
        }
    }

    /// Times of the moments, ns of the recording's clock, upwards.
    pub(crate) fn times_ns(&self) -> Vec<u64> {
        self.moments.iter().map(|moment| moment.time_ns).collect()
    }

    /// Runs of a program in an interval, and in how many ns of it; `None` where that is not known. A program that was loaded at `loaded_ns`
    /// began with nothing.
    pub(crate) fn runs_in(&self, key: (u32, u64), loaded_ns: Option<u64>, interval: u32) -> Option<(u64, u64)> {
        let interval = interval as usize;
        let (from, to) = (self.moments.get(interval)?, self.moments.get(interval + 1)?);
        let totals = self.programs.get(&key)?;
        let at = |moment: usize| {
            let at = totals.binary_search_by_key(&moment, |totals| totals.moment).ok()?;
            Some(totals[at].runs)
        };
        let came = loaded_ns.filter(|loaded_ns| (from.time_ns..to.time_ns).contains(loaded_ns));
        let (from_ns, before) = match came {
            // For how long statistics were on in a part of the interval nothing tells.
            Some(_) if !is_throughout(from.on(), to.on()) => return None,
            Some(loaded_ns) => (loaded_ns, 0),
            None => (from.time_ns, at(interval)?),
        };
        Some((at(interval + 1)?.checked_sub(before)?, to.time_ns - from_ns))
    }

    /// What a program did from each moment to the next; none where nothing is known of it. One that `came` during the recording began
    /// with nothing.
    pub(crate) fn of_program(&self, key: (u32, u64), came: bool) -> Vec<RunInterval> {
        let Some(totals) = self.programs.get(&key) else { return Vec::new() };
        let mut totals = totals.iter().peekable();
        let mut before: Option<(u64, u64)> = came.then_some((0, 0));
        let mut intervals = Vec::with_capacity(self.moments.len().saturating_sub(1));
        for (at, moment) in self.moments.iter().enumerate() {
            let now = totals.next_if(|it| it.moment == at).map(|it| (it.runs, it.time_ns));
            if let Some(earlier) = at.checked_sub(1).map(|earlier| &self.moments[earlier]) {
                let length_ns = moment.time_ns.saturating_sub(earlier.time_ns) as f64;
                let on_ns = moment.on_ns.zip(earlier.on_ns).map(|(to, from)| to.saturating_sub(from) as f64);
                let grown = |of: fn((u64, u64)) -> u64| match (before, now) {
                    (Some(before), Some(now)) => of(now).saturating_sub(of(before)) as f64,
                    _ => 0.0,
                };
                intervals.push(RunInterval {
                    runs: grown(|totals| totals.0),
                    time_ns: grown(|totals| totals.1),
                    on_ns: on_ns.unwrap_or(length_ns),
                });
            }
            before = now.or(before);
        }
        intervals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bprec_format::state::ProgramRuns;

    fn stats(time_ns: u64, run_cnt: u64) -> RunStats {
        let runs = ProgramRuns { id: 7, load_time_ns: 100, run_time_ns: run_cnt * 5, run_cnt, recursion_misses: None };
        RunStats { time_ns, programs: vec![runs], on_ns: None }
    }

    fn points(counts: impl Iterator<Item = (u64, u64)> + Clone) -> RunPoints {
        let mut points = RunPoints::new(&RunMoments::new(counts.clone().map(|(time_ns, _)| time_ns)));
        counts.for_each(|(time_ns, runs)| points.add(&stats(time_ns, runs)));
        points
    }

    #[test]
    fn intervals_are_what_totals_grew_by() {
        let points = points([(10, 100), (20, 103), (20, 999), (30, 110), (25, 1)].into_iter());
        assert_eq!(points.times_ns(), [10, 20, 30]);
        let interval = |runs: f64| RunInterval { runs, time_ns: runs * 5.0, on_ns: 10.0 };
        assert_eq!(points.of_program((7, 100), false), [interval(3.0), interval(7.0)]);
        assert!(points.of_program((8, 100), false).is_empty());
    }

    /// However many snapshots there are, what happened between those that are kept adds up.
    #[test]
    fn intervals_of_long_recordings_add_up() {
        let points = points((0..5_000).map(|at| (at * 1_000, at * at)));
        let sum: f64 = points.of_program((7, 100), false).iter().map(|it| it.runs).sum();
        let last = points.times_ns().last().unwrap() / 1_000;
        assert_eq!(sum, (last * last) as f64);
    }

    #[test]
    fn runs_of_an_interval_are_known_from_both_of_its_ends() {
        let mut points = points([(10, 100), (20, 103), (30, 110)].into_iter());
        let mut late = stats(30, 4);
        late.programs[0].id = 8;
        points.add(&late);
        let runs_in = |id, loaded_ns, interval| points.runs_in((id, 100), loaded_ns, interval);
        assert_eq!([0, 1, 2].map(|interval| runs_in(7, None, interval)), [Some((3, 10)), Some((7, 10)), None]);
        // It came at 26, and nothing is known of when it did not.
        assert_eq!((runs_in(8, Some(26), 1), runs_in(8, Some(26), 0), runs_in(8, None, 1)), (Some((4, 4)), None, None));
        assert_eq!(runs_in(9, None, 0), None);
    }
}
