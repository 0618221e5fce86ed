//! Models as text. A renderer computes nothing: the table rounds the model's numbers, JSON and CSV give them whole.

mod cells;
mod counters;
mod csv;
mod grid;
mod json;
mod json_maps;
mod maps;
mod opening;
mod over_time;
mod screen;
mod stat;
mod table;

pub(crate) use json_maps::write as write_maps_json;
pub use stat::{StatFormat, StatWriter};

use crate::Result;
use crate::maps::MapsReport;
use crate::model::{CountersReport, OverTime, Report};
use screen::Screen;
use std::io::{self, Write};

impl Report {
    /// A table for people, `width` columns wide where that is possible.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_table(&self, out: &mut dyn Write, width: usize) -> Result<()> {
        Ok(table::write(self, &mut Screen::new(out), width)?)
    }

    /// One JSON document; `docs/json.md` describes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json(&self, out: &mut dyn Write) -> Result<()> {
        Ok(json::pretty(self, out)?)
    }

    /// One line per program, or per part of it when the report is split, after a line of column names.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(csv::write(self, &mut Screen::new(out))?)
    }
}

impl CountersReport {
    /// A table for people, `width` columns wide at most.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_table(&self, out: &mut dyn Write, width: usize) -> Result<()> {
        Ok(counters::table(self, &mut Screen::new(out), width)?)
    }

    /// One JSON document; `docs/json.md` describes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json(&self, out: &mut dyn Write) -> Result<()> {
        Ok(json::pretty(self, out)?)
    }

    /// One line per interval and target, and one per target for all of the time, after a line of column names.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(counters::csv(self, &mut Screen::new(out))?)
    }
}

impl OverTime {
    /// A table for people, `width` columns wide where that is possible: a line for each program, with what it cost as a row of bars.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_table(&self, out: &mut dyn Write, width: usize) -> Result<()> {
        Ok(over_time::table(self, &mut Screen::new(out), width)?)
    }

    /// One JSON document; `docs/json.md` describes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json(&self, out: &mut dyn Write) -> Result<()> {
        Ok(json::pretty(self, out)?)
    }

    /// One line per program and interval in which it has samples, after a line of column names.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(over_time::csv(self, &mut Screen::new(out))?)
    }
}

/// Maps as text.
pub(crate) fn write_maps_text(report: &MapsReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    maps::write(report, &mut Screen::new(out))
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
    let mut line = String::from("#");
    for word in note.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > width && line.len() > 4 {
            writeln!(out, "{line}")?;
            line = String::from("#  ");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(out, "{line}")
}
