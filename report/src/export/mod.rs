//! Recordings in formats of other viewers. Exports convert models and compute nothing.

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
    /// A line per stack: frames, outermost first, separated by `;`, a blank, the weight. Input of flame-graph tools.
    Folded,
    /// pprof's `profile.proto`, gzipped, with source lines of programs. Samples have the labels `comm`, and `prog_id`, `prog_name`, `prog_type`, `prog_tag` of the innermost program.
    Pprof,
    /// The JSON of speedscope.
    Speedscope,
    /// A self-contained HTML page: table, flame graph, cost over time.
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
    /// Returns true for binary formats, which a terminal cannot show.
    pub fn is_binary(self) -> bool {
        matches!(self, ExportFormat::Pprof | ExportFormat::Firefox)
    }
}

impl Stacks {
    /// Writes the call chains, one per line.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_folded(&self, out: &mut dyn Write) -> io::Result<()> {
        folded::write(self, out)
    }

    /// Writes the call chains as speedscope's JSON.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_speedscope(&self, out: &mut dyn Write) -> io::Result<()> {
        speedscope::write(self, out)
    }
}

impl Profile {
    /// Writes the call chains as pprof's `profile.proto`, gzipped.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_pprof(&self, out: &mut dyn Write) -> io::Result<()> {
        pprof::write(self, out)
    }

    /// Writes the recording as the Firefox Profiler's processed profile, gzipped.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_firefox(&self, out: &mut dyn Write) -> io::Result<()> {
        firefox::write(self, out)
    }
}
