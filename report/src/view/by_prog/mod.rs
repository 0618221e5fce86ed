//! Table by program: lines about the measurement, a row per program, rows of unattributed samples, the total, and notes on the numbers.

mod columns;
mod entries;
mod opening;
mod spark;

pub(super) use columns::{Rates, cost};
pub(super) use opening::{late_ticks, measured};
pub(super) use spark::{Lifetime, Scale, fitting_bars, intervals, weights};

use super::blocks::{Block, GradedNote, Legend, NO_EVENT, View, graded, note, problems};
use super::cells;
use super::columns::LineColumns;
use super::grid::{Column, Sheet};
use super::screen::Screen;
use crate::model::text::{UNKNOWN, counted, decimal, grouped, listed, seconds};
use crate::model::{
    Columns, EventOverTime, EventReport, Exact, Gravity, History, Line, MissedProgram, OverTime, Program, Report,
    SourceRow,
};
use crate::options::{TableColumns, TableStyle};
use crate::query::by_prog::lazy::LazyReport;
use crate::{Error, Result};
use columns::{ENTRY, Extra, INCLUSIVE, STATISTICS, fields};
use entries::{EntryPlacement, LedgerEntry, other_lines, program_lines};
use opening::opening;
use spark::SparkColumn;
use std::borrow::Borrow;
use std::io;
use std::rc::Rc;

/// Legend of the columns of exact counters.
const EXACT_LEGEND: &str = "events per run, IPC and P50 to P99.9 (ns per run): from exact counters";

/// Meaning of `≥` on sums of groups: the runs of some programs are unknown.
const PARTIAL_RUNS: &str = "≥: the sum does not include programs with unknown runs";

/// Note on rates of groups: the programs of a group may be loaded at different times.
const GROUP_RATES: &str = "STATS% and RUNS/S are averages over all the time shown, even for programs that were loaded for \
                           only a part of it";

/// Meaning of the mark `≈` of shared entry code.
const SHARED_ENTRY: &str = "≈ENTRY%: includes a share of code that runs several programs, estimated from their runs";

/// Rows of programs per part of a table. Cells are made part by part, because the cells of all parts would need more memory than the report.
const ROWS_AT_ONCE: usize = 1 << 10;

/// Heading of the table that compares exact counters, run statistics and samples.
const SOURCES: &str = "the same numbers by source: exact counters, the kernel's run statistics, samples";

/// Spark lines take 1/`SPARK_PART` of a table's width.
const SPARK_PART: usize = 4;

/// Returns the view of each event of a report, then of the recording as a whole. Fails if `style` requests a column that does not exist.
pub(super) fn views<'r, E: Borrow<EventReport> + 'r>(
    report: &'r Report,
    (events, count): (impl Iterator<Item = E> + Clone, usize),
    style: &'r TableStyle,
    over_time: Option<&'r OverTime>,
) -> Result<impl Iterator<Item = View<'r>>> {
    let spark = move |index: usize| {
        let (over_time, interval_ns) = over_time.and_then(|it| Some((it.events.get(index)?, it.interval_ns)))?;
        Some((over_time, Scale::new(over_time, interval_ns, fitting_bars(style.width / SPARK_PART))))
    };
    let table = move |(index, event): (usize, E)| ProgTable::styled(report, event, style, spark(index));
    if style.columns != TableColumns::Fitting && !report.programs.is_empty() {
        // An unknown column must fail before the first byte is written.
        events.clone().enumerate().try_for_each(|event| table(event).columns(style).map(drop))?;
    }
    let of_event = move |(index, event)| {
        let mut view = View(if index > 0 { vec![Block::Blank] } else { Vec::new() });
        let table = table((index, event));
        view.0.extend(opening(report, table.event()));
        if report.programs.is_empty() {
            view.push(Block::Fact("no BPF programs in this recording".to_owned()));
        } else {
            let mut legend = if style.legend { table.legend() } else { Legend::default() };
            legend.marks.extend(table.spark.iter().map(|spark| (None, spark.note().into())));
            // With one event, the notes on the recording join the notes below the table. With several events, they follow the last table.
            let more = if count == 1 { closing(report) } else { Vec::new() };
            let notes = table.notes().into_iter().chain(more).collect();
            let sources = table.sources();
            view.push(table.parts(style));
            view.0.extend(sources);
            view.push(Block::Notes(legend, notes));
        }
        view
    };
    let of_recording = move || {
        let mut view = View::default();
        if count == 0 {
            view.push(Block::Fact(NO_EVENT.to_owned()));
        }
        if count != 1 || report.programs.is_empty() {
            view.notes([""; 0], closing(report));
        }
        view
    };
    Ok(events.enumerate().map(of_event).chain(std::iter::once_with(of_recording)))
}

