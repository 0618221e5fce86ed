//! Counters over time as table, JSON and CSV.

use super::cells::{self, IMPOSSIBLE, exact_columns, measured, number, plain, turns};
use super::csv::joined;
use super::grid::{Column, Grid};
use super::screen::Screen;
use super::write_notes;
use crate::model::text::{UNKNOWN, grouped, seconds};
use crate::model::{CounterRow, CounterSource, CounterTotals, CountersReport, Counting, Exact, Known};
use std::io;

pub(super) fn table(report: &CountersReport, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    let is_shared = |row: &CounterRow| row.source == CounterSource::Shared;
    let mut blocks = Vec::new();
    if report.totals.iter().any(|row| !is_shared(row)) {
        blocks.push(programs(report));
    }
    if report.totals.iter().any(is_shared) {
        blocks.push(shared(report));
    }
    if blocks.is_empty() {
        writeln!(out, "# this recording, or this part of it, has no counters between two snapshots")?;
    }
    for (at, Block { grid, rows, totals }) in blocks.iter().enumerate() {
        if at > 0 {
            writeln!(out, "#")?;
        }
        let layout = grid.layout(width);
        layout.write(rows, out)?;
        layout.write_totals(totals, out)?;
    }
    let mut notes = Vec::new();
    if !report.totals.is_empty() {
        notes.push(LEGEND.to_owned());
    }
    notes.extend(report.notes.iter().map(|note| note.to_string()));
    notes.extend(report.problems.iter().cloned());
    write_notes(&notes, out, width)
}

/// What the cells are.
const LEGEND: &str = "TIME: s since the start, below the line the total; n/a!: cannot be true, see below";

/// Rows, and behind a rule their totals.
struct Block {
    grid: Grid,
    rows: Vec<Vec<String>>,
    totals: Vec<Vec<String>>,
}

impl Block {
    fn new(
        report: &CountersReport,
        columns: Vec<Column>,
        is_chosen: impl Fn(&CounterRow) -> bool,
        cells: impl Fn(&CounterRow) -> Vec<String>,
    ) -> Block {
        let of = |rows: &[CounterRow]| rows.iter().filter(|row| is_chosen(row)).map(&cells).collect::<Vec<_>>();
        let (rows, totals) = (of(&report.rows), of(&report.totals));
        let mut grid = Grid::new(columns);
        grid.fit(&rows);
        grid.fit(&totals);
        Block { grid, rows, totals }
    }
}

fn programs(report: &CountersReport) -> Block {
    let mut columns: Vec<Column> = vec![
        Column::text("TIME"),
        Column::number("ID"),
        Column::text("PROGRAM"),
        Column::text("SOURCE"),
        Column::number("RUNS"),
        Column::number("NS/RUN"),
        Column::number("%ONE-CPU").share(),
        Column::number("MISSES"),
    ];
    let none = Counting::default();
    let counting = report.exact.as_ref().unwrap_or(&none);
    columns.extend(exact_columns(counting));
    columns.push(Column::number("MEASURED"));
    let values = exact_columns(counting).len();
    Block::new(
        report,
        columns,
        |row| row.source != CounterSource::Shared,
        |row| {
            let mut cells = vec![time(row), row.target.id.to_string(), name(row), row.source.name().to_owned()];
            match row.counts.value() {
                None => {
                    cells.extend(vec![IMPOSSIBLE.to_owned(); 4]);
                    cells.resize(cells.len() + values + 1, UNKNOWN.into());
                }
                Some(counts) => {
                    let exact = &counts.values;
                    cells.extend(cells::runs_and_time(row.source, exact));
                    cells.push(cpu_percent(counts));
                    cells.push(number(exact.misses));
                    let is_exact = row.source == CounterSource::Exact;
                    cells.extend(cells::exact(Some(exact), counting.events.len()));
                    cells.push(if is_exact { measured(exact) } else { UNKNOWN.into() });
                }
            }
            cells
        },
    )
}

/// Time of all runs, of one CPU's.
pub(super) fn cpu_percent(counts: &CounterTotals) -> String {
    counts.cpu_percent.map_or(UNKNOWN.into(), |percent| format!("{percent:.3}"))
}

fn shared(report: &CountersReport) -> Block {
    let mut columns = vec![Column::text("TIME"), Column::text("SCOPE"), Column::number("ID"), Column::text("NAME")];
    let events = report.shared.as_ref().map_or(&[][..], |counting| &counting.events);
    columns.extend(events.iter().map(|event| Column::number(event.name.clone())));
    columns.push(Column::number("IPC"));
    Block::new(
        report,
        columns,
        |row| row.source == CounterSource::Shared,
        |row| {
            let id = if row.target.kind == "machine" { String::new() } else { row.target.id.to_string() };
            let mut cells = vec![time(row), row.target.kind.to_owned(), id, name(row)];
            let first = cells.len();
            if let Some(counts) = row.counts.value() {
                let exact = &counts.values;
                cells.extend(exact.events.iter().map(|event| match &event.counted {
                    Known::Value(counted) => grouped(counted.per_run.value.round() as u64) + &turns(event),
                    Known::Impossible(_) => IMPOSSIBLE.into(),
                    Known::Unknown(_) => UNKNOWN.into(),
                }));
                cells.resize(first + events.len(), UNKNOWN.into());
                cells.push(exact.ipc.map_or(UNKNOWN.into(), |ipc| format!("{ipc:.2}")));
            }
            cells.resize(first + events.len() + 1, IMPOSSIBLE.into());
            cells
        },
    )
}

