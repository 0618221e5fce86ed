//! Predictions: CPU time of the machine and of each payer if some BPF programs were not there.

use super::{Count, Known, Note, PayerName, Recording, Unit};
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
    /// Patterns of removed programs and owners.
    pub patterns: Vec<String>,
    /// Names of the removed owners, whose tasks are gone, too.
    pub owners: Vec<String>,
    /// Removed programs, with those of the removed owners.
    pub programs: Vec<RemovedProgram>,
    /// Keys that together identify a payer.
    #[schemars(with = "Vec<String>")]
    pub keys: Vec<Payer>,
    /// Selected events.
    pub events: Vec<EventWithout>,
    /// Problems in reading the recording, in words.
    pub problems: Vec<String>,
    /// Notes on the recording as a whole.
    pub notes: Vec<Note>,
}

/// A removed program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RemovedProgram {
    /// Id of the program.
    pub id: Option<u32>,
    /// Name of the program.
    pub name: String,
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
    /// True if shares of the machine are scaled up because timer ticks are missing in idle and in busy time.
    #[serde(skip)]
    pub is_scaled: bool,
    /// Payers that the removed programs cost CPU time, the largest cost first.
    pub payers: Vec<PayerWithout>,
    /// Payers that `payers` does not list: all others, and those that `--limit` leaves out.
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
    /// Change of the CPU time of all of them.
    #[serde(flatten)]
    pub change: CpuChange,
}

/// Change of a CPU time, without time in which CPUs are idle.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CpuChange {
    /// CPU time in the recording.
    pub now: CpuTime,
    /// Predicted CPU time: the difference of `now` and `saved`.
    pub without: CpuTime,
    /// CPU time that the removed programs and owners cost.
    pub saved: CpuTime,
    /// Share of `saved` in `now`, %: the part of its own CPU time that the payer pays.
    pub tax_percent: Option<f64>,
    /// Half of the 95 % confidence interval of `tax_percent`, in % of `now`.
    pub tax_margin_percent: Option<f64>,
    /// Part of `saved`: shares of work that programs which stay cause, too, split by the runs of the programs.
    pub shared: Count,
    /// Shares of removed programs in code that a hook runs once for all its programs. It stays with the other programs on the hook, so it is not in
    /// `saved`.
    pub staying: Count,
}

/// CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct CpuTime {
    /// Samples.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the capacity of all CPUs, %.
    pub machine_percent: Option<f64>,
    /// Half of the 95 % confidence interval of `machine_percent`, in % of the machine.
    pub margin_percent: Option<f64>,
    /// CPU time, in thousandths of one CPU.
    pub millicpus: Option<f64>,
    /// Half of the 95 % confidence interval of `millicpus`.
    pub margin_millicpus: Option<f64>,
}

/// The JSON schema of [`Without`].
pub fn without_schema() -> schemars::Schema {
    super::schema_of::<Without>()
}
