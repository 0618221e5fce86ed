//! What programs cost from interval to interval: bars for people, lines for programs.

use super::cells::moment;
use super::grid::{Column, Grid};
use super::screen::Screen;
use crate::model::text::grouped;
use crate::model::{EventOverTime, IntervalCount, OverTime, RowOverTime, TimeBound};
use std::io;

/// From nothing to the most.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The program was not there.
const ABSENT: char = '·';
/// A line has at most so many bars: several intervals share one where there are more.
const BARS_MAX: u64 = 60;

pub(super) fn table(report: &OverTime, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    for event in &report.events {
        let last = event.intervals.last().map_or(0, |last| last.interval);
        let per_bar = last / BARS_MAX + 1;
        let bar_ns = per_bar.saturating_mul(report.interval_ns);
        writeln!(out, "# {} · {} a bar", event.name, length(bar_ns))?;
        let columns = vec![
            Column::number("ID").always(),
            Column::text("PROGRAM").always().cut_to(16),
            Column::number("SAMPLES").always(),
            Column::number("LOADED").droppable(1),
            Column::number("UNLOADED").droppable(1),
            Column::text("OVER TIME").always(),
        ];
        let line = |row: &RowOverTime| {
            vec![
                row.id.map_or_else(String::new, |id| id.to_string()),
                row.name.clone(),
                grouped(row.total.samples),
                moment(row.loaded),
                moment(row.unloaded),
                bars(&row.intervals, (per_bar, last), bar_ns, (row.loaded, row.unloaded)),
            ]
        };
        let total = ["", "TOTAL", &grouped(event.total.samples), "", ""].map(str::to_owned).into_iter();
        let total = total.chain([bars(&event.intervals, (per_bar, last), bar_ns, (None, None))]).collect();
        let mut rows: Vec<Vec<String>> = event.rows.iter().map(line).collect();
        rows.push(total);
        let mut grid = Grid::new(columns);
        grid.fit(&rows);
        let layout = grid.layout(width);
        writeln!(out, "{}", layout.header())?;
        rows.iter().try_for_each(|row| writeln!(out, "{}", layout.line(row)))?;
        writeln!(out, "#")?;
    }
    Ok(())
}

/// A bar for so many intervals each, up to the last one; the highest is the row's own.
fn bars(
    intervals: &[IntervalCount],
    (per_bar, last): (u64, u64),
    bar_ns: u64,
    (loaded, unloaded): (Option<TimeBound>, Option<TimeBound>),
) -> String {
    let mut heights = vec![0u64; (last / per_bar) as usize + 1];
    for interval in intervals {
        let bar = &mut heights[(interval.interval / per_bar) as usize];
        *bar = bar.saturating_add(interval.count.weight);
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

fn length(ns: u64) -> String {
    match ns {
        _ if ns.is_multiple_of(1_000_000_000) => format!("{} s", ns / 1_000_000_000),
        _ if ns.is_multiple_of(1_000_000) => format!("{} ms", ns / 1_000_000),
        _ => format!("{} µs", ns / 1000),
    }
}

pub(super) fn csv(report: &OverTime, out: &mut Screen<'_>) -> io::Result<()> {
    let names = ["event", "kind", "id", "program", "interval", "from_ns", "samples", "weight"];
    out.values(names.map(str::to_owned), ",")?;
    let line = |out: &mut Screen<'_>, event: &EventOverTime, row: Option<&RowOverTime>, it: &IntervalCount| {
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
            it.interval.to_string(),
            it.from_ns.to_string(),
            it.count.samples.to_string(),
            it.count.weight.to_string(),
        ];
        out.values(values, ",")
    };
    for event in &report.events {
        for row in &event.rows {
            row.intervals.iter().try_for_each(|interval| line(out, event, Some(row), interval))?;
        }
        event.intervals.iter().try_for_each(|interval| line(out, event, None, interval))?;
    }
    Ok(())
}
