//! Reports as text. All views show the same numbers; the table rounds them, JSON and CSV give them whole.

mod counters;
mod csv;
mod exact;
mod grid;
mod json;
mod maps;
mod notes;
mod rows;
mod stat;
mod table;
pub(crate) mod text;

pub(crate) use json::write_maps as write_maps_json;
pub(crate) use maps::write as write_maps_text;
pub use stat::{StatFormat, StatWriter};

use crate::{Report, Result};
use std::io::Write;

impl Report {
    /// A table for people, `width` columns wide where that is possible.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_table(&self, out: &mut dyn Write, width: usize) -> Result<()> {
        Ok(table::write(self, out, width)?)
    }

    /// One JSON document; `docs/json.md` describes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json(&self, out: &mut dyn Write) -> Result<()> {
        Ok(json::write(self, out)?)
    }

    /// One line per program, or per part of it when the report is split, after a line of column names.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_csv(&self, out: &mut dyn Write) -> Result<()> {
        Ok(csv::write(self, out)?)
    }
}
