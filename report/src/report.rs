//! The report: what the ledger and the index say, as numbers and names, before they become text.

use crate::counters::{Counting, Exact};
use crate::recording::{Recording, Role};
use crate::{Options, Result, Sort, Split};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use bprec_format::state;

mod blinded;
mod build;
mod rows;
mod sampled;
mod sampler;

pub use blinded::BlindedEvent;
pub(crate) use build::build;
pub use sampler::{BlindSpot, BpfSampler};

/// Samples, and the sum of their weights (periods).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Count {
    /// How many samples.
    pub samples: u64,
    /// How many events, or ns of a clock, they stand for.
    pub weight: u64,
}

impl Count {
    #[inline]
    pub(crate) fn merge(&mut self, other: Count) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }
}

impl std::ops::Add for Count {
    type Output = Count;

    fn add(mut self, other: Count) -> Count {
        self.merge(other);
        self
    }
}

impl std::iter::Sum for Count {
    fn sum<I: Iterator<Item = Count>>(counts: I) -> Count {
        counts.fold(Count::default(), |sum, count| sum + count)
    }
}

/// What is charged to a program, by column of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Charges {
    /// In its own code, any of its functions.
    pub own: Count,
    /// In kernel code that it called, or that interrupted it.
    pub helper: Count,
    /// In the code that exists to run it.
    pub entry: Count,
    /// Inclusive: also where another program ran inside. Not a part of [`Charges::sum`].
    pub total: Count,
}

impl Charges {
    /// What is charged to it: each sample is in one program's sum.
    pub fn sum(&self) -> Count {
        self.own + self.helper + self.entry
    }

    pub(crate) fn merge(&mut self, other: &Charges) {
        self.own.merge(other.own);
        self.helper.merge(other.helper);
        self.entry.merge(other.entry);
        self.total.merge(other.total);
    }
}

/// Why a number is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown(pub String);

/// What happened to a program in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    /// How often it ran.
    pub count: u64,
    /// Time in it, ns.
    pub time_ns: u64,
    /// Runs that the recursion guard refused, when the kernel tells.
    pub misses: Option<u64>,
    /// From when to when, ns of the recording's clock.
    pub span: Option<(u64, u64)>,
}

/// What the recording says about a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It happened then, ns since the recording's start.
    At(i64),
    /// Between these times.
    Between(i64, i64),
}

/// A program of the recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Its id; `None` for a function whose program is not known.
    pub id: Option<u32>,
    /// When it was loaded, ns since boot; with the id its key.
    pub load_time_ns: Option<u64>,
    /// Full name of its entry function, as BTF has it.
    pub name: String,
    /// Tag.
    pub tag: Option<Tag>,
    /// Type.
    pub prog_type: Option<ProgType>,
    /// Names of its functions, the entry first.
    pub functions: Vec<String>,
    /// When it was loaded, if during the recording.
    pub loaded: Option<Origin>,
    /// When it was unloaded, if during the recording.
    pub unloaded: Option<Origin>,
    /// Where it is attached, `kind:target`.
    pub attachments: Vec<String>,
    /// Who holds it.
    pub owners: Vec<state::Owner>,
    /// Where it is pinned.
    pub pins: Vec<String>,
    /// The user who loaded it.
    pub uid: Option<u32>,
    /// `bpf_metadata_*` values.
    pub metadata: Vec<(String, String)>,
    /// The interpreter runs it: it has no code that samples could be in.
    pub interpreted: bool,
    /// The recording knows where its code was: without that, samples in it cannot be told.
    pub addressed: bool,
    /// Its `bpf_prog_info` is in the recording.
    pub captured: bool,
    /// The recorder loaded it during the recording, and did not capture it.
    pub of_recorder: bool,
    /// What it did in the window.
    pub runs: Result<Runs, Unknown>,
    /// What was counted exactly in the window, when the recording has such counters ([`Report::counting`]).
    pub exact: Result<Exact, Unknown>,
    /// The same of its functions other than the entry that were counted.
    pub exact_functions: Vec<Exact>,
    /// Where statistics and exact counters say different things of the same.
    pub disagreements: Vec<String>,
}

