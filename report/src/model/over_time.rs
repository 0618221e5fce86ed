//! Cost of programs from interval to interval.

use super::known::known_members;
use super::{Count, CounterSource, Known, Program, TimeBound, Unit};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Cost of each program in each interval: the document of `bprec report --over-time --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverTime {
    /// `bprec over-time`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// Length of an interval, ns.
    pub interval_ns: u64,
    /// Every program of the recording, by id and load time.
    #[serde(skip)]
    pub programs: Arc<Vec<Program>>,
    /// One for each event that is asked for.
    pub events: Vec<EventOverTime>,
}

/// The intervals of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventOverTime {
    /// The event.
    pub name: String,
    /// Unit of its weights.
    pub unit: Unit,
    /// All of BPF: what the TOTAL row of the ledger has.
    pub total: Count,
    /// The same for each interval that has samples, in order.
    pub intervals: Vec<IntervalCount>,
    /// One for each program that has samples, and for what could not be attributed; the costliest first.
    pub rows: Vec<RowOverTime>,
}

/// The intervals of a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowOverTime {
    /// Position in [`OverTime::programs`]; `null` for what is no program's.
    #[serde(skip)]
    pub program: Option<usize>,
    /// Id of the program.
    pub id: Option<u32>,
    /// Its name.
    pub name: String,
    /// When it was loaded, if during the recording.
    pub loaded: Option<TimeBound>,
    /// When it was unloaded, if during the recording.
    pub unloaded: Option<TimeBound>,
    /// Samples charged to it in all intervals.
    #[serde(flatten)]
    pub total: Count,
    /// Part of it without a time.
    pub undated: Count,
    /// Intervals in which it has samples, in order.
    pub intervals: Vec<IntervalCount>,
    /// Its counts, where the recording has snapshots of counters.
    #[serde(flatten, serialize_with = "CountedMembers::serialize")]
    pub counted: Known<CountedOverTime>,
}

known_members!(CountedMembers { counted, counted_unknown, counted_reason }: CountedOverTime);

/// Counts of a program, by interval. They are known from snapshot to snapshot: events between two snapshots in
/// different intervals are spread evenly over the time between them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CountedOverTime {
    /// Source of the counts.
    pub source: CounterSource,
    /// Runs in all intervals: what RUNS of the ledger is.
    pub runs: u64,
    /// Mean time of a run, ns; `null` when there was none or it is not known.
    pub ns_per_run: Option<f64>,
    /// Some of it is spread over intervals, or an estimate.
    pub is_estimate: bool,
    /// Intervals in which it ran, in order.
    pub intervals: Vec<IntervalCounted>,
}

/// Counts of a program in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct IntervalCounted {
    /// Number of the interval; the first is 0.
    pub interval: u64,
    /// When it began, ns since the recording's start.
    pub from_ns: u64,
    /// Runs.
    pub runs: u64,
    /// Mean time of a run, ns; `null` when it is not known.
    pub ns_per_run: Option<f64>,
    /// Events of its runs, where events were counted.
    pub events: Vec<IntervalEvent>,
    /// Snapshots are not where the interval begins and ends, or not every run was measured.
    pub is_estimate: bool,
}

/// An event in the runs of an interval.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct IntervalEvent {
    /// Its name.
    pub name: String,
    /// Events in a run; `null` when their number is not known.
    pub per_run: Option<f64>,
}

/// Cost of a program in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct IntervalCount {
    /// Number of the interval; the first is 0.
    pub interval: u64,
    /// When it began, ns since the recording's start.
    pub from_ns: u64,
    /// Samples charged.
    #[serde(flatten)]
    pub count: Count,
}
