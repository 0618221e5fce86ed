//! Counters over time, as tables and as CSV.

use super::blocks::{Block, View, graded, problems};
use super::cells::{self, IMPOSSIBLE, PERCENTILE_NAMES, exact_columns, joined, measured, number, turns};
use super::columns::{LineColumn, LineColumns};
use super::grid::Column;
use super::screen::Screen;
use crate::model::text::{UNKNOWN, grouped, seconds};
use crate::model::{
    CounterRow, CounterSource, CounterTotals, CountersReport, Counting, Event, EventPerRun, Exact, NamedReading,
};
use std::io;

pub(super) fn view(report: &CountersReport, _: usize) -> View<'_> {
    let mut view = View::default();
    for is_shared in [false, true] {
        let of = |rows: &'_ [CounterRow]| -> Vec<CounterRow> {
            rows.iter().filter(|row| (row.source == CounterSource::Shared) == is_shared).cloned().collect()
        };
        let totals = of(&report.totals);
        if totals.is_empty() {
            continue;
        }
        if !view.0.is_empty() {
            view.push(Block::Gap);
        }
        let fields = if is_shared { shared(report) } else { programs(report) };
        view.push(Block::Table(fields.sheet(&of(&report.rows), &totals)));
    }
    if view.0.is_empty() {
        let text = "fewer than two snapshots of counters in this recording, or in the selected part of it";
        view.push(Block::Fact(text.to_owned()));
    }
    let legend = (!report.totals.is_empty()).then_some(LEGEND);
    view.notes(legend, report.notes.iter().map(graded).chain(problems(&report.problems)));
    view
}

/// Legend of the cells.
const LEGEND: &str = "TIME: seconds since the start, with the total in the last row; n/a!: the counts are impossible (see \
                      the notes)";

/// A column of counts; `n/a!` in rows whose counts are impossible.
fn cell<'v>(column: Column, cell: impl Fn(&CounterRow, &CounterTotals) -> String + 'v) -> LineColumn<'v, CounterRow> {
    LineColumn::text(column, move |row: &CounterRow| match row.counts.value() {
        Some(counts) => cell(row, counts),
        None => IMPOSSIBLE.to_owned(),
    })
}

fn programs(report: &CountersReport) -> LineColumns<'_, CounterRow> {
    let counting = report.exact.as_ref();
    let events = counting.map_or(0, |counting| counting.events.len());
    let none = Counting::default();
    let exact = exact_columns(counting.unwrap_or(&none)).into_iter().enumerate().map(|(at, column)| {
        LineColumn::text(column, move |row: &CounterRow| {
            cells::exact(row.counts.value().map(|it| &it.values), events, at)
        })
    });
    let fields = [
        LineColumn::text(Column::text("TIME"), time),
        LineColumn::text(Column::number("ID"), |row: &CounterRow| row.target.id.to_string()),
        LineColumn::text(Column::text("PROGRAM"), name),
        LineColumn::text(Column::text("SOURCE"), |row: &CounterRow| row.source.name().to_owned()),
        cell(Column::number("RUNS"), |row, it| cells::runs(row.source, &it.values)),
        cell(Column::number("NS/RUN"), |row, it| cells::time_per_run(row.source, &it.values)),
        cell(Column::number("%ONE-CPU").share(), |_, it| cpu_percent(it)),
        cell(Column::number("MISSES"), |_, it| number(it.values.misses)),
    ];
    let measured = LineColumn::text(Column::number("MEASURED"), |row: &CounterRow| match row.counts.value() {
        Some(counts) if row.source == CounterSource::Exact => measured(&counts.values),
        _ => UNKNOWN.into(),
    });
    LineColumns::new(fields.into_iter().chain(exact).chain([measured]))
}

/// Time of all runs, in per cent of one CPU.
pub(super) fn cpu_percent(counts: &CounterTotals) -> String {
    counts.cpu_percent.map_or(UNKNOWN.into(), |percent| format!("{percent:.3}"))
}

fn shared(report: &CountersReport) -> LineColumns<'_, CounterRow> {
    let events = report.shared.as_ref().map_or(&[][..], |counting| &counting.events);
    let fields = [
        LineColumn::text(Column::text("TIME"), time),
        LineColumn::text(Column::text("SCOPE"), |row: &CounterRow| row.target.kind.to_owned()),
        LineColumn::text(Column::number("ID"), |row: &CounterRow| match row.target.kind {
            "machine" => String::new(),
            _ => row.target.id.to_string(),
        }),
        LineColumn::text(Column::text("NAME"), name),
    ];
    let counted =
        |event: &Event| cells::known(&event.counted, |it| grouped(it.per_run.value.round() as u64) + &turns(event));
    let events = events.iter().enumerate().map(|(at, event)| {
        cell(Column::number(event.name.clone()), move |_, it| it.values.events.get(at).map_or(UNKNOWN.into(), counted))
    });
    let ipc = cell(Column::number("IPC"), |_, it| it.values.ipc.map_or(UNKNOWN.into(), |ipc| format!("{ipc:.2}")));
    LineColumns::new(fields.into_iter().chain(events).chain([ipc]))
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

