//! Spark lines: one bar per equal part of the time, as high as the cost in this part.

use crate::model::text::UNKNOWN;
use crate::model::{EventOverTime, EventReport, IntervalCount, Program, Report, Row, RowOverTime, TimeBound};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bars by height, from zero to the maximum.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Bar of a time in which the program was not loaded, or of a missing value.
const ABSENT: char = '·';
/// Count of bars if the width is unlimited.
const UNLIMITED_BARS: usize = 60;
/// Least count of bars: fewer bars show no trend.
const LEAST_BARS: usize = 8;

/// Number of bars for `free` columns: one per column, but at least [`LEAST_BARS`]. More than `u16::MAX` columns mean an unlimited width.
pub(in crate::view) fn fitting_bars(free: usize) -> usize {
    if free > usize::from(u16::MAX) { UNLIMITED_BARS } else { free.max(LEAST_BARS) }
}

/// Time scale of an event's spark lines.
#[derive(Debug, Clone, Copy)]
pub(in crate::view) struct Scale {
    /// Index of the last interval with samples or counts.
    last: u64,
    intervals_per_bar: u64,
    bar_ns: u64,
}

/// Load time and unload time of a program; `None` if not during the recording.
pub(in crate::view) type Lifetime = (Option<TimeBound>, Option<TimeBound>);

impl Scale {
    /// Scale for lines of at most `most_bars` bars. A bar covers several intervals if there are more intervals than bars.
    pub(in crate::view) fn new(event: &EventOverTime, interval_ns: u64, most_bars: usize) -> Scale {
        let last = intervals(event).saturating_sub(1);
        let intervals_per_bar = last / (most_bars.max(1) as u64) + 1;
        Scale { last, intervals_per_bar, bar_ns: intervals_per_bar.saturating_mul(interval_ns) }
    }

    /// Duration of the time that a bar covers, with its unit.
    pub(in crate::view) fn bar_length(self) -> String {
        length(self.bar_ns)
    }

    /// Bars of a row, scaled to the row's maximum. `heights` are (interval index, value).
    pub(in crate::view) fn line(
        self,
        heights: impl Iterator<Item = (u64, u64)>,
        (loaded, unloaded): Lifetime,
    ) -> String {
        let mut sums = vec![0u64; (self.last / self.intervals_per_bar) as usize + 1];
        for (interval, height) in heights {
            let sum = &mut sums[(interval / self.intervals_per_bar) as usize];
            *sum = sum.saturating_add(height);
        }
        let most = sums.iter().copied().max().unwrap_or(0).max(1);
        let bar = |(at, height): (u64, &u64)| {
            let (from_ns, to_ns) = (at.saturating_mul(self.bar_ns), (at + 1).saturating_mul(self.bar_ns));
            let is_absent = loaded.is_some_and(|bound| bound.after_ns >= to_ns.cast_signed())
                || unloaded.is_some_and(|bound| bound.before_ns <= from_ns.cast_signed());
            match height {
                0 if is_absent => ABSENT,
                // Rounding up gives even the smallest value above zero a visible bar.
                _ => BARS[(u128::from(*height) * 8).div_ceil(u128::from(most)) as usize],
            }
        };
        (0..).zip(&sums).map(bar).collect()
    }
}

/// Count of intervals up to the last interval with samples or counts.
pub(in crate::view) fn intervals(event: &EventOverTime) -> u64 {
    let counted = event.rows.iter().filter_map(|row| row.counted.value()?.intervals.last());
    let ends = event.intervals.last().map(|last| last.interval).into_iter().chain(counted.map(|last| last.interval));
    ends.max().map_or(0, |last| last + 1)
}

/// Returns (interval index, weight of the samples) for each interval.
pub(in crate::view) fn weights(intervals: &[IntervalCount]) -> impl Iterator<Item = (u64, u64)> {
    intervals.iter().map(|interval| (interval.interval, interval.count.weight))
}

/// Bars of values, scaled to the maximum; `·` for a missing value.
pub(super) fn spark(values: impl Iterator<Item = Option<f64>> + Clone) -> String {
    let most = values.clone().flatten().fold(0.0, f64::max);
    let bar = |value: Option<f64>| match value {
        None => ABSENT,
        Some(value) if value > 0.0 => BARS[((value * 8.0 / most).ceil() as usize).clamp(1, 8)],
        Some(_) => BARS[0],
    };
    values.map(bar).collect()
}

