//! Cost of programs per interval.

use super::known::known_members;
use super::{Count, CounterSource, Known, Program, TimeBound, Unit};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Cost of each program in each interval: the document of `bprec report --over-time --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverTime {
    /// Name of the document's format: `bprec over-time`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// Length of an interval, ns.
    pub interval_ns: u64,
    /// Programs of the recording, by id and load time.
    #[serde(skip)]
    pub programs: Arc<Vec<Program>>,
    /// Selected events.
    pub events: Vec<EventOverTime>,
}

/// Intervals of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventOverTime {
    /// Name of the event.
    pub name: String,
    /// Unit of the weights.
    pub unit: Unit,
    /// Cost of all BPF, as in the TOTAL row of the report by program.
    pub total: Count,
    /// Cost of all BPF in each interval that has samples, in order.
    pub intervals: Vec<IntervalCount>,
    /// Rows of the programs that have samples and of unattributed samples, the costliest first.
    pub rows: Vec<RowOverTime>,
}

/// Intervals of a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowOverTime {
    /// Position in [`OverTime::programs`]; `null` for unattributed samples.
    #[serde(skip)]
    pub program: Option<usize>,
    /// Id of the program.
    pub id: Option<u32>,
    /// Name of the program.
    pub name: String,
    /// Load time, if the program was loaded during the recording.
    pub loaded: Option<TimeBound>,
    /// Unload time, if the program was unloaded during the recording.
    pub unloaded: Option<TimeBound>,
    /// Samples charged in all intervals.
    #[serde(flatten)]
    pub total: Count,
    /// Charged samples without a timestamp.
    pub undated: Count,
    /// Intervals with samples, in order.
    pub intervals: Vec<IntervalCount>,
    /// Counts of the program, if the recording has snapshots of counters.
    #[serde(flatten, serialize_with = "CountedMembers::serialize")]
    pub counted: Known<CountedOverTime>,
}

known_members!(CountedMembers { counted, counted_unknown, counted_reason }: CountedOverTime);

/// Counts of a program by interval. The recording has the counts between two snapshots. If the two snapshots lie in different intervals, these counts
/// are spread evenly over the time between the snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CountedOverTime {
    /// Source of the counts.
    pub source: CounterSource,
    /// Runs in all intervals: the same number as RUNS in the report by program.
    pub runs: u64,
    /// Mean time per run, ns; `null` without runs or when unknown.
    pub ns_per_run: Option<f64>,
    /// True if counts are spread over intervals or estimated.
    pub is_estimate: bool,
    /// Intervals in which the program ran, in order.
    pub intervals: Vec<IntervalCounted>,
}

/// Counts of a program in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct IntervalCounted {
    /// Index of the interval; the first is 0.
    pub interval: u64,
    /// Start of the interval, ns since the recording's start.
    pub from_ns: u64,
    /// Runs.
    pub runs: u64,
    /// Mean time per run, ns; `null` when unknown.
    pub ns_per_run: Option<f64>,
    /// Hardware and software events of the runs, if counted.
    pub events: Vec<IntervalEvent>,
    /// True if the snapshots do not match the interval's bounds, or some runs were not measured.
    pub is_estimate: bool,
}

/// An event in the runs of an interval.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct IntervalEvent {
    /// Name of the event.
    pub name: String,
    /// Events per run; `null` when unknown.
    pub per_run: Option<f64>,
}

/// Count of a numbered stack or node in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedCount {
    /// Number of the stack or node.
    pub number: u32,
    /// Number of the interval; the first is 0.
    pub interval: u32,
    /// Samples.
    pub count: Count,
}

impl TimedCount {
    /// Sorts counts by number and interval, and adds up counts with the same number and interval.
    pub(crate) fn merge_all(counts: &mut Vec<TimedCount>) {
        counts.sort_unstable_by_key(|it| (it.number, it.interval));
        counts.dedup_by(|it, kept| {
            let is_same = (it.number, it.interval) == (kept.number, kept.interval);
            if is_same {
                kept.count.merge(it.count);
            }
            is_same
        });
    }
}

/// Cost of a program in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct IntervalCount {
    /// Index of the interval; the first is 0.
    pub interval: u64,
    /// Start of the interval, ns since the recording's start.
    pub from_ns: u64,
    /// Samples charged.
    #[serde(flatten)]
    pub count: Count,
}
