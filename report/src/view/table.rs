//! The table for people: an opening that says what was measured, one row per program, the lines that no program could be
//! told for, the total, and notes on everything that is not a plain number.

use super::cells::{
    self, Few, NOTHING, estimate, exact_columns, moment, number, percent, push_cost_cells, push_ledger_cells,
};
use super::grid::{Column, Grid, Sheet};
use super::opening::opening;
use super::screen::Screen;
use super::spark::{Scale, SparkColumn, fitting_bars};
use super::{write_notes, write_wrapped};
use crate::model::text::{UNKNOWN, estimated, grouped, listed, seconds};
use crate::model::{
    Columns, Count, EventReport, GroupRow, Line, MissedProgram, OverTime, Part, Program, Report, Row, Runs,
    RunsEstimate, StatisticsCost,
};
use crate::options::{By, Group, TableColumns, TableStyle};
use crate::{Error, Result};
use std::io;

/// What is in the columns whose names alone do not say it.
const LEGEND: [(&str, &str); 9] = [
    ("%MACHINE", "of all CPUs' time"),
    ("%BUSY", "of non-idle time"),
    ("%BPF", "of all BPF"),
    ("SELF%", "in its own code"),
    ("HELPER%", "in kernel code it called"),
    ("ENTRY%", "in code that runs it"),
    ("TOTAL%", "in it and in programs it leads to"),
    (STATISTICS, "of the machine, time in it by the kernel's run statistics"),
    ("MISSES", "runs that the kernel's recursion guard refused"),
];

/// With exact counters.
const EXACT_LEGEND: &str = "events per run, IPC and P50 to P99.9 (ns per run): counted exactly, at the run";

/// Of groups whose programs do not all have run statistics.
const PARTIAL_RUNS: &str = "≥: a sum that lacks programs with unknown runs";

/// Of groups, whose programs have lifetimes of their own.
const GROUP_RATES: &str = "STATS%, RUNS/S: of all the time shown, also where its programs were there for a part of it";

/// Where entry is shared.
const SHARED_ENTRY: &str = "≈ENTRY%: includes a share, by runs, of code that runs several programs";

/// Below the total: time in programs that samples cannot see.
const UNSAMPLED: &str = "+ programs marked ~";

/// Rows of programs whose cells are there at a time.
const ROWS_AT_ONCE: usize = 1 << 10;

/// Above the comparison.
const SOURCES: &str = "the same by source: exact counters, the kernel's run statistics, samples";

pub(super) fn write(
    report: &Report,
    out: &mut Screen<'_>,
    style: &TableStyle,
    over_time: Option<&OverTime>,
) -> Result<()> {
    let width = style.text.width;
    for (index, event) in report.events.iter().enumerate() {
        let spark = over_time.and_then(|it| Some((it.events.get(index)?, it.interval_ns))).map(|(it, interval_ns)| {
            let scale = Scale::new(it, interval_ns, fitting_bars(width / SPARK_PART));
            SparkColumn::new(report, event, it, scale)
        });
        let table = Table::new(report, event, Rates::Count, spark);
        // Whoever asks for a column that there is not gets nothing else.
        let columns = styled(table.without_rows(), style)?.columns;
        if index > 0 {
            writeln!(out)?;
        }
        opening(report, event, out, width)?;
        if report.programs.is_empty() {
            writeln!(out, "# no BPF programs in this recording")?;
        } else {
            let part = |nth| styled(table.part(nth)?, style).ok();
            let shown = Sheet::write_parts(columns, part, out, width)?;
            let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
            table.sources(out, width)?;
            let legend = if style.legend { table.legend(&shown) } else { Vec::new() };
            write_notes(&[legend, table.notes()].concat(), out, width)?;
        }
    }
    if report.events.is_empty() {
        writeln!(out, "# no event of this recording samples the CPUs")?;
    }
    Ok(closing(report, out, width)?)
}

