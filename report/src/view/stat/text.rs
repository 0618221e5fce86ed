//! Live counters as a table for people.

use super::StatWriter;
use super::lines::together;
use crate::model::text::{UNKNOWN, fit, grouped};
use crate::model::{
    CountedEvent, CounterRow, CounterSource, Counting, Exact, Gravity, Known, PERCENTILES, StatSnapshot, Unit,
};
use crate::view::blocks::{Block, GradedNote, View, graded};
use crate::view::cells::{self, IMPOSSIBLE, measured, number, turns};
use crate::view::counters::cpu_percent;
use crate::view::grid::{Column, Grid, Sheet};
use crate::view::screen::Screen;
use std::io;
use std::time::Duration;

/// Rows after which the column names are repeated.
const NAMES_EVERY: usize = 40;

impl StatWriter {
    pub(super) fn text(
        &mut self,
        snapshot: &StatSnapshot,
        first: bool,
        out: &mut Screen<'_>,
        width: usize,
    ) -> io::Result<()> {
        if first {
            writeln!(out, "# {}", fit(&snapshot.target, width.saturating_sub(2)))?;
            if let Some(note) = snapshot.note.as_ref().filter(|_| self.over_time) {
                writeln!(out, "# {}", fit(note, width.saturating_sub(2)))?;
            }
        }
        let (columns, rows) = self.table(snapshot);
        let grid = self.grid.get_or_insert_with(|| Grid::new(columns));
        let changed = grid.fit(&rows);
        let layout = grid.layout(width);
        if rows.is_empty() && !self.over_time {
            writeln!(out, "# no program ran")?;
        }
        if snapshot.is_total && self.over_time && !rows.is_empty() {
            writeln!(out, "{}", layout.rule())?;
        }
        if !rows.is_empty() && (changed || self.since_names == 0 || self.since_names >= NAMES_EVERY) {
            out.line(&layout.header())?;
            self.since_names = 0;
        }
        self.since_names += rows.len();
        rows.iter().try_for_each(|row| out.line(&layout.line(row)))
    }

    pub(super) fn markdown(&self, snapshot: &StatSnapshot, first: bool, out: &mut Screen<'_>) -> io::Result<()> {
        let mut view = View::default();
        if first {
            view.0.push(Block::Heading(snapshot.target.clone()));
        }
        let (columns, rows) = self.table(snapshot);
        view.0.push(match rows.is_empty() {
            true => Block::Text("no program ran".to_owned()),
            false => Block::Table(Sheet { columns, rows, totals: Vec::new() }),
        });
        view.write_markdown(out, true)
    }

    /// Columns and rows of a snapshot.
    fn table(&self, snapshot: &StatSnapshot) -> (Vec<Column>, Vec<Vec<String>>) {
        let time = match (self.over_time, snapshot.is_total) {
            (false, _) => String::new(),
            (true, false) => format!("{:.3}", snapshot.to_ns as f64 / 1e9),
            (true, true) => "total".to_owned(),
        };
        match &snapshot.shared {
            Some(counting) => targets(snapshot, counting, &time),
            None => programs(snapshot, &time, self.per_cpu),
        }
    }
}

