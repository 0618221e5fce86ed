//! Snapshots of one target, folded into counts between them.

use super::estimate::{Strata, Times};
use crate::input::window::Window;
use crate::model::SnapshotFault;
use bprec_format::bprec::state::{Histogram, Reading, RunCounts};
use std::collections::BTreeMap;

/// Counts between two snapshots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrackInterval {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// Index of the calibration that holds for the interval.
    pub(crate) period: usize,
    /// Counts, or the reason why the counts are unknown.
    pub(crate) counts: Result<RunCounts, SnapshotFault>,
}

/// Snapshots of one target in the window. Memory grows with the count of snapshots only if intervals are kept.
#[derive(Debug, Default)]
pub(crate) struct Track {
    last: Option<(u64, RunCounts)>,
    /// True after the first snapshot, even if this snapshot is outside of the window.
    seen: bool,
    /// Sum of the counts between snapshots.
    pub(crate) sum: RunCounts,
    /// First and last time that `sum` covers, ns.
    pub(crate) span: Option<(u64, u64)>,
    /// Part of `span` that `sum` covers, ns: the window may leave out parts.
    pub(crate) covered_ns: u64,
    pub(crate) time: Strata,
    /// Times of measured runs.
    pub(crate) times: Times,
    pub(crate) events: Vec<Strata>,
    /// Number of runs while each calibration held.
    pub(crate) runs_by_period: Vec<u64>,
    /// True if the counting programs' gate skipped runs.
    pub(crate) gated: bool,
    /// First contradiction between snapshots, and the count of all contradictions.
    pub(crate) broken: Option<(SnapshotFault, u64)>,
    /// All intervals, if they are kept.
    pub(crate) intervals: Vec<TrackInterval>,
}

impl Track {
    /// Adds the snapshot of `time_ns`. `period` is the calibration that holds for the interval up to this time. If this is the first snapshot, its
    /// counts began at `since_ns`, if known.
    pub(crate) fn add(
        &mut self,
        time_ns: u64,
        counts: &RunCounts,
        since_ns: Option<u64>,
        period: usize,
        window: &Window,
        keep_intervals: bool,
    ) {
        let zero = || since_ns.filter(|since| *since <= time_ns).map(|since| (since, RunCounts::default()));
        let first = !std::mem::replace(&mut self.seen, true);
        let before = match self.last.take() {
            Some(last) => Some(last),
            None if first => zero().filter(|(since, _)| window.contains(*since)),
            None => None,
        };
        if let Some((from_ns, before)) = before
            && window.holds(from_ns, time_ns)
        {
            let counts = match from_ns <= time_ns {
                true => delta(&before, counts, from_ns),
                false => Err(SnapshotFault::OutOfOrder),
            };
            self.fold(from_ns, time_ns, period, &counts);
            if keep_intervals && (from_ns < time_ns || counts.is_err()) {
                self.intervals.push(TrackInterval { from_ns, to_ns: time_ns, period, counts });
            }
        }
        if window.contains(time_ns) {
            self.last = Some((time_ns, counts.clone()));
        }
    }

    /// Sums up some intervals.
    pub(crate) fn of(intervals: &[TrackInterval]) -> Track {
        let mut track = Track::default();
        for interval in intervals {
            track.fold(interval.from_ns, interval.to_ns, interval.period, &interval.counts);
        }
        track
    }

    /// Returns the totals of shared counters as the counts of a single run: shared counters have no runs, but the estimates are per run.
    pub(crate) fn as_one_run(&self) -> Track {
        let mut track = Track::default();
        let mut one = RunCounts { runs: 1, measured: 1, every: 1, ..self.sum.clone() };
        // A reading of zeros means that the counter was never enabled, because none of the target's tasks ran. The count is then 0, not unknown.
        for reading in one.readings.iter_mut().filter(|reading| **reading == Reading::default()) {
            *reading = whole(0);
        }
        if let Some((from_ns, to_ns)) = self.span {
            track.fold(from_ns, to_ns, 0, &Ok(one));
        }
        track.covered_ns = self.covered_ns;
        track.broken = self.broken.clone();
        track
    }

