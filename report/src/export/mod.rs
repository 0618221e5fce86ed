//! Call chains in the formats of other viewers. Nothing is computed here.

mod folded;
mod pprof;
mod speedscope;

use crate::Error;
use crate::model::Stacks;
use std::io::{self, Write};
use std::str::FromStr;

/// A format that stacks can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StacksFormat {
    /// A line for each stack: its frames, outermost first, with `;` between them, a blank, and its weight. What makes flame graphs reads it.
    Folded,
    /// pprof's `profile.proto`, gzipped. Samples have the labels `comm`, and `prog_id`, `prog_name`, `prog_type`, `prog_tag` of the innermost program.
    Pprof,
    /// The JSON of speedscope.
    Speedscope,
}

impl FromStr for StacksFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<StacksFormat, Error> {
        Ok(match text {
            "folded" => StacksFormat::Folded,
            "pprof" => StacksFormat::Pprof,
            "speedscope" => StacksFormat::Speedscope,
            _ => return Err(Error::option("--to", text, "expected folded, pprof or speedscope")),
        })
    }
}

impl StacksFormat {
    /// Whether it is bytes that no terminal shows.
    pub fn is_binary(self) -> bool {
        self == StacksFormat::Pprof
    }
}

impl Stacks {
    /// Writes them for a viewer.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write(&self, format: StacksFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            StacksFormat::Folded => folded::write(self, out),
            StacksFormat::Pprof => pprof::write(self, out),
            StacksFormat::Speedscope => speedscope::write(self, out),
        }
    }
}
