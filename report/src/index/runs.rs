//! Runs of a program between two moments, the time spent in these runs, and the margins of both numbers, for all views.
//!
//! Counts are read at moments, each with the time for which the kernel's run statistics had been on. Between two moments, statistics are:
//! - On (for at least 98 % of the time): the growth of counts is exact.
//! - On for a part of the time, a *window*: growth divided by the time on is a rate.
//! - Off, a *gap*: growth was counted for other tools for an unknown time, and is not used. The rate in a gap is the mean of the rates of the two
//!   windows next to it, weighted by their lengths up to the usual length of a window. Before the first and after the last window, it is the rate of
//!   this window.
//!
//! Each window therefore represents a time `Λ`: itself and its share of the gaps next to it. Statistics were on for `o` of this time. The runs are
//! `Σ rate·Λ`. Windows are not pooled: a busy time counts by its length, even if little of it was seen. The runs of a window are spread evenly over
//! the time that the window represents, so the runs of all parts of the time add up to the runs of the whole time.
//!
//! Neighbouring windows are taken to differ only by chance. Let `d` be the difference of their rates, `o` the time seen by one window, and `o'` the
//! time seen by its neighbour. Then `v = d²·o'/(o + o')` is the variance of the window's rate; with two neighbours, the mean of both counts. The
//! variance of the runs is `Σ v·Λ·(Λ − o)`: 0 if all was seen.
//!
//! The margin is Student's 95 % quantile times the root of the variance, with the degrees of freedom of this sum of squares. With fewer than five
//! windows, it is at least the margin by chance alone. If no run was seen, the margin is `3·(time not seen)/(time seen)` runs.

mod margin;
mod slowing;

use crate::input::window::Window as Selected;
use crate::model::{Anomaly, Known, Reason, SnapshotFault};
use bprec_format::bprec::state::{ProgramRuns, RunStats};
use margin::{margin, time_margin_ns};
use rustc_hash::FxHashMap;
pub(crate) use slowing::SampledTime;
use slowing::Slowing;

/// Id and load time of a program.
pub(crate) type ProgramKey = (u32, u64);

/// Statistics that were on for at least this share of the time count as always on. With a smaller share, they count as on in windows.
const ALWAYS: f64 = 0.98;
/// Least number of windows for an estimate if a program was loaded during the recording: with fewer, it may have been loaded only for a moment.
const FEW_WINDOWS: usize = 3;
/// Limit on moments. Beyond it, every other moment is dropped, so that two intervals become one.
const MOST_MOMENTS: usize = 1 << 13;
/// Limit on points (counts of a program at a moment) of all programs. Beyond it, every other moment is dropped.
const MOST_POINTS: usize = 1 << 20;
/// Number of moments up to which the limit on points drops no moment.
const LEAST_MOMENTS: usize = 64;
/// Approximate limit on the intervals of [`RunSeries::cuts`].
const MOST_CUTS: usize = 256;

/// Run counts of all programs at common moments.
#[derive(Debug, Default)]
pub(crate) struct RunSeries {
    moments: Vec<Moment>,
    programs: FxHashMap<ProgramKey, ProgramSeries>,
    /// Number of points of all programs.
    points: usize,
    /// Total times, ns, for which statistics were on until the last reading: for the recorder, and for other tools.
    told: Option<(u64, u64)>,
    windows: Vec<StatsWindow>,
    /// Moments that cut the recording into intervals. Each window is in one interval.
    cuts: Vec<u64>,
    /// Median of the time with statistics on, ns, in windows next to a gap.
    usual_ns: f64,
    /// Slowdown of programs while their runs are counted, if known.
    slowing: FxHashMap<ProgramKey, Slowing>,
}

/// Moment at which counts were read.
#[derive(Debug, Clone, Copy)]
struct Moment {
    time_ns: u64,
    /// Time for which statistics had been on since the first moment, ns.
    on_ns: u64,
    /// Number of programs read. Most readings have all programs, but the reading at a program's unload has only this program.
    read: usize,
}

/// Window: an interval in which statistics were on.
#[derive(Debug, Clone, Copy)]
struct StatsWindow {
    /// Position of the moment at the window's end.
    until: u32,
    from_ns: u64,
    to_ns: u64,
    /// Time in the window for which statistics were on, ns.
    on_ns: f64,
}