/// Returns the view of a report.
pub(super) fn view(report: &Report) -> Result<View<'_>> {
    const STYLE: &TableStyle =
        &TableStyle { columns: TableColumns::Fitting, hides_inclusive: false, bars: false, legend: false, width: 0 };
    let events = (report.events.iter(), report.events.len());
    Ok(View(views(report, events, STYLE, None)?.flat_map(|view| view.0).collect()))
}

/// Returns the views of a report whose events are made one at a time.
pub(super) fn lazy_views<'r>(report: &'r LazyReport<'_>) -> Result<impl Iterator<Item = View<'r>>> {
    let events = (report.events(), report.event_count());
    views(&report.head, events, &report.style, report.over_time.as_ref())
}

/// Writes a CSV row for each line of each event, but not for lines that only tables have.
pub(super) fn csv(
    report: &Report,
    events: impl Iterator<Item = impl Borrow<EventReport>>,
    out: &mut Screen<'_>,
) -> io::Result<()> {
    fields(report, None, Rates::Count, Extra::default()).write_csv([], out)?;
    for event in events {
        let event = event.borrow();
        let programs = event.rows.iter().flat_map(|row| program_lines(report, event, row));
        let lines = programs.chain(other_lines(report, event, Rates::Count)).filter(|line| !line.kind.is_empty());
        fields(report, None, Rates::Count, Extra::default()).write_csv_lines(lines, out)?;
    }
    Ok(())
}

/// Table of an event.
pub(super) fn sheet(report: &Report, event: &EventReport, rates: Rates, history: Option<&History>) -> Sheet {
    ProgTable::new(report, event, rates, history).sheet()
}

/// Table and notes of an event, for an interval of a running recording.
pub(super) fn interval<'r>(report: &'r Report, event: &'r EventReport) -> [Block<'r>; 2] {
    let table = ProgTable::new(report, event, Rates::PerSecond, None);
    let sheet = table.sheet();
    [Block::Table(sheet), Block::Notes(Legend::default(), table.notes())]
}

/// Notes on an event, if given, and on the recording.
pub(super) fn notes<'r>(report: &'r Report, event: Option<&'r EventReport>) -> Vec<Block<'r>> {
    let table = event.map(|event| ProgTable::new(report, event, Rates::Count, None));
    let of_event = table.map(|table| Block::Notes(table.legend(), table.notes()));
    let of_recording = Block::Notes(Legend::default(), closing(report));
    of_event.into_iter().chain([of_recording]).collect()
}

/// Comments above the table of an event.
pub(super) fn above<'r>(report: &'r Report, event: &'r EventReport) -> Vec<Block<'r>> {
    opening(report, event)
}

struct ProgTable<'r, E = &'r EventReport> {
    report: &'r Report,
    event: E,
    rates: Rates,
    history: Option<&'r History>,
    /// Spark column, if requested.
    spark: Option<SparkColumn<'r>>,
    /// Highest cost of a row, %; `None` if the table has no bars.
    highest_cost: Option<f64>,
}

