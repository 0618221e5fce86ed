//! Recordings in formats of other viewers. Exports convert models and compute nothing.

mod firefox;
mod folded;
mod openmetrics;
mod otlp;
mod pprof;
mod speedscope;

pub use openmetrics::Metrics;

use crate::Error;
use crate::model::Unit;
use crate::model::text::clean;
use crate::options::worded_by_json;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::str::FromStr;

/// A format of another viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
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

worded_by_json! { ExportFormat }

impl FromStr for ExportFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<ExportFormat, Error> {
        let known = ExportFormat::ALL.into_iter().find(|format| format.to_string() == text);
        known.ok_or_else(|| {
            let names = ExportFormat::ALL.map(|format| format.to_string()).join(", ");
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

    /// Returns true for binary formats, which a terminal cannot show.
    pub fn is_binary(self) -> bool {
        matches!(self, ExportFormat::Pprof | ExportFormat::Firefox | ExportFormat::Otlp)
    }
}

/// Distinct rows of a table, by number. The first row is empty.
struct Table<T> {
    numbers: FxHashMap<T, i32>,
    rows: Vec<T>,
}

impl<T: Clone + Default + Eq + Hash> Table<T> {
    fn new() -> Table<T> {
        Table { numbers: FxHashMap::from_iter([(T::default(), 0)]), rows: vec![T::default()] }
    }

    fn number(&mut self, row: T) -> i32 {
        match self.numbers.entry(row) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.rows.push(new.key().clone());
                *new.insert(number_of_last(&self.rows))
            }
        }
    }
}

impl Table<String> {
    /// Number of a text, with control characters escaped.
    fn text(&mut self, text: &str) -> i32 {
        self.number(clean(text))
    }
}

/// Position of the last row. A recording has fewer distinct names and frames than an i32 can number.
fn number_of_last<T>(rows: &[T]) -> i32 {
    i32::try_from(rows.len() - 1).unwrap_or(i32::MAX)
}

/// Unit of weights, in the words of pprof and OpenTelemetry.
fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Events => "count",
    }
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