/// Counts of a program.
#[derive(Debug, Default)]
struct ProgramSeries {
    /// Start of the series before the first reading: the program's load, where all counts are zero, or the moment at which the recorder found the
    /// program.
    began: Option<Began>,
    /// Position of the first moment at which the program was read.
    first: u32,
    /// Position of the last moment at which the program was read.
    last: u32,
    /// Latest number of runs and time in them, ns, as the kernel reported them.
    told: (u64, u64),
    /// First reading, and readings with changed counts.
    points: Vec<Point>,
    /// True if the kernel counts runs refused by its recursion guard.
    has_misses: bool,
    fell: Option<SnapshotFault>,
}

/// Start of a program's counts, with their values.
#[derive(Debug, Clone, Copy, Default)]
struct Began {
    time_ns: u64,
    counts: ProgramRuns,
}

/// Counts at a moment, without the growth in gaps.
#[derive(Debug, Clone, Copy)]
struct Point {
    moment: u32,
    /// Moment of the previous reading of the program.
    since: u32,
    runs: u64,
    time_ns: u64,
    misses: u64,
}

/// Runs of a program in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Stretch {
    pub(crate) runs: f64,
    pub(crate) time_ns: f64,
    /// Runs refused by the kernel's recursion guard, counted also while statistics are off. `None` if the kernel does not count them.
    pub(crate) misses: Option<f64>,
    /// Counted runs.
    pub(crate) counted: f64,
    /// Time in the counted runs, ns.
    pub(crate) counted_time_ns: f64,
    /// Time for which runs were counted, ns.
    pub(crate) counted_ns: f64,
    /// Length of the stretch, ns.
    pub(crate) length_ns: f64,
    /// Start and end, ns of the recording's clock.
    pub(crate) span: (u64, u64),
    /// True if statistics were on for a part of the time only, or if the stretch starts or ends between two readings.
    pub(crate) is_estimate: bool,
    /// Half of the 95 % confidence interval of the runs; `None` with too few windows.
    pub(crate) margin: Option<f64>,
    /// Half of the 95 % confidence interval of the time in runs, ns; `None` without runs or with too few windows.
    pub(crate) time_margin_ns: Option<f64>,
}

impl Stretch {
    /// Rounds the runs of successive stretches to whole runs, so that their sum equals the rounded sum of the exact runs.
    pub(crate) fn counts(steps: &[Stretch]) -> Vec<u64> {
        let (mut sum, mut counted) = (0.0, 0);
        let counts = steps.iter().map(|step| {
            sum += step.runs;
            let before = std::mem::replace(&mut counted, sum.round() as u64);
            counted.saturating_sub(before)
        });
        counts.collect()
    }

    /// Runs, rounded.
    pub(crate) fn count(&self) -> u64 {
        self.runs.round() as u64
    }

    /// Time per run, ns; `None` without runs.
    pub(crate) fn ns_per_run(&self) -> Option<f64> {
        (self.runs > 0.0).then(|| self.time_ns / self.runs)
    }
}

impl RunSeries {
    /// Adds a reading, or a part of a reading. A reading that is dated before the previous reading has the first counts of programs that the recorder
    /// has just found.
    pub(crate) fn add(&mut self, stats: &RunStats) {
        let last = self.moments.last().copied();
        if last.is_some_and(|last| stats.time_ns < last.time_ns) {
            for counts in &stats.programs {
                let began = Began { time_ns: stats.time_ns, counts: *counts };
                let of = self.programs.entry((counts.id, counts.load_time_ns)).or_default();
                if of.points.is_empty() {
                    of.began.get_or_insert(began);
                }
            }
            return;
        }
        if last.is_none_or(|last| stats.time_ns > last.time_ns) {
            let last = last.unwrap_or(Moment { time_ns: stats.time_ns, on_ns: 0, read: 0 });
            let passed_ns = stats.time_ns - last.time_ns;
            let told = stats.on_ns.map(|on_ns| (on_ns, stats.others_ns.unwrap_or(0)));
            // If either reading does not say how long statistics had been on, statistics count as on for the whole time between the readings.
            let on_ns = self.told.zip(told).map_or(passed_ns, |(from, to)| on_between(from, to, passed_ns));
            self.told = told;
            self.moments.push(Moment { time_ns: stats.time_ns, on_ns: last.on_ns.saturating_add(on_ns), read: 0 });
        }
        let moment = self.moments.len() - 1;
        self.moments[moment].read += stats.programs.len();
        for program in &stats.programs {
            let of = self.programs.entry((program.id, program.load_time_ns)).or_default();
            let points = of.points.len();
            let before = self.moments[of.last as usize];
            of.add(program, moment as u32, self.moments[moment].on_ns > before.on_ns, before.time_ns);
            self.points += of.points.len() - points;
        }
        if self.moments.len() > MOST_MOMENTS || self.points > MOST_POINTS && self.moments.len() > LEAST_MOMENTS {
            self.thin();
        }
    }

