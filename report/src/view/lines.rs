//! What source lines cost: a table for people, lines for programs.

use super::annotation::place;
use super::cells::{number, percent, plain};
use super::grid::{Column, Sheet};
use super::screen::Screen;
use crate::model::text::grouped;
use crate::model::{Count, EventLines, LineRow, LinesReport};
use std::io;

/// What a row of code without line information has in place of a line.
const NO_LINE: &str = "(no line information)";

pub(super) fn table(report: &LinesReport, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    for event in &report.events {
        writeln!(out, "# {}: {} samples", event.name, grouped(event.samples.samples))?;
        if let Some(reason) = &event.no_helper {
            writeln!(out, "# helper: {reason}")?;
        }
        sheet(event).write(out, width)?;
        writeln!(out, "#")?;
    }
    Ok(())
}

/// The lines of an event.
pub(super) fn sheet(event: &EventLines) -> Sheet {
    let columns = vec![
        Column::number("%SAMPLES").share().always(),
        Column::number("SELF").always(),
        Column::number("HELPER").always(),
        Column::number("ID").always(),
        Column::text("PROGRAM").always().cut_to(16),
        Column::text("FUNCTION").cut_to(16).droppable(1),
        Column::text("LINE").always().cut_to(24).cut_at_end(),
    ];
    let samples = |count: Option<Count>| number(count.map(|count| count.samples));
    let line = |row: &LineRow| {
        vec![
            percent(row.percent),
            samples(Some(row.own)),
            samples(row.helper),
            plain(row.id),
            row.program.clone(),
            row.function.clone(),
            row.source.as_ref().map_or_else(|| NO_LINE.to_owned(), place),
        ]
    };
    let sum = |own: Count, helper: Option<Count>, name: String| {
        vec![String::new(), samples(Some(own)), samples(helper), String::new(), name, String::new(), String::new()]
    };
    let mut rows: Vec<Vec<String>> = event.rows.iter().map(line).collect();
    let others = event.others;
    if others.lines > 0 {
        rows.push(sum(others.own, others.helper, format!("({} more lines)", grouped(others.lines))));
    }
    Sheet { columns, rows, totals: vec![sum(event.own, event.helper, "TOTAL".to_owned())] }
}

const CSV_COLUMNS: [&str; 15] = [
    "event",
    "kind",
    "id",
    "load_time_ns",
    "program",
    "function",
    "file",
    "line",
    "text",
    "self_samples",
    "self_weight",
    "helper_samples",
    "helper_weight",
    "percent",
    "lines",
];

pub(super) fn csv(report: &LinesReport, out: &mut Screen<'_>) -> io::Result<()> {
    out.values(CSV_COLUMNS.map(str::to_owned), ",")?;
    for event in &report.events {
        event.rows.iter().try_for_each(|row| out.values(csv_row(event, row), ","))?;
        let others = event.others;
        let sum = |kind: &str, own: Count, helper: Option<Count>, lines: Option<u64>| {
            let mut cells = vec![String::new(); CSV_COLUMNS.len()];
            (cells[0], cells[1]) = (event.name.clone(), kind.to_owned());
            cells.splice(9..13, counts(own, helper));
            cells[14] = plain(lines);
            cells
        };
        if others.lines > 0 {
            out.values(sum("others", others.own, others.helper, Some(others.lines)), ",")?;
        }
        out.values(sum("total", event.own, event.helper, None), ",")?;
    }
    Ok(())
}

fn counts(own: Count, helper: Option<Count>) -> [String; 4] {
    let (samples, weight) = (helper.map(|count| count.samples), helper.map(|count| count.weight));
    [own.samples.to_string(), own.weight.to_string(), plain(samples), plain(weight)]
}

fn csv_row(event: &EventLines, row: &LineRow) -> Vec<String> {
    let source = row.source.as_ref();
    let mut cells = vec![
        event.name.clone(),
        "line".to_owned(),
        plain(row.id),
        plain(row.load_time_ns),
        row.program.clone(),
        row.function.clone(),
        source.map(|source| source.file.to_string()).unwrap_or_default(),
        plain(source.map(|source| source.line)),
        source.map(|source| source.text.to_string()).unwrap_or_default(),
    ];
    cells.extend(counts(row.own, row.helper));
    cells.extend([plain(row.percent), String::new()]);
    cells
}
