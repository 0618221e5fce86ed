//! Results of queries as plain data: owned numbers and names. A value that is unknown has a reason. Queries compute all numbers and outputs only
//! print them, so that all outputs agree.
//!
//! A model serializes to its JSON document (`docs/json.md`); [`schema_of`] returns the schema of a document.

mod advice;
mod annotation;
mod bill;
mod counters;
mod diff;
mod diff_note;
mod event;
mod header;
mod interval;
mod known;
mod note;
mod over_time;
mod overview;
mod payers;
mod program;
mod stacks;
pub(crate) mod text;
mod tree;
mod without;

pub use crate::options::condition::DiffMetric;
pub use advice::{Advice, Cost, EventFinding, Finding, ProgramCost};
pub(crate) use annotation::address;
pub use annotation::{
    AnnotatedFunction, AnnotatedProgram, Annotation, BpfInsn, CodeCost, CodeLine, EventLines, LeftOut, LineRow,
    LinesReport, MachineInsn, OtherLines, PartOfProgram, SourceLine,
};
pub use bill::{
    Bill, BillCauses, BillLoads, BillParts, BillShare, EventBill, InOthers, OtherOwners, OwnTasks, OwnerBill,
    OwnerKind, ProgramBill,
};
pub(crate) use counters::ExactMembers;
pub use counters::{
    AbsentEvent, CountedEvent, CounterRow, CounterSource, CounterTarget, CounterTotals, CountersReport, Counting,
    Event, EventPerRun, Exact, NamedReading, PERCENTILES, PerRun, Percentile, RefusedTarget, StatRow, StatSnapshot,
};
pub use diff::{
    Change, Diff, DiffEvent, DiffRecording, Estimate, Judgment, MetricDiff, MetricValue, PossibleRange, ProgramDiff,
    Status, Verdict,
};
pub use diff_note::DiffNote;
pub(crate) use diff_note::FEW_RECORDINGS;
pub use event::{
    Aggregated, BlindSpot, BlindedEvent, BpfSampler, Columns, Count, EventReport, GroupRow, LateTicks, Line,
    MissingTicks, Others, Part, Row, SampledPerRun, Share, Shares, SourceRow, Unit, UnsampledTime,
};
pub use header::Header;
pub use interval::{History, Interval};
pub use known::{Anomaly, DiffSide, Known, Reason, SnapshotFault};
pub(crate) use note::Gravity;
pub use note::{NotMeasured, Note};
pub use program::{
    Attachment, CpuNotSampled, Identity, Metadata, MissedProgram, Owner, Program, ProgramLoad, RecorderCost, Recording,
    Runs, RunsEstimate, StatisticsCost, TimeBound, TraceData, has_sha256_tags,
};
pub(crate) use program::{RECORDER, program_label};

pub use over_time::{
    CountedOverTime, EventOverTime, IntervalCount, IntervalCounted, IntervalEvent, OverTime, RowOverTime, TimedCount,
};
pub use overview::{Flow, MachineParts, Overview, PayerSlice, ProgramSlice, Slice};
pub use payers::{EventPayers, PayerCell, PayerName, PayerOthers, PayerRow, PayerTotal, Payers, Workload};
pub(crate) use stacks::StackLabel;
pub use stacks::{
    Frame, FrameKind, FrameSource, Page, Profile, Stack, StackSample, StackSamples, StackTree, Stacks, ThreadSamples,
};
pub use tree::{EventTrees, NodeKind, OtherProgram, ProgramName, TailCallChain, TailCallOrigin, Tree, TreeNode, Trees};
pub use without::{CpuChange, CpuTime, EventWithout, Operations, OtherPayers, PayerWithout, RemovedProgram, Without};

use crate::options::By;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use std::sync::Arc;

/// Version of the documents of `--json`: increased when a member is removed or changes its meaning.
pub const JSON_VERSION: u32 = 2;

/// Cost of each BPF program of a recording: the document of `bprec report --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Report")]
pub struct Report<E = Vec<EventReport>> {
    /// Name of the document's format: `bprec by-prog`.
    pub format: &'static str,
    /// Version of the document's format: [`JSON_VERSION`].
    pub version: u32,
    /// The machine and the recording.
    pub recording: Recording,
    /// Key of `--by`, which splits rows into parts or groups programs; `null` without `--by`.
    #[schemars(with = "Option<String>")]
    pub by: Option<By>,
    /// Configuration of exact counters; `null` if the recording has none.
    pub counting: Option<Counting>,
    /// Every program of the recording, by id and load time.
    pub programs: Arc<Vec<Program>>,
    /// Costs of programs by event: one entry per event.
    pub events: E,
    /// Perf events that carry BPF programs.
    pub blinded_events: Vec<BlindedEvent>,
    /// Programs that were announced but not captured.
    pub missed: Vec<MissedProgram>,
    /// Problems in reading the recording, in words.
    pub problems: Vec<String>,
    /// Notes on the recording as a whole.
    pub notes: Vec<Note>,
    /// Number of programs that the requested filters match; the number of all programs without filters.
    #[serde(skip)]
    pub(crate) matched_programs: usize,
}

impl Report {
    /// Returns the number of programs that [`crate::Options::programs`] matches; the number of all programs if this list is empty.
    pub fn matched_programs(&self) -> usize {
        self.matched_programs
    }
}

/// The JSON schema of a document.
pub fn schema_of<T: JsonSchema>() -> Schema {
    schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// Serializes the items of an iterator as a list, each when it is made: all items at once may need too much memory.
pub(crate) struct ItemByItem<I>(pub(crate) I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for ItemByItem<I> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

/// Serializes a displayable value as JSON text.
pub(crate) fn as_text<T: ToString, S: serde::Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}
