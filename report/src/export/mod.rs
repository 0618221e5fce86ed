//! Recordings in the formats of other viewers. Nothing is computed here.

mod firefox;
mod folded;
mod openmetrics;
mod pprof;
mod speedscope;

pub use openmetrics::Metrics;

use crate::Error;
use crate::model::{Profile, Stacks};
use std::io::{self, Write};
use std::str::FromStr;

/// A format of another viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// A line for each stack: its frames, outermost first, with `;` between them, a blank, and its weight. What makes flame graphs reads it.
    Folded,
    /// pprof's `profile.proto`, gzipped, with source lines of programs. Samples have the labels `comm`, and `prog_id`, `prog_name`, `prog_type`, `prog_tag` of the innermost program.
    Pprof,
    /// The JSON of speedscope.
    Speedscope,
    /// One page that needs nothing else: the table, a flame graph, costs over time.
    Html,
    /// The Firefox Profiler's processed profile, gzipped: the only one with a time axis, loads and unloads, and runs.
    Firefox,
}

impl FromStr for ExportFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<ExportFormat, Error> {
        Ok(match text {
            "folded" => ExportFormat::Folded,
            "pprof" => ExportFormat::Pprof,
            "speedscope" => ExportFormat::Speedscope,
            "firefox" => ExportFormat::Firefox,
            "html" => ExportFormat::Html,
            _ => return Err(Error::option("--to", text, "expected html, folded, pprof, speedscope or firefox")),
        })
    }
}

impl ExportFormat {
    /// True if it is bytes that no terminal shows.
    pub fn is_binary(self) -> bool {
        matches!(self, ExportFormat::Pprof | ExportFormat::Firefox)
    }
}

impl Stacks {
    /// Writes them, one call chain per line.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write_folded(&self, out: &mut dyn Write) -> io::Result<()> {
        folded::write(self, out)
    }

    /// Writes them as speedscope's JSON.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write_speedscope(&self, out: &mut dyn Write) -> io::Result<()> {
        speedscope::write(self, out)
    }
}

impl Profile {
    /// Writes it as pprof's `profile.proto`, gzipped.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write_pprof(&self, out: &mut dyn Write) -> io::Result<()> {
        pprof::write(self, out)
    }

    /// Writes it as the Firefox Profiler's processed profile, gzipped.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write_firefox(&self, out: &mut dyn Write) -> io::Result<()> {
        firefox::write(self, out)
    }
}
