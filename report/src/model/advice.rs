//! What could be had cheaper. The enum says what was found, with its evidence; the prose of each is made here alone.

use super::known::{coded, coded_schema};
use super::text::{counted, decimal, grouped};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// What rules found in a recording: the document of `bprec report --advise --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// `bprec advice`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// What was found, by event and program.
    pub findings: Vec<EventFinding>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
}

/// A finding, and the event whose samples it is from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventFinding {
    /// Name of the event; `null` for what is not from samples.
    pub event: Option<String>,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
}

coded! {
    /// What a rule found. A program is named with its id.
    Finding {
        /// Programs with the same code, name and hook, at the same time.
        SameProgramTwice {
            /// The programs.
            programs: Vec<String>,
            /// The hook that all of them are on.
            hook: String,
        } = "same_program_twice",
        /// Most of a program is lookups in hash maps.
        HashLookup {
            /// The program.
            program: String,
            /// The function of the kernel that it calls most for that.
            function: String,
            /// Samples in lookups.
            samples: u64,
            /// Of what is charged to the program.
            percent: f64,
        } = "hash_lookup",
        /// A program writes to a perf buffer for each event.
        PerfEventOutput {
            /// The program.
            program: String,
            /// Samples in that.
            samples: u64,
            /// Of what is charged to the program.
            percent: f64,
        } = "perf_event_output",
        /// What runs a tracepoint program takes a good part of it.
        TracepointEntry {
            /// The program.
            program: String,
            /// Samples in what runs it.
            samples: u64,
            /// Of what is charged to the program.
            percent: f64,
        } = "tracepoint_entry",
        /// A program prints to the trace buffer.
        TracePrintk {
            /// The program.
            program: String,
            /// Samples in that.
            samples: u64,
            /// Of what is charged to the program.
            percent: f64,
        } = "trace_printk",
        /// Nobody is seen to hold a program.
        NoOwner {
            /// The program.
            program: String,
        } = "no_owner",
        /// The recursion guard refused runs.
        Misses {
            /// The program.
            program: String,
            /// Runs that were refused.
            misses: u64,
            /// Runs.
            runs: u64,
        } = "misses",
        /// A map had hardly a free place left when it was read.
        MapNearlyFull {
            /// Its name, at most 15 characters, and its id.
            map: String,
            /// Entries that it had, at least.
            entries: u64,
            /// Entries that it can have.
            max_entries: u32,
        } = "map_nearly_full",
        /// Programs that run have a buffer for readers in user space, and no process can read it.
        OutputWithoutReader {
            /// The ring buffer or perf event array: its name, at most 15 characters, and its id.
            map: String,
            /// The programs that use it and ran.
            programs: Vec<String>,
            /// Runs of all of them.
            runs: u64,
        } = "output_without_reader",
        /// A program was counted exactly.
        CountedExactly {
            /// The program.
            program: String,
            /// Runs that were measured.
            measured: u64,
            /// What counting adds to each, ns.
            added_ns: f64,
        } = "counted_exactly",
    }
}

/// The prose of findings: evidence and cost, then the remedy.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |samples: &u64, percent: &f64| format!("{} ({percent:.1} % of it)", counted(*samples, "sample"));
        match self {
            Finding::SameProgramTwice { programs, hook } => write!(
                f,
                "{} are the same program, and all on {hook}: each event runs every one of them. Is one left over from an earlier start, or \
                 does each instance of a tool load its own? Unload what is not needed",
                programs.join(", ")
            ),
            Finding::HashLookup { program, function, samples, percent } => write!(
                f,
                "{program} spends {} in lookups of hash maps ({function}). An array or per-CPU array takes less where keys are small numbers, task \
                 or cgroup local storage where they are tasks or cgroups",
                part(samples, percent)
            ),
            Finding::PerfEventOutput { program, samples, percent } => write!(
                f,
                "{program} spends {} in bpf_perf_event_output. A ring buffer (bpf_ringbuf_reserve, Linux 5.8) saves a copy and wakes readers less \
                 often; adding up in a map writes nothing for each event",
                part(samples, percent)
            ),
            Finding::TracepointEntry { program, samples, percent } => write!(
                f,
                "{program} has {} in code that runs it: a tracepoint program gets a copy of the event's fields, made for each event. A raw tracepoint \
                 (raw_tp, tp_btf) gets the arguments as they are",
                part(samples, percent)
            ),
            Finding::TracePrintk { program, samples, percent } => write!(
                f,
                "{program} spends {} in bpf_trace_printk, which is for debugging: it takes a lock of the whole machine. Remove it, or write to a ring \
                 buffer",
                part(samples, percent)
            ),
            Finding::NoOwner { program } => write!(
                f,
                "{program} has no process that holds it, no pin and no hook that the recorder can see. The recorder cannot see what keeps it (a socket's \
                 filter, another mount namespace), or it waits to be released"
            ),
            Finding::Misses { program, misses, runs } => write!(
                f,
                "{program}: the recursion guard refused {} besides {} that ran, so its own counts are too low. It was entered again from code that it called, \
                 or from an interrupt while it ran: narrow its hook",
                counted(*misses, "run"),
                grouped(*runs)
            ),
            Finding::MapNearlyFull { map, entries, max_entries } => write!(
                f,
                "map {map} had {} of at most {} entries: once it is full, bpf_map_update_elem fails for a new key (E2BIG, or ENOSPC), which is lost. Make \
                 it larger, delete unused entries, or use an LRU map. bprec report --maps says who uses it",
                grouped(*entries),
                grouped((*max_entries).into())
            ),
            Finding::OutputWithoutReader { map, programs, runs } => write!(
                f,
                "nobody reads {map}: no process that the recorder can see had a descriptor of this buffer when it looked, and {} with it ran {} \
                 times. What they write there is lost. Start its reader, or unload them",
                programs.join(", "),
                grouped(*runs)
            ),
            Finding::CountedExactly { program, measured, added_ns } => write!(
                f,
                "{program} was counted exactly: {} took {} ns longer each while it was recorded. Without --counters exact they do not",
                counted(*measured, "run"),
                decimal(*added_ns)
            ),
        }
    }
}
