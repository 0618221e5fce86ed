//! A self-contained HTML page: the answer on one screen, then all tables, a flame graph of all samples and the code.

mod code;
mod tables;
mod timed;

pub use tables::{PageTable, TablesPage};

use super::blocks::comments;
use super::first_screen::{self, FirstScreen, ScreenRow};
use super::grid::Sheet;
use super::payers::{self, Repeated};
use super::{UNBOUNDED, bill, by_prog, json, lines};
use crate::model::text::printable;
use crate::model::{FrameKind, Page, StackTree, Unit};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use std::io::{self, Write};

const STYLE: &str = include_str!("page.css");
const BODY: &str = include_str!("page.html");
const SCRIPT: &str = concat!(include_str!("first.js"), include_str!("page.js"), include_str!("flame.js"));
/// Script of sortable tables, placed before the script of each page.
const TABLES: &str = include_str!("tables.js");

/// Limit on the nodes of call stacks in the page. This number of nodes takes about two megabytes.
const MAX_NODES: usize = 60_000;

/// Data that the page's script reads.
#[derive(Serialize)]
struct PageData<'p> {
    title: String,
    first: FirstScreen,
    facts: Vec<String>,
    notes: Vec<String>,
    /// `ns` or `events`.
    unit: &'static str,
    table: TableData,
    /// Key of the program of each table row, the same text as in [`PageFrame::program`]; empty if rows are no programs.
    keys: Vec<String>,
    payers: TableData,
    pairs: TableData,
    owners: TableData,
    owners_legend: Vec<String>,
    lines: TableData,
    code: code::PageCode,
    frames: Vec<PageFrame>,
    stacks: &'p StackTree,
    times: timed::PageTimes,
}

#[derive(Serialize, Default)]
struct TableData {
    columns: Vec<ColumnData>,
    rows: Vec<Vec<String>>,
    totals: Vec<Vec<String>>,
}

impl From<Sheet> for TableData {
    fn from(sheet: Sheet) -> TableData {
        let Sheet { columns, rows, totals } = sheet.without_idle_columns();
        let texts = |rows: Vec<Vec<String>>| {
            let cells = rows.into_iter().map(|row| row.iter().map(|cell| text(cell)).collect());
            cells.collect::<Vec<_>>()
        };
        let columns = columns.iter().map(|column| ColumnData { name: text(column.name()), number: column.is_number() });
        TableData { columns: columns.collect(), rows: texts(rows), totals: texts(totals) }
    }
}

#[derive(Serialize)]
struct ColumnData {
    name: String,
    number: bool,
}

#[derive(Serialize)]
struct PageFrame {
    name: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
}

pub(super) fn write(page: &Page, out: &mut dyn Write) -> io::Result<()> {
    let overview = &page.overview;
    let intervals = overview.elapsed_ns.div_ceil(overview.interval_ns.max(1));
    let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
    let (tree, times) = timed::tree(&page.stacks, MAX_NODES, &page.stacks_by_interval, intervals);
    let data = data(page, &tree, times);
    let body = BODY.replace("<!-- without script -->", &without_script(&data.first));
    document(&body, &data, SCRIPT, out)
}

/// Table of programs for browsers without scripts.
fn without_script(first: &FirstScreen) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let row = |row: &ScreenRow| {
        let cells =
            [&row.name, &row.about, &row.text, &row.runs, &row.time].map(|cell| format!("<td>{}</td>", escaped(cell)));
        format!("<tr>{}</tr>\n", cells.concat())
    };
    let head = ["Program", "Owner and hook", "%", "runs/s", "time/run"].map(|head| format!("<th>{head}</th>"));
    format!(
        "<noscript>\n<p>{} · BPF costs {} %</p>\n<table><thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table>\n</noscript>",
        escaped(&first.machine_facts),
        escaped(&first.percent),
        head.concat(),
        first.programs.iter().map(row).collect::<String>(),
    )
}