/// A CSV line: its kind (`interval` or `total`), and its counts.
type CounterLine<'r> = (&'static str, &'r CounterRow);

pub(super) fn csv(report: &CountersReport, out: &mut Screen<'_>) -> io::Result<()> {
    type F<'r> = LineColumn<'r, CounterLine<'r>>;
    fn values<'r>((_, row): &CounterLine<'r>) -> Option<&'r Exact> {
        Some(&row.counts.value()?.values)
    }
    /// Counts of a program; `None` for other targets, which have no runs.
    fn runs<'r>(line: &CounterLine<'r>) -> Option<&'r Exact> {
        values(line).filter(|_| line.1.source != CounterSource::Shared)
    }
    fn totals<'r>(line: &CounterLine<'r>) -> Option<&'r CounterTotals> {
        line.1.counts.value().filter(|_| line.1.source != CounterSource::Shared)
    }
    let mut fields: Vec<F<'_>> = vec![
        F::csv("row", |(kind, _)| Some(*kind)),
        F::csv("source", |(_, row)| Some(row.source.name())),
        F::csv("kind", |(_, row)| Some(row.target.kind)),
        F::csv("id", |(_, row)| Some(row.target.id)),
        F::csv("load_time_ns", |(_, row)| row.target.load_time_ns),
        F::csv("function", |(_, row)| Some(row.target.function)),
        F::csv("name", |(_, row)| Some(row.target.name.clone())),
        F::csv("from_ns", |(_, row)| Some(row.from_ns)),
        F::csv("to_ns", |(_, row)| Some(row.to_ns)),
        F::csv("runs", |it| Some(runs(it)?.runs)),
        F::csv("measured_runs", |it| Some(runs(it)?.measured)),
        F::csv("misses", |it| runs(it)?.misses),
        F::csv("nesting_overflow", |it| Some(runs(it)?.nesting_overflow)),
        F::csv("discarded", |it| Some(runs(it)?.discarded)),
        F::csv("measured_ns", |it| Some(totals(it)?.measured_ns)),
        F::csv("ns_per_run", |it| Some(runs(it)?.time.value()?.value)),
        F::csv("ns_per_run_error", |it| runs(it)?.time.value()?.error),
        F::csv("is_estimate", |it| Some(runs(it)?.is_estimate)),
        F::csv("cpu_percent", |it| totals(it)?.cpu_percent),
    ];
    for (at, name) in PERCENTILE_NAMES.into_iter().enumerate() {
        fields.push(F::csv(format!("{name}_from_ns"), move |it| runs(it)?.percentiles.get(at)?.from_ns));
        fields.push(F::csv(format!("{name}_to_ns"), move |it| runs(it)?.percentiles.get(at)?.to_ns));
    }
    fields.push(F::csv("ipc", |it| values(it)?.ipc));
    fields.push(F::csv("problem", |it| match values(it) {
        Some(exact) => Some(joined(&exact.anomalies)),
        None => it.1.counts.why(),
    }));
    let mut names: Vec<&str> = Vec::new();
    for counting in [&report.exact, &report.shared].into_iter().flatten() {
        for event in &counting.events {
            if !names.contains(&event.name.as_str()) {
                names.push(&event.name);
            }
        }
    }
    for name in names {
        let at =
            move |(_, row): &CounterLine<'_>| report.counting(row.source)?.events.iter().position(|it| it.name == name);
        let reading =
            move |it: &CounterLine<'_>| -> Option<NamedReading> { it.1.counts.value()?.readings.get(at(it)?).cloned() };
        let per_run = move |it: &CounterLine<'_>| -> Option<EventPerRun> {
            runs(&(it.0, it.1))?.events.get(at(it)?)?.counted.value().cloned()
        };
        fields.extend([
            F::csv(name.to_owned(), move |it| Some(reading(it)?.value)),
            F::csv(format!("{name}_enabled_ns"), move |it| Some(reading(it)?.enabled_ns)),
            F::csv(format!("{name}_running_ns"), move |it| Some(reading(it)?.running_ns)),
            F::csv(format!("{name}_per_run"), move |it| Some(per_run(it)?.per_run.value)),
            F::csv(format!("{name}_per_run_error"), move |it| per_run(it)?.per_run.error),
        ]);
    }
    let rows = report.rows.iter().map(|row| ("interval", row));
    LineColumns::new(fields).write_csv(rows.chain(report.totals.iter().map(|row| ("total", row))), out)
}