impl<'r, E: Borrow<EventReport> + 'r> ProgTable<'r, E> {
    fn new(report: &'r Report, event: E, rates: Rates, history: Option<&'r History>) -> ProgTable<'r, E> {
        ProgTable { report, event, rates, history, spark: None, highest_cost: None }
    }

    fn styled(
        report: &'r Report,
        event: E,
        style: &TableStyle,
        spark: Option<(&'r EventOverTime, Scale)>,
    ) -> ProgTable<'r, E> {
        let of = event.borrow();
        let spark = spark.map(|(over_time, scale)| SparkColumn::new(report, of, over_time, scale));
        let costs = of.rows.iter();
        let costs = costs.filter_map(|it| columns::cost_percent(Some(of), it.line.as_deref(), it.unsampled.as_ref()));
        let highest_cost = style.bars.then(|| costs.fold(0.0, f64::max));
        ProgTable { spark, highest_cost, ..ProgTable::new(report, event, Rates::Count, None) }
    }

    fn event(&self) -> &EventReport {
        self.event.borrow()
    }

    fn fields(&self) -> LineColumns<'_, LedgerEntry<'_>> {
        let extra = Extra { highest_cost: self.highest_cost, spark: self.spark.as_ref(), history: self.history };
        fields(self.report, Some(self.event()), self.rates, extra)
    }

    fn sheet(&self) -> Sheet {
        let programs = self.event().rows.iter().flat_map(|row| program_lines(self.report, self.event(), row));
        let lines: Vec<LedgerEntry<'_>> = programs.chain(other_lines(self.report, self.event(), self.rates)).collect();
        sheet_of(&self.fields(), &lines)
    }

    /// Part `nth` of the table, `None` after the last part. The last part has the lines that are not programs: groups, unattributed samples, totals.
    fn part(&self, nth: usize) -> Option<Sheet> {
        let mut programs = self.event().rows.chunks(ROWS_AT_ONCE);
        let lines = if nth == programs.len() {
            other_lines(self.report, self.event(), self.rates)
        } else {
            programs.nth(nth)?.iter().flat_map(|row| program_lines(self.report, self.event(), row)).collect()
        };
        Some(sheet_of(&self.fields(), &lines))
    }

    /// Returns the table in parts. The requested columns must exist.
    fn parts(self, style: &'r TableStyle) -> Block<'r> {
        let table = Rc::new(self);
        let of_columns = Rc::clone(&table);
        let columns = move || of_columns.columns(style).unwrap_or_default();
        Block::Parts(Box::new(columns), Box::new(move |nth| styled(table.part(nth)?, style).ok()))
    }

    fn columns(&self, style: &TableStyle) -> Result<Vec<Column>> {
        let empty = Sheet { columns: self.fields().columns().to_vec(), rows: Vec::new(), totals: Vec::new() };
        Ok(styled(empty, style)?.columns)
    }

    /// Table that compares the sources of the numbers; empty if the event has no exact counters.
    fn sources(&self) -> Vec<Block<'static>> {
        if self.event().sources.is_empty() {
            return Vec::new();
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
        let row = |first: [String; 2], exact: &Exact, [runs, time, sampled]: [String; 3]| {
            let [id, name] = first;
            vec![id, name, grouped(exact.runs), runs, cells::time(exact), time, sampled, cells::measured(exact)]
        };
        let rows = self.event().sources.iter().flat_map(|source| {
            let SourceRow { program, sampled_ns_per_run, .. } = *source;
            let program = &self.report.programs[program];
            let whole = program.exact.value().map(|exact| {
                let id = program.id.map_or(UNKNOWN.into(), |id| id.to_string());
                let by_statistics = program.runs.value().map_or([UNKNOWN.into(), UNKNOWN.into()], |runs| {
                    [columns::count(runs, Rates::Count), cells::ns_per_run(runs)]
                });
                let [runs, time] = by_statistics;
                row([id, program.label()], exact, [runs, time, sampled_ns_per_run.map_or(UNKNOWN.into(), decimal)])
            });
            let is_counted = whole.is_some();
            let functions = program.exact_functions.iter().filter(move |_| is_counted);
            whole
                .into_iter()
                .chain(functions.map(move |it| row([String::new(), format!("  {}", it.name)], it, Default::default())))
        });
        let rows = rows.collect();
        vec![Block::Gap, note(SOURCES), Block::Table(Sheet { columns: columns.into(), rows, totals: Vec::new() })]
    }

    /// Legend of the columns and of the marks that the table has.
    fn legend(&self) -> Legend {
        let lines = self.event().rows.iter().filter_map(|row| row.line.as_deref());
        let mut lines = lines.chain(self.event().groups.iter().filter_map(|group| group.line.as_ref()));
        let has_shared_entry = |line: &Line| line.columns.as_deref().is_some_and(Columns::has_shared_entry);
        let groups = &self.event().groups;
        let marks = [
            (!self.event().sources.is_empty(), None, EXACT_LEGEND),
            (lines.any(has_shared_entry), Some(ENTRY), SHARED_ENTRY),
            (!groups.is_empty(), Some(STATISTICS), GROUP_RATES),
            (groups.iter().any(|group| group.programs_with_runs < group.programs.len()), None, PARTIAL_RUNS),
        ];
        let marks = marks.into_iter().filter(|(is_there, ..)| *is_there).map(|(_, column, text)| (column, text.into()));
        Legend { columns: self.fields().columns().to_vec(), marks: marks.collect() }
    }

    /// Notes on the event and on the source of its runs.
    fn notes(&self) -> Vec<GradedNote> {
        let sources = self.source_of_runs().map(|text| (Gravity::Inexact, text));
        sources.into_iter().chain(self.event().notes.iter().map(graded)).collect()
    }

    /// Note on the source of runs and times per run; `None` if no program of the table was counted exactly throughout.
    fn source_of_runs(&self) -> Option<String> {
        let programs = self.event().rows.iter().map(|row| &self.report.programs[row.program]);
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
            false => {
                format!(
                    ", except for these programs, whose values are from the kernel's run statistics: {}",
                    listed(&by_statistics)
                )
            }
        };
        Some(format!("{exactly} counted exactly{but}; {rates}{STATISTICS} and MISSES are the kernel's run statistics"))
    }
}