    /// Drops every other moment except the last.
    fn thin(&mut self) {
        let last = self.moments.len() - 1;
        let kept = |moment: usize| moment.div_ceil(2);
        self.moments = (0..=last).filter(|at| at % 2 == 0 || *at == last).map(|at| self.moments[at]).collect();
        self.points = 0;
        for program in self.programs.values_mut() {
            program.first = kept(program.first as usize) as u32;
            program.last = kept(program.last as usize) as u32;
            for point in &mut program.points {
                (point.moment, point.since) = (kept(point.moment as usize) as u32, point.since / 2);
            }
            // After the drop, several points may share a moment. The last of them has the counts at this moment.
            program.points.reverse();
            program.points.dedup_by_key(|point| point.moment);
            program.points.reverse();
            program.points.shrink_to_fit();
            self.points += program.points.len();
        }
    }

    /// Adds the load time of a program: its counts start at zero. A reading takes a while, so it may have a program that was loaded after the time of
    /// the reading. The load time is then set to just before this time.
    pub(crate) fn loaded(&mut self, key: ProgramKey, loaded_ns: u64) {
        if let Some(program) = self.programs.get_mut(&key).filter(|program| !program.points.is_empty()) {
            let time_ns = loaded_ns.min(self.moments[program.first as usize].time_ns.saturating_sub(1));
            program.began = Some(Began { time_ns, ..Began::default() });
        }
    }

    /// Removes a program that no later query needs.
    pub(crate) fn forget(&mut self, key: ProgramKey) {
        self.points -= self.programs.remove(&key).map_or(0, |program| program.points.len());
    }

    /// Finds windows and intervals. Must be called after the last reading and before the first query.
    pub(crate) fn settle(&mut self) {
        let windows = self.moments.windows(2).zip(1..).filter_map(|(pair, until)| window(pair[0], pair[1], until));
        self.windows = windows.collect();
        let beside_gaps = self.windows.windows(2).filter(|pair| pair[0].to_ns < pair[1].from_ns);
        let mut lengths: Vec<f64> = beside_gaps.flat_map(|pair| [pair[0].on_ns, pair[1].on_ns]).collect();
        lengths.sort_by(f64::total_cmp);
        self.usual_ns = lengths.get(lengths.len() / 2).copied().unwrap_or(f64::INFINITY);
        self.cuts = self.cut_at(MOST_CUTS);
    }

    /// Returns true if statistics had been on for other tools.
    pub(super) fn were_on_for_others(&self) -> bool {
        self.told.is_some_and(|(_, others_ns)| others_ns > 0)
    }

    /// Moments at which counts were read, ns of the recording's clock, ascending.
    pub(crate) fn moments_ns(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.moments.iter().map(|moment| moment.time_ns)
    }

    /// Returns true if counts were read in the selected time.
    pub(crate) fn is_in(&self, selected: &Selected) -> bool {
        self.moments_ns().any(|time_ns| selected.contains(time_ns))
    }

