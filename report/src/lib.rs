//! Reports on recordings: the cost of each BPF program, who pays for it, and where in the code it arises.
//!
//! The flow of data: [`Input`] (bytes) → `index` (one pass over the side band: programs, addresses, tasks; independent of filters) → `pass` (one pass
//! over the samples, in any order and in parallel: each sample is attributed) → [`Sink`] (sums up attributed samples; you can write your own) →
//! [`model`] (owned numbers, each with its reason if unknown) → `view` (table, JSON, CSV; computes nothing). The same recording gives the same bytes
//! on any machine and with any number of threads.
//!
//! [`Session`] is the entry point for other tools: open a recording once, then ask for reports, run your own [`Sink`] over its samples, or look up
//! addresses with its [`Symbolizer`].
//!
//! ```no_run
//! use bprec_report::{Input, Options, Session};
//!
//! # fn main() -> bprec_report::Result<()> {
//! let input = Input::open("perf.data")?;
//! let report = Session::open(&input)?.by_prog(&Options::default())?;
//! for row in &report.events[0].rows {
//!     let share = row.line.as_ref().and_then(|line| line.shares.samples);
//!     println!("{} {share:?}", report.programs[row.program].label_with_id());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! This crate does not use the system it runs on: no Linux interface, no libbpf, no symbol of the local kernel. A fact that the recording lacks is
//! unknown and shown as `n/a`, never as 0.

mod error;
mod export;
mod index;
mod input;
pub mod model;
mod options;
mod pass;
mod query;
mod session;
mod stream;
mod view;

pub use bprec_filter::{CpuList, FunctionFilter, MapFilter, ProgFilter};
pub use bprec_format as format;
pub use error::{Error, Result};
pub use export::{ExportFormat, Metrics};
pub use index::student::Quantiles as StudentQuantiles;
pub use index::symbolizer::{Symbol, SymbolKind, Symbolizer};
pub use input::source::Source;
pub use input::{Input, Progress, recordings_of};
pub use model::text::{fit_middle, printable, wrap};
pub use model::{
    Annotation, Bill, CountersReport, Header, LinesReport, OverTime, Payers, Report, Stacks, Trees, Without,
};
pub use options::condition::Condition;
pub use options::diff::{Confidence, DiffOptions, DiffSort};
pub use options::wall_clock::{WallRange, WallTime};
pub use options::{
    AnnotateOptions, By, Group, Options, Paint, Payer, Sort, Split, TREE_PERCENT_LIMIT, TableColumns, TableStyle,
    TextStyle, TimeRange, Tone,
};
pub use pass::attribution::{Attribution, Charge, ChargeColumn};
pub use pass::{SampleView, Sink};
pub use query::by_prog::lazy::LazyReport;
pub use query::counters::StatAccumulator;
pub use query::diff::diff;
pub use query::maps::{MapsForm, MapsOptions};
pub use session::{MapsSummary, Session, maps};
pub use stream::redact::{Redact, Redactor};
pub use stream::rewrite::{Redacting, RewriteOptions, RewriteSummary, rewrite};
pub use stream::script::{Field, Fields, MAX_STACK, ScriptOptions, ScriptSummary, Show, header, script};
#[cfg(feature = "tui")]
pub use view::tui;
pub use view::{
    CostPart, Detail, Document, FirstScreen, Flag, FlameBox, HotLine, Listing, ListingRow, MachinePart, PageTable,
    ScreenRow, StatFormat, StatWriter, TablesPage, Trust, to_ascii, write_texts,
};

/// Reports the cost of each program: every sample is charged to the BPF program that it was taken in.
///
/// # Errors
/// Fails if the recording cannot be read at all, or `options` name an event or a time that the recording does not have. For a partly readable
/// recording, [`Report::problems`] describes the damage.
pub fn by_prog(input: &Input, options: &Options) -> Result<Report> {
    Session::open_for(input, options)?.by_prog(options)
}

/// Reports counts from snapshot to snapshot: run statistics and exact counters of programs, and perf counters of other targets.
///
/// # Errors
/// Fails if the recording cannot be read at all, or `options` name a time that the recording does not have.
pub fn counters(input: &Input, options: &Options) -> Result<CountersReport> {
    Session::open_for(input, options)?.counters(options)
}