/// The columns that are asked for.
fn styled(sheet: Sheet, style: &TableStyle) -> Result<Sheet> {
    let mut names: Vec<String> = sheet.columns.iter().map(|column| column.name().to_owned()).collect();
    let fitting = |sheet: Sheet| if style.inclusive { sheet } else { sheet.without_column(INCLUSIVE) };
    let styled = match &style.columns {
        TableColumns::Fitting => return Ok(fitting(sheet)),
        TableColumns::Only(names) => sheet.with_columns(names),
        TableColumns::FittingAnd(names) => fitting(sheet).keeping(names),
    };
    styled.map_err(|unknown| {
        if !names.iter().any(|name| name == TableColumns::SPARK) {
            names.push(TableColumns::SPARK.to_owned());
        }
        Error::option("--columns", unknown, format!("no such column; there are {}", names.join(", ")))
    })
}

/// Of a table's width spark lines have one in so many columns.
const SPARK_PART: usize = 4;

/// What a table says of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rates {
    /// How many there were.
    Count,
    /// How many there were in a second; and the memory of maps, which is what else programs take.
    PerSecond,
}

/// The cells of the table of an event.
pub(super) fn sheet(report: &Report, event: &EventReport, rates: Rates) -> Sheet {
    Table::new(report, event, rates, None).sheet()
}

/// The table of an event of an interval, and its notes.
pub(super) fn write_interval(
    report: &Report,
    event: &EventReport,
    out: &mut Screen<'_>,
    width: usize,
) -> io::Result<()> {
    let table = Table::new(report, event, Rates::PerSecond, None);
    table.sheet().write(out, width)?;
    write_notes(&table.notes(), out, width)
}

/// What is said below a table.
pub(super) fn notes(report: &Report, event: Option<&EventReport>, out: &mut Screen<'_>) -> io::Result<()> {
    if let Some(event) = event {
        let table = Table::new(report, event, Rates::Count, None);
        let all: Vec<&str> = table.columns.iter().map(Column::name).collect();
        write_notes(&[table.legend(&all), table.notes()].concat(), out, usize::MAX)?;
    }
    closing(report, out, usize::MAX)
}

/// The column of the time in a program by run statistics.
pub(super) const STATISTICS: &str = "STATS%";

/// The column of what a program and those that it leads to cost together.
const INCLUSIVE: &str = "TOTAL%";

/// The columns in order. The first to go are those with the highest number: who costs most, by what, and whose it is stays longest.
fn columns(report: &Report, event: &EventReport, shows_per_run: bool, rates: Rates) -> Vec<Column> {
    let share = |name: &str, order| Column::number(name).droppable(order).nothing(NOTHING);
    let [first, name] = match report.by {
        Some(By::Group(group)) => [
            "PROGRAMS",
            match group {
                Group::Owner => "OWNER",
                Group::Name => "NAME",
                Group::Type => "TYPE",
                Group::Hook => "HOOK",
            },
        ],
        Some(By::Split(_)) | None => ["ID", "PROGRAM"],
    };
    // An interval has few samples, and all runs.
    let (kind, machine, inclusive, runs, cpu) = match rates {
        Rates::Count => (3, 1, 4, 5, 9),
        Rates::PerSecond => (18, 4, 17, 3, 1),
    };
    let mut columns = vec![
        Column::number(first).always(),
        Column::text(name).cut_to(24).always(),
        Column::text("TYPE").droppable(kind).cut_to(10),
        share("%MACHINE", machine).share(),
        share("%BUSY", 15),
        share("%BPF", 8),
        Column::number("SAMPLES").droppable(14),
        share("SELF%", 11).share(),
        share("HELPER%", 12).share(),
        share("ENTRY%", 13).share(),
        share(INCLUSIVE, inclusive).share(),
        Column::number(if rates == Rates::PerSecond { "RUNS/S" } else { "RUNS" }).droppable(runs),
        Column::number("NS/RUN").droppable(2),
        Column::number(STATISTICS).share().droppable(cpu).nothing(NOTHING),
        Column::number("MISSES").droppable(10),
    ];
    if shows_per_run {
        columns.push(Column::number(format!("≈{}/RUN", without_modifiers(&event.name))).droppable(4));
    }
    columns.extend(report.counting.iter().flat_map(exact_columns));
    if rates == Rates::PerSecond {
        columns.push(Column::number("MAP MEM").droppable(6));
    }
    columns.extend([
        Column::number("LOADED").droppable(16),
        Column::number("UNLOADED").droppable(17),
        Column::text("ATTACHED TO").droppable(7).cut_to(20),
        Column::text("OWNER").droppable(6).cut_to(12),
    ]);
    columns
}