fn sheet_of<'r>(fields: &LineColumns<'_, LedgerEntry<'r>>, lines: &[LedgerEntry<'r>]) -> Sheet {
    let of = |shown| lines.iter().filter(move |line| line.shown == shown);
    fields.sheet(of(EntryPlacement::Row), of(EntryPlacement::Total))
}

/// Applies the user's selection of columns. Fails if a selected column does not exist.
fn styled(sheet: Sheet, style: &TableStyle) -> Result<Sheet> {
    let mut names: Vec<String> = sheet.columns.iter().map(|column| column.name().to_owned()).collect();
    let fitting = |sheet: Sheet| if style.hides_inclusive { sheet.without_column(INCLUSIVE) } else { sheet };
    let styled = match &style.columns {
        TableColumns::Fitting => return Ok(fitting(sheet)),
        TableColumns::Only(names) => sheet.with_columns(names),
        TableColumns::FittingAnd(names) => fitting(sheet).keeping(names),
    };
    styled.map_err(|unknown| {
        if !names.iter().any(|name| name == TableColumns::SPARK) {
            names.push(TableColumns::SPARK.to_owned());
        }
        Error::option("--columns", unknown, format!("no such column; the columns are {}", names.join(", ")))
    })
}

/// Limit on the uncaptured programs that a note names.
const MISSED_NAMED: usize = 3;

/// Id of a program that was not captured, time of its announcement, and reason.
fn missed(missed: &MissedProgram) -> String {
    let when = missed.time_ns.map(|time| format!(" at {} s", seconds(time))).unwrap_or_default();
    format!("id {}{when} ({})", missed.id, missed.reason)
}

/// Notes on the recording as a whole.
fn closing(report: &Report) -> Vec<GradedNote> {
    let mut notes = Vec::new();
    if !report.missed.is_empty() {
        let first: Vec<String> = report.missed.iter().take(MISSED_NAMED).map(missed).collect();
        let more = match report.missed.len().saturating_sub(MISSED_NAMED) {
            0 => String::new(),
            more => format!("; and {more} more (--json has all)"),
        };
        let programs = counted(report.missed.len() as u64, "program");
        let text = format!("the recording lacks code and run counts of {programs}: {}{more}", first.join("; "));
        notes.push((Gravity::Missing, text));
    }
    notes.extend(report.notes.iter().map(graded));
    if let Some(cost) = &report.recording.cost {
        let time = |ns: u64| seconds(i64::try_from(ns).unwrap_or(i64::MAX));
        let text = format!(
            "the recording itself took {} s user, {} s system, {} bytes",
            time(cost.user_ns),
            time(cost.system_ns),
            grouped(cost.written_bytes)
        );
        notes.push((Gravity::Explained, text));
    }
    notes.extend(problems(&report.problems));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, Options, by_prog};
    use std::path::Path;

    /// For the tables of all fixtures: a wider screen never makes a column of names narrower, and all lines fit the screen.
    #[test]
    fn names_get_no_shorter_as_the_screen_gets_wider() {
        let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
        let mut tables = 0;
        for kernel in std::fs::read_dir(recordings).unwrap().map(|it| it.unwrap().path()).filter(|it| it.is_dir()) {
            for path in std::fs::read_dir(kernel).unwrap().map(|it| it.unwrap().path()) {
                if path.extension().is_none_or(|extension| extension != "data") {
                    continue;
                }
                let report = by_prog(&Input::open(&path).unwrap(), &Options::default()).unwrap();
                for event in &report.events {
                    let sheet = sheet(&report, event, Rates::Count, None);
                    let mut before = [0; 3];
                    for width in 80..=240 {
                        let (header, rows, totals) = sheet.lines(width);
                        let longest =
                            rows.iter().chain(&totals).chain([&header]).map(|line| line.chars().count()).max();
                        assert!(longest <= Some(width), "{}: {longest:?} in {width}", path.display());
                        for (name, before) in ["PROGRAM", "ATTACHED TO", "OWNER"].into_iter().zip(&mut before) {
                            let Some(shown) = sheet.width_of_column(name, width) else { continue };
                            assert!(shown >= *before, "{}: {name}: {shown} in {width}", path.display());
                            *before = shown;
                        }
                    }
                    tables += 1;
                }
            }
        }
        assert!(tables >= 20, "{tables}");
    }
}