/// Writes a page with the common script and `script`. The page has `data` as deflated JSON in base64, for `script` to read.
fn document(body: &str, data: &impl Serialize, script: &str, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(
        b"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
        <meta name=\"viewport\" content=\"width=device-width\">\n\
        <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
        script-src 'unsafe-inline'; img-src data:\">\n\
        <link rel=\"icon\" href=\"data:,\">\n<title>bprec</title>\n<style>\n",
    )?;
    out.write_all(STYLE.as_bytes())?;
    out.write_all(b"</style>\n</head>\n<body>\n")?;
    out.write_all(body.as_bytes())?;
    let mut deflated = DeflateEncoder::new(Vec::new(), Compression::default());
    json::line(data, &mut deflated)?;
    out.write_all(b"<script type=\"text/plain\" id=\"data\">")?;
    out.write_all(base64(&deflated.finish()?).as_bytes())?;
    out.write_all(b"</script>\n<script type=\"module\">\n")?;
    // Indentation and comments of the scripts are left out, because only readers of the source need them.
    let lines = TABLES.lines().chain(script.lines()).map(str::trim_start);
    for line in lines.filter(|line| !line.starts_with("//")) {
        writeln!(out, "{line}")?;
    }
    out.write_all(b"</script>\n</body>\n</html>\n")
}

/// Base64 (RFC 4648) without the padding at its end, which browsers do not need.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let of = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = of(0) << 16 | of(1) << 8 | of(2);
        (0..=chunk.len()).map(move |digit| char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]))
    });
    digits.collect()
}

fn data<'p>(page: &Page, tree: &'p StackTree, times: timed::PageTimes) -> PageData<'p> {
    let report = &page.report;
    let event = report.events.iter().find(|event| event.name == page.stacks.event);
    let paying = page.payers.events.iter().find(|event| event.name == page.stacks.event);
    let lines_of = page.lines.events.iter().find(|event| event.name == page.stacks.event);
    let mut title = vec!["bprec".to_owned()];
    title.extend(report.recording.hostname.as_deref().map(text));
    title.push(text(&page.stacks.event));
    let key = |program: usize| text(&report.programs[program].label_with_id());
    PageData {
        title: title.join(" · "),
        first: event.map(|event| first_screen::of_page(page, event, key)).unwrap_or_default(),
        facts: event.map(|event| comments(&by_prog::above(report, event), UNBOUNDED)).unwrap_or_default(),
        notes: comments(&by_prog::notes(report, event), UNBOUNDED),
        unit: match page.stacks.unit {
            Unit::Nanoseconds => "ns",
            Unit::Events => "events",
        },
        table: event.map(|event| by_prog::sheet(report, event, by_prog::Rates::Count, None).into()).unwrap_or_default(),
        keys: event.into_iter().flat_map(|event| &event.rows).map(|row| key(row.program)).collect(),
        payers: paying.map(|event| payers::payers(&page.payers, event).into()).unwrap_or_default(),
        pairs: paying.map(|event| payers::pairs(&page.payers, event, Repeated::Named).into()).unwrap_or_default(),
        owners: page.bill.as_ref().map(|event| bill::owners(event).into()).unwrap_or_default(),
        owners_legend: bill::legend(page.bill.as_slice()).map(str::to_owned).collect(),
        lines: lines_of.map(|event| lines::sheet(event).into()).unwrap_or_default(),
        code: code::code(page.code.as_ref(), |program| {
            let is_it = |it: &usize| {
                let of_report = &report.programs[*it];
                (of_report.id, of_report.load_time_ns) == (program.id, program.load_time_ns)
            };
            (0..report.programs.len()).find(is_it).map_or_else(|| text(&program.name), key)
        }),
        frames: frames(page),
        stacks: tree,
        times,
    }
}

fn text(text: &str) -> String {
    printable(text).into_owned()
}

fn frames(page: &Page) -> Vec<PageFrame> {
    let frames = page.stacks.frames.iter().map(|frame| {
        let (kind, program) = match &frame.kind {
            FrameKind::Task => ("task", None),
            FrameKind::User { .. } => ("user", None),
            FrameKind::Kernel => ("kernel", None),
            FrameKind::Image => ("entry", None),
            FrameKind::Program { .. } => ("bpf", frame.program_label()),
        };
        PageFrame { name: text(&frame.label()), kind, program: program.map(|program| text(&program)) }
    });
    // The last frame is the label of the nodes that `StackTree` folds.
    let small = PageFrame { name: "(less)".to_owned(), kind: "small", program: None };
    frames.chain([small]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn code_of_the_page_has_at_most_60_kb() {
        let mut page = Vec::new();
        document(BODY, &(), SCRIPT, &mut page).unwrap();
        assert!(page.len() <= 60_000, "{} bytes", page.len());
    }
}
