//! Live counters as a table, Markdown, CSV lines or JSON lines.

mod lines;
mod text;

use super::grid::Grid;
use crate::Result;
use crate::model::StatSnapshot;
use crate::options::TextStyle;
use crate::view::screen::Screen;
use std::io::{self, Write};
use std::time::Duration;

/// Output format of counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatFormat {
    /// A table for people.
    Text(TextStyle),
    /// A Markdown table.
    Markdown,
    /// A line per value, with this separator between fields.
    Csv(String),
    /// A line of field names, then a line per value, with commas between fields.
    NamedCsv,
    /// One JSON object per line.
    Json,
}

/// Writes counters interval by interval.
#[derive(Debug)]
pub struct StatWriter {
    format: StatFormat,
    /// True if intervals are written before the total: each line then has a time.
    over_time: bool,
    /// True to name the CPU of each line, or `all`.
    per_cpu: bool,
    begun: bool,
    /// Columns of the text table, widened for all rows so far.
    grid: Option<Grid>,
    /// Rows since the column names were last written.
    since_names: usize,
}

impl StatWriter {
    /// Writer that has written nothing yet.
    pub fn new(format: StatFormat, over_time: bool, per_cpu: bool) -> StatWriter {
        StatWriter { format, over_time, per_cpu, begun: false, grid: None, since_names: 0 }
    }

    /// Writes the counts of an interval.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn interval(&mut self, snapshot: &StatSnapshot, out: &mut dyn Write) -> Result<()> {
        Ok(self.write(snapshot, out)?)
    }

    /// Writes the total counts. `command_time`: the times of the command in user mode and in the kernel, if there was a command.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn total(
        &mut self,
        snapshot: &StatSnapshot,
        command_time: Option<(Duration, Duration)>,
        out: &mut dyn Write,
    ) -> Result<()> {
        self.write(snapshot, out)?;
        match &self.format {
            StatFormat::Text(TextStyle { width, paint, .. }) => {
                text::end(snapshot, self.per_cpu, command_time, &mut Screen::painted(out, *paint), *width)?;
            }
            StatFormat::Markdown => text::notes(snapshot, self.per_cpu).write_markdown(&mut Screen::new(out), true)?,
            StatFormat::Csv(_) | StatFormat::NamedCsv => {}
            StatFormat::Json => lines::json_end(snapshot, command_time, out)?,
        }
        Ok(())
    }

    fn write(&mut self, snapshot: &StatSnapshot, out: &mut dyn Write) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.begun, true);
        match self.format.clone() {
            StatFormat::Text(TextStyle { width, paint, .. }) => {
                self.text(snapshot, first, &mut Screen::painted(out, paint), width)
            }
            StatFormat::Markdown => self.markdown(snapshot, first, &mut Screen::new(out)),
            StatFormat::Csv(separator) => {
                lines::csv(snapshot, &separator, self.over_time, self.per_cpu, &mut Screen::new(out))
            }
            StatFormat::NamedCsv => {
                let out = &mut Screen::new(out);
                if first {
                    lines::names(self.over_time, self.per_cpu, out)?;
                }
                lines::csv(snapshot, ",", self.over_time, self.per_cpu, out)
            }
            StatFormat::Json => lines::json(snapshot, first, out),
        }
    }
}