    fn fold(&mut self, from_ns: u64, to_ns: u64, period: usize, counts: &Result<RunCounts, SnapshotFault>) {
        let span = self.span.get_or_insert((from_ns, to_ns));
        *span = (span.0.min(from_ns), span.1.max(to_ns));
        self.covered_ns = self.covered_ns.saturating_add(to_ns.saturating_sub(from_ns));
        let counts = match counts {
            Ok(counts) => counts,
            Err(why) => {
                let (_, more) = self.broken.get_or_insert_with(|| (why.clone(), 0));
                *more = more.saturating_add(1);
                return;
            }
        };
        self.gated |= counts.every > 1;
        if self.runs_by_period.len() <= period {
            self.runs_by_period.resize(period + 1, 0);
        }
        self.runs_by_period[period] = self.runs_by_period[period].saturating_add(counts.runs);
        self.time.add(counts.runs, counts.measured, &whole(counts.time_ns));
        self.times.add(counts.runs, counts.every, &counts.histogram);
        if self.events.len() < counts.readings.len() {
            self.events.resize_with(counts.readings.len(), Strata::default);
        }
        for (strata, reading) in self.events.iter_mut().zip(&counts.readings) {
            strata.add(counts.runs, counts.measured, reading);
        }
        if let Err(why) = add(&mut self.sum, counts) {
            self.broken.get_or_insert((why, 0)).1 += 1;
        }
    }
}

/// Makes a reading of a counter that was on the PMU throughout.
fn whole(value: u64) -> Reading {
    Reading { value, enabled_ns: 1, running_ns: 1 }
}

/// Returns the counts from the snapshot `before`, read at `from_ns`, to the snapshot `now`.
fn delta(before: &RunCounts, now: &RunCounts, from_ns: u64) -> Result<RunCounts, SnapshotFault> {
    let less = |what: &'static str, from: u64, to: u64| {
        to.checked_sub(from).ok_or(SnapshotFault::Fell { what, from, to, after_ns: from_ns })
    };
    let is_zero = *before == RunCounts::default();
    if !is_zero && before.readings.len() != now.readings.len() {
        let (from, to) = (before.readings.len(), now.readings.len());
        return Err(SnapshotFault::CountersChanged { from, to });
    }
    let readings = now.readings.iter().enumerate().map(|(at, now)| {
        let before = before.readings.get(at).copied().unwrap_or_default();
        Ok(Reading {
            value: less("a counter", before.value, now.value)?,
            enabled_ns: less("a counter's enabled time", before.enabled_ns, now.enabled_ns)?,
            running_ns: less("a counter's running time", before.running_ns, now.running_ns)?,
        })
    });
    let misses = if is_zero { Some(0) } else { before.misses };
    Ok(RunCounts {
        runs: less("runs", before.runs, now.runs)?,
        measured: less("measured runs", before.measured, now.measured)?,
        too_deep: less("too deeply nested runs", before.too_deep, now.too_deep)?,
        discarded: less("discarded runs", before.discarded, now.discarded)?,
        misses: match misses.zip(now.misses) {
            Some((before, now)) => Some(less("misses", before, now)?),
            None => None,
        },
        every: now.every,
        time_ns: less("time", before.time_ns, now.time_ns)?,
        readings: readings.collect::<Result<_, SnapshotFault>>()?,
        histogram: {
            let mut buckets = by_bucket(&now.histogram);
            if !before.histogram.buckets.is_empty() && before.histogram.sub_bits != now.histogram.sub_bits {
                return Err(SnapshotFault::ResolutionChanged);
            }
            for (bucket, before) in by_bucket(&before.histogram) {
                let runs = buckets.entry(bucket).or_default();
                *runs = less("a bucket of the histogram", before, *runs)?;
            }
            histogram(now.histogram.sub_bits, buckets)
        },
    })
}

/// Adds the counts of an interval to a sum.
fn add(sum: &mut RunCounts, counts: &RunCounts) -> Result<(), SnapshotFault> {
    let is_first = *sum == RunCounts::default();
    for (to, from) in [
        (&mut sum.runs, counts.runs),
        (&mut sum.measured, counts.measured),
        (&mut sum.too_deep, counts.too_deep),
        (&mut sum.discarded, counts.discarded),
        (&mut sum.time_ns, counts.time_ns),
    ] {
        *to = to.saturating_add(from);
    }
    sum.misses = match (is_first, sum.misses, counts.misses) {
        (true, _, misses) => misses,
        (false, Some(sum), Some(misses)) => Some(sum.saturating_add(misses)),
        _ => None,
    };
    sum.every = counts.every;
    sum.readings.resize(sum.readings.len().max(counts.readings.len()), Reading::default());
    for (sum, reading) in sum.readings.iter_mut().zip(&counts.readings) {
        sum.value = sum.value.saturating_add(reading.value);
        sum.enabled_ns = sum.enabled_ns.saturating_add(reading.enabled_ns);
        sum.running_ns = sum.running_ns.saturating_add(reading.running_ns);
    }
    if counts.histogram.buckets.is_empty() {
        return Ok(());
    }
    if !sum.histogram.buckets.is_empty() && sum.histogram.sub_bits != counts.histogram.sub_bits {
        return Err(SnapshotFault::ResolutionChanged);
    }
    let mut buckets = by_bucket(&sum.histogram);
    for (bucket, runs) in &counts.histogram.buckets {
        let sum = buckets.entry(*bucket).or_default();
        *sum = sum.saturating_add(*runs);
    }
    sum.histogram = histogram(counts.histogram.sub_bits, buckets);
    Ok(())
}

