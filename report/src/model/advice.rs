//! Findings of the advice: each variant has its evidence, and its prose is written here alone.

use super::known::coded;
use super::text::{counted, fixed};
use serde::Serialize;

/// Findings of the rules: the document of `bprec report --advise --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// `bprec advice`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// Findings by event and program.
    pub findings: Vec<EventFinding>,
    /// Parts that could not be read, in words.
    pub problems: Vec<String>,
}

/// A finding with its cost in one event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventFinding {
    /// Name of the event that measures the cost.
    pub event: String,
    /// Total cost of the finding's programs.
    pub cost: Cost,
    /// Cost that the change removes: an upper bound on the saving.
    pub saves: Cost,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
}

impl EventFinding {
    /// Sentence with cost, saving and their measurement.
    pub fn measured(&self) -> String {
        format!("costs {}; the change saves at most {}", self.cost, self.saves)
    }
}

/// A measured cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Number of samples; 0 if run statistics measure the cost.
    pub samples: u64,
    /// Weight of the samples, or ns by run statistics.
    pub weight: u64,
    /// Share of the machine's CPU time; `null` when unknown.
    pub machine_percent: Option<f64>,
    /// True if a part comes from run statistics, because samples missed the program.
    pub by_run_statistics: bool,
}

impl Cost {
    /// Adds another cost.
    pub(crate) fn merge(&mut self, other: Cost) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
        self.machine_percent = self.machine_percent.zip(other.machine_percent).map(|(a, b)| a + b);
        self.by_run_statistics |= other.by_run_statistics;
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(percent) = self.machine_percent {
            write!(f, "{} % of the machine, ", fixed(percent, 2))?;
        }
        match (self.samples, self.by_run_statistics) {
            (0, true) => f.write_str("by run statistics"),
            (samples, true) => write!(f, "by {} and run statistics", counted(samples, "sample")),
            (samples, false) => write!(f, "by {}", counted(samples, "sample")),
        }
    }
}

/// A program and the saving that the change brings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramCost {
    /// Name and id of the program.
    pub program: String,
    /// Cost that the change removes.
    #[serde(flatten)]
    pub saves: Cost,
    /// Removed cost as a share of the program's cost.
    pub program_percent: f64,
}

coded! {
    /// Finding of a rule about one or several programs.
    Finding {
        /// Programs with equal code, name and hooks at the same time. All but the costliest can be removed.
        SameProgramTwice { programs: Vec<ProgramCost>, hooks: Vec<String> } = "same_program_twice":
            "{} are the same program, and all on {}: each event runs every one of them. Is one left over from an earlier start, or \
            does each instance of a tool load its own? Unload what is not needed", names(programs), hooks.join(", ");
        /// Lookups in hash maps are most of the program's cost.
        HashLookup { programs: Vec<ProgramCost>, functions: Vec<String> } = "hash_lookup":
            "lookups of hash maps ({}) in {}. An array or per-CPU array takes less where keys are small numbers, task or cgroup local \
            storage where they are tasks or cgroups", functions.join(", "), parts(programs);
        /// A program writes to a perf buffer for each event.
        PerfEventOutput { programs: Vec<ProgramCost> } = "perf_event_output":
            "bpf_perf_event_output in {}. A ring buffer (bpf_ringbuf_reserve, Linux 5.8) saves a copy and wakes readers less often; \
            adding up in a map writes nothing for each event", parts(programs);
        /// Entry code is a large part of the cost of a tracepoint program.
        TracepointEntry { programs: Vec<ProgramCost> } = "tracepoint_entry":
            "code that runs {}: a tracepoint program gets a copy of the event's fields, made for each event. A raw tracepoint (raw_tp, \
            tp_btf) gets the arguments as they are", parts(programs);
        /// A program prints to the trace buffer.
        TracePrintk { programs: Vec<ProgramCost> } = "trace_printk":
            "bpf_trace_printk in {}: it is for debugging, and takes a lock of the whole machine. Remove it, or write to a ring buffer",
            parts(programs);
        /// No process, pin or link holds the program, as far as the recording shows.
        NoOwner { programs: Vec<ProgramCost> } = "no_owner":
            "no process, no pin and no hook that the recorder can see holds {}. The recorder cannot see what keeps a program (a socket's \
            filter, another mount namespace), or it waits to be released: unload it if nothing needs it", names(programs);
        /// Running programs write to a buffer that no process can read.
        OutputWithoutReader {
            /// Ring buffers or perf event arrays: name (at most 15 characters) and id.
            maps: Vec<String>,
            programs: Vec<ProgramCost>,
        } = "output_without_reader":
            "nobody reads {}: no process that the recorder can see had a descriptor of it when it looked. What {} write there is lost. \
            Start its reader, or unload them", maps.join(", "), names(programs);
    }
}

impl Finding {
    /// Programs of the finding, the costliest first.
    pub fn programs(&self) -> &[ProgramCost] {
        use Finding as F;
        match self {
            F::SameProgramTwice { programs, .. }
            | F::OutputWithoutReader { programs, .. }
            | F::HashLookup { programs, .. }
            | F::PerfEventOutput { programs }
            | F::TracepointEntry { programs }
            | F::TracePrintk { programs }
            | F::NoOwner { programs } => programs,
        }
    }
}

fn names(programs: &[ProgramCost]) -> String {
    programs.iter().map(|it| it.program.as_str()).collect::<Vec<_>>().join(", ")
}

/// Programs with the share of cost that is removed.
fn parts(programs: &[ProgramCost]) -> String {
    let part = |it: &ProgramCost| {
        format!("{} ({} % of it, {})", it.program, fixed(it.program_percent, 1), counted(it.saves.samples, "sample"))
    };
    programs.iter().map(part).collect::<Vec<_>>().join(", ")
}
