//! Findings of `bprec report --advise`. Each variant of [`Finding`] holds its evidence. The texts of findings are written only in this module.

use super::known::coded;
use super::text::{counted, fixed};
use serde::Serialize;

/// Findings of the rules: the document of `bprec report --advise --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Name of the document's format: `bprec advice`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// Findings by event and program.
    pub findings: Vec<EventFinding>,
    /// Problems in reading the recording, in words.
    pub problems: Vec<String>,
}

/// A finding with its cost in one event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventFinding {
    /// Name of the event that measures the cost.
    pub event: String,
    /// Total cost of the finding's programs.
    pub cost: Cost,
    /// Cost that the proposed change removes: an upper bound on the saving.
    pub saves: Cost,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
}

impl EventFinding {
    /// Sentence with the cost, the saving, and the source of both.
    pub fn measured(&self) -> String {
        format!("costs {}; the change saves at most {}", self.cost, self.saves)
    }
}

/// A measured cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Number of samples; 0 if run statistics measure the cost.
    pub samples: u64,
    /// Weight of the samples; if run statistics measure the cost, ns.
    pub weight: u64,
    /// Share of the machine's CPU time, %; `null` when unknown.
    pub machine_percent: Option<f64>,
    /// True if a part of the cost comes from run statistics, because samples miss the program.
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
            write!(f, "{} % of the machine, by ", fixed(percent, 2))?;
        }
        match (self.samples, self.by_run_statistics) {
            (0, true) => f.write_str("run statistics"),
            (samples, true) => write!(f, "{} and run statistics", counted(samples, "sample")),
            (samples, false) => f.write_str(&counted(samples, "sample")),
        }
    }
}

/// A program, and the part of its cost that the proposed change removes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramCost {
    /// Name and id of the program.
    pub program: String,
    /// Cost that the proposed change removes.
    #[serde(flatten)]
    pub saves: Cost,
    /// Removed cost as a share of the program's cost, %.
    pub program_percent: f64,
}

coded! {
    /// Finding of a rule about one or several programs.
    Finding {
        /// Programs with equal code, name and hooks at the same time. All but the costliest can be removed.
        SameProgramTwice { programs: Vec<ProgramCost>, hooks: Vec<String> } = "same_program_twice":
            "{} are the same program, all attached to {}: each event runs all of them. Perhaps one is left over from an earlier start, or \
             each instance of a tool loads its own. Unload the programs that are not needed", names(programs), hooks.join(", ");
        /// Programs with lookups in hash maps as the largest part of their cost: at least half of it.
        HashLookup { programs: Vec<ProgramCost>, functions: Vec<String> } = "hash_lookup":
            "lookups of hash maps ({}) are expensive in {}. If keys are small numbers, an array or per-CPU array costs less; \
             if keys are tasks or cgroups, task or cgroup local storage costs less", functions.join(", "), parts(programs);
        /// Programs with writes to perf buffers as a large part of their cost.
        PerfEventOutput { programs: Vec<ProgramCost> } = "perf_event_output":
            "bpf_perf_event_output is expensive in {}. A ring buffer (bpf_ringbuf_reserve, Linux 5.8) saves a copy and wakes \
             readers less often; a sum in a map needs no record for each event", parts(programs);
        /// Tracepoint programs with entry code as a large part of their cost.
        TracepointEntry { programs: Vec<ProgramCost> } = "tracepoint_entry":
            "the kernel's code that runs the program is expensive for {}: for a tracepoint program, the kernel copies the \
             event's fields at each event. A raw tracepoint (raw_tp, tp_btf) gets the arguments without a copy", parts(programs);
        /// Programs that print to the trace buffer.
        TracePrintk { programs: Vec<ProgramCost> } = "trace_printk":
            "bpf_trace_printk is expensive in {}: this helper is for debugging, and takes a lock that all CPUs share. Remove \
             the call, or write to a ring buffer",
            parts(programs);
        /// The recording shows no process, pin or attachment that holds the program.
        NoOwner { programs: Vec<ProgramCost> } = "no_owner":
            "the recorder can see no process, pin or hook that holds {}. Either the recorder cannot see the holder (a socket \
             filter, a pin in another mount namespace), or the kernel is about to release the program. Unload the program if \
             nothing needs it", names(programs);
        /// Running programs write to a buffer that no process can read.
        OutputWithoutReader {
            /// Ring buffers or perf event arrays: name (at most 15 characters) and id.
            maps: Vec<String>,
            programs: Vec<ProgramCost>,
        } = "output_without_reader":
            "no process reads {}: the recorder saw no process with a descriptor of these maps, so the data that {} write to \
             them is lost. Start the reader, or unload the programs", maps.join(", "), names(programs);
    }
}

impl Finding {
    /// Heading for people, and the proposed change in a few words.
    fn words(&self) -> (&'static str, &'static str) {
        use Finding as F;
        match self {
            F::SameProgramTwice { .. } => ("the same program is attached several times", "Unload spare copies"),
            F::HashLookup { .. } => ("lookups of hash maps", "Use an array or local storage"),
            F::PerfEventOutput { .. } => ("output to a perf buffer", "Write to a ring buffer"),
            F::TracepointEntry { .. } => {
                ("the kernel's code that runs tracepoint programs", "Attach to the raw tracepoint")
            }
            F::TracePrintk { .. } => ("printing to the trace buffer", "Remove bpf_trace_printk"),
            F::NoOwner { .. } => ("programs that nothing seems to hold", "Unload what nothing needs"),
            F::OutputWithoutReader { .. } => ("buffers that no process reads", "Start the reader, or unload"),
        }
    }

    /// Heading for people.
    pub fn title(&self) -> &'static str {
        self.words().0
    }

    /// Proposed change in a few words.
    pub fn remedy(&self) -> &'static str {
        self.words().1
    }

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

/// Lists the programs, each with the share of its cost that the proposed change removes.
fn parts(programs: &[ProgramCost]) -> String {
    let part = |it: &ProgramCost| {
        format!("{} ({} % of it, {})", it.program, fixed(it.program_percent, 1), counted(it.saves.samples, "sample"))
    };
    programs.iter().map(part).collect::<Vec<_>>().join(", ")
}
