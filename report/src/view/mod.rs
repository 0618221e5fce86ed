//! Models as text. A renderer computes nothing: the table rounds the model's numbers, JSON and CSV give them whole.

mod advice;
mod annotation;
mod cells;
mod counters;
mod csv;
mod diff;
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
mod opening;
mod over_time;
mod payers;
mod screen;
mod spark;
mod stat;
mod table;
mod tree;

pub use html::{PageTable, TablesPage};
pub(crate) use json_maps::write as write_maps_json;
pub use listing::{Detail, FlameBox, Listing, ListingRow};
pub use stat::{StatFormat, StatWriter};

use crate::Result;
use crate::model::{
    Advice, Annotation, CountersReport, Diff, Header, Interval, LinesReport, OverTime, Page, Payers, Report, Trees,
};
use crate::options::{Paint, TableStyle, TextStyle, Tone};
use crate::query::maps::MapsReport;
use line::Line;
use screen::Screen;
use serde::Serialize;
use std::io::{self, Write};

/// What a query gives, as text in three forms.
pub trait Document: Serialize {
    /// A table, a listing or paragraphs for people.
    ///
    /// # Errors
    /// When it cannot be written.
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()>;

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
    /// A table for people that looks like this; with spark lines of the same report over time ([`crate::Session::by_prog_over_time`]).
    ///
    /// # Errors
    /// When it cannot be written, or has no column of a name that is asked for.
    pub fn write_table_as(&self, out: &mut dyn Write, style: &TableStyle, over_time: Option<&OverTime>) -> Result<()> {
        table::write(self, &mut Screen::painted(out, style.text.paint), style, over_time)
    }
}

/// Rows of CSV: programs, or parts of each when the report is split.
impl Document for Report {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        self.write_table_as(out, &TableStyle::new(style), None)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(csv::write(self, &mut Screen::new(out))?)
    }
}

impl Interval {
    /// A table for people.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(interval::table(self, &mut Screen::painted(out, paint), width)?)
    }

    /// One JSON document on a line; `docs/top.md` describes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json_line(&self, out: &mut dyn Write) -> Result<()> {
        Ok(json::line(self, out)?)
    }
}

/// Rows of CSV: intervals of targets, and each target for all of the time.
impl Document for CountersReport {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(counters::table(self, &mut Screen::painted(out, paint), width)?)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(counters::csv(self, &mut Screen::new(out))?)
    }
}

/// A row of bars for each program. Rows of CSV: intervals in which a program has samples.
impl Document for OverTime {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(over_time::table(self, &mut Screen::painted(out, paint), width)?)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(over_time::csv(self, &mut Screen::new(out))?)
    }
}

/// Two tables for each event: the payers, and what each program costs each of them. Rows of CSV: payers, and programs by payer.
impl Document for Payers {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(payers::table(self, &mut Screen::painted(out, paint), width)?)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(payers::csv(self, &mut Screen::new(out))?)
    }
}

/// A table for each event. Rows of CSV: numbers of programs, and conditions.
impl Document for Diff {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(diff::table(self, &mut Screen::painted(out, paint), width)?)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(diff::csv(self, &mut Screen::new(out))?)
    }
}

/// A paragraph for each finding, which is a row of CSV.
impl Document for Advice {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(advice::text(self, &mut Screen::painted(out, paint), width)?)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(advice::csv(self, &mut Screen::new(out))?)
    }
}

/// Each program, and below it what it called. Rows of CSV: nodes.
impl Document for Trees {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(tree::table(self, &mut Screen::painted(out, paint), width)?)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(tree::csv(self, &mut Screen::new(out))?)
    }
}

/// A listing, whose lines are cut to the width. Rows of CSV: functions, source lines and instructions.
impl Document for Annotation {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(annotation::table(self, &mut Screen::painted(out, paint), width)?)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(annotation::csv(self, &mut Screen::new(out))?)
    }
}

/// Rows of CSV: source lines.
impl Document for LinesReport {
    fn write_table(&self, out: &mut dyn Write, style: impl Into<TextStyle>) -> Result<()> {
        let TextStyle { width, paint } = style.into();
        Ok(lines::table(self, &mut Screen::painted(out, paint), width)?)
    }

    fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(lines::csv(self, &mut Screen::new(out))?)
    }
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

/// Notes below a table.
fn write_notes(notes: &[String], out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    if !notes.is_empty() {
        writeln!(out, "#")?;
    }
    notes.iter().try_for_each(|note| write_wrapped(note, out, width))
}

/// A note on as many lines as it needs.
fn write_wrapped(note: &str, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    write_wrapped_in(Some(Tone::Dim), note, out, width)
}

/// The same in a tone.
fn write_wrapped_in(tone: Option<Tone>, note: &str, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    let mut text = String::from("#");
    let write = |out: &mut Screen<'_>, text: &str| {
        let mut line = Line::default();
        line.push(text, tone);
        out.line(&line)
    };
    let mut chars = text.len();
    for word in note.split(' ') {
        let word_chars = word.chars().count();
        if chars + 1 + word_chars > width && text.len() > 4 {
            write(out, &text)?;
            text = String::from("#  ");
            chars = text.len();
        }
        text.push(' ');
        text.push_str(word);
        chars += 1 + word_chars;
    }
    write(out, &text)
}