impl Program {
    /// What was counted exactly, unless statistics are of more of the time.
    pub fn exact_throughout(&self) -> Option<&Exact> {
        let exact = self.exact.as_ref().ok()?;
        match self.runs.as_ref().ok().and_then(|runs| runs.span) {
            Some(span) => crate::counters::covers(exact, span).then_some(exact),
            None => exact.ended.is_none().then_some(exact),
        }
    }
}

/// One program's line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Position in [`Report::programs`].
    pub program: usize,
    /// What is charged to it.
    pub charges: Charges,
    /// Why samples cannot be taken in it, or are too few; then none is not 0 %.
    pub blind: Option<Unknown>,
    /// Where samples of time and the kernel's statistics say different things of the same.
    pub disagreement: Option<String>,
    /// Its parts, largest first.
    pub parts: Vec<SplitRow>,
}

/// A part of a program's cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitRow {
    /// Function, task, CPU, cgroup or helper.
    pub name: String,
    /// What of the program's charges it is.
    pub charges: Charges,
    /// Whether [`Charges::total`] means something for this part.
    pub has_total: bool,
}

/// Of what an event's periods are the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds of CPU time.
    Nanoseconds,
    /// Whatever the event counts.
    Events,
}

/// Code that was hit most, for recordings without BPF programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hot {
    /// Symbol, or address.
    pub name: String,
    /// Kernel, module, file.
    pub object: String,
    /// How much.
    pub count: Count,
}

/// An event whose samples were counted in the kernel, and are in the recording as weighted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregated {
    /// Most stacks that were counted at a time.
    pub entries: u32,
    /// Time between two drains, ns: the resolution of all times.
    pub interval_ns: u64,
    /// Samples of [`EventReport::samples`] that there was no room for: nothing more is known of them.
    pub overflow: Count,
    /// What the event counted and the program on it did not see, with as many samples as that would have been: those in
    /// kprobe, tracepoint and perf_event programs, where the kernel drops them. Part of nothing else. `None` where it
    /// was not counted, or where only a part of the recording is there or looked at.
    pub blind_spot: Option<Count>,
}

/// The ledger of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventReport {
    /// Its name.
    pub name: String,
    /// What its weight is.
    pub unit: Unit,
    /// All samples of the selection.
    pub samples: Count,
    /// Those in which the idle task waited; `None` when it cannot be told.
    pub idle: Option<Count>,
    /// All that the machine's CPUs could have done meanwhile, in the unit of the weight, if that is known.
    pub machine: Option<u64>,
    /// Kernel call chains are there: without, only `own` is known.
    pub has_chains: bool,
    /// A timer that cannot interrupt where interrupts are off.
    pub is_timer: bool,
    /// Samples are of all that ran in the recording, on all CPUs, and none is missing: they can be held against other counts.
    pub samples_are_whole: bool,
    /// Programs, in order.
    pub rows: Vec<Row>,
    /// In code that runs programs, no telling which.
    pub entry: Count,
    /// In the interpreter, no telling which program.
    pub interpreted: Count,
    /// In code that nothing accounts for, where BPF code would be; `None` when it cannot be told.
    pub unresolved: Option<Count>,
    /// Samples of this event that did not make it into the recording, if that was counted.
    pub lost: Option<u64>,
    /// Samples that a BPF filter dropped.
    pub filtered: u64,
    /// How often the kernel stopped sampling for the rest of a tick.
    pub throttled: u64,
    /// How its samples were counted, if not one by one.
    pub aggregated: Option<Aggregated>,
    /// What was hit most, when no program is known.
    pub hot: Vec<Hot>,
    /// How its samples came about, if our sampling program made them.
    pub bpf_sampler: Option<BpfSampler>,
}

