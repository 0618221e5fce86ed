//! Costs over time.

use super::facts::{Facts, WantedFacts, time_span};
use crate::index::Index;
use crate::index::runs::{ProgramKey, Stretch};
use crate::input::recording::OpenRecording;
use crate::input::window::Window;
use crate::model::{
    Count, CountedOverTime, CounterSource, EventOverTime, IntervalCount, IntervalCounted, IntervalEvent, JSON_VERSION,
    Known, OverTime, Program, Reason, RowOverTime,
};
use crate::pass::Asked;
use crate::pass::sinks::pivot::{ChargedRow, Key, KeyBy, PivotCell};
use crate::pass::sinks::timed::EqualIntervals;
use crate::query::counters::CounterHistory;
use crate::query::counters::per_interval::{Counted, counted as counted_between};
use crate::{Options, Result};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit on the number of intervals if no length is given.
const USUAL_INTERVALS: u64 = 60;

/// Limit on the number of intervals for which counts are reported; beyond it, counts over time are unknown.
const COUNTED_INTERVALS_MAX: u64 = 10_000;

/// Makes the report of costs over time. `interval_ns` is the length of an interval; `None` chooses a round length.
pub(crate) fn over_time(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
    interval_ns: Option<u64>,
) -> Result<OverTime> {
    let intervals = IntervalQuery::new(recording, index, options, interval_ns)?;
    let (facts, ()) = Facts::gather(recording, index, options, intervals.wanted(), |_| ())?;
    Ok(intervals.report(&facts, 0, options.limit, &facts.selection.asked))
}

/// Intervals of equal length.
pub(crate) struct IntervalQuery {
    span: (u64, u64),
    /// Parts of the time that the intervals cover one after the other, ns.
    parts: Vec<(u64, u64)>,
    length_ns: u64,
}

impl IntervalQuery {
    /// Makes intervals of length `length_ns` from the recording's start; `None` chooses a round length.
    ///
    /// # Errors
    /// Fails if `options` name a time that the recording does not have.
    pub(crate) fn new(
        recording: &OpenRecording<'_>,
        index: &Index,
        options: &Options,
        length_ns: Option<u64>,
    ) -> Result<IntervalQuery> {
        let span = time_span(recording, index, || recording.sampled_span());
        let window = Window::of(&options.time, recording, index.start_ns(), &index.gaps)?;
        let elapsed_ns = window.length_ns(span.0, span.1);
        let length_ns = length_ns.unwrap_or_else(|| readable(elapsed_ns / USUAL_INTERVALS)).max(1);
        Ok(IntervalQuery { span, parts: vec![(span.0, u64::MAX)], length_ns })
    }

    /// Makes intervals over the selected time alone, for a page or a terminal screen about that time.
    ///
    /// # Errors
    /// Fails if `options` name a time that the recording does not have.
    pub(crate) fn of_selected(
        recording: &OpenRecording<'_>,
        index: &Index,
        options: &Options,
    ) -> Result<IntervalQuery> {
        let query = IntervalQuery::new(recording, index, options, None)?;
        let window = Window::of(&options.time, recording, index.start_ns(), &index.gaps)?;
        let parts = window.parts().iter().map(|(from, to)| (query.span.0.max(*from), *to));
        Ok(IntervalQuery { parts: parts.collect(), ..query })
    }

    /// Intervals by which samples are counted.
    pub(crate) fn intervals(&self) -> EqualIntervals {
        EqualIntervals::new(self.parts.iter().copied(), self.length_ns)
    }

    /// Facts that the intervals need.
    pub(crate) fn wanted(&self) -> WantedFacts {
        WantedFacts {
            pivots: vec![KeyBy::Intervals(self.intervals())],
            intervals: true,
            span: Some(self.span),
            ..WantedFacts::default()
        }
    }

