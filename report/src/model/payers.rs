//! Payers: tasks, processes, cgroups, containers and CPUs that run programs, and the cost of the programs to each payer.

use super::known::schema_of_members;
use super::{Count, Known, LateTicks, Note, Program, Recording, Unit};
use crate::options::Payer;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// Cost of programs to the tasks that were running: the document of `bprec report --payers --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Payers {
    /// Name of the document's format: `bprec payers`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// The machine and the recording.
    #[serde(skip)]
    pub recording: Recording,
    /// Keys that identify a payer: task name, process, cgroup, container, CPU, or a combination.
    pub keys: Vec<Payer>,
    /// Every program of the recording, by id and load time.
    #[serde(skip)]
    pub programs: Arc<Vec<Program>>,
    /// Selected events.
    pub events: Vec<EventPayers>,
    /// Problems in reading the recording, in words.
    pub problems: Vec<String>,
    /// Notes on the recording as a whole.
    pub notes: Vec<Note>,
}

/// Programs and payers of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventPayers {
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
    /// Payers, the largest cost first, including payers that occur only in [`EventPayers::others`].
    pub payers: Vec<PayerRow>,
    /// Cost of each program to each payer: the costliest program first, and its largest payer first.
    pub rows: Vec<PayerCell>,
    /// Cells that `--prog` or `--limit` hides from `rows`.
    pub others: PayerOthers,
    /// Cost of all BPF: the sum of `rows` and `others`, as in the TOTAL row of the report by program.
    pub total: PayerTotal,
}

/// Task, process, CPU, cgroup or container that runs BPF programs, and the cost of the programs to this payer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PayerRow {
    /// Names of the payer: one for each of [`Payers::keys`].
    pub payer: Vec<PayerName>,
    /// Samples charged to BPF while the payer ran.
    #[serde(flatten)]
    pub count: Count,
    /// Charged samples in interrupts: an interrupt hits the running task by chance.
    pub in_interrupts: Known<Count>,
    /// Share of interrupts in the charged samples, %.
    pub in_interrupts_percent: Option<f64>,
    /// All samples of the payer, BPF or not.
    pub all: Count,
    /// Share of BPF in all samples of the payer, %.
    pub payer_percent: Option<f64>,
    /// Share of the cost of all BPF, %.
    pub bpf_percent: Option<f64>,
    /// Share of the capacity of all CPUs, %.
    pub machine_percent: Option<f64>,
}

/// Cost of a program to a payer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PayerCell {
    /// Position in [`Payers::programs`]; `None` for unattributed samples.
    #[serde(skip)]
    pub program: Option<usize>,
    /// Id of the program.
    pub id: Option<u32>,
    /// Name of the program, or of the kind of unattributed samples.
    pub name: String,
    /// Position in [`EventPayers::payers`].
    pub payer: usize,
    /// Samples charged.
    #[serde(flatten)]
    pub count: Count,
    /// True if a part of the samples is an estimate: the program's share of the samples of hooks with several programs.
    #[serde(skip)]
    pub is_estimate: bool,
    /// Charged samples in interrupts.
    pub in_interrupts: Known<Count>,
    /// Share of interrupts in the charged samples, %.
    pub in_interrupts_percent: Option<f64>,
    /// Share of the program's charged samples, %.
    pub program_percent: Option<f64>,
    /// Share of all samples of the payer, %.
    pub payer_percent: Option<f64>,
    /// Share of the cost of all BPF, %.
    pub bpf_percent: Option<f64>,
    /// Share of the capacity of all CPUs, %.
    pub machine_percent: Option<f64>,
}

/// Cells that the rows do not list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PayerOthers {
    /// Number of pairs of a program and a payer.
    pub pairs: usize,
    /// Samples in the cells that are not listed.
    #[serde(flatten)]
    pub total: PayerTotal,
}

/// Samples charged to several programs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PayerTotal {
    /// Samples charged.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the cost of all BPF, %.
    pub bpf_percent: Option<f64>,
    /// Share of the capacity of all CPUs, %.
    pub machine_percent: Option<f64>,
}

/// Name of a payer by one key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PayerName {
    /// Tasks of this name.
    Comm(String),
    /// A thread with an unknown name.
    Thread(u32),
    /// A process.
    Process {
        /// Id of the process.
        pid: u32,
        /// Last known name of the process's first thread; `None` when unknown.
        comm: Option<String>,
    },
    /// A CPU.
    Cpu(u32),
    /// A cgroup.
    Cgroup {
        /// Id of the cgroup.
        id: u64,
        /// Path of the cgroup; `None` when unknown.
        path: Option<String>,
    },
    /// A container, a pod or a unit.
    Workload(Workload),
    /// Payer of samples that lack the key.
    Unknown,
}

/// Workload that runs in a cgroup, derived from the cgroup's path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, JsonSchema)]
pub struct Workload {
    /// `NAMESPACE/POD/CONTAINER` if the recording has the names of the pod. Otherwise, a container is named `RUNTIME:ID`, followed by its pod; a pod
    /// `pod:UID`; a systemd unit by its name, followed by its user; any other cgroup by its path.
    pub name: String,
    /// `docker`, `containerd`, `cri-o`, `podman`, `lxc` and so on; `container` if the path does not name the runtime.
    pub runtime: Option<String>,
    /// Id or name of the container.
    pub id: Option<String>,
    /// UID of the pod.
    pub pod: Option<String>,
    /// Namespace and name of the pod in Kubernetes, `NAMESPACE/POD`.
    pub pod_name: Option<String>,
    /// Name of the container in the pod.
    pub container_name: Option<String>,
    /// Enclosing containers, outermost first.
    pub inside: Vec<String>,
    /// Systemd unit, or slice without a unit; `None` for containers and pods.
    pub unit: Option<String>,
    /// User of the unit, from its `user-UID.slice`.
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

/// Name of a payer, with its ids.
#[derive(Serialize, JsonSchema)]
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

schema_of_members! { PayerName: PayerNameMembers<'_> }
