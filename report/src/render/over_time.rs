//! What programs cost from interval to interval: bars for people, lines for programs.

use super::cells::{moment, plain};
use super::grid::{Column, Grid};
use super::screen::Screen;
use super::write_notes;
use crate::model::text::{UNKNOWN, decimal, grouped};
use crate::model::{Count, EventOverTime, IntervalCount, IntervalCounted, OverTime, RowOverTime, TimeBound};
use std::collections::BTreeMap;
use std::io;

/// From nothing to the most.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The program was not there.
const ABSENT: char = '·';
/// A line has at most so many bars: several intervals share one where there are more.
const BARS_MAX: u64 = 60;

const ESTIMATE: &str =
    "≈: runs are known from snapshot to snapshot, and spread evenly over the time between two of them";

pub(super) fn table(report: &OverTime, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    for event in &report.events {
        let counted = event.rows.iter().filter_map(|row| row.counted.value()?.intervals.last());
        let ends =
            event.intervals.last().map(|last| last.interval).into_iter().chain(counted.map(|last| last.interval));
        let last = ends.max().unwrap_or(0);
        let per_bar = last / BARS_MAX + 1;
        let bar_ns = per_bar.saturating_mul(report.interval_ns);
        writeln!(out, "# {} · {} a bar", event.name, length(bar_ns))?;
        let columns = vec![
            Column::number("ID").always(),
            Column::text("PROGRAM").always().cut_to(16),
            Column::number("SAMPLES").always(),
            Column::number("LOADED").droppable(1),
            Column::number("UNLOADED").droppable(1),
            Column::number("RUNS").droppable(2),
            Column::number("NS/RUN").droppable(2),
            Column::text("OVER TIME").always(),
        ];
        let line = |row: &RowOverTime| {
            vec![
                row.id.map_or_else(String::new, |id| id.to_string()),
                row.name.clone(),
                grouped(row.total.samples),
                moment(row.loaded),
                moment(row.unloaded),
                String::new(),
                String::new(),
                bars(weights(&row.intervals), (per_bar, last), bar_ns, (row.loaded, row.unloaded)),
            ]
        };
        let total = ["", "TOTAL", &grouped(event.total.samples), "", "", "", ""].map(str::to_owned).into_iter();
        let total = total.chain([bars(weights(&event.intervals), (per_bar, last), bar_ns, (None, None))]).collect();
        let mut rows: Vec<Vec<String>> = Vec::new();
        for row in &event.rows {
            rows.push(line(row));
            if let Some(counted) = row.counted.value().filter(|counted| counted.runs > 0) {
                let runs = counted.intervals.iter().map(|it| (it.interval, it.runs));
                let estimate = if counted.is_estimate { " ≈" } else { "" };
                rows.push(vec![
                    String::new(),
                    format!("  runs{estimate}"),
                    String::new(),
                    String::new(),
                    String::new(),
                    grouped(counted.runs),
                    counted.ns_per_run.map_or(UNKNOWN.into(), decimal),
                    bars(runs, (per_bar, last), bar_ns, (row.loaded, row.unloaded)),
                ]);
            }
        }
        rows.push(total);
        let mut grid = Grid::new(columns);
        grid.fit(&rows);
        let layout = grid.layout(width);
        layout.write(&rows, out)?;
        let has_estimates = event.rows.iter().filter_map(|row| row.counted.value()).any(|counted| counted.is_estimate);
        let notes = if has_estimates { vec![ESTIMATE.to_owned()] } else { Vec::new() };
        write_notes(&notes, out, width)?;
        writeln!(out, "#")?;
    }
    Ok(())
}

fn weights(intervals: &[IntervalCount]) -> impl Iterator<Item = (u64, u64)> {
    intervals.iter().map(|interval| (interval.interval, interval.count.weight))
}