/// The name of an event without what perf's syntax puts behind it (`cycles:P`); a tracepoint's name has a colon, too.
fn without_modifiers(name: &str) -> &str {
    match name.split_once(':') {
        Some((event, modifiers)) if modifiers.chars().all(|it| "ukhGHIpPSDWe".contains(it)) => event,
        _ => name,
    }
}

/// Whether samples tell what a run has of the event. Of time the kernel's statistics tell more, and exact counters of anything.
fn shows_per_run(report: &Report, event: &EventReport) -> bool {
    !event.is_timer && report.counting.is_none() && event.rows.iter().any(|row| row.sampled_per_run.is_value())
}

struct Table<'r> {
    report: &'r Report,
    event: &'r EventReport,
    columns: Vec<Column>,
    shows_per_run: bool,
    rates: Rates,
    /// The last column, where there is one of samples over time.
    spark: Option<SparkColumn<'r>>,
}

impl<'r> Table<'r> {
    fn new(report: &'r Report, event: &'r EventReport, rates: Rates, spark: Option<SparkColumn<'r>>) -> Table<'r> {
        let shows_per_run = shows_per_run(report, event);
        let mut columns = columns(report, event, shows_per_run, rates);
        columns.extend(spark.is_some().then(|| Column::text(TableColumns::SPARK)));
        Table { report, event, columns, shows_per_run, rates, spark }
    }

    fn without_rows(&self) -> Sheet {
        Sheet { columns: self.columns.clone(), rows: Vec::new(), totals: Vec::new() }
    }

    fn sheet(&self) -> Sheet {
        let [others, totals] = self.other_rows();
        let mut rows = self.rows(&self.event.rows);
        rows.extend(others);
        Sheet { rows, totals, ..self.without_rows() }
    }

    /// Part `nth` of its rows, the last with the totals: cells take more memory than the report that they are made from.
    fn part(&self, nth: usize) -> Option<Sheet> {
        let mut programs = self.event.rows.chunks(ROWS_AT_ONCE);
        if nth == programs.len() {
            let [rows, totals] = self.other_rows();
            return Some(Sheet { rows, totals, ..self.without_rows() });
        }
        Some(Sheet { rows: self.rows(programs.nth(nth)?), ..self.without_rows() })
    }

    fn rows(&self, of: &[Row]) -> Vec<Vec<String>> {
        let mut rows = Vec::with_capacity(of.len());
        of.iter().for_each(|row| self.program(row, &mut rows));
        rows
    }

    /// The first cells of a row.
    fn cells<const N: usize>(&self, first: [String; N]) -> Vec<String> {
        let mut cells = Vec::with_capacity(self.columns.len());
        cells.extend(first);
        cells
    }

    fn program(&self, row: &Row, rows: &mut Vec<Vec<String>>) {
        let program = &self.report.programs[row.program];
        let blind = if row.blind.is_some() { "~" } else { "" };
        let mut cells = self.cells([
            program.id.map_or_else(|| UNKNOWN.into(), |id| id.to_string()),
            program.label() + blind,
            program.prog_type.map_or_else(|| UNKNOWN.into(), |prog_type| prog_type.to_string()),
        ]);
        push_cost_cells(&mut cells, row.line.as_deref(), row.unsampled.as_ref(), self.event, self.few());
        cells.extend(match &self.report.counting {
            None => statistics(program.runs.value().map(AsRef::as_ref), self.rates),
            Some(_) => best_runs(program, self.rates),
        });
        if self.shows_per_run {
            cells.push(row.sampled_per_run.value().map_or(UNKNOWN.into(), |it| {
                let [value, margin, most] =
                    [it.value, it.margin, it.value + it.margin].map(crate::model::text::decimal);
                // It may be hardly any.
                if it.margin < it.value { format!("{value}±{margin}") } else { format!("{value} ≤{most}") }
            }));
        }
        let counting = self.report.counting.iter();
        cells.extend(
            counting.flat_map(|counting| cells::exact(program.exact.value().map(AsRef::as_ref), counting.events.len())),
        );
        if self.rates == Rates::PerSecond {
            cells.push(cells::memory(program.map_memory_bytes.value().copied()));
        }
        cells.extend([
            moment(program.loaded),
            moment(program.unloaded),
            cells::attachments(program),
            program.holders(),
        ]);
        rows.push(self.with_spark(self.filled(cells), |spark| spark.program(row)));
        for Part { name, line } in row.parts.iter().flatten() {
            rows.push(self.line(&format!("  {}", name), line));
        }
    }

    fn group(&self, group: &GroupRow) -> Vec<String> {
        let blind = if group.blind_programs > 0 { "~" } else { "" };
        let mut cells =
            self.cells([grouped(group.programs.len() as u64), format!("{}{blind}", group.name), String::new()]);
        push_cost_cells(&mut cells, group.line.as_ref(), group.unsampled.as_ref(), self.event, self.few());
        let [runs, time, cpu, misses] = statistics(group.runs.value().map(AsRef::as_ref), self.rates);
        let is_part = group.programs_with_runs < group.programs.len();
        let sum = |cell: String| if is_part && cell != UNKNOWN { format!("≥{cell}") } else { cell };
        cells.extend([sum(runs), time, sum(cpu), sum(misses)]);
        self.with_spark(self.filled(cells), |spark| spark.group(&group.programs))
    }

    fn line(&self, name: &str, line: &Line) -> Vec<String> {
        let mut cells = self.cells([String::new(), name.to_owned(), String::new()]);
        push_ledger_cells(&mut cells, line, self.event, self.few());
        self.filled(cells)
    }

    /// A line of what is in no share but that of the machine.
    fn unplaced(&self, name: &str, samples: Option<u64>, machine: String) -> Vec<String> {
        let mut cells = vec![String::new(); 7];
        (cells[1], cells[3], cells[6]) = (name.to_owned(), machine, number(samples));
        self.filled(cells)
    }

    /// What the recording's own run statistics took, which is in the samples of the lines above.
    fn run_statistics(&self, statistics: &StatisticsCost) -> Vec<String> {
        let mut cells = vec![String::new(); 4];
        (cells[1], cells[3]) = ("[cost of counting runs]".to_owned(), estimate(statistics.machine_percent));
        self.filled(cells)
    }

    /// An interval has few samples.
    fn few(&self) -> Few {
        match self.rates {
            Rates::Count => Few::AsTheyAre,
            Rates::PerSecond => Few::AtMost,
        }
    }

    fn filled(&self, mut cells: Vec<String>) -> Vec<String> {
        cells.resize(self.columns.len(), String::new());
        cells
    }

    fn with_spark(&self, mut cells: Vec<String>, line: impl FnOnce(&SparkColumn<'r>) -> String) -> Vec<String> {
        if let (Some(spark), Some(last)) = (&self.spark, cells.last_mut()) {
            *last = line(spark);
        }
        cells
    }

    /// Rows of anything but programs, and behind the rule the totals.
    fn other_rows(&self) -> [Vec<Vec<String>>; 2] {
        let event = self.event;
        let (mut rows, mut totals) = (Vec::new(), Vec::new());
        rows.extend(event.groups.iter().map(|group| self.group(group)));
        let (others, counting) = (&event.others, &event.counting_programs);
        if others.programs > 0 {
            let s = if others.programs == 1 { "" } else { "s" };
            let line = self.line(&format!("({} other program{s})", others.programs), &others.line);
            rows.push(self.with_spark(line, SparkColumn::others));
        }
        if counting.programs > 0 {
            let whose = if self.rates == Rates::PerSecond { "bprec and probes" } else { "counting" };
            let line = self.line(&format!("({whose}, {} programs)", counting.programs), &counting.line);
            rows.push(self.with_spark(line, SparkColumn::counting));
        }
        for (name, line) in
            [("(entry, unattributed)", &event.entry_unattributed), ("(interpreted programs)", &event.interpreted)]
        {
            if let Some(line) = line.value().filter(|line| line.count != Count::default()) {
                rows.push(self.with_spark(self.line(name, line), |spark| spark.unattributed(name)));
            }
        }
        totals.push(self.with_spark(self.line("TOTAL", &event.total), SparkColumn::total));
        if let Some(unsampled) = &event.unsampled {
            let mut line = self.filled(vec![String::new(), UNSAMPLED.to_owned()]);
            line[3] = estimate(unsampled.machine_percent);
            totals.push(line);
        }
        // Below that it would say 0.00.
        let tells = |it: &StatisticsCost| it.cpu_percent.is_some_and(|percent| percent >= 0.005);
        if let Some(statistics) = self.report.recording.cost.and_then(|cost| cost.run_statistics).filter(tells) {
            totals.push(self.run_statistics(&statistics));
        }
        if let Some(line) = event.unknown_kernel_code.value().filter(|line| line.count.samples > 0) {
            totals.push(self.unplaced("[unknown kernel code]", Some(line.count.samples), percent(line.shares.machine)));
        }
        if let Some(aggregated) = &event.aggregated {
            // Of neither can it be told whether it was BPF, or idle.
            if aggregated.overflow.samples > 0 {
                let samples = Some(aggregated.overflow.samples);
                totals.push(self.unplaced("[overflow]", samples, percent(aggregated.overflow_machine_percent)));
            }
            let samples = aggregated.blind_spot.value().map(|count| count.samples);
            totals.push(self.unplaced("[blind spot]", samples, percent(aggregated.blind_spot_machine_percent)));
        }
        [rows, totals]
    }

    /// The same by its sources, where exact counters are one.
    fn sources(&self, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
        if self.event.sources.is_empty() {
            return Ok(());
        }
        let columns = [
            Column::number("ID"),
            Column::text("PROGRAM"),
            Column::number("EXACT RUNS"),
            Column::number("STATS RUNS"),
            Column::number("EXACT NS/RUN"),
            Column::number("STATS NS/RUN"),
            Column::number("SAMPLED NS/RUN"),
            Column::number("MEASURED"),
        ];
        let mut rows = Vec::new();
        for source in &self.event.sources {
            let program = &self.report.programs[source.program];
            let Some(exact) = program.exact.value() else { continue };
            let [runs, time, ..] = statistics(program.runs.value().map(AsRef::as_ref), Rates::Count);
            rows.push(vec![
                program.id.map_or(UNKNOWN.into(), |id| id.to_string()),
                program.label(),
                grouped(exact.runs),
                runs,
                cells::time(exact),
                time,
                source.sampled_ns_per_run.map_or(UNKNOWN.into(), crate::model::text::decimal),
                cells::measured(exact),
            ]);
            for function in &program.exact_functions {
                rows.push(vec![
                    String::new(),
                    format!("  {}", function.name),
                    grouped(function.runs),
                    String::new(),
                    cells::time(function),
                    String::new(),
                    String::new(),
                    cells::measured(function),
                ]);
            }
        }
        let mut grid = Grid::new(columns.into());
        grid.fit(&rows);
        let layout = grid.layout(width);
        writeln!(out, "#")?;
        write_wrapped(SOURCES, out, width)?;
        layout.write(&rows, out)
    }

    /// What these columns, and marks in them, mean.
    fn legend(&self, shown: &[&str]) -> Vec<String> {
        let means = LEGEND.iter().filter(|(name, _)| shown.contains(name));
        let mut notes = vec![means.map(|(name, means)| format!("{name}: {means}")).collect::<Vec<_>>().join("; ")];
        notes.retain(|note| !note.is_empty());
        if !self.event.sources.is_empty() {
            notes.push(EXACT_LEGEND.to_owned());
        }
        let lines = self.event.rows.iter().filter_map(|row| row.line.as_deref());
        let mut lines = lines.chain(self.event.groups.iter().filter_map(|group| group.line.as_ref()));
        let has_shared_entry = |line: &Line| line.columns.as_deref().is_some_and(Columns::has_shared_entry);
        if shown.contains(&"ENTRY%") && lines.any(has_shared_entry) {
            notes.push(SHARED_ENTRY.to_owned());
        }
        if !self.event.groups.is_empty() && shown.contains(&STATISTICS) {
            notes.push(GROUP_RATES.to_owned());
        }
        if self.event.groups.iter().any(|group| group.programs_with_runs < group.programs.len()) {
            notes.push(PARTIAL_RUNS.to_owned());
        }
        notes
    }

    fn notes(&self) -> Vec<String> {
        let spark = self.spark.iter().map(SparkColumn::note);
        let sources = self.source_of_runs();
        spark.chain(sources).chain(self.event.notes.iter().map(|note| note.to_string())).collect()
    }

    /// A note on the source of runs and times per run, if exact counters are one.
    fn source_of_runs(&self) -> Option<String> {
        let programs = self.event.rows.iter().map(|row| &self.report.programs[row.program]);
        let (exact, others): (Vec<_>, Vec<_>) = programs.partition(|program| program.exact_throughout().is_some());
        let by_statistics = others.into_iter().filter(|program| program.runs.is_value());
        let by_statistics: Vec<String> = by_statistics.map(Program::label_with_id).collect();
        if exact.is_empty() {
            return None;
        }
        let (exactly, rates) = match self.rates {
            Rates::Count => ("RUNS and NS/RUN are", ""),
            Rates::PerSecond => ("NS/RUN is", "RUNS/S, "),
        };
        let but = match by_statistics.is_empty() {
            true => String::new(),
            false => format!(", but of these programs by the kernel's run statistics: {}", listed(&by_statistics)),
        };
        Some(format!("{exactly} counted exactly{but}; {rates}{STATISTICS} and MISSES are the kernel's run statistics"))
    }
}

/// Runs, time per run, share of the machine and misses, as the kernel counts them.
fn statistics(runs: Option<&Runs>, rates: Rates) -> [String; 4] {
    match runs {
        Some(runs) => {
            let count = match rates {
                Rates::Count => grouped(runs.count),
                Rates::PerSecond => runs.per_second.map_or(UNKNOWN.into(), crate::model::text::decimal),
            };
            let count = match (runs.estimate, rates) {
                (None, _) => count,
                (Some(estimate), Rates::Count) => estimated(runs.count, estimate.count_margin),
                (Some(estimate), Rates::PerSecond) => per_second(runs, &estimate),
            };
            // Time per run is of runs that were counted.
            [count, cells::ns_per_run(runs), percent(runs.machine_percent), number(runs.misses)]
        }
        None => [const { UNKNOWN }; 4].map(Into::into),
    }
}

/// Runs per second, where they are estimated.
fn per_second(runs: &Runs, estimate: &RunsEstimate) -> String {
    let Some(rate) = runs.per_second else { return UNKNOWN.into() };
    let scale = if runs.count > 0 { rate / runs.count as f64 } else { 0.0 };
    estimated(rate.round() as u64, estimate.count_margin.map(|margin| (margin as f64 * scale).ceil() as u64))
}

/// The same from the best source: runs and time per run of exact counters where they counted throughout, and the rest by statistics, as
/// [`Table::source_of_runs`] says.
fn best_runs(program: &Program, rates: Rates) -> [String; 4] {
    let [runs, time, cpu, misses] = statistics(program.runs.value().map(AsRef::as_ref), rates);
    let Some(exact) = program.exact_throughout() else { return [runs, time, cpu, misses] };
    let time = if exact.time.is_value() { cells::time(exact) } else { time };
    let runs = if rates == Rates::Count { grouped(exact.runs) } else { runs };
    [runs, time, cpu, misses]
}

/// Programs that were not captured which a note names.
const MISSED_NAMED: usize = 3;

/// A program that was not captured.
fn missed(missed: &MissedProgram) -> String {
    let when = missed.time_ns.map(|time| format!(" at {} s", seconds(time))).unwrap_or_default();
    format!("id {}{when} ({})", missed.id, missed.reason)
}

/// What concerns the recording as a whole.
fn closing(report: &Report, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    let mut notes = Vec::new();
    if !report.missed.is_empty() {
        let s = if report.missed.len() == 1 { " was" } else { "s were" };
        let first: Vec<String> = report.missed.iter().take(MISSED_NAMED).map(missed).collect();
        let more = match report.missed.len().saturating_sub(MISSED_NAMED) {
            0 => String::new(),
            more => format!("; and {more} more (--json has all)"),
        };
        notes.push(format!("{} program{s} seen but not captured: {}{more}", report.missed.len(), first.join("; ")));
    }
    notes.extend(report.notes.iter().map(|note| note.to_string()));
    if let Some(cost) = &report.recording.cost {
        let time = |ns: u64| seconds(i64::try_from(ns).unwrap_or(i64::MAX));
        notes.push(format!(
            "the recording itself took {} s user, {} s system, {} bytes",
            time(cost.user_ns),
            time(cost.system_ns),
            grouped(cost.written_bytes)
        ));
    }
    notes.extend(report.problems.iter().cloned());
    write_notes(&notes, out, width)
}