    /// Reports the charges of each interval in the selected events. `pivot` is the position of the table of charges in [`Facts::pivots`].
    pub(crate) fn report(&self, facts: &Facts<'_>, pivot: usize, limit: Option<usize>, asked: &Asked) -> OverTime {
        let (interval_ns, recorded) = (self.length_ns, &facts.recorded);
        let span_ns = self.span.1 - self.span.0;
        let window = &facts.selection.window;
        let spread = SpreadCounts {
            history: &facts.history,
            index: facts.index,
            window,
            start_ns: recorded.start_ns,
            interval_ns,
            intervals: recorded.elapsed_ns.unwrap_or(0) / interval_ns,
            last: if window.whole { span_ns / interval_ns } else { u64::MAX },
            cpus: recorded.cpus,
        };
        let pivot = &facts.pivots[pivot];
        let interval = |cell: &PivotCell| match pivot.keys[cell.key as usize][..] {
            [Key::Interval(interval)] => Some(interval),
            _ => None,
        };
        let events = facts.events().map(|event| {
            let cells = &pivot.events[event];
            let rows = cells.by_charged().map(|(charged, cells)| {
                let counts = cells.iter().map(|cell| (interval(cell), cell.charges.sum()));
                let counts = counts.filter(|(_, count)| *count != Count::default()).collect();
                match charged {
                    ChargedRow::Program(number) => {
                        let at = number as usize;
                        let counted = spread.counted(&facts.programs[at]);
                        row(Some(at), &facts.programs, "", counts, interval_ns, counted)
                    }
                    _ => row(None, &[], charged.name(), counts, interval_ns, Known::Unknown(Reason::NotForThisLine)),
                }
            });
            let is_asked = |row: &RowOverTime| row.program.map_or(asked.is_all(), |at| asked.has(at as u32));
            let mut rows: Vec<RowOverTime> =
                rows.filter(is_asked).filter(|row| row.total != Count::default()).collect();
            rows.sort_by_key(|row| (Reverse(row.total.weight), row.program.is_none(), row.program));
            rows.truncate(limit.unwrap_or(usize::MAX));
            let mut intervals: BTreeMap<u64, Count> = BTreeMap::new();
            for cell in &cells.cells {
                let sum = interval(cell).map(|interval| intervals.entry(interval).or_default());
                sum.into_iter().for_each(|sum| sum.merge(cell.charges.sum()));
            }
            intervals.retain(|_, count| *count != Count::default());
            EventOverTime {
                name: facts.recording.names[event].clone(),
                unit: facts.index.unit(facts.recording, event),
                total: cells.cells.iter().map(|cell| cell.charges.sum()).sum(),
                intervals: counted(intervals, interval_ns),
                rows,
            }
        });
        OverTime {
            format: "bprec over-time",
            version: JSON_VERSION,
            interval_ns,
            events: events.collect(),
            programs: Arc::clone(&facts.programs),
        }
    }
}

fn row(
    program: Option<usize>,
    programs: &[Program],
    name: &str,
    counts: BTreeMap<Option<u64>, Count>,
    interval_ns: u64,
    counted_runs: Known<CountedOverTime>,
) -> RowOverTime {
    let known = program.and_then(|at| programs.get(at));
    let dated = counts.iter().filter_map(|(interval, count)| Some(((*interval)?, *count))).collect();
    RowOverTime {
        program,
        id: known.and_then(|program| program.id),
        name: known.map_or_else(|| name.to_owned(), |program| program.name.clone()),
        loaded: known.and_then(|program| program.loaded),
        unloaded: known.and_then(|program| program.unloaded),
        total: counts.values().copied().sum(),
        undated: counts.get(&None).copied().unwrap_or_default(),
        intervals: counted(dated, interval_ns),
        counted: counted_runs,
    }
}

/// Spreads counts between snapshots over intervals.
struct SpreadCounts<'s> {
    history: &'s CounterHistory,
    index: &'s Index,
    window: &'s Window,
    start_ns: u64,
    interval_ns: u64,
    /// Count of intervals in the selected time.
    intervals: u64,
    /// Index of the last interval, which also gets all later counts.
    last: u64,
    cpus: Option<u32>,
}

/// Counts in an interval.
#[derive(Default, Clone)]
struct IntervalPiece {
    runs: u64,
    time_ns: Option<f64>,
    events: Vec<Option<f64>>,
    is_estimate: bool,
}

impl IntervalPiece {
    fn empty(events: usize) -> IntervalPiece {
        IntervalPiece { runs: 0, time_ns: Some(0.0), events: vec![Some(0.0); events], is_estimate: false }
    }

    /// Adds `runs` of the counted runs, with a proportional part of their time and events.
    fn add(&mut self, counted: &Counted, runs: u64) {
        self.runs = self.runs.saturating_add(runs);
        self.is_estimate |= counted.is_estimate;
        let share = runs as f64 / counted.runs.max(1) as f64;
        let add = |sum: Option<f64>, more: Option<f64>| sum.zip(more).map(|(sum, more)| sum + more * share);
        self.time_ns = add(self.time_ns, counted.time_ns);
        for (at, sum) in self.events.iter_mut().enumerate() {
            let more = counted.events.get(at).copied().flatten().or((counted.runs == 0).then_some(0.0));
            *sum = add(*sum, more);
        }
    }

    fn per_run(&self, sum: Option<f64>) -> Option<f64> {
        sum.filter(|_| self.runs > 0).map(|sum| sum / self.runs as f64)
    }
}