/// Columns and rows of programs.
fn programs(snapshot: &StatSnapshot, time: &str, per_cpu: bool) -> (Vec<Column>, Vec<Vec<String>>) {
    let events = snapshot.exact.as_ref().map_or(&[][..], |counting| &counting.events);
    let text = Column::text;
    let mut columns = vec![Column::number("TIME"), Column::number("ID"), text("TYPE"), text("PROGRAM")];
    columns.extend(["CPU", "RUNS", "NS/RUN"].map(Column::number));
    columns.extend([Column::number("%ONE-CPU").share(), Column::number("MISSES")]);
    for event in events {
        let name = &event.name;
        columns.extend([name.to_uppercase(), format!("{name}/RUN").to_uppercase()].map(Column::number));
    }
    columns.extend(["IPC", "P50", "P99", "P99.9", "MEASURED"].map(Column::number));
    columns.push(text("SOURCE"));
    let rows = snapshot.rows.iter().map(|row| {
        let cpu = match (per_cpu, row.target.cpu) {
            (false, _) => String::new(),
            (true, None) => "all".to_owned(),
            (true, Some(cpu)) => cpu.to_string(),
        };
        let mut cells =
            vec![time.to_owned(), row.target.id.to_string(), row.prog_type.clone(), row.target.label(), cpu];
        let best = row.best();
        let misses = number(row.misses());
        match best.map(|row| (row.counts.value(), row)) {
            Some((Some(counts), best)) => {
                let exact = &counts.values;
                cells.extend([cells::runs(best.source, exact), cells::time_per_run(best.source, exact)]);
                cells.push(cpu_percent(counts));
                cells.push(misses);
                for event in 0..events.len() {
                    cells.extend(event_cells(exact, event));
                }
                cells.extend((0..=PERCENTILES.len()).map(|at| cells::exact(Some(exact), 0, at)));
                cells.push(if best.source == CounterSource::Exact { measured(exact) } else { UNKNOWN.into() });
                let name = best.source.name();
                cells.push(match &exact.ended {
                    Some(_) if snapshot.is_total => format!("{name}, until {:.3} s", best.to_ns as f64 / 1e9),
                    _ => name.to_owned(),
                });
            }
            Some((None, best)) => {
                cells.extend([IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE].map(str::to_owned));
                cells.push(misses);
                cells.resize(columns.len() - 1, UNKNOWN.into());
                cells.push(best.source.name().to_owned());
            }
            None => {
                cells.resize(columns.len(), UNKNOWN.into());
            }
        }
        cells
    });
    let rows = rows.collect();
    (columns, rows)
}

/// Cells of an event: total, and events per run.
fn event_cells(exact: &Exact, at: usize) -> [String; 2] {
    let Some(event) = exact.events.get(at) else { return [UNKNOWN.into(), UNKNOWN.into()] };
    let per_run = cells::event(event, exact);
    let total = match event.counted.value() {
        Some(counted) if !counted.per_run.is_below_overhead() => {
            let about = if exact.is_estimate { "≈" } else { "" };
            format!("{about}{}", grouped(counted.total.round() as u64))
        }
        _ => per_run.clone(),
    };
    [total, per_run]
}

/// Columns and rows of targets other than programs, with a row per target and event.
fn targets(snapshot: &StatSnapshot, counting: &Counting, time: &str) -> (Vec<Column>, Vec<Vec<String>>) {
    let columns = vec![
        Column::number("TIME"),
        Column::text("TARGET"),
        Column::number("VALUE"),
        Column::text("UNIT"),
        Column::text("EVENT"),
        Column::number("RATE"),
        Column::text(""),
        Column::number("COUNTED"),
    ];
    let elapsed_s = snapshot.to_ns.saturating_sub(snapshot.from_ns) as f64 / 1e9;
    let is_alone = snapshot.rows.len() == 1;
    let mut rows = Vec::new();
    for row in &snapshot.rows {
        let target = if is_alone { String::new() } else { row.target.label() };
        let shared = row.shared.as_ref().and_then(Known::value);
        for (at, event) in counting.events.iter().enumerate() {
            let [value, unit, rate, of, running] = value_cells(shared, counting, event, at, elapsed_s);
            rows.push(vec![time.to_owned(), target.clone(), value, unit, event.name.clone(), rate, of, running]);
        }
    }
    (columns, rows)
}

