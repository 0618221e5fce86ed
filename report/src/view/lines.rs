//! Cost of source lines, as a table and as CSV.

use super::annotation::place;
use super::blocks::{Block, View};
use super::cells::{number, percent, plain};
use super::columns::{LineColumn, LineColumns};
use super::grid::{Column, Sheet};
use super::screen::Screen;
use crate::model::text::grouped;
use crate::model::{Count, EventLines, LineRow, LinesReport};
use std::io;

/// Text for code without line information.
const NO_LINE: &str = "(no line information)";

pub(super) fn view(report: &LinesReport, _: usize) -> View<'_> {
    let mut view = View::default();
    view.series(&report.events, |_, event| {
        let head = Block::Fact(format!("{}: {} samples", event.name, grouped(event.samples.samples)));
        let reason = event.no_helper.iter().map(|reason| Block::Fact(format!("helper: {reason}")));
        [head].into_iter().chain(reason).chain([Block::Table(sheet(event)), Block::Gap]).collect()
    });
    view
}

/// A source line, or a sum of source lines.
struct TableLine<'r> {
    event: &'r EventLines,
    kind: &'static str,
    row: Option<&'r LineRow>,
    own: Count,
    helper: Option<Count>,
    lines: Option<u64>,
}

fn rows(event: &EventLines) -> Vec<TableLine<'_>> {
    let rows = event.rows.iter();
    let rows = rows.map(|row| TableLine { row: Some(row), ..line(event, "line", row.own, row.helper) });
    let others = event.others;
    let left_out = TableLine { lines: Some(others.lines), ..line(event, "others", others.own, others.helper) };
    rows.chain((others.lines > 0).then_some(left_out)).collect()
}

fn total(event: &EventLines) -> TableLine<'_> {
    line(event, "total", event.own, event.helper)
}

fn line<'r>(event: &'r EventLines, kind: &'static str, own: Count, helper: Option<Count>) -> TableLine<'r> {
    TableLine { event, kind, row: None, own, helper, lines: None }
}

fn fields<'r>() -> LineColumns<'r, TableLine<'r>> {
    type F<'r> = LineColumn<'r, TableLine<'r>>;
    let place_of = |row: &LineRow| row.source.as_ref().map_or_else(|| NO_LINE.to_owned(), place);
    LineColumns::new([
        F::csv("event", |it| Some(it.event.name.clone())),
        F::csv("kind", |it| Some(it.kind)),
        F::csv("id", |it| it.row?.id)
            .and_text(Column::number("ID").always(), |it| plain(it.row.and_then(|row| row.id))),
        F::csv("load_time_ns", |it| it.row?.load_time_ns),
        F::csv("program", |it| Some(it.row?.program.clone())).and_text(
            Column::text("PROGRAM").always().cut_to(16),
            |it| match (it.row, it.lines) {
                (Some(row), _) => row.program.clone(),
                (None, Some(lines)) => format!("({} more lines)", grouped(lines)),
                (None, None) => "TOTAL".to_owned(),
            },
        ),
        F::csv("function", |it| Some(it.row?.function.clone()))
            .and_text(Column::text("FUNCTION").cut_to(16).droppable(1), |it| plain(it.row.map(|row| &row.function))),
        F::text(Column::text("LINE").always().cut_to(24).cut_at_end(), move |it| plain(it.row.map(place_of))),
        F::csv("file", |it| Some(it.row?.source.as_ref()?.file.to_string())),
        F::csv("line", |it| Some(it.row?.source.as_ref()?.line)),
        F::csv("text", |it| Some(it.row?.source.as_ref()?.text.to_string())),
        F::csv("self_samples", |it| Some(it.own.samples))
            .and_text(Column::number("SELF").always(), |it| grouped(it.own.samples))
            .ahead(4),
        F::csv("self_weight", |it| Some(it.own.weight)),
        F::csv("helper_samples", |it| Some(it.helper?.samples))
            .and_text(Column::number("HELPER").always(), |it| number(it.helper.map(|count| count.samples)))
            .ahead(4),
        F::csv("helper_weight", |it| Some(it.helper?.weight)),
        F::csv("percent", |it| it.row?.percent)
            .and_text(Column::number("%SAMPLES").share().always(), |it| {
                it.row.map_or_else(String::new, |row| percent(row.percent))
            })
            .ahead(6),
        F::csv("lines", |it| it.lines),
    ])
}

/// Table of an event's lines.
pub(super) fn sheet(event: &EventLines) -> Sheet {
    fields().sheet(&rows(event), &[total(event)])
}

pub(super) fn csv(report: &LinesReport, out: &mut Screen<'_>) -> io::Result<()> {
    fields().write_csv(report.events.iter().flat_map(|event| rows(event).into_iter().chain([total(event)])), out)
}