impl SpreadCounts<'_> {
    /// Returns the counts of a program over time: exact counts if they cover the whole time, otherwise run statistics.
    fn counted(&self, program: &Program) -> Known<CountedOverTime> {
        let Some(key) = program.id.zip(program.load_time_ns) else {
            return Known::Unknown(Reason::ProgramUnidentified);
        };
        let (source, is_estimate) = match (program.exact_throughout(), &program.runs) {
            (Some(_), _) => (CounterSource::Exact, false),
            (None, Known::Value(runs)) => (CounterSource::Stats, runs.estimate.is_some()),
            (None, Known::Unknown(reason)) => return Known::Unknown(reason.clone()),
            (None, Known::Impossible(anomaly)) => return Known::Impossible(anomaly.clone()),
        };
        if self.intervals > COUNTED_INTERVALS_MAX {
            return Known::Unknown(Reason::TooManyIntervals);
        }
        if source == CounterSource::Stats {
            return self.runs(key);
        }
        let Some(counted) = counted_between(self.history, key, self.cpus) else {
            return Known::Unknown(Reason::NoSnapshots);
        };
        let events = counted.iter().map(|it| it.events.len()).max().unwrap_or(0);
        let mut pieces: BTreeMap<u64, IntervalPiece> = BTreeMap::new();
        let mut sum = IntervalPiece::empty(events);
        for it in &counted {
            sum.add(it, it.runs);
            sum.is_estimate |= self.spread(it, &mut pieces, events);
        }
        let names: Vec<String> = match source {
            CounterSource::Exact => program
                .exact
                .value()
                .map_or_else(Vec::new, |exact| exact.events.iter().map(|event| event.name.clone()).collect()),
            CounterSource::Stats | CounterSource::Shared => Vec::new(),
        };
        let intervals = pieces.iter().filter(|(_, piece)| piece.runs > 0).map(|(interval, piece)| IntervalCounted {
            interval: *interval,
            from_ns: interval.saturating_mul(self.interval_ns),
            runs: piece.runs,
            ns_per_run: piece.per_run(piece.time_ns),
            events: {
                let events = names.iter().zip(&piece.events);
                events.map(|(name, sum)| IntervalEvent { name: name.clone(), per_run: piece.per_run(*sum) }).collect()
            },
            is_estimate: piece.is_estimate || is_estimate,
        });
        Known::Value(CountedOverTime {
            source,
            runs: sum.runs,
            ns_per_run: sum.per_run(sum.time_ns),
            is_estimate: sum.is_estimate || is_estimate,
            intervals: intervals.collect(),
        })
    }

    /// Returns the run statistics of a program.
    fn runs(&self, key: ProgramKey) -> Known<CountedOverTime> {
        let runs = &self.index.runs;
        let ends = runs.within(key, self.window).map(|all| (self.interval(all.span.0), self.interval(all.span.1), all));
        ends.and_then(|(first, last, all)| {
            let cut = |interval: u64| self.start_ns.saturating_add(interval.saturating_mul(self.interval_ns));
            let cuts: Vec<u64> = (first + 1..=last).map(cut).collect();
            runs.steps(key, self.window, &cuts).map(|steps| {
                let mut intervals: BTreeMap<u64, Vec<(Stretch, u64)>> = BTreeMap::new();
                for (step, count) in steps.iter().zip(Stretch::counts(&steps)) {
                    intervals.entry(self.interval(step.span.0)).or_default().push((*step, count));
                }
                // Runs of an interval are rounded to whole runs. If an interval has time but no whole run, its time is added to the next interval
                // that has runs; at the end, to the last interval that has runs.
                let (mut shown, mut time_ns): (Vec<(IntervalCounted, f64)>, f64) = (Vec::new(), 0.0);
                for (interval, steps) in intervals {
                    time_ns += steps.iter().map(|(step, _)| step.time_ns).sum::<f64>();
                    let runs = steps.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
                    if runs > 0 {
                        let counted = IntervalCounted {
                            interval,
                            from_ns: interval.saturating_mul(self.interval_ns),
                            runs,
                            ns_per_run: None,
                            events: Vec::new(),
                            is_estimate: steps.iter().any(|(step, _)| step.is_estimate),
                        };
                        shown.push((counted, std::mem::take(&mut time_ns)));
                    }
                }
                if let Some((_, last)) = shown.last_mut() {
                    *last += time_ns;
                }
                let intervals = shown
                    .into_iter()
                    .map(|(it, time_ns)| IntervalCounted { ns_per_run: Some(time_ns / it.runs as f64), ..it });
                CountedOverTime {
                    source: CounterSource::Stats,
                    runs: all.count(),
                    ns_per_run: (all.count() > 0).then(|| all.time_ns / all.count() as f64),
                    intervals: intervals.collect(),
                    is_estimate: steps.iter().any(|step| step.is_estimate && step.runs > 0.0),
                }
            })
        })
    }

    fn interval(&self, time_ns: u64) -> u64 {
        (time_ns.saturating_sub(self.start_ns) / self.interval_ns).min(self.last)
    }

    /// Spreads counts evenly over the time between two snapshots. Returns true if runs are spread over several intervals: the runs of these intervals
    /// are then estimates.
    fn spread(&self, counted: &Counted, pieces: &mut BTreeMap<u64, IntervalPiece>, events: usize) -> bool {
        let (first, last) =
            (self.interval(counted.from_ns), self.interval(counted.to_ns.saturating_sub(1).max(counted.from_ns)));
        let length_ns = u128::from(counted.to_ns.saturating_sub(counted.from_ns).max(1));
        let is_spread = first < last && counted.runs > 0;
        let mut runs_before = 0;
        for number in first..=last {
            let end_ns = self.start_ns.saturating_add((number + 1).saturating_mul(self.interval_ns));
            let passed = if number == last { length_ns } else { u128::from(end_ns.saturating_sub(counted.from_ns)) };
            // The sum of the runs up to the end of the interval is rounded, not the runs of the interval. All intervals together thus have all runs.
            let runs = (u128::from(counted.runs) * passed / length_ns) as u64;
            let piece = pieces.entry(number).or_insert_with(|| IntervalPiece::empty(events));
            piece.add(counted, runs - runs_before);
            piece.is_estimate |= is_spread;
            runs_before = runs;
        }
        is_spread
    }
}