    /// Programs with counts, by id and load time.
    pub(crate) fn keys(&self) -> Vec<ProgramKey> {
        let mut keys: Vec<ProgramKey> = self.programs.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// Moments that cut the time into a limited number of intervals.
    pub(crate) fn cuts(&self) -> &[u64] {
        &self.cuts
    }

    /// Returns the number of the interval between cuts that contains a time; `None` before the first and after the last cut.
    pub(crate) fn interval(&self, time_ns: u64) -> Option<u32> {
        let begun = self.cuts.partition_point(|cut_ns| *cut_ns <= time_ns);
        (begun < self.cuts.len()).then(|| begun.checked_sub(1).map(|interval| interval as u32)).flatten()
    }

    /// Runs of a program in an interval between two cuts.
    pub(crate) fn in_interval(&self, key: ProgramKey, interval: u32) -> Known<Stretch> {
        match self.cuts.get(interval as usize..).unwrap_or_default() {
            [from_ns, to_ns, ..] => self.between(key, *from_ns, *to_ns),
            _ => Known::Unknown(Reason::NoSnapshots),
        }
    }

    /// Returns at most `most` + 1 moments that cut the time into intervals. Each except the first and last is the end of a window, so that no window
    /// belongs to two intervals.
    pub(crate) fn cut_at(&self, most: usize) -> Vec<u64> {
        let (Some(first), Some(last)) = (self.moments.first(), self.moments.last()) else { return Vec::new() };
        let all = usual(self.moments.iter().map(|moment| moment.read).collect());
        let of_all = self.windows.iter().filter(|it| self.moments[it.until as usize].read >= all.div_ceil(2));
        let ends: Vec<u64> = std::iter::once(first.time_ns).chain(of_all.map(|it| it.to_ns)).collect();
        let every = ends.len().div_ceil(most.max(1)).max(1).next_power_of_two();
        let mut cuts: Vec<u64> = ends.into_iter().step_by(every).collect();
        if cuts.last() != Some(&last.time_ns) {
            cuts.push(last.time_ns);
        }
        cuts
    }

    /// Returns the runs of a program between two times. Times before its first count or after its last count are left out.
    pub(crate) fn between(&self, key: ProgramKey, from_ns: u64, to_ns: u64) -> Known<Stretch> {
        let Some(program) = self.program(key) else { return Known::Unknown(Reason::NoSnapshots) };
        let (began_ns, ended_ns) = self.life(program);
        self.over(key, program, &[(from_ns.max(began_ns), to_ns.min(ended_ns))])
    }

    /// Returns the runs of a program in the selected time. In each part of this time, they are counted from the first reading, or from the program's
    /// load, to the last reading.
    pub(crate) fn within(&self, key: ProgramKey, selected: &Selected) -> Known<Stretch> {
        let Some(program) = self.program(key) else { return Known::Unknown(Reason::NoSnapshots) };
        self.over(key, program, &self.readings_in(program, selected))
    }

    /// Returns the runs between successive `cuts`, which together are the runs in the selected time.
    pub(crate) fn steps(&self, key: ProgramKey, selected: &Selected, cuts: &[u64]) -> Known<Vec<Stretch>> {
        let Some(program) = self.program(key) else { return Known::Unknown(Reason::NoSnapshots) };
        let ranges = self.readings_in(program, selected);
        // If the runs of the whole time are unknown, the runs of its parts are unknown too.
        self.over(key, program, &ranges).map(|_| {
            let mut steps = Vec::new();
            for (from_ns, to_ns) in ranges {
                let inside = cuts.partition_point(|cut| *cut <= from_ns)..cuts.partition_point(|cut| *cut < to_ns);
                let inside = cuts.get(inside).unwrap_or_default();
                let edges: Vec<u64> = [&[from_ns], inside, &[to_ns]].concat();
                steps.extend(
                    edges
                        .windows(2)
                        .map(|pair| self.beside_windows(key, self.measure(program, &[(pair[0], pair[1])]).1)),
                );
            }
            steps
        })
    }

    fn program(&self, key: ProgramKey) -> Option<&ProgramSeries> {
        self.programs.get(&key).filter(|program| !program.points.is_empty())
    }

    /// Returns the first and last time of a program's counts.
    fn life(&self, program: &ProgramSeries) -> (u64, u64) {
        let at = |moment: u32| self.moments[moment as usize].time_ns;
        (program.began.map_or_else(|| at(program.first), |began| began.time_ns), at(program.last))
    }

    /// Returns the times from the first to the last reading of a program in each part of the selected time.
    fn readings_in(&self, program: &ProgramSeries, selected: &Selected) -> Vec<(u64, u64)> {
        let seen = &self.moments[program.first as usize..=program.last as usize];
        let readings = |(from_ns, to_ns): &(u64, u64)| {
            let first = seen.partition_point(|moment| moment.time_ns < *from_ns);
            let last = seen.partition_point(|moment| moment.time_ns <= *to_ns).checked_sub(1)?;
            let came =
                program.began.map(|began| began.time_ns).filter(|began_ns| (*from_ns..=*to_ns).contains(began_ns));
            let from_ns = came.or(seen.get(first).map(|moment| moment.time_ns))?;
            let to_ns = seen[last].time_ns;
            (from_ns < to_ns || came == Some(to_ns)).then_some((from_ns, to_ns))
        };
        selected.parts().iter().filter_map(readings).collect()
    }

    fn over(&self, key: ProgramKey, program: &ProgramSeries, ranges: &[(u64, u64)]) -> Known<Stretch> {
        if let Some(fell) = &program.fell {
            return Known::Impossible(Box::new(Anomaly::SnapshotsDisagree { first: fell.clone(), more: 0 }));
        }
        if ranges.is_empty() || ranges.iter().any(|(from_ns, to_ns)| from_ns > to_ns) {
            return Known::Unknown(Reason::NoSnapshots);
        }
        let (windows, stretch) = self.measure(program, ranges);
        let is_seen = stretch.counted_ns > 0.0 || windows > 0 || stretch.length_ns == 0.0;
        let is_partly_seen = stretch.counted_ns < stretch.length_ns * ALWAYS;
        if !is_seen || is_partly_seen && program.began.is_some() && windows < FEW_WINDOWS {
            return Known::Unknown(Reason::StatisticsWereOff);
        }
        Known::Value(self.beside_windows(key, stretch))
    }

    /// Multiplies the runs of a stretch that were outside of windows by the program's slowdown: programs run more often while they are not counted.
    fn beside_windows(&self, key: ProgramKey, stretch: Stretch) -> Stretch {
        let Some(Slowing { factor, margin }) = self.slowing.get(&key).copied() else { return stretch };
        let scaled = |all: f64, counted: f64| counted + (all - counted).max(0.0) * factor;
        let wider = |chance: f64, all: f64, counted: f64| (chance * factor).hypot((all - counted).max(0.0) * margin);
        let Stretch { runs, time_ns, counted, counted_time_ns, .. } = stretch;
        Stretch {
            runs: scaled(runs, counted),
            time_ns: scaled(time_ns, counted_time_ns),
            margin: stretch.margin.map(|chance| wider(chance, runs, counted)),
            time_margin_ns: stretch.time_margin_ns.map(|chance| wider(chance, time_ns, counted_time_ns)),
            ..stretch
        }
    }

    /// Returns the number of windows that represent these times, and the runs of a program in these times.
    fn measure(&self, program: &ProgramSeries, ranges: &[(u64, u64)]) -> (usize, Stretch) {
        let (from_ns, to_ns) = (ranges[0].0, ranges[ranges.len() - 1].1);
        let strata = self.strata(program, from_ns, to_ns);
        let overlap = |from: u64, to: u64| {
            let parts = ranges.iter().map(|(a, b)| to.min(*b).saturating_sub(from.max(*a)));
            parts.fold(0, u64::saturating_add) as f64
        };
        let mut stretch = Stretch { span: (from_ns, to_ns), length_ns: overlap(0, u64::MAX), ..Stretch::default() };
        let mut stands: Vec<f64> = strata.iter().map(|it| overlap(it.from_ns, it.to_ns)).collect();
        let seen = strata.iter().zip(&stands).map(|(it, inside)| inside * (it.on_ns / it.length_ns()));
        let seen: Vec<f64> = seen.collect();
        if let (Some(first), Some(last)) = (strata.first(), strata.last()) {
            stands[0] += overlap(0, first.from_ns);
            stands[strata.len() - 1] += overlap(last.to_ns, u64::MAX);
        }
        for (at, pair) in strata.windows(2).enumerate() {
            let gap = overlap(pair[0].to_ns, pair[1].from_ns);
            let [left, right] = [0, 1].map(|side| pair[side].on_ns.min(self.usual_ns));
            stands[at] += gap * left / (left + right);
            stands[at + 1] += gap * right / (left + right);
        }
        for ((it, stands), seen) in strata.iter().zip(&stands).zip(&seen) {
            stretch.runs += it.runs * (stands / it.on_ns);
            stretch.time_ns += it.time_ns * (stands / it.on_ns);
            stretch.counted += it.runs * (seen / it.on_ns);
            stretch.counted_time_ns += it.time_ns * (seen / it.on_ns);
            stretch.counted_ns += seen;
        }
        let is_cut = |edge: u64| strata.iter().any(|it| it.runs > 0.0 && it.from_ns < edge && edge < it.to_ns);
        let is_partly_seen = stretch.counted_ns < stretch.length_ns;
        stretch.is_estimate =
            is_partly_seen || ranges.iter().any(|(from_ns, to_ns)| is_cut(*from_ns) || is_cut(*to_ns));
        (stretch.margin, stretch.time_margin_ns) = match is_partly_seen {
            true => (margin(&strata, &stands, &seen), time_margin_ns(&strata, &stands, &seen)),
            false => (Some(0.0), Some(0.0)),
        };
        let misses = ranges.iter().map(|(a, b)| self.misses_by(program, *b) - self.misses_by(program, *a));
        stretch.misses = program.has_misses.then(|| misses.sum());
        (stands.iter().filter(|stands| **stands > 0.0).count(), stretch)
    }

    /// Returns the windows in a time and the two windows on each side of this time, with a program's runs in each window.
    fn strata(&self, program: &ProgramSeries, from_ns: u64, to_ns: u64) -> Vec<WindowStratum> {
        let own = self.windows.partition_point(|it| it.until <= program.first)
            ..self.windows.partition_point(|it| it.until <= program.last);
        let before = self.windows.partition_point(|it| it.to_ns <= from_ns).saturating_sub(2);
        let behind = self.windows.partition_point(|it| it.from_ns < to_ns) + 2;
        let came = program.began.filter(|_| before <= own.start).and_then(|began| {
            let (first, seen) = (self.moments[program.first as usize], program.points.first()?);
            // Statistics count as on from a program's load to the first moment.
            let lead_ns = self.moments[0].time_ns.saturating_sub(began.time_ns);
            let from = Moment { time_ns: began.time_ns, on_ns: self.on_at(began.time_ns), read: 0 };
            let window = window(from, Moment { on_ns: first.on_ns + lead_ns, ..first }, program.first)?;
            let runs = seen.runs.saturating_sub(began.counts.run_cnt);
            let time_ns = seen.time_ns.saturating_sub(began.counts.run_time_ns);
            Some(WindowStratum::new(&window, runs as f64, time_ns as f64))
        });
        let of = |window: &StatsWindow| {
            let at = program.points.partition_point(|point| point.moment < window.until);
            let now = program.points.get(at).filter(|point| point.since < window.until);
            let Some((now, before)) = now.zip(at.checked_sub(1)) else { return WindowStratum::new(window, 0.0, 0.0) };
            let (runs, time_ns) = now.since(&program.points[before]);
            // A window may start or end at a moment at which only other programs were read. Such a window gets its part of the growth between this
            // program's own readings.
            let on_ns =
                |from: u32, to: u32| (self.moments[to as usize].on_ns - self.moments[from as usize].on_ns) as f64;
            let part = on_ns(window.until - 1, window.until) / on_ns(now.since, now.moment);
            WindowStratum::new(window, runs as f64 * part, time_ns as f64 * part)
        };
        let range = before.max(own.start)..behind.min(own.end);
        came.into_iter().chain(self.windows.get(range).unwrap_or_default().iter().map(of)).collect()
    }

    /// Returns the time for which statistics had been on, interpolated between moments, ns.
    fn on_at(&self, time_ns: u64) -> u64 {
        let behind = self.moments.partition_point(|moment| moment.time_ns <= time_ns);
        let Some(before) = behind.checked_sub(1).map(|at| self.moments[at]) else { return 0 };
        let Some(next) = self.moments.get(behind) else { return before.on_ns };
        let part = (time_ns - before.time_ns) as f64 / (next.time_ns - before.time_ns) as f64;
        before.on_ns.saturating_add(((next.on_ns - before.on_ns) as f64 * part) as u64)
    }

    /// Returns the number of runs refused up to a time, interpolated between readings.
    fn misses_by(&self, program: &ProgramSeries, time_ns: u64) -> f64 {
        let at = |moment: u32| self.moments[moment as usize].time_ns;
        let next = program.points.partition_point(|point| at(point.moment) <= time_ns);
        let before = next.checked_sub(1).map(|before| program.points[before].misses);
        let Some(point) = program.points.get(next) else { return before.unwrap_or(0) as f64 };
        let (began_ns, before) = match (before, program.began) {
            (Some(before), _) => (at(point.since), before),
            (None, Some(began)) => (began.time_ns, began.counts.recursion_misses.unwrap_or(0)),
            (None, None) => return point.misses as f64,
        };
        let part = time_ns.saturating_sub(began_ns) as f64 / (at(point.moment) - began_ns).max(1) as f64;
        before as f64 + point.misses.saturating_sub(before) as f64 * part
    }
}

/// Returns the number of programs in a usual reading: the median, with each reading weighted by the square of its number of programs. Neither many
/// readings of single programs nor one reading of very many programs change this number much.
fn usual(mut read: Vec<usize>) -> usize {
    read.sort_unstable();
    let square = |read: usize| (read as u64).pow(2);
    let half = read.iter().map(|read| square(*read)).sum::<u64>() / 2;
    let mut sum = 0;
    let mut up_to = read.iter().skip_while(|read| {
        sum += square(**read);
        sum <= half
    });
    up_to.next().copied().unwrap_or(0)
}

/// Returns the time for which statistics were on between two moments `passed_ns` apart. If only other tools had statistics on, the result is 0 unless
/// they were on for nearly the whole time ([`ALWAYS`]).
fn on_between(from: (u64, u64), to: (u64, u64), passed_ns: u64) -> u64 {
    let (ours_ns, others_ns) = (to.0.saturating_sub(from.0), to.1.saturating_sub(from.1));
    let on_ns = ours_ns.saturating_add(others_ns).min(passed_ns);
    if ours_ns > 0 || on_ns as f64 >= passed_ns as f64 * ALWAYS { on_ns } else { 0 }
}

/// Returns the window between two moments; `None` if statistics were off.
fn window(from: Moment, to: Moment, until: u32) -> Option<StatsWindow> {
    let (length_ns, on_ns) = ((to.time_ns - from.time_ns) as f64, to.on_ns.saturating_sub(from.on_ns) as f64);
    let on_ns = if on_ns >= length_ns * ALWAYS { length_ns } else { on_ns };
    (on_ns > 0.0).then_some(StatsWindow { until, from_ns: from.time_ns, to_ns: to.time_ns, on_ns })
}

impl ProgramSeries {
    fn add(&mut self, now: &ProgramRuns, moment: u32, is_on: bool, before_ns: u64) {
        let told = (now.run_cnt, now.run_time_ns);
        let misses = now.recursion_misses.unwrap_or(0);
        let Some(last) = self.points.last().copied() else {
            (self.first, self.has_misses) = (moment, now.recursion_misses.is_some());
            self.points = vec![Point { moment, since: moment, runs: told.0, time_ns: told.1, misses }];
            (self.last, self.told) = (moment, told);
            return;
        };
        if self.fell.is_some() || self.last == moment {
            return;
        }
        for (what, from, to) in
            [("runs", self.told.0, told.0), ("time", self.told.1, told.1), ("misses", last.misses, misses)]
        {
            if to < from {
                self.fell = Some(SnapshotFault::Fell { what, from, to, after_ns: before_ns });
                return;
            }
        }
        // Between two readings with statistics off, counts can still grow: another tool had statistics on for an unknown time. This growth is not
        // used.
        let grown = if is_on { (told.0 - self.told.0, told.1 - self.told.1) } else { (0, 0) };
        let since = self.last;
        (self.last, self.told) = (moment, told);
        if grown != (0, 0) || misses != last.misses {
            let (runs, time_ns) = (last.runs.saturating_add(grown.0), last.time_ns.saturating_add(grown.1));
            self.points.push(Point { moment, since, runs, time_ns, misses });
        }
    }
}

impl Point {
    /// Runs and time since an earlier point.
    fn since(&self, before: &Point) -> (u64, u64) {
        (self.runs - before.runs, self.time_ns - before.time_ns)
    }
}

/// Runs of a program in a window.
#[derive(Debug, Clone, Copy)]
struct WindowStratum {
    from_ns: u64,
    to_ns: u64,
    on_ns: f64,
    runs: f64,
    time_ns: f64,
}

impl WindowStratum {
    fn new(window: &StatsWindow, runs: f64, time_ns: f64) -> WindowStratum {
        let StatsWindow { from_ns, to_ns, on_ns, .. } = *window;
        WindowStratum { from_ns, to_ns, on_ns, runs, time_ns }
    }

    fn length_ns(&self) -> f64 {
        (self.to_ns - self.from_ns) as f64
    }
}

#[cfg(test)]
mod tests;