/// Returns the buckets in order; a file may have them in any order.
fn by_bucket(histogram: &Histogram) -> BTreeMap<u16, u64> {
    let mut buckets: BTreeMap<u16, u64> = BTreeMap::new();
    for (bucket, runs) in &histogram.buckets {
        let sum = buckets.entry(*bucket).or_default();
        *sum = sum.saturating_add(*runs);
    }
    buckets
}

fn histogram(sub_bits: u8, buckets: BTreeMap<u16, u64>) -> Histogram {
    Histogram { sub_bits, buckets: buckets.into_iter().filter(|(_, runs)| *runs > 0).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimeRange;

    fn counts(runs: u64, time_ns: u64, value: u64) -> RunCounts {
        RunCounts {
            runs,
            measured: runs,
            misses: Some(0),
            every: 1,
            time_ns,
            readings: vec![Reading { value, enabled_ns: time_ns, running_ns: time_ns }],
            histogram: Histogram { sub_bits: 2, buckets: vec![(40, runs)] },
            ..RunCounts::default()
        }
    }

    fn track(window: &TimeRange, snapshots: &[(u64, RunCounts)]) -> Track {
        let window = Window::new(window, Some((0, 1000))).unwrap();
        let mut track = Track::default();
        for (time_ns, counts) in snapshots {
            track.add(*time_ns, counts, Some(100), 0, &window, true);
        }
        track
    }

    #[test]
    fn intervals_add_up_to_the_totals() {
        let snapshots = [(200, counts(4, 40, 400)), (300, counts(4, 40, 400)), (450, counts(9, 95, 1000))];
        let track = track(&TimeRange::All, &snapshots);
        assert_eq!(track.sum, snapshots[2].1);
        assert_eq!((track.span, track.covered_ns), (Some((100, 450)), 350));
        let intervals: Vec<(u64, u64, u64, u64)> = track
            .intervals
            .iter()
            .map(|it| (it.from_ns, it.to_ns, it.counts.as_ref().unwrap().runs, it.counts.as_ref().unwrap().time_ns))
            .collect();
        assert_eq!(intervals, [(100, 200, 4, 40), (200, 300, 0, 0), (300, 450, 5, 55)]);
    }

    #[test]
    fn parts_of_the_time_do_not_count_what_lies_between_them() {
        let snapshots: Vec<(u64, RunCounts)> =
            (2..=10).map(|at| (at * 100, counts(at * at, at * 10, at * 100))).collect();
        let part = |text: &str| track(&text.parse().unwrap(), &snapshots);
        // Runs grow from 0 (time 100) to 9 (time 300), and from 64 (time 800) to 100 (time 1000).
        assert_eq!(part("0%-35%,75%-100%").sum.runs, 9 + 36);
        assert_eq!(part("25%-45%").sum.runs, 16 - 9, "from the snapshot at 300 to the snapshot at 400");
        assert_eq!(part("31%-39%").span, None, "no snapshot");
    }

    #[test]
    fn sums_end_at_the_largest_number() {
        // Two parts of the window, each with a count close to the largest number.
        let most = u64::MAX - 5;
        let snapshots = [(200, counts(0, 0, 0)), (300, counts(most, most, most))];
        let again = [(800, counts(0, 0, 0)), (900, counts(most, most, most))];
        let all: Vec<_> = snapshots.into_iter().chain(again).collect();
        let track = track(&"10%-40%,70%-100%".parse().unwrap(), &all);
        assert_eq!((track.sum.runs, track.sum.time_ns, track.sum.readings[0].value), (u64::MAX, u64::MAX, u64::MAX));
        assert_eq!(track.sum.histogram.buckets, [(40, u64::MAX)]);
        assert_eq!(track.runs_by_period, [u64::MAX]);
    }

    #[test]
    fn what_falls_is_said_and_not_counted() {
        let broken = track(&TimeRange::All, &[(200, counts(4, 40, 400)), (300, counts(3, 50, 500))]);
        let (fault, times) = broken.broken.unwrap();
        assert_eq!((fault.to_string().as_str(), times), ("runs fell from 4 to 3 after 0.000000200 s", 1));
        assert_eq!(broken.sum.runs, 4);
        let broken = track(&TimeRange::All, &[(300, counts(4, 40, 400)), (200, counts(5, 50, 500))]);
        assert!(broken.broken.unwrap().0 == SnapshotFault::OutOfOrder);
    }
}