fn time(row: &CounterRow) -> String {
    format!("{}..{}", seconds(row.from_ns), seconds(row.to_ns))
}

fn name(row: &CounterRow) -> String {
    match row.target.kind {
        "program" => row.target.label(),
        _ => row.target.name.clone(),
    }
}

const CSV_COLUMNS: [&str; 27] = [
    "row",
    "source",
    "kind",
    "id",
    "load_time_ns",
    "function",
    "name",
    "from_ns",
    "to_ns",
    "runs",
    "measured_runs",
    "misses",
    "nesting_overflow",
    "discarded",
    "measured_ns",
    "ns_per_run",
    "ns_per_run_error",
    "is_estimate",
    "cpu_percent",
    "p50_from_ns",
    "p50_to_ns",
    "p99_from_ns",
    "p99_to_ns",
    "p999_from_ns",
    "p999_to_ns",
    "ipc",
    "problem",
];

pub(super) fn csv(report: &CountersReport, out: &mut Screen<'_>) -> io::Result<()> {
    let mut events: Vec<String> = Vec::new();
    for counting in [&report.exact, &report.shared].into_iter().flatten() {
        for event in &counting.events {
            if !events.contains(&event.name) {
                events.push(event.name.clone());
            }
        }
    }
    let mut names: Vec<String> = CSV_COLUMNS.map(str::to_owned).into();
    for event in &events {
        names.extend([
            event.clone(),
            format!("{event}_enabled_ns"),
            format!("{event}_running_ns"),
            format!("{event}_per_run"),
            format!("{event}_per_run_error"),
        ]);
    }
    out.values(names, ",")?;
    let rows = report.rows.iter().map(|row| ("interval", row)).chain(report.totals.iter().map(|row| ("total", row)));
    for (kind, row) in rows {
        let mut cells = vec![
            kind.to_owned(),
            row.source.name().to_owned(),
            row.target.kind.to_owned(),
            row.target.id.to_string(),
            plain(row.target.load_time_ns),
            row.target.function.to_string(),
            row.target.name.clone(),
            row.from_ns.to_string(),
            row.to_ns.to_string(),
        ];
        match row.counts.value() {
            None => {
                cells.resize(CSV_COLUMNS.len() - 1, String::new());
                cells.push(plain(row.counts.why()));
            }
            Some(counts) => {
                cells.extend(csv_counts(row.source, counts));
                let known = report.counting(row.source).map_or(&[][..], |counting| &counting.events);
                for name in &events {
                    let at = known.iter().position(|event| event.name == *name);
                    let reading = at.and_then(|at| counts.readings.get(at));
                    cells.push(plain(reading.map(|reading| reading.value)));
                    cells.push(plain(reading.map(|reading| reading.enabled_ns)));
                    cells.push(plain(reading.map(|reading| reading.running_ns)));
                    let event = at.and_then(|at| counts.values.events.get(at)?.counted.value());
                    let per_run = event.filter(|_| row.source != CounterSource::Shared).map(|event| event.per_run);
                    cells.push(plain(per_run.map(|per_run| per_run.value)));
                    cells.push(plain(per_run.and_then(|per_run| per_run.error)));
                }
            }
        }
        cells.resize(CSV_COLUMNS.len() + events.len() * 5, String::new());
        out.values(cells, ",")?;
    }
    Ok(())
}

/// From `runs` to `unknown`.
fn csv_counts(source: CounterSource, counts: &CounterTotals) -> Vec<String> {
    let exact: &Exact = &counts.values;
    let anomalies = joined(&exact.anomalies);
    let ipc = plain(exact.ipc);
    if source == CounterSource::Shared {
        let mut cells = vec![String::new(); 16];
        cells.extend([ipc, anomalies]);
        return cells;
    }
    let mut cells = vec![
        exact.runs.to_string(),
        exact.measured.to_string(),
        plain(exact.misses),
        exact.nesting_overflow.to_string(),
        exact.discarded.to_string(),
        counts.measured_ns.to_string(),
        plain(exact.time.value().map(|time| time.value)),
        plain(exact.time.value().and_then(|time| time.error)),
        exact.is_estimate.to_string(),
        plain(counts.cpu_percent),
    ];
    for percentile in &exact.percentiles {
        cells.extend([plain(percentile.from_ns), plain(percentile.to_ns)]);
    }
    cells.extend([ipc, anomalies]);
    cells
}
