//! Recordings in formats of other viewers. Exports convert models and compute nothing.

mod firefox;
mod folded;
mod openmetrics;
mod otlp;
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
    /// A line per stack: frames separated by `;`, outermost first, then a blank and the weight. Input of flame-graph tools.
    Folded,
    /// pprof's `profile.proto`, gzipped, with source lines of programs. Samples have the label `comm`, and the labels `prog_id`, `prog_name`,
    /// `prog_type` and `prog_tag` of the innermost program.
    Pprof,
    /// The JSON of speedscope.
    Speedscope,
    /// A self-contained HTML page: table, flame graph, cost over time.
    Html,
    /// The Firefox Profiler's processed profile, gzipped: the only format with a time axis, loads and unloads, and runs.
    Firefox,
    /// A `ProfilesData` message of OpenTelemetry's protocol, `v1development`. Experimental, like this version of the protocol.
    Otlp,
}

impl FromStr for ExportFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<ExportFormat, Error> {
        let known = ExportFormat::ALL.into_iter().find(|format| format.name() == text);
        known.ok_or_else(|| {
            let names = ExportFormat::ALL.map(ExportFormat::name).join(", ");
            Error::option("--to", text, format!("expected one of {names}"))
        })
    }
}

impl ExportFormat {
    /// All formats.
    pub const ALL: [ExportFormat; 6] = [
        ExportFormat::Html,
        ExportFormat::Folded,
        ExportFormat::Pprof,
        ExportFormat::Speedscope,
        ExportFormat::Firefox,
        ExportFormat::Otlp,
    ];

    /// Name in the option `--to`.
    pub fn name(self) -> &'static str {
        match self {
            ExportFormat::Folded => "folded",
            ExportFormat::Pprof => "pprof",
            ExportFormat::Speedscope => "speedscope",
            ExportFormat::Html => "html",
            ExportFormat::Firefox => "firefox",
            ExportFormat::Otlp => "otlp",
        }
    }

    /// Returns true for binary formats, which a terminal cannot show.
    pub fn is_binary(self) -> bool {
        matches!(self, ExportFormat::Pprof | ExportFormat::Firefox | ExportFormat::Otlp)
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

    /// Writes the call chains as a `ProfilesData` message of OpenTelemetry's protocol.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_otlp(&self, out: &mut dyn Write) -> io::Result<()> {
        otlp::write(self, out)
    }

    /// Writes the recording as the Firefox Profiler's processed profile, gzipped.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_firefox(&self, out: &mut dyn Write) -> io::Result<()> {
        firefox::write(self, out)
    }
}
