//! Advice on cheaper ways to get the same. The enum has each finding with its evidence; its prose is made here alone.

use super::known::coded;
use super::text::{counted, decimal, grouped};
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

/// A finding, and the event whose samples it is from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventFinding {
    /// Name of the event; `null` for what is not from samples.
    pub event: Option<String>,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
}

coded! {
    /// Finding of a rule. A program is named with its id.
    Finding {
        /// Programs with the same code, name and hook, at the same time.
        SameProgramTwice { programs: Vec<String>, hook: String } = "same_program_twice":
            "{} are the same program, and all on {hook}: each event runs every one of them. Is one left over from an earlier start, or \
            does each instance of a tool load its own? Unload what is not needed", programs.join(", ");
        /// Most of a program is lookups in hash maps.
        HashLookup { program: String, function: String, samples: u64, percent: f64 } = "hash_lookup":
            "{program} spends {} in lookups of hash maps ({function}). An array or per-CPU array takes less where keys are small \
            numbers, task or cgroup local storage where they are tasks or cgroups", part(samples, percent);
        /// A program writes to a perf buffer for each event.
        PerfEventOutput { program: String, samples: u64, percent: f64 } = "perf_event_output":
            "{program} spends {} in bpf_perf_event_output. A ring buffer (bpf_ringbuf_reserve, Linux 5.8) saves a copy and wakes readers \
            less often; adding up in a map writes nothing for each event", part(samples, percent);
        /// Entry code of a tracepoint program takes a good part of its cost.
        TracepointEntry { program: String, samples: u64, percent: f64 } = "tracepoint_entry":
            "{program} has {} in code that runs it: a tracepoint program gets a copy of the event's fields, made for each event. A raw \
            tracepoint (raw_tp, tp_btf) gets the arguments as they are", part(samples, percent);
        /// A program prints to the trace buffer.
        TracePrintk { program: String, samples: u64, percent: f64 } = "trace_printk":
            "{program} spends {} in bpf_trace_printk, which is for debugging: it takes a lock of the whole machine. Remove it, or write \
            to a ring buffer", part(samples, percent);
        /// No process is seen to hold a program.
        NoOwner { program: String } = "no_owner":
            "{program} has no process that holds it, no pin and no hook that the recorder can see. The recorder cannot see what keeps it \
            (a socket's filter, another mount namespace), or it waits to be released";
        /// The recursion guard refused runs.
        Misses { program: String, misses: u64, runs: u64 } = "misses":
            "{program}: the recursion guard refused {} besides {} that ran, so its own counts are too low. It was entered again from \
            code that it called, or from an interrupt while it ran: narrow its hook", counted(*misses, "run"), grouped(*runs);
        /// A map had hardly a free place left when it was read.
        MapNearlyFull {
            /// Its name, at most 15 characters, and its id.
            map: String,
            /// Entries that it had, at least.
            entries: u64,
            max_entries: u32,
        } = "map_nearly_full":
            "map {map} had {} of at most {} entries: once it is full, bpf_map_update_elem fails for a new key (E2BIG, or ENOSPC), which \
            is lost. Make it larger, delete unused entries, or use an LRU map. bprec report --maps says who uses it",
            grouped(*entries), grouped((*max_entries).into());
        /// Programs that run have a buffer for readers in user space, and no process can read it.
        OutputWithoutReader {
            /// The ring buffer or perf event array: its name, at most 15 characters, and its id.
            map: String,
            programs: Vec<String>,
            runs: u64,
        } = "output_without_reader":
            "nobody reads {map}: no process that the recorder can see had a descriptor of this buffer when it looked, and {} with it ran \
            {} times. What they write there is lost. Start its reader, or unload them", programs.join(", "), grouped(*runs);
        /// A program was counted exactly.
        CountedExactly {
            program: String,
            measured: u64,
            /// Time that counting adds to each run, ns.
            added_ns: f64,
        } = "counted_exactly":
            "{program} was counted exactly: {} took {} ns longer each while it was recorded. Without --counters exact they do not",
            counted(*measured, "run"), decimal(*added_ns);
    }
}

impl Finding {
    /// Programs that it is about, each with its id; none where it is about a map alone.
    pub fn programs(&self) -> &[String] {
        use Finding as F;
        match self {
            F::SameProgramTwice { programs, .. } | F::OutputWithoutReader { programs, .. } => programs,
            F::HashLookup { program, .. }
            | F::PerfEventOutput { program, .. }
            | F::TracepointEntry { program, .. }
            | F::TracePrintk { program, .. }
            | F::NoOwner { program }
            | F::Misses { program, .. }
            | F::CountedExactly { program, .. } => std::slice::from_ref(program),
            F::MapNearlyFull { .. } => &[],
        }
    }
}

/// Samples of a part of a program.
fn part(samples: &u64, percent: &f64) -> String {
    format!("{} ({percent:.1} % of it)", counted(*samples, "sample"))
}
