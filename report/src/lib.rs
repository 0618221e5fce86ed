//! Recordings into tables: what each BPF program costs, who pays, and where.
//!
//! The way of the data: [`Input`] (bytes) → `index` (one pass over the side band: programs, addresses, tasks) → `charge`
//! (one pass over the samples, in any order and in parallel) → [`Report`] (the ledger, as numbers) → its views (table,
//! JSON, CSV). The same recording gives the same bytes on any machine and with any number of threads.
//!
//! This crate must not know the system it runs on: no Linux interface, no libbpf, no symbol of the local kernel. What is
//! not in the recording is not known and is shown as `n/a`, never as 0. Its boundary is [`by_prog`], [`counters`],
//! [`header`], [`Meter`] and what they take and give.

mod address;
mod by_prog;
mod charge;
mod counters;
mod error;
mod glob;
mod guard;
mod header;
mod hooks;
mod hot;
mod index;
mod input;
mod maps;
pub mod model;
mod names;
mod options;
mod order;
mod pass;
mod programs;
mod recording;
mod render;
mod rewrite;
mod runs;
mod script;
mod sinks;
mod source;
mod symbols;
mod tasks;
mod text;
mod told;
mod window;

pub use counters::StatAccumulator;
pub use error::{Error, Result};
pub use header::header;
pub use input::Input;
pub use maps::{MapFilter, MapsOptions, maps};
pub use model::{CountersReport, Report};
pub use options::{CpuList, Options, ProgFilter, Sort, Split, TimeRange};
pub use render::{StatFormat, StatWriter};
pub use rewrite::{RewriteOptions, RewriteSummary, rewrite};
pub use script::{Field, Fields, MAX_STACK, ScriptOptions, ScriptSummary, Show, script};
pub use source::Source;

/// Charges every sample of the recording to the BPF program that it was taken in.
///
/// # Errors
/// When the recording cannot be read at all, or `options` name an event or a time that it does not have. A recording that
/// can be read in part gives a report that says so ([`Report::problems`]).
pub fn by_prog(input: &Input, options: &Options) -> Result<Report> {
    let recording = recording::Recording::open_with_events(input)?;
    by_prog::build(&recording, options)
}

/// What counters counted from snapshot to snapshot: run statistics, exact and shared counters.
///
/// # Errors
/// When the recording cannot be read at all, or `options` name a time that it does not have.
pub fn counters(input: &Input, options: &Options) -> Result<CountersReport> {
    let recording = recording::Recording::open_with_events(input)?;
    counters::over_time(&recording, options)
}
