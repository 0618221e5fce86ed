//! Models as text. A renderer computes nothing: tables round the model's numbers, JSON and CSV print them in full.
//!
//! A view is data: blocks of comments, tables and notes (`blocks`). Each column of a table is declared once (`columns`). The terminal, Markdown, the
//! HTML page and the interactive screen read the blocks. CSV reads the same columns, and JSON is the model itself.

mod advice;
mod annotation;
mod ascii;
mod bill;
mod blocks;
mod by_prog;
mod c_types;
mod cells;
mod columns;
mod counters;
mod diff;
mod diff_short;
mod first_screen;
mod flame;
mod grid;
mod html;
#[cfg_attr(not(feature = "tui"), allow(dead_code, reason = "the page needs fewer colours than a terminal"))]
mod hues;
mod interval;
mod json;
mod json_maps;
mod line;
mod lines;
mod listing;
mod maps;
mod over_time;
mod payers;
mod screen;
mod stat;
mod tree;
#[cfg(feature = "tui")]
pub mod tui;
mod without;

pub use ascii::to_ascii;
pub use first_screen::{CostPart, FirstScreen, Flag, HotLine, MachinePart, ScreenRow, Trust};
pub use html::{PageTable, TablesPage};
pub use listing::{Detail, FlameBox, Listing, ListingRow};
pub use stat::{StatFormat, StatWriter};

use crate::Result;
use crate::model::{
    Advice, Annotation, Bill, CountersReport, Diff, Header, Interval, LinesReport, OverTime, Page, Payers, Report,
    Trees, Without,
};
use crate::options::TextStyle;
use crate::query::by_prog::lazy::LazyReport;
use crate::query::maps::{MapsForm, MapsOptions, MapsReport};
use columns::{LineColumn, LineColumns};
use grid::Column;
use screen::Screen;
use serde::Serialize;
use std::io::{self, Write};

/// Answer of a query, printable as text, Markdown, JSON and CSV.
pub trait Document: Serialize {
    /// Writes a table, a listing or paragraphs for people.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()>;

    /// Writes Markdown with all columns that have content, and with all notes or the most severe ones.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    fn write_markdown(&self, out: &mut dyn Write, all_notes: bool) -> Result<()>;

    /// Writes a JSON document; `docs/json.md` describes the members.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    fn write_json(&self, out: &mut dyn Write) -> Result<()>
    where
        Self: Sized,
    {
        self.write_json_under(None, out)
    }

    /// Writes a JSON document. The header of the recording, if given, is its member `header`.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    fn write_json_under(&self, header: Option<&Header>, out: &mut dyn Write) -> Result<()>
    where
        Self: Sized,
    {
        Ok(json::pretty_under(header, self, out)?)
    }

    /// Writes a line of column names, then a line per row.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    fn write_csv(&self, out: &mut dyn Write) -> Result<()>;
}

impl Interval {
    /// Writes a table for people.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint, .. } = style.into();
        Ok(interval::view(self, width).write(&mut Screen::painted(out, paint), width, true)?)
    }

    /// Writes Markdown with all columns that have content.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_markdown(&self, out: &mut dyn Write) -> Result<()> {
        Ok(interval::view(self, UNBOUNDED).write_markdown(&mut Screen::new(out), true)?)
    }

    /// Writes the rows of the report as CSV. Each row begins with the start and end of the interval, ns. If `is_first`, the column names come first.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_csv(&self, is_first: bool, out: &mut dyn Write) -> Result<()> {
        let mut text = Vec::new();
        self.report.write_csv(&mut text)?;
        for (at, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate().skip(usize::from(!is_first)) {
            match at {
                0 => out.write_all(b"from_ns,to_ns,")?,
                _ => write!(out, "{},{},", self.from_ns, self.to_ns)?,
            }
            out.write_all(line)?;
        }
        Ok(())
    }

    /// Writes a JSON document on one line; `docs/top.md` describes the members.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_json_line(&self, out: &mut dyn Write) -> Result<()> {
        Ok(json::line(self, out)?)
    }
}

impl Diff {
    /// Writes the comparison in three lines: the cost of all BPF, programs that are more expensive beyond chance, and other changes.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub fn write_short(&self, out: &mut dyn Write) -> Result<()> {
        let mut out = Screen::new(out);
        Ok(diff_short::lines(self).iter().try_for_each(|line| writeln!(out, "{line}"))?)
    }
}

/// Width that fits all columns.
const UNBOUNDED: usize = usize::MAX;

/// Implements [`Document`] for each model with the view function and the CSV function of its module.
macro_rules! documents {
    ($($(#[$doc:meta])* $model:ty: $view:expr, $csv:expr;)*) => {$(
        $(#[$doc])*
        impl Document for $model {
            fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
                let TextStyle { width, paint, all_notes } = style.into();
                Ok(($view)(self, width)?.write(&mut Screen::painted(out, paint), width, all_notes)?)
            }

            fn write_markdown(&self, out: &mut dyn Write, all_notes: bool) -> Result<()> {
                Ok(($view)(self, UNBOUNDED)?.write_markdown(&mut Screen::new(out), all_notes)?)
            }

            fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
                Ok(($csv)(self, &mut Screen::new(out))?)
            }
        }
    )*};
}