fn counted(intervals: BTreeMap<u64, Count>, interval_ns: u64) -> Vec<IntervalCount> {
    let begun_ns = |interval: u64| interval.saturating_mul(interval_ns);
    let counted = intervals.into_iter();
    counted.map(|(interval, count)| IntervalCount { interval, from_ns: begun_ns(interval), count }).collect()
}

/// Returns the next length that is 1, 2 or 5 times a power of ten, at least 1 ms.
fn readable(least_ns: u64) -> u64 {
    let steps = (6..19).flat_map(|power| [1, 2, 5].map(|step| step * 10_u64.pow(power)));
    steps.into_iter().find(|length_ns| *length_ns >= least_ns).unwrap_or(least_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_of_a_length_that_people_like() {
        let lengths = [0, 1_000_000, 1_000_001, 33_000_000, 83_333_334, 1_000_000_001].map(readable);
        assert_eq!(lengths, [1_000_000, 1_000_000, 2_000_000, 50_000_000, 100_000_000, 2_000_000_000]);
    }

    /// Number of the interval, runs, time in the runs (ns), and true if the runs are estimated.
    type Shown = (u64, u64, Option<f64>, bool);

    fn pieces(counted: &[(u64, u64, u64)]) -> (Vec<Shown>, bool) {
        let history = CounterHistory::default();
        let spread = SpreadCounts {
            history: &history,
            index: &Index::default(),
            window: &Window::everything(),
            start_ns: 1_000,
            interval_ns: 100,
            intervals: 9,
            last: 9,
            cpus: None,
        };
        let mut pieces = BTreeMap::new();
        let is_spread = counted.iter().fold(false, |is_spread, (from_ns, to_ns, runs)| {
            let time_ns = Some(*runs as f64 * 8.0);
            let counted = Counted {
                from_ns: *from_ns,
                to_ns: *to_ns,
                runs: *runs,
                time_ns,
                events: Vec::new(),
                is_estimate: false,
            };
            spread.spread(&counted, &mut pieces, 0) | is_spread
        });
        let pieces = pieces.into_iter();
        (pieces.map(|(number, piece)| (number, piece.runs, piece.time_ns, piece.is_estimate)).collect(), is_spread)
    }

    /// Ten runs in 200 ns; 50, 100 and 50 ns of this time are in three intervals. Exactly, the intervals have 2.5, 5 and 2.5 runs.
    #[test]
    fn what_lies_across_intervals_is_spread_and_none_is_lost() {
        let expected = vec![(0, 2, Some(16.0), true), (1, 5, Some(40.0), true), (2, 3, Some(24.0), true)];
        assert_eq!(pieces(&[(1_050, 1_250, 10)]), (expected, true));
    }

    #[test]
    fn what_lies_within_an_interval_is_exact() {
        let expected = vec![(1, 7, Some(56.0), false), (2, 5, Some(40.0), false)];
        assert_eq!(pieces(&[(1_100, 1_140, 3), (1_140, 1_200, 4), (1_200, 1_299, 5)]), (expected, false));
        // Runs before the start belong to the first interval, runs after the end to the last.
        let (ends, _) = pieces(&[(900, 950, 3), (5_000, 6_000, 4)]);
        assert_eq!(ends, [(0, 3, Some(24.0), false), (9, 4, Some(32.0), false)]);
    }

    /// If no run was counted in a time, each part has exactly 0 runs.
    #[test]
    fn none_of_no_runs_is_no_estimate() {
        let expected = vec![(0, 0, Some(0.0), false), (1, 0, Some(0.0), false)];
        assert_eq!(pieces(&[(1_050, 1_150, 0)]), (expected, false));
    }
}
