//! Payers of programs: tasks and CPUs that programs delay, and the cost to each.

use super::{Count, Known, Note, Program, Recording, Unit};
use crate::options::Payer;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// Cost of programs to the tasks that were running: the document of `bprec report --payers --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Payers {
    /// `bprec payers`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// The machine and the recording.
    #[serde(skip)]
    pub recording: Recording,
    /// Keys of a payer: a name of tasks, a process, a cgroup, a container, a CPU, or several of these together.
    pub keys: Vec<Payer>,
    /// Every program of the recording, by id and load time.
    #[serde(skip)]
    pub programs: Arc<Vec<Program>>,
    /// One for each event that is asked for.
    pub events: Vec<EventPayers>,
    /// Parts that could not be read, in words.
    pub problems: Vec<String>,
    /// Notes on the recording as a whole.
    pub notes: Vec<Note>,
}

/// Programs and payers of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventPayers {
    /// The event.
    pub name: String,
    /// Unit of its weights.
    pub unit: Unit,
    /// All samples of the selection.
    pub samples: Count,
    /// All that the machine's CPUs could have done meanwhile, in the unit of the weight.
    pub machine: Known<u64>,
    /// Shares of the machine are scaled up, as ticks of the timer are missing from all of the time.
    #[serde(skip)]
    pub is_scaled: bool,
    /// Payers that BPF is charged to, the one that pays most first; then those that are only in [`EventPayers::rows`]
    /// as others.
    pub payers: Vec<PayerRow>,
    /// Cost of each program to each payer; the costliest program first, and of each the payer who pays most.
    pub rows: Vec<PayerCell>,
    /// Cells that `--prog` or `--limit` leaves out of the rows.
    pub others: PayerOthers,
    /// All that is charged to BPF: the sum of the rows and the others, and what the TOTAL row of the ledger has.
    pub total: PayerTotal,
}

/// Task, process, CPU or group that runs BPF programs, and their cost to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PayerRow {
    /// Its name by each of [`Payers::keys`].
    pub payer: Vec<PayerName>,
    /// Samples charged to BPF while it ran.
    #[serde(flatten)]
    pub count: Count,
    /// Part of it in interrupts: the task that ran then pays by chance.
    pub in_interrupts: Known<Count>,
    /// Share of the samples charged, per cent.
    pub in_interrupts_percent: Option<f64>,
    /// All of its samples.
    pub all: Count,
    /// Share of BPF in all of its samples, per cent.
    pub payer_percent: Option<f64>,
    /// Share of all BPF, per cent.
    pub bpf_percent: Option<f64>,
    /// Share of the capacity of all CPUs, per cent.
    pub machine_percent: Option<f64>,
}

/// Cost of a program to a payer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PayerCell {
    /// Position in [`Payers::programs`]; `None` for what is no program's.
    #[serde(skip)]
    pub program: Option<usize>,
    /// Id of the program.
    pub id: Option<u32>,
    /// Its name, or what no program could be told for.
    pub name: String,
    /// Position in [`EventPayers::payers`].
    pub payer: usize,
    /// Samples charged.
    #[serde(flatten)]
    pub count: Count,
    /// Part of it in interrupts.
    pub in_interrupts: Known<Count>,
    /// Share of the samples charged, per cent.
    pub in_interrupts_percent: Option<f64>,
    /// Share of the samples charged to the program, per cent.
    pub program_percent: Option<f64>,
    /// Share of all samples of the payer, per cent.
    pub payer_percent: Option<f64>,
    /// Share of all BPF, per cent.
    pub bpf_percent: Option<f64>,
    /// Share of the capacity of all CPUs, per cent.
    pub machine_percent: Option<f64>,
}

/// Cells that are in no row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PayerOthers {
    /// Number of pairs of a program and a payer.
    pub pairs: usize,
    /// Samples charged to them.
    #[serde(flatten)]
    pub total: PayerTotal,
}

/// Samples charged to several programs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PayerTotal {
    /// Samples charged.
    #[serde(flatten)]
    pub count: Count,
    /// Share of all BPF, per cent.
    pub bpf_percent: Option<f64>,
    /// Share of the capacity of all CPUs, per cent.
    pub machine_percent: Option<f64>,
}

/// Name of a payer, by one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PayerName {
    /// Tasks of this name.
    Comm(String),
    /// A thread whose name is not known.
    Thread(u32),
    /// A process.
    Process {
        /// Its id.
        pid: u32,
        /// The name of its first thread, the last one that it had; `None` when not known.
        comm: Option<String>,
    },
    /// A CPU.
    Cpu(u32),
    /// A cgroup.
    Cgroup {
        /// Its id.
        id: u64,
        /// Its path; `None` when not known.
        path: Option<String>,
    },
    /// A container, a pod or a unit.
    Workload(Workload),
    /// Samples do not tell.
    Unknown,
}

/// Workload that runs in a cgroup, by the cgroup's path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub struct Workload {
    /// `RUNTIME:ID`, with the pod behind it; `pod:UID`, a unit with its user; the path where that says nothing.
    pub name: String,
    /// `docker`, `containerd`, `cri-o`, `podman`, `lxc` and so on; `container` when the path does not tell.
    pub runtime: Option<String>,
    /// The container's id or name.
    pub id: Option<String>,
    /// The pod's uid.
    pub pod: Option<String>,
    /// Containers that it runs in, outermost first.
    pub inside: Vec<String>,
    /// A unit of systemd that is in no container.
    pub unit: Option<String>,
    /// The user whose unit it is.
    pub user: Option<u32>,
}

impl PayerName {
    /// Name to show.
    pub fn label(&self) -> String {
        match self {
            PayerName::Comm(comm) => comm.clone(),
            PayerName::Thread(tid) => format!(":{tid}"),
            PayerName::Process { pid, comm: Some(comm) } => format!("{comm}/{pid}"),
            PayerName::Process { pid, comm: None } => format!(":{pid}"),
            PayerName::Cpu(cpu) => format!("cpu {cpu}"),
            PayerName::Cgroup { path: Some(path), .. } => path.clone(),
            PayerName::Cgroup { id, path: None } => format!("cgroup {id}"),
            PayerName::Workload(workload) => workload.name.clone(),
            PayerName::Unknown => super::text::UNKNOWN.to_owned(),
        }
    }
}

#[derive(Serialize)]
struct PayerNameMembers<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'a Workload>,
}

impl Serialize for PayerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let none =
            PayerNameMembers { name: self.label(), pid: None, tid: None, cpu: None, cgroup: None, container: None };
        let members = match self {
            PayerName::Comm(_) | PayerName::Unknown => none,
            PayerName::Thread(tid) => PayerNameMembers { tid: Some(*tid), ..none },
            PayerName::Process { pid, .. } => PayerNameMembers { pid: Some(*pid), ..none },
            PayerName::Cpu(cpu) => PayerNameMembers { cpu: Some(*cpu), ..none },
            PayerName::Cgroup { id, .. } => PayerNameMembers { cgroup: Some(*id), ..none },
            PayerName::Workload(workload) => PayerNameMembers { container: Some(workload), ..none },
        };
        members.serialize(serializer)
    }
}
