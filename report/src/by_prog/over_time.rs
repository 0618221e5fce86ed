//! The ledger from interval to interval.

use super::{build, rows};
use crate::index::Index;
use crate::input::recording::Recording;
use crate::input::window::Window;
use crate::model::{Count, EventOverTime, IntervalCount, JSON_VERSION, OverTime, Program, RowOverTime};
use crate::pass::{self, Selection};
use crate::sinks::timeline::{Charged, TimelineSink};
use crate::{Options, Result};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Without a length that is asked for there are at most so many intervals.
const INTERVALS: u64 = 60;

/// Makes the report. `interval_ns` is the length of an interval; `None`: one that people like to read.
pub(crate) fn over_time(
    recording: &Recording<'_>,
    index: &Index,
    options: &Options,
    interval_ns: Option<u64>,
) -> Result<OverTime> {
    let report = build(recording, index, options)?;
    let elapsed_ns = report.recording.elapsed_ns.unwrap_or(0);
    let interval_ns = interval_ns.unwrap_or_else(|| readable(elapsed_ns / INTERVALS)).max(1);
    let window = Window::of(&options.time, recording, index.start_ns())?;
    let selection = Selection::new(recording, index, &window, options)?;
    let sink = TimelineSink::new(report.recording.start_ns, interval_ns, recording.events.all().len());
    let (sink, _) = pass::run(recording, index, &selection, sink, |_, _| {});
    let numbers: FxHashMap<u32, usize> = rows::order(index).into_iter().zip(0..).collect();
    let is_asked = |program: &Program| {
        let matches =
            |filter: &crate::ProgFilter| filter.matches(program.id, program.tag.map(|it| it.0), &program.name);
        options.programs.is_empty() || options.programs.iter().any(matches)
    };
    let asked = (0..sink.events.len()).filter(|event| selection.events[*event]);
    let events = asked.map(|event| {
        let counts = &sink.events[event];
        let total = counts.values().copied().sum();
        let mut by_row: BTreeMap<Charged, BTreeMap<Option<u64>, Count>> = BTreeMap::new();
        for ((charged, interval), count) in counts {
            by_row.entry(*charged).or_default().insert(*interval, *count);
        }
        let mut rows: Vec<RowOverTime> = by_row
            .into_iter()
            .map(|(charged, counts)| match charged {
                Charged::Program(number) => {
                    row(numbers.get(&number).copied(), &report.programs, "", counts, interval_ns)
                }
                Charged::Entry => row(None, &[], "(entry, unattributed)", counts, interval_ns),
                Charged::Interpreted => row(None, &[], "(interpreted programs)", counts, interval_ns),
            })
            .filter(|row| row.program.map_or(options.programs.is_empty(), |at| is_asked(&report.programs[at])))
            .collect();
        rows.sort_by_key(|row| (Reverse(row.total.weight), row.program.is_none(), row.program));
        rows.truncate(options.limit.unwrap_or(usize::MAX));
        let (name, unit) = (recording.names[event].clone(), index.unit(recording, event));
        let mut intervals: BTreeMap<u64, Count> = BTreeMap::new();
        for ((_, interval), count) in counts {
            interval.iter().for_each(|interval| intervals.entry(*interval).or_default().merge(*count));
        }
        EventOverTime { name, unit, total, intervals: counted(intervals, interval_ns), rows }
    });
    let events = events.collect();
    let (format, version) = ("bprec over-time", JSON_VERSION);
    Ok(OverTime { format, version, interval_ns, programs: report.programs, events })
}

fn row(
    program: Option<usize>,
    programs: &[Program],
    name: &str,
    counts: BTreeMap<Option<u64>, Count>,
    interval_ns: u64,
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
    }
}

fn counted(intervals: BTreeMap<u64, Count>, interval_ns: u64) -> Vec<IntervalCount> {
    let begun_ns = |interval: u64| interval.saturating_mul(interval_ns);
    let counted = intervals.into_iter();
    counted.map(|(interval, count)| IntervalCount { interval, from_ns: begun_ns(interval), count }).collect()
}

/// The next length of 1, 2 or 5 times a power of ten, at least 1 ms.
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
}