documents! {
    /// Rows of CSV: programs, their parts if the report is split, and sums.
    Report: |it, _: usize| by_prog::view(it), |it: &Report, out: &mut Screen<'_>| by_prog::csv(it, it.events.iter(), out);
    /// Rows of CSV: targets per interval, then targets over the whole time.
    CountersReport: shown(counters::view), counters::csv;
    /// A row of bars for each program. Rows of CSV: for each program, the intervals in which it has samples or ran; then the sums of all intervals.
    OverTime: shown(over_time::view), over_time::csv;
    /// Two tables per event: payers, and the cost of each program to each payer. Rows of CSV: payers, then programs by payer.
    Payers: shown(payers::view), payers::csv;
    /// A table of owners per event; if the report selects an owner, also a table of the owner's programs. Rows of CSV: owners, then programs.
    Bill: shown(bill::view), bill::csv;
    /// A table of payers per event. Rows of CSV: payers.
    Without: shown(without::view), without::csv;
    /// A table per event. Rows of CSV: metrics of programs and of all BPF, and conditions.
    Diff: shown(diff::view), diff::csv;
    /// A paragraph per finding. Rows of CSV: findings.
    Advice: shown(advice::view), advice::csv;
    /// Each program with its callees below. Rows of CSV: nodes.
    Trees: shown(tree::view), tree::csv;
    /// A listing whose lines are cut to the width. Rows of CSV: functions, source lines and instructions.
    Annotation: shown(annotation::view), annotation::csv;
    /// Rows of CSV: source lines.
    LinesReport: shown(lines::view), lines::csv;
}

/// Table in the style of the report. Rows of CSV are those of [`Report`].
impl Document for LazyReport<'_> {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint, all_notes } = style.into();
        let mut out = Screen::painted(out, paint);
        Ok(by_prog::lazy_views(self)?.try_for_each(|view| view.write(&mut out, width, all_notes))?)
    }

    fn write_markdown(&self, out: &mut dyn Write, all_notes: bool) -> Result<()> {
        let mut out = Screen::new(out);
        Ok(by_prog::lazy_views(self)?.try_for_each(|view| view.write_markdown(&mut out, all_notes))?)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(by_prog::csv(&self.head, self.events(), &mut Screen::new(out))?)
    }
}

/// Wraps a view function that cannot fail, because `documents!` expects a result.
fn shown<M>(
    view: for<'m> fn(&'m M, usize) -> blocks::View<'m>,
) -> impl for<'m> FnOnce(&'m M, usize) -> Result<blocks::View<'m>> {
    move |model, width| Ok(view(model, width))
}

impl Page {
    /// Writes a self-contained HTML document, which loads no files and no network resources.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_html(&self, out: &mut dyn Write) -> Result<()> {
        Ok(html::write(self, out)?)
    }
}

/// Writes BPF maps: as text or JSON with their entries, or as a CSV or Markdown table without entries.
pub(crate) fn write_maps(report: &MapsReport<'_>, options: &MapsOptions, out: &mut dyn Write) -> io::Result<()> {
    let TextStyle { paint, width, .. } = options.text;
    match options.form {
        MapsForm::Text => maps::write(report, &mut maps::WrappedLines { out: Screen::painted(out, paint), width }),
        MapsForm::Json => json_maps::write(report, options.header.as_ref(), out),
        MapsForm::Csv => maps::csv(report, &mut Screen::new(out)),
        MapsForm::Markdown => maps::view(report).write_markdown(&mut Screen::new(out), true),
    }
}

/// Writes a table of texts as CSV or Markdown, for commands that show no recording. `columns` are (name in CSV, heading in Markdown).
///
/// # Errors
/// Fails if the output cannot be written.
pub fn write_texts<const N: usize>(
    columns: [(&'static str, &'static str); N],
    rows: impl IntoIterator<Item = [String; N]>,
    is_csv: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let fields = columns.into_iter().enumerate().map(|(at, (name, heading))| {
        let cell = move |row: &[String; N]| row[at].clone();
        LineColumn::csv(name, move |row| Some(cell(row))).and_text(Column::text(heading), cell)
    });
    let (columns, mut out) = (LineColumns::new(fields), Screen::new(out));
    match is_csv {
        true => columns.write_csv(rows, &mut out),
        false => {
            let rows: Vec<[String; N]> = rows.into_iter().collect();
            blocks::View(vec![blocks::Block::Table(columns.sheet(&rows, &[]))]).write_markdown(&mut out, true)
        }
    }
}