/// Cells of a count: value, unit, rate, unit of the rate, and share of the time in which the event was counted.
fn value_cells(
    row: Option<&CounterRow>,
    counting: &Counting,
    event: &CountedEvent,
    at: usize,
    elapsed_s: f64,
) -> [String; 5] {
    let unknown = |cell: &str| [cell.to_owned(), String::new(), String::new(), String::new(), String::new()];
    let exact = match row.map(|row| row.counts.value()) {
        None => return unknown(UNKNOWN),
        Some(None) => return unknown(IMPOSSIBLE),
        Some(Some(counts)) => &counts.values,
    };
    let Some(known) = exact.events.get(at) else { return unknown(UNKNOWN) };
    let counted = match &known.counted {
        Known::Value(counted) => counted,
        Known::Impossible(_) => return unknown(IMPOSSIBLE),
        Known::Unknown(_) => return unknown(UNKNOWN),
    };
    let value = counted.per_run.value;
    let running = turns(known).trim_matches(['[', ']']).to_owned();
    if event.unit == Unit::Nanoseconds {
        let cpus = if elapsed_s > 0.0 { value / 1e9 / elapsed_s } else { 0.0 };
        return [ms(value / 1e6), "ms".into(), format!("{cpus:.3}"), "CPUs".into(), running];
    }
    let count = grouped(value.round() as u64);
    let (rate, of) = match exact.ipc.filter(|_| counting.ipc.is_some_and(|(instructions, _)| instructions == at)) {
        Some(ipc) => (format!("{ipc:.2}"), "per cycle"),
        None => match together(exact, counting, at, "branch-misses", "branches") {
            Some(share) => (format!("{:.2}", share * 100.0), "% of branches"),
            None if elapsed_s > 0.0 => (rounded(value / elapsed_s), "/s"),
            None => (String::new(), ""),
        },
    };
    [count, String::new(), rate, of.to_owned(), running]
}

/// Formats milliseconds with two decimals and thousands separators.
fn ms(value: f64) -> String {
    let hundredths = (value * 100.0).round() as u64;
    format!("{}.{:02}", grouped(hundredths / 100), hundredths % 100)
}

/// Formats a rate: without decimals from 100 on, else with one decimal.
fn rounded(value: f64) -> String {
    if value >= 100.0 { grouped(value.round() as u64) } else { format!("{value:.1}") }
}

/// Notes below the counts.
pub(super) fn notes(snapshot: &StatSnapshot, per_cpu: bool) -> View<'static> {
    let mut notes: Vec<GradedNote> = snapshot.notes.iter().map(graded).collect();
    if per_cpu && snapshot.shared.is_none() && snapshot.exact.is_none() {
        let text = "the kernel's run statistics cover all CPUs together: only exact counters are per CPU";
        notes.push((Gravity::Explained, text.to_owned()));
    }
    let mut view = View::default();
    view.notes([""; 0], notes);
    view
}

/// Writes the lines below the total: notes, elapsed time, time in programs, and times of the command.
pub(super) fn end(
    snapshot: &StatSnapshot,
    per_cpu: bool,
    command_time: Option<(Duration, Duration)>,
    out: &mut Screen<'_>,
    width: usize,
) -> io::Result<()> {
    notes(snapshot, per_cpu).write(out, width, true)?;
    let elapsed_s = snapshot.to_ns.saturating_sub(snapshot.from_ns) as f64 / 1e9;
    let programs = snapshot
        .rows
        .iter()
        .filter(|row| row.target.kind == "program" && row.target.cpu.is_none() && row.target.function == 0);
    let costs: Vec<f64> = programs
        .filter_map(|row| row.best()?.counts.value()?.cpu_percent.map(|percent| (row, percent)))
        .map(|(row, percent)| {
            // `cpu_percent` refers to the time of the row, which may be shorter than the elapsed time of the whole count.
            let span = row.best().map_or(0.0, |row| row.to_ns.saturating_sub(row.from_ns) as f64 / 1e9);
            percent / 100.0 * span
        })
        .collect();
    writeln!(out)?;
    let mut elapsed = format!("{elapsed_s:>15.6} s elapsed");
    if costs.len() > 1 && elapsed_s > 0.0 {
        let sum_s: f64 = costs.iter().sum();
        elapsed.push_str(&format!(
            ", {:.3} ms of it in these {} programs: {:.3} % of one CPU",
            sum_s * 1e3,
            costs.len(),
            sum_s / elapsed_s * 100.0
        ));
        if let Some(cpus) = snapshot.cpus.filter(|cpus| *cpus > 1) {
            elapsed.push_str(&format!(", {:.3} % of all {cpus}", sum_s / elapsed_s * 100.0 / f64::from(cpus)));
        }
    }
    writeln!(out, "{elapsed}")?;
    if let Some((user, system)) = command_time {
        writeln!(
            out,
            "{:>15.6} s user and {:.6} s system time of the command",
            user.as_secs_f64(),
            system.as_secs_f64()
        )?;
    }
    Ok(())
}
