//! Predictions: CPU time of the machine and of each payer if some BPF programs were not there.

use super::{Count, Exact, Known, LateTicks, Note, PayerName, Recording, Unit};
use crate::options::Payer;
use schemars::JsonSchema;
use serde::Serialize;

/// CPU time without some programs: the document of `bprec report --without --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Without {
    /// Name of the document's format: `bprec without`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// The machine and the recording.
    #[serde(skip)]
    pub recording: Recording,
    /// Patterns that select the removed programs and owners.
    pub patterns: Vec<String>,
    /// Names of the removed owners. Their tasks are removed, too.
    pub owners: Vec<String>,
    /// Removed programs, including the programs of removed owners.
    pub programs: Vec<RemovedProgram>,
    /// Keys that together identify a payer.
    #[schemars(with = "Vec<String>")]
    pub keys: Vec<Payer>,
    /// Name of the event that counts operations, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Selected events.
    pub events: Vec<EventWithout>,
    /// Problems in reading the recording, in words.
    pub problems: Vec<String>,
    /// Notes on the recording as a whole.
    pub notes: Vec<Note>,
}

/// A removed program.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RemovedProgram {
    /// Id of the program.
    pub id: Option<u32>,
    /// Name of the program.
    pub name: String,
    /// Exact counts of the program, if it has any: their percentiles show what a run adds to the operation that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<Box<Exact>>,
}

/// Prediction by an event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EventWithout {
    /// Name of the event.
    pub name: String,
    /// Unit of the weights.
    pub unit: Unit,
    /// All samples of the selection.
    pub samples: Count,
    /// Capacity of all CPUs, in the unit of the weight.
    pub machine: Known<u64>,
    /// Facts about missing ticks of the timer; set if fewer than 95 % of the ticks arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ticks: Option<LateTicks>,
    /// Payers that the removed programs cost CPU time, the largest cost first.
    pub payers: Vec<PayerWithout>,
    /// Payers that `payers` does not list: the removed programs cost them no CPU time, or `--limit` hides them.
    pub others: OtherPayers,
    /// All payers together.
    pub total: CpuChange,
}

/// Prediction for a payer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PayerWithout {
    /// Names of the payer: one for each of [`Without::keys`].
    pub payer: Vec<PayerName>,
    /// Change of the payer's CPU time.
    #[serde(flatten)]
    pub change: CpuChange,
}

/// Payers outside of the list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OtherPayers {
    /// Number of payers.
    pub payers: usize,
    /// Change of the CPU time of these payers together.
    #[serde(flatten)]
    pub change: CpuChange,
}

/// Change of CPU time; idle time does not count.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CpuChange {
    /// CPU time in the recording.
    pub now: CpuTime,
    /// Predicted CPU time: the difference of `now` and `saved`.
    pub without: CpuTime,
    /// CPU time that the removed programs and owners cost.
    pub saved: CpuTime,
    /// Share of `saved` in `now`, %.
    pub tax_percent: Option<f64>,
    /// Half of a 95 % interval of `tax_percent`, in % of `now`. It allows for the same errors as [`CpuTime::margin_percent`].
    pub tax_margin_percent: Option<f64>,
    /// Part of `saved`: the removed programs' share of work that remaining programs cause, too. The share follows the runs of the programs.
    pub shared: Count,
    /// Removed programs' share of code that a hook runs once for all its programs. If other programs stay on the hook, this code still runs, so its
    /// cost is not in `saved`.
    pub staying: Count,
    /// CPU time per operation, if an event counts operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
}

/// Operations of a payer, such as its system calls, and the CPU time of one operation. CPU time is in the unit of the event: ns for clocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Operations {
    /// Samples of the event that counts operations; their weight is the number of operations.
    #[serde(flatten)]
    pub count: Count,
    /// Operations per second.
    pub per_second: Option<f64>,
    /// CPU time of the payer per operation in the recording.
    pub now: Option<f64>,
    /// CPU time that the removed programs and owners cost per operation.
    pub saved: Option<f64>,
    /// Half of a 95 % interval of `saved`. It allows for the same errors as [`CpuTime::margin_percent`], and for the number of sampled operations.
    pub margin: Option<f64>,
}

/// CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct CpuTime {
    /// Samples.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the capacity of all CPUs, %.
    pub machine_percent: Option<f64>,
    /// Half of a 95 % interval of `machine_percent`, in % of the machine. It covers the statistical error of the number of samples. For predictions,
    /// it also allows for cost that samples do not show, such as cache misses: 15 % of the CPU time saved outside of removed owners' tasks.
    pub margin_percent: Option<f64>,
    /// CPU time, in thousandths of one CPU.
    pub millicpus: Option<f64>,
    /// Half of a 95 % interval of `millicpus`, as `margin_percent`.
    pub margin_millicpus: Option<f64>,
}