/// A bar for so many intervals each, up to the last one; the highest is the row's own. `intervals` are numbers and heights.
fn bars(
    intervals: impl Iterator<Item = (u64, u64)>,
    (per_bar, last): (u64, u64),
    bar_ns: u64,
    (loaded, unloaded): (Option<TimeBound>, Option<TimeBound>),
) -> String {
    let mut heights = vec![0u64; (last / per_bar) as usize + 1];
    for (interval, height) in intervals {
        let bar = &mut heights[(interval / per_bar) as usize];
        *bar = bar.saturating_add(height);
    }
    let most = heights.iter().copied().max().unwrap_or(0).max(1);
    let bar = |(at, height): (u64, &u64)| {
        let (from_ns, to_ns) = (at.saturating_mul(bar_ns), (at + 1).saturating_mul(bar_ns));
        let is_absent = loaded.is_some_and(|bound| bound.after_ns >= to_ns.cast_signed())
            || unloaded.is_some_and(|bound| bound.before_ns <= from_ns.cast_signed());
        match height {
            0 if is_absent => ABSENT,
            // What is there at all is to be seen.
            _ => BARS[(u128::from(*height) * 8).div_ceil(u128::from(most)) as usize],
        }
    };
    (0..).zip(&heights).map(bar).collect()
}

/// A bar for each value; the highest is their own. What is not known has a sign of its own.
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

pub(super) fn csv(report: &OverTime, out: &mut Screen<'_>) -> io::Result<()> {
    let names = [
        "event",
        "kind",
        "id",
        "program",
        "interval",
        "from_ns",
        "samples",
        "weight",
        "runs",
        "ns_per_run",
        "is_estimate",
    ];
    let counted = report.events.iter().flat_map(|event| &event.rows).filter_map(|row| row.counted.value());
    let of_one = counted.flat_map(|counted| counted.intervals.first()).find(|it| !it.events.is_empty());
    let events: Vec<&str> = of_one.into_iter().flat_map(|it| &it.events).map(|event| event.name.as_str()).collect();
    let names = names.iter().map(|name| (*name).to_owned());
    out.values(names.chain(events.iter().map(|name| format!("{name}_per_run"))), ",")?;
    let line = |out: &mut Screen<'_>, event: &EventOverTime, row: Option<&RowOverTime>, at: Interval<'_>| {
        let Interval { interval, from_ns, count, counted } = at;
        let kind = match row {
            None => "total",
            Some(row) if row.program.is_none() => "other",
            Some(_) => "program",
        };
        let values = [
            event.name.clone(),
            kind.to_owned(),
            row.and_then(|row| row.id).map_or_else(String::new, |id| id.to_string()),
            row.map_or_else(String::new, |row| row.name.clone()),
            interval.to_string(),
            from_ns.to_string(),
            count.samples.to_string(),
            count.weight.to_string(),
            plain(counted.map(|counted| counted.runs)),
            plain(counted.and_then(|counted| counted.ns_per_run)),
            plain(counted.map(|counted| counted.is_estimate)),
        ];
        let per_run = |name: &&str| {
            let event = counted?.events.iter().find(|event| event.name == **name)?;
            event.per_run
        };
        out.values(values.into_iter().chain(events.iter().map(|name| plain(per_run(name)))), ",")
    };
    for event in &report.events {
        for row in &event.rows {
            intervals(row).try_for_each(|interval| line(out, event, Some(row), interval))?;
        }
        let dated = event.intervals.iter().map(|it| Interval::of(it, None));
        dated.into_iter().try_for_each(|interval| line(out, event, None, interval))?;
    }
    Ok(())
}

/// An interval in which a program has samples, or ran.
struct Interval<'r> {
    interval: u64,
    from_ns: u64,
    count: Count,
    counted: Option<&'r IntervalCounted>,
}

impl<'r> Interval<'r> {
    fn of(it: &IntervalCount, counted: Option<&'r IntervalCounted>) -> Interval<'r> {
        Interval { interval: it.interval, from_ns: it.from_ns, count: it.count, counted }
    }
}

/// The intervals in which a program has samples, or ran, in order.
fn intervals(row: &RowOverTime) -> impl Iterator<Item = Interval<'_>> {
    let ran = row.counted.value().into_iter().flat_map(|counted| &counted.intervals);
    let mut both: BTreeMap<u64, Interval<'_>> = ran
        .map(|it| {
            (
                it.interval,
                Interval { interval: it.interval, from_ns: it.from_ns, count: Count::default(), counted: Some(it) },
            )
        })
        .collect();
    for it in &row.intervals {
        let counted = both.get(&it.interval).and_then(|ran| ran.counted);
        both.insert(it.interval, Interval::of(it, counted));
    }
    both.into_values()
}
