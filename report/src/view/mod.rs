//! Models as text. A renderer computes nothing: the table rounds the model's numbers, JSON and CSV give them whole.
//!
//! A view is data: blocks of comments, tables and notes (`blocks`), whose tables come from columns that are declared once (`columns`). The
//! terminal, Markdown, the page and the screen read the blocks; CSV reads the same declarations; JSON is the model.

mod advice;
mod annotation;
mod blocks;
mod by_prog;
mod cells;
mod columns;
mod counters;
mod diff;
mod diff_short;
mod flame;
mod grid;
mod html;
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

pub use html::{PageTable, TablesPage};
pub(crate) use json_maps::write as write_maps_json;
pub use listing::{Detail, FlameBox, Listing, ListingRow};
pub use stat::{StatFormat, StatWriter};

use crate::Result;
use crate::model::{
    Advice, Annotation, CountersReport, Diff, Header, Interval, LinesReport, OverTime, Page, Payers, Report, Trees,
};
use crate::options::{Paint, TableStyle, TextStyle};
use crate::query::maps::MapsReport;
use screen::Screen;
use serde::Serialize;
use std::io::{self, Write};

/// Answer of a query, as text in four forms.
pub trait Document: Serialize {
    /// A table, a listing or paragraphs for people.
    ///
    /// # Errors
    /// When it cannot be written.
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()>;

    /// The same as Markdown, with all columns that say something.
    ///
    /// # Errors
    /// When it cannot be written.
    fn write_markdown(&self, out: &mut dyn Write) -> Result<()>;

    /// One JSON document; `docs/json.md` describes it.
    ///
    /// # Errors
    /// When it cannot be written.
    fn write_json(&self, out: &mut dyn Write) -> Result<()>
    where
        Self: Sized,
    {
        self.write_json_under(None, out)
    }

    /// The same with what the header of the recording says, if that is wanted, in the member `header`.
    ///
    /// # Errors
    /// When it cannot be written.
    fn write_json_under(&self, header: Option<&Header>, out: &mut dyn Write) -> Result<()>
    where
        Self: Sized,
    {
        Ok(json::pretty_under(header, self, out)?)
    }

    /// A line of column names, and one line for each row.
    ///
    /// # Errors
    /// When it cannot be written.
    fn write_csv(&self, out: &mut dyn Write) -> Result<()>;
}

impl Report {
    /// Writes the table for people in this style; with spark lines of the same report over time
    /// ([`crate::Session::by_prog_over_time`]).
    ///
    /// # Errors
    /// When it cannot be written, or has no column of a name that is asked for.
    pub fn write_table_as(&self, out: &mut dyn Write, style: &TableStyle, over_time: Option<&OverTime>) -> Result<()> {
        let TextStyle { width, paint } = style.text;
        Ok(by_prog::view(self, style, over_time)?.write(&mut Screen::painted(out, paint), width)?)
    }

    /// The same as Markdown.
    ///
    /// # Errors
    /// When it cannot be written, or has no column of a name that is asked for.
    pub fn write_markdown_as(
        &self,
        out: &mut dyn Write,
        style: &TableStyle,
        over_time: Option<&OverTime>,
    ) -> Result<()> {
        Ok(by_prog::view(self, style, over_time)?.write_markdown(&mut Screen::new(out))?)
    }
}

impl Interval {
    /// A table for people.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(interval::view(self, width).write(&mut Screen::painted(out, paint), width)?)
    }

    /// One JSON document on a line; `docs/top.md` describes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json_line(&self, out: &mut dyn Write) -> Result<()> {
        Ok(json::line(self, out)?)
    }
}

impl Diff {
    /// Writes all of it in three lines: the cost of all BPF, programs that are shown to be more expensive, and the others that changed.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub fn write_short(&self, out: &mut dyn Write) -> Result<()> {
        let mut out = Screen::new(out);
        Ok(diff_short::lines(self).iter().try_for_each(|line| writeln!(out, "{line}"))?)
    }
}

/// Width of a table that has all columns.
const UNBOUNDED: usize = usize::MAX;

/// Forms of models, each from the two functions of its module.
macro_rules! documents {
    ($($(#[$doc:meta])* $model:ty: $view:expr, $csv:path;)*) => {$(
        $(#[$doc])*
        impl Document for $model {
            fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
                let TextStyle { width, paint } = style.into();
                Ok(($view)(self, width)?.write(&mut Screen::painted(out, paint), width)?)
            }

            fn write_markdown(&self, out: &mut dyn Write) -> Result<()> {
                Ok(($view)(self, UNBOUNDED)?.write_markdown(&mut Screen::new(out))?)
            }

            fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
                Ok($csv(self, &mut Screen::new(out))?)
            }
        }
    )*};
}

documents! {
    /// Rows of CSV: programs, or parts of each when the report is split.
    Report: |it, width: usize| by_prog::view(it, &TableStyle::new(width), None), by_prog::csv;
    /// Rows of CSV: intervals of targets, and each target for all of the time.
    CountersReport: shown(counters::view), counters::csv;
    /// A row of bars for each program. Rows of CSV: intervals in which a program has samples.
    OverTime: shown(over_time::view), over_time::csv;
    /// Two tables for each event: the payers, and what each program costs each of them. Rows of CSV: payers, and programs by payer.
    Payers: shown(payers::view), payers::csv;
    /// A table for each event. Rows of CSV: numbers of programs, and conditions.
    Diff: shown(diff::view), diff::csv;
    /// A paragraph for each finding, which is a row of CSV.
    Advice: shown(advice::view), advice::csv;
    /// Each program, and below it what it called. Rows of CSV: nodes.
    Trees: shown(tree::view), tree::csv;
    /// A listing, whose lines are cut to the width. Rows of CSV: functions, source lines and instructions.
    Annotation: shown(annotation::view), annotation::csv;
    /// Rows of CSV: source lines.
    LinesReport: shown(lines::view), lines::csv;
}

/// A view that is there in any case.
fn shown<M>(
    view: for<'m> fn(&'m M, usize) -> blocks::View<'m>,
) -> impl for<'m> FnOnce(&'m M, usize) -> Result<blocks::View<'m>> {
    move |model, width| Ok(view(model, width))
}

impl Page {
    /// One HTML document that needs no other file and no network.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_html(&self, out: &mut dyn Write) -> Result<()> {
        Ok(html::write(self, out)?)
    }
}

/// Maps as text.
pub(crate) fn write_maps_text(report: &MapsReport<'_>, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    maps::write(report, &mut Screen::painted(out, paint))
}