impl Program {
    /// It is one of those that the recorder puts around others to count them. The recorder holds none of them, so that the
    /// recording has no info of them and nothing is missed.
    pub fn counts_others(&self) -> bool {
        // Recordings that do not tell who recorded have the names.
        self.of_recorder || ["bprec_session", "bprec_enter", "bprec_leave", "bprec_gauge"].contains(&&*self.name)
    }
}

impl EventReport {
    /// All that is charged to BPF: every program, and the lines that no program could be told for.
    pub fn bpf(&self) -> Count {
        let programs: Count = self.rows.iter().map(|row| row.charges.sum()).sum();
        programs + self.entry + self.interpreted + self.unresolved.unwrap_or_default()
    }
}

/// A program that was seen but is not in the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    /// Its id.
    pub id: u32,
    /// Its tag.
    pub tag: Option<Tag>,
    /// When it was seen, ns since the recording's start.
    pub time_ns: Option<i64>,
    /// Why.
    pub reason: String,
}

/// What the recording says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Machine's name.
    pub hostname: Option<String>,
    /// Kernel release.
    pub os_release: Option<String>,
    /// Architecture.
    pub arch: Option<String>,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// Time that the report is about, ns.
    pub elapsed_ns: Option<u64>,
    /// When it started, ns of the recording's clock.
    pub start_ns: u64,
    /// When it started, ns since 1970.
    pub realtime_ns: Option<u64>,
    /// What was recorded, in words.
    pub target: Option<String>,
    /// Why the event is not the one that was asked for.
    pub event_note: Option<String>,
    /// Where run statistics come from.
    pub counters: Option<String>,
    /// Why not more.
    pub counters_note: Option<String>,
    /// Records of any kind that did not make it into the recording, where losses are not counted by event.
    pub lost_records: u64,
    /// The kernel did not count losses.
    pub loss_not_counted: bool,
    /// CPUs that were not sampled from some time on, as they went offline or came online.
    pub cpus_not_sampled: Vec<state::CpuNotSampled>,
    /// What the recording cost.
    pub cost: Option<state::Cost>,
    /// The recorder did not come to its end.
    pub unfinished: bool,
    /// The recording names kernel functions.
    pub has_kernel_symbols: bool,
}

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The recording.
    pub recorded: Recorded,
    /// How rows are split.
    pub split: Option<Split>,
    /// How rows are ordered.
    pub sort: Sort,
    /// What exact counters count; `None` when the recording has none.
    pub counting: Option<Counting>,
    /// Programs by id and load time: all of the recording.
    pub programs: Vec<Program>,
    /// One ledger per event.
    pub events: Vec<EventReport>,
    /// Perf events that carry programs.
    pub blinded: Vec<BlindedEvent>,
    /// Programs that were seen but are not in the recording.
    pub missed: Vec<Missed>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
    /// Which rows are shown.
    pub(crate) shown: Shown,
}

impl Report {
    /// How many programs [`Options::programs`] matches; all when it asks for none in particular.
    pub fn matched_programs(&self) -> usize {
        match &self.shown.asked {
            Some(asked) => asked.iter().filter(|asked| **asked).count(),
            None => self.programs.len(),
        }
    }
}

/// From one time to another, ns. Times of a damaged recording may be anything.
fn since(time_ns: u64, start_ns: u64) -> i64 {
    time_ns.wrapping_sub(start_ns) as i64
}

/// Which of the rows the views show. Totals are over all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Shown {
    /// Programs that are asked for, by position; all when empty.
    pub(crate) asked: Option<Vec<bool>>,
    pub(crate) limit: Option<usize>,
    /// Also programs without samples or runs.
    pub(crate) all: bool,
}

/// Whether an event's samples are charged.
pub(crate) fn is_asked_for(recording: &Recording<'_>, event: usize, options: &Options) -> bool {
    matches!(recording.roles[event], Role::Sampling | Role::Sampler)
        && (options.events.is_empty() || options.events.contains(&recording.names[event]))
}
