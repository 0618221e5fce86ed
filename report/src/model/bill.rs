//! Bills: the CPU time that each owner of BPF programs costs the machine.

use super::{Count, Known, LateTicks, Note, Program, Recording, Unit, UnsampledTime};
use crate::options::worded_by_json;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Cost of each owner of BPF programs: the document of `bprec report --bill --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Bill {
    /// Name of the document's format: `bprec bill`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// The machine and the recording.
    #[serde(skip)]
    pub recording: Recording,
    /// Pattern that selects owners; `null` for all owners.
    pub owner: Option<String>,
    /// Every program of the recording, by id and load time.
    #[serde(skip)]
    pub programs: Arc<Vec<Program>>,
    /// Selected events.
    pub events: Vec<EventBill>,
    /// Problems in reading the recording, in words.
    pub problems: Vec<String>,
    /// Notes on the recording as a whole.
    pub notes: Vec<Note>,
}

/// Bills of an event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EventBill {
    /// Name of the event.
    pub name: String,
    /// Unit of the weights.
    pub unit: Unit,
    /// All samples of the selection.
    pub samples: Count,
    /// Capacity of all CPUs, in the unit of the weight.
    pub machine: Known<u64>,
    /// Facts about missing ticks of the timer; set if fewer than 95 % of the ticks arrived and nothing else explains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ticks: Option<LateTicks>,
    /// Owners, the largest cost first.
    pub owners: Vec<OwnerBill>,
    /// Owners that `--bill OWNER` or `--limit` removes from the list.
    pub others: Option<Box<OtherOwners>>,
    /// Samples of programs, and of work that programs cause, with an unknown owner.
    pub unattributed: BillParts,
    /// Sum of the owners, the others and the unattributed work.
    pub total: BillParts,
}

/// Kind of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OwnerKind {
    /// A container or a pod.
    Container,
    /// A systemd service.
    Unit,
    /// Processes that hold the programs, and processes that these holders started.
    Process,
    /// A directory of the BPF file system; no process holds the programs.
    Pins,
    /// Neither a process nor a pin holds the programs: their attachments do.
    Attachments,
    /// The recording does not name the holder.
    Unknown,
}

worded_by_json! { OwnerKind }

/// Bill of an owner.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OwnerBill {
    /// Name of the owner: processes as `comm/pid`, a container, a unit, or a directory of pins.
    pub name: String,
    /// Kind of the owner.
    pub kind: OwnerKind,
    /// Processes that hold the programs.
    pub pids: Vec<u32>,
    /// Cost by part.
    #[serde(flatten)]
    pub parts: BillParts,
    /// Programs of the owner, the largest cost first.
    pub programs: Vec<ProgramBill>,
    /// Number of the owner's programs that `programs` does not list: they have no samples, and there would be too many rows.
    pub programs_without_row: usize,
    /// Memory of the maps of the owner's programs, each map once, bytes.
    pub map_bytes: Known<u64>,
    /// Machine code of the owner's programs, bytes.
    pub jit_bytes: Known<u64>,
    /// Resident memory of the processes that hold the owner's programs, at the end of the recording, bytes.
    pub resident_bytes: Known<u64>,
}

impl OwnerBill {
    /// Number of the owner's programs.
    pub fn program_count(&self) -> usize {
        self.programs.len() + self.programs_without_row
    }
}

/// Bill of a program.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProgramBill {
    /// Position in [`Bill::programs`].
    #[serde(skip)]
    pub program: usize,
    /// Id of the program.
    pub id: Option<u32>,
    /// Name of the program.
    pub name: String,
    /// Cost by part.
    #[serde(flatten)]
    pub parts: BillParts,
}

/// Owners outside of the list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OtherOwners {
    /// Number of owners.
    pub owners: usize,
    /// Cost by part.
    #[serde(flatten)]
    pub parts: BillParts,
}

/// Cost by part. Each sample is in exactly one part.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BillParts {
    /// Samples of all parts.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the capacity of all CPUs, %.
    pub machine_percent: Option<f64>,
    /// Half of the 95 % confidence interval of `machine_percent`, in % of the machine. It covers only the statistical error of the number of samples.
    pub margin_percent: Option<f64>,
    /// CPU time, in thousandths of one CPU.
    pub millicpus: Option<f64>,
    /// Share of [`EventBill::total`], %.
    pub bill_percent: Option<f64>,
    /// Samples of the owner's programs in tasks of other owners.
    pub in_others: InOthers,
    /// Time of the owner's tasks, including that of the owner's programs in these tasks: the CPU time of processes that hold programs if the recording
    /// has it, and else their samples. `weight` counts the CPU time, `samples` the samples.
    pub own_tasks: OwnTasks,
    /// Samples of work that the owner's programs cause outside of programs, in tasks of other owners.
    pub causes: BillCauses,
    /// Samples in these parts that several owners may have caused: the owners share these samples in the ratio of the runs of their programs.
    pub shared: BillShare,
    /// Time, by run statistics, of programs that samples cannot show, such as those that run with interrupts off. It is in no other number of the bill.
    /// Only in the first event with samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsampled: Option<UnsampledTime>,
}

/// Samples of an owner's programs in tasks of other owners, by part.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct InOthers {
    /// Sum of the parts.
    #[serde(flatten)]
    pub sum: BillShare,
    /// Samples in the programs' own code.
    #[serde(rename = "self")]
    pub own: BillShare,
    /// Samples in kernel code that the programs called.
    pub helper: BillShare,
    /// Samples in kernel code that runs the programs.
    pub entry: BillShare,
}

/// Samples of an owner's tasks, with parts of them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OwnTasks {
    /// Sum of the parts.
    #[serde(flatten)]
    pub sum: BillShare,
    /// Samples in the system call `bpf()`: reads and updates of maps, loads of programs and so on.
    pub bpf_calls: BillShare,
    /// Part of `bpf_calls`: loads of the owner's programs, also those by tasks of others, and loads of unknown programs by the owner's tasks.
    pub loads: BillLoads,
    /// Samples in the owner's own programs.
    pub programs: BillShare,
}

/// Samples of loads of programs, with two parts of them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BillLoads {
    /// All samples in the load of a program.
    #[serde(flatten)]
    pub sum: BillShare,
    /// Samples in the verifier.
    pub verifier: BillShare,
    /// Samples in the JIT compiler.
    pub jit: BillShare,
}

/// Samples of work that programs cause outside of programs, by kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BillCauses {
    /// Sum of the parts.
    #[serde(flatten)]
    pub sum: BillShare,
    /// Wake-ups of the consumers of ring buffers and perf event buffers.
    pub wakeups: BillShare,
    /// Traps, single steps and returns of user probes.
    pub user_probes: BillShare,
    /// Code between kernel probes or tracepoints and programs.
    pub kernel_hooks: BillShare,
    /// Deferred frees of maps and programs.
    pub frees: BillShare,
}

/// Samples and their share of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct BillShare {
    /// Samples.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the capacity of all CPUs, %.
    pub machine_percent: Option<f64>,
}
