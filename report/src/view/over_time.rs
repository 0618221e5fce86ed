//! Cost of BPF programs over time: bars in a table, intervals in CSV.

use super::blocks::{Block, Legend, View};
use super::by_prog::{Lifetime, Scale, fitting_bars, intervals, weights};
use super::cells::moment;
use super::columns::{LineColumn, LineColumns};
use super::grid::{Column, GAP, Sheet};
use super::screen::Screen;
use crate::model::text::{UNKNOWN, decimal, grouped};
use crate::model::{Count, EventOverTime, IntervalCounted, OverTime, RowOverTime};
use std::collections::BTreeMap;
use std::io;

const ESTIMATE: &str = "≈: runs are read at snapshots and spread evenly between two snapshots";

/// A row of the table: cells, and heights of the bars as (interval index, value).
struct BarsRow {
    cells: Vec<String>,
    heights: Vec<(u64, u64)>,
    lifetime: Lifetime,
}

pub(super) fn view(report: &OverTime, width: usize) -> View<'_> {
    let mut view = View::default();
    view.series(&report.events, move |_, event| blocks(report, event, width).into());
    view
}

fn blocks(report: &OverTime, event: &EventOverTime, width: usize) -> [Block<'static>; 4] {
    let columns = vec![
        Column::number("ID").always(),
        Column::text("PROGRAM").always().cut_to(16),
        Column::number("SAMPLES").always(),
        Column::number("LOADED").droppable(1),
        Column::number("UNLOADED").droppable(1),
        Column::number("RUNS").droppable(2),
        Column::number("NS/RUN").droppable(2),
    ];
    let rows = rows(event);
    let cells = rows.iter().map(|row| row.cells.clone()).collect();
    let mut sheet = Sheet { columns, rows: cells, totals: Vec::new() };
    let scale = Scale::new(event, report.interval_ns, bars_beside(&sheet, event, width));
    sheet.columns.push(Column::text("OVER TIME").always());
    for (cells, row) in sheet.rows.iter_mut().zip(&rows) {
        cells.push(scale.line(row.heights.iter().copied(), row.lifetime));
    }
    let has_estimates = event.rows.iter().filter_map(|row| row.counted.value()).any(|counted| counted.is_estimate);
    let marks = has_estimates.then(|| (None, ESTIMATE.into())).into_iter().collect();
    [
        Block::Fact(format!("{} · {} per bar", event.name, scale.bar_length())),
        Block::Table(sheet),
        Block::Notes(Legend { columns: Vec::new(), marks }, Vec::new()),
        Block::Gap,
    ]
}

/// Count of bars beside a table. The table drops or cuts columns until half of the width is free, or one character per interval if that is less. The
/// bars then get all free space.
fn bars_beside(sheet: &Sheet, event: &EventOverTime, width: usize) -> usize {
    let wanted = (width / 2).min(usize::try_from(intervals(event)).unwrap_or(usize::MAX));
    fitting_bars(width.saturating_sub(sheet.width(width - wanted) + GAP))
}

fn rows(event: &EventOverTime) -> Vec<BarsRow> {
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
        rows.push(BarsRow { cells, heights: weights(&row.intervals).collect(), lifetime });
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
            rows.push(BarsRow { cells, heights, lifetime });
        }
    }
    let total = ["", "TOTAL", &grouped(event.total.samples), "", "", "", ""].map(str::to_owned);
    rows.push(BarsRow { cells: total.into(), heights: weights(&event.intervals).collect(), lifetime: (None, None) });
    rows
}

/// A CSV line: an interval of a program, or of all programs together.
struct IntervalLine<'r> {
    event: &'r str,
    /// Row of a program; `None` for all programs together.
    row: Option<&'r RowOverTime>,
    interval: u64,
    from_ns: u64,
    count: Count,
    counted: Option<&'r IntervalCounted>,
}

pub(super) fn csv(report: &OverTime, out: &mut Screen<'_>) -> io::Result<()> {
    type F<'r> = LineColumn<'r, IntervalLine<'r>>;
    let kind = |it: &IntervalLine<'_>| match it.row {
        None => "total",
        Some(row) if row.program.is_none() => "other",
        Some(_) => "program",
    };
    let fields = [
        F::csv("event", |it| Some(it.event)),
        F::csv("kind", move |it| Some(kind(it))),
        F::csv("id", |it| it.row?.id),
        F::csv("program", |it| Some(it.row?.name.clone())),
        F::csv("interval", |it| Some(it.interval)),
        F::csv("from_ns", |it| Some(it.from_ns)),
        F::csv("samples", |it| Some(it.count.samples)),
        F::csv("weight", |it| Some(it.count.weight)),
        F::csv("runs", |it| Some(it.counted?.runs)),
        F::csv("ns_per_run", |it| it.counted?.ns_per_run),
        F::csv("is_estimate", |it| Some(it.counted?.is_estimate)),
    ];
    let counted = report.events.iter().flat_map(|event| &event.rows).filter_map(|row| row.counted.value());
    let of_one = counted.flat_map(|counted| counted.intervals.first()).find(|it| !it.events.is_empty());
    let per_run = of_one.into_iter().flat_map(|it| &it.events).map(|event| {
        let name = event.name.as_str();
        F::csv(format!("{name}_per_run"), move |it| it.counted?.events.iter().find(|it| it.name == name)?.per_run)
    });
    let lines = report.events.iter().flat_map(|event| {
        let totals = event.intervals.iter().map(|it| IntervalLine {
            event: &event.name,
            row: None,
            interval: it.interval,
            from_ns: it.from_ns,
            count: it.count,
            counted: None,
        });
        event.rows.iter().flat_map(|row| intervals_of(&event.name, row)).chain(totals)
    });
    LineColumns::new(fields.into_iter().chain(per_run)).write_csv(lines, out)
}

/// Intervals in which a program has samples or counts, in order.
fn intervals_of<'r>(event: &'r str, row: &'r RowOverTime) -> impl Iterator<Item = IntervalLine<'r>> {
    let at = |interval, from_ns| IntervalLine {
        event,
        row: Some(row),
        interval,
        from_ns,
        count: Count::default(),
        counted: None,
    };
    let mut all: BTreeMap<u64, IntervalLine<'r>> = BTreeMap::new();
    for it in row.counted.value().into_iter().flat_map(|counted| &counted.intervals) {
        all.insert(it.interval, IntervalLine { counted: Some(it), ..at(it.interval, it.from_ns) });
    }
    for it in &row.intervals {
        all.entry(it.interval).or_insert_with(|| at(it.interval, it.from_ns)).count = it.count;
    }
    all.into_values()
}
