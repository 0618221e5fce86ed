//! What programs cost from interval to interval: bars for people, lines for programs.

use super::cells::{moment, plain};
use super::grid::{Column, GAP, Grid};
use super::screen::Screen;
use super::spark::{self, Lifetime, Scale, fitting_bars, weights};
use super::write_notes;
use crate::model::text::{UNKNOWN, decimal, grouped};
use crate::model::{Count, EventOverTime, IntervalCount, IntervalCounted, OverTime, RowOverTime};
use std::collections::BTreeMap;
use std::io;

const ESTIMATE: &str = "≈: runs are counted per snapshot, and spread evenly over the time between two of them";

/// A line of the table: its cells, and what its bars are of.
struct Row {
    cells: Vec<String>,
    heights: Vec<(u64, u64)>,
    lifetime: Lifetime,
}

pub(super) fn table(report: &OverTime, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    for event in &report.events {
        let mut columns = vec![
            Column::number("ID").always(),
            Column::text("PROGRAM").always().cut_to(16),
            Column::number("SAMPLES").always(),
            Column::number("LOADED").droppable(1),
            Column::number("UNLOADED").droppable(1),
            Column::number("RUNS").droppable(2),
            Column::number("NS/RUN").droppable(2),
        ];
        let rows = rows(event);
        let mut cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells.clone()).collect();
        let scale = Scale::new(event, report.interval_ns, bars_beside(&columns, &cells, event, width));
        columns.push(Column::text("OVER TIME").always());
        for (cells, row) in cells.iter_mut().zip(&rows) {
            cells.push(scale.line(row.heights.iter().copied(), row.lifetime));
        }
        let mut grid = Grid::new(columns);
        grid.fit(&cells);
        let layout = grid.layout(width);
        writeln!(out, "# {} · {} a bar", event.name, scale.bar_length())?;
        layout.write(&cells, out)?;
        let has_estimates = event.rows.iter().filter_map(|row| row.counted.value()).any(|counted| counted.is_estimate);
        let notes = if has_estimates { vec![ESTIMATE.to_owned()] } else { Vec::new() };
        write_notes(&notes, out, width)?;
        writeln!(out, "#")?;
    }
    Ok(())
}

/// Bars that fit beside these columns: half of the width, if there are so many intervals, and what the columns leave.
fn bars_beside(columns: &[Column], cells: &[Vec<String>], event: &EventOverTime, width: usize) -> usize {
    let mut grid = Grid::new(columns.to_vec());
    grid.fit(cells);
    let wanted = (width / 2).min(usize::try_from(spark::intervals(event)).unwrap_or(usize::MAX));
    let beside = grid.layout(width - wanted).width();
    fitting_bars(width.saturating_sub(beside + GAP))
}

fn rows(event: &EventOverTime) -> Vec<Row> {
    let mut rows = Vec::new();
    for row in &event.rows {
        let lifetime = (row.loaded, row.unloaded);
        let cells = vec![
            row.id.map_or_else(String::new, |id| id.to_string()),
            row.name.clone(),
            grouped(row.total.samples),
            moment(row.loaded),
            moment(row.unloaded),
            String::new(),
            String::new(),
        ];
        rows.push(Row { cells, heights: weights(&row.intervals).collect(), lifetime });
        if let Some(counted) = row.counted.value().filter(|counted| counted.runs > 0) {
            let estimate = if counted.is_estimate { " ≈" } else { "" };
            let cells = vec![
                String::new(),
                format!("  runs{estimate}"),
                String::new(),
                String::new(),
                String::new(),
                grouped(counted.runs),
                counted.ns_per_run.map_or(UNKNOWN.into(), decimal),
            ];
            let heights = counted.intervals.iter().map(|it| (it.interval, it.runs)).collect();
            rows.push(Row { cells, heights, lifetime });
        }
    }
    let total = ["", "TOTAL", &grouped(event.total.samples), "", "", "", ""].map(str::to_owned);
    rows.push(Row { cells: total.into(), heights: weights(&event.intervals).collect(), lifetime: (None, None) });
    rows
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