fn length(ns: u64) -> String {
    match ns {
        _ if ns.is_multiple_of(1_000_000_000) => format!("{} s", ns / 1_000_000_000),
        _ if ns.is_multiple_of(1_000_000) => format!("{} ms", ns / 1_000_000),
        _ => format!("{} µs", ns / 1000),
    }
}

/// Spark column of the table by program: samples of each row over time.
pub(super) struct SparkColumn<'r> {
    programs: &'r [Program],
    over_time: &'r EventOverTime,
    scale: Scale,
    by_program: FxHashMap<usize, &'r RowOverTime>,
    /// Programs that the table shows: in a row of their own, or in the row of their group.
    shown: FxHashSet<usize>,
    /// True if the table has a common row for the programs that count other programs.
    has_counting_row: bool,
}

impl<'r> SparkColumn<'r> {
    pub(super) fn new(
        report: &'r Report,
        event: &EventReport,
        over_time: &'r EventOverTime,
        scale: Scale,
    ) -> SparkColumn<'r> {
        let rows = over_time.rows.iter().filter_map(|row| Some((row.program?, row)));
        let grouped = event.groups.iter().flat_map(|group| group.programs.iter()).copied();
        SparkColumn {
            programs: &report.programs,
            over_time,
            scale,
            by_program: rows.collect(),
            shown: event.rows.iter().map(|row| row.program).chain(grouped).collect(),
            has_counting_row: event.counting_programs.programs > 0,
        }
    }

    pub(super) fn program(&self, row: &Row) -> String {
        // The samples of the program are unknown, not zero.
        if row.line.is_none() {
            return UNKNOWN.into();
        }
        let lifetime = self.programs.get(row.program).map_or((None, None), |it| (it.loaded, it.unloaded));
        self.line(self.by_program.get(&row.program).copied(), lifetime)
    }

    pub(super) fn group(&self, programs: &[usize]) -> String {
        self.line(programs.iter().filter_map(|program| self.by_program.get(program).copied()), (None, None))
    }

    /// Bars of the common row of the programs that count other programs.
    pub(super) fn counting(&self) -> String {
        self.line(self.unshown().filter(|row| self.is_counting(row)), (None, None))
    }

    /// Bars of the common row of programs without their own row, excluding programs that count others.
    pub(super) fn others(&self) -> String {
        self.line(self.unshown().filter(|row| !self.is_counting(row)), (None, None))
    }

    /// Bars of the row of unattributed samples with this name.
    pub(super) fn unattributed(&self, name: &str) -> String {
        let rows = self.over_time.rows.iter();
        self.line(rows.filter(|row| row.program.is_none() && row.name == name), (None, None))
    }

    pub(super) fn total(&self) -> String {
        self.scale.line(weights(&self.over_time.intervals), (None, None))
    }

    /// Legend of the bars.
    pub(super) fn note(&self) -> String {
        let length = self.scale.bar_length();
        format!(
            "SPARK: samples over time, {length} per bar, scaled to the highest bar of each row; {ABSENT}: the program was not loaded"
        )
    }

    fn unshown(&self) -> impl Iterator<Item = &'r RowOverTime> {
        let rows = self.over_time.rows.iter();
        rows.filter(|row| row.program.is_some_and(|program| !self.shown.contains(&program)))
    }

    fn is_counting(&self, row: &RowOverTime) -> bool {
        let program = row.program.and_then(|program| self.programs.get(program));
        self.has_counting_row && program.is_some_and(|program| program.counts_others)
    }

    fn line(&self, rows: impl IntoIterator<Item = &'r RowOverTime>, lifetime: Lifetime) -> String {
        let rows: Vec<&RowOverTime> = rows.into_iter().collect();
        // Samples exist, but none has a timestamp: the bars are unknown, not empty.
        if rows.iter().any(|row| row.undated.samples > 0) && rows.iter().all(|row| row.intervals.is_empty()) {
            return UNKNOWN.into();
        }
        self.scale.line(rows.iter().flat_map(|row| weights(&row.intervals)), lifetime)
    }
}
