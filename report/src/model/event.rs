//! The ledger of an event: rows, lines, and everything that their shares are of.

use super::known::known_members;
use super::program::RunsMembers;
use super::{Known, Note, Reason, Runs};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Samples, and the sum of their weights (periods).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Count {
    /// Number of samples.
    pub samples: u64,
    /// Events, or ns of a clock, that they stand for.
    pub weight: u64,
}

impl Count {
    #[inline]
    pub(crate) fn merge(&mut self, other: Count) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }

    /// The rest when a part of it is taken away.
    pub(crate) fn without(self, part: Count) -> Count {
        Count { samples: self.samples.saturating_sub(part.samples), weight: self.weight.saturating_sub(part.weight) }
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

/// A count, and its part of all samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct Share {
    /// Number of samples, and their weight.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the weight of all samples of the event, per cent; `null` when there are none.
    pub percent: Option<f64>,
}

/// Shares of a count; `null` where the whole is not known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct Shares {
    /// Share of the capacity of all CPUs, per cent.
    #[serde(rename = "machine_percent")]
    pub machine: Option<f64>,
    /// Share of the time that was not idle, per cent.
    #[serde(rename = "busy_percent")]
    pub busy: Option<f64>,
    /// Share of all BPF, per cent.
    #[serde(rename = "bpf_percent")]
    pub bpf: Option<f64>,
    /// Share of all samples, per cent.
    #[serde(rename = "samples_percent")]
    pub samples: Option<f64>,
}

/// The columns of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Columns {
    /// In the program's own code, any of its functions.
    #[serde(rename = "self")]
    pub own: Known<Share>,
    /// In kernel code that it called, or that interrupted it.
    pub helper: Known<Share>,
    /// In the code that exists to run it.
    pub entry: Known<Share>,
    /// Part of `entry` that is an estimate: its share of hooks that several programs are on, in the ratio of their
    /// runs.
    pub entry_shared: Known<Share>,
    /// Also where another program ran inside; not a part of the sum.
    pub inclusive: Known<Share>,
}

impl Columns {
    /// True if a part of `entry` is an estimate.
    pub(crate) fn has_shared_entry(&self) -> bool {
        self.entry_shared.value().is_some_and(|share| share.count != Count::default())
    }
}

/// A line of the ledger: what is charged, and its shares.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// Samples charged: each sample is in one line.
    #[serde(flatten)]
    pub count: Count,
    /// Its shares.
    #[serde(flatten)]
    pub shares: Shares,
    /// By column, for lines that have columns. Lines without charges have theirs in common.
    #[serde(flatten)]
    pub columns: Option<Arc<Columns>>,
}

/// Time in programs that samples cannot see, by the kernel's run statistics: it comes on top of what is charged by samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct UnsampledTime {
    /// Time of all CPUs, ns.
    pub time_ns: u64,
    /// Its share of what the machine's CPUs could have done.
    pub machine_percent: Option<f64>,
}

/// Ticks of the sampling timer that did not come: the kernel merges those that are late, as under an emulator or on a virtual CPU that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct LateTicks {
    /// Time of all CPUs, ns: the weight that samples would have with every tick.
    pub capacity_ns: u64,
    /// Share of that time for which ticks came.
    pub arrived_percent: f64,
    /// Time that they are missing from.
    pub missing: MissingTicks,
}

/// Time that ticks of the sampling timer are missing from, by the run statistics of programs that samples hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingTicks {
    /// From all of the time alike: shares of the machine are of the ticks that came.
    All,
    /// From idle time: shares of the machine are right, and idle is more than its samples say.
    Idle,
    /// Statistics do not tell: shares of the machine may be too low.
    Unknown,
}

/// One program's line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// Position in [`super::Report::programs`].
    pub program: usize,
    /// Id of the program.
    pub id: Option<u32>,
    /// Its name.
    pub name: String,
    /// Why samples cannot be taken in it, or are too few, in words; then none is not 0 %.
    pub blind: Option<Reason>,
    /// Events per run, estimated from samples and run counts; the estimate costs nothing beyond sampling.
    pub sampled_per_run: Known<SampledPerRun>,
    /// Samples charged to it; without members when [`Row::blind`] has the reason why they are not known. Programs
    /// without samples have one line in common.
    #[serde(flatten)]
    pub line: Option<Arc<Line>>,
    /// Time in it that samples cannot see, where run statistics tell it. Its cost is the sum of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsampled: Option<UnsampledTime>,
    /// Its parts, largest first; without `--by` not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<Part>>,
}

/// An estimate from samples of what a run has of an event, in the unit of its weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct SampledPerRun {
    /// The estimate.
    pub value: f64,
    /// Half of its 95 % confidence interval.
    pub margin: f64,
}

/// Several programs that have something in common, in one line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GroupRow {
    /// Property that they have in common.
    pub name: String,
    /// Their positions in [`super::Report::programs`]; the same in all events.
    pub programs: Arc<[usize]>,
    /// Number of them that the event cannot see, or sees too few samples of.
    pub blind_programs: usize,
    /// Samples charged to them; without members when the event can see none of them. Inclusive counts samples under any
    /// of them.
    #[serde(flatten)]
    pub line: Option<Line>,
    /// Time in those that samples cannot see, where run statistics tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsampled: Option<UnsampledTime>,
    /// Number of them with known runs: if it is not all, the sums of `runs` are lower bounds.
    pub programs_with_runs: usize,
    /// Sums of what the kernel's statistics say of those.
    #[serde(flatten, serialize_with = "RunsMembers::serialize")]
    #[schemars(with = "RunsMembers")]
    pub runs: Known<Box<Runs>>,
}

/// A part of a program's cost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Part {
    /// Function, task, CPU, cgroup or helper.
    pub name: String,
    /// Its part of the program's charges.
    #[serde(flatten)]
    pub line: Line,
}

/// Several programs in one line.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Others {
    /// Number of programs with samples.
    pub programs: usize,
    /// Samples charged to them.
    #[serde(flatten)]
    pub line: Arc<Line>,
}

/// Unit of an event's periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub enum Unit {
    /// Nanoseconds of CPU time.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Events of the kind that is counted.
    #[default]
    #[serde(rename = "events")]
    Events,
}

/// An event whose samples were counted in the kernel, and are in the recording as weighted ones.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Aggregated {
    /// Most stacks that were counted at a time.
    pub entries: u32,
    /// Time between two drains, ns: the resolution of all times.
    pub interval_ns: u64,
    /// Samples of [`EventReport::samples`] that there was no room for: nothing more is known of them.
    pub overflow: Count,
    /// Its share of the machine.
    pub overflow_machine_percent: Option<f64>,
    /// Samples that the event counted and the program on it did not see, extrapolated to as many as there would have
    /// been: those in kprobe, tracepoint and perf_event programs, where the kernel drops them. Part of nothing else.
    /// `null` where it was not counted, or where the recording is incomplete or only a part of it is selected.
    #[serde(flatten, serialize_with = "BlindSpotMembers::serialize")]
    #[schemars(with = "BlindSpotMembers")]
    pub blind_spot: Known<Count>,
    /// Its share of the machine.
    pub blind_spot_machine_percent: Option<f64>,
}

/// Origin of the samples of an event that our sampling program made.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BpfSampler {
    /// Name of the event that carries the program; `null` when the recording does not say.
    pub carrier: Option<String>,
    /// Events opened, one per CPU or per task and CPU.
    pub carriers: Option<u32>,
    /// Samples per second of the carrier.
    pub frequency: Option<u64>,
    /// Events per sample of the carrier.
    pub period: Option<u64>,
    /// Runs of the program; this and the following are `null` when the recording was cut off.
    pub runs: Option<u64>,
    /// Samples written.
    pub written: Option<u64>,
    /// Samples lost as the ring had no room.
    pub full: Option<u64>,
    /// Samples that the kernel did not take for another reason.
    pub failed: Option<u64>,
    /// The last such reason.
    pub last_errno: Option<u32>,
    /// Its blind spot; `null` when no main event was looked at.
    pub blind_spot: Option<BlindSpot>,
}

/// Share of a main event that falls into programs that a program on an event cannot see.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BlindSpot {
    /// Name of the main event.
    pub event: String,
    /// Its samples inside kprobe, tracepoint and perf_event programs.
    #[serde(flatten)]
    pub inside: Count,
    /// All of its samples.
    pub of: Count,
    /// Share of the samples, per cent.
    pub percent: Option<f64>,
}

/// A perf event with a program of type perf_event on it.
///
/// Event with a BPF program on it: a sample inside a kprobe, tracepoint or perf_event program is dropped without being
/// counted, as the program does not run there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BlindedEvent {
    /// Its name; empty where the kernel did not tell.
    pub event: String,
    /// Id of the program on it.
    pub program_id: Option<u32>,
    /// Name of the program.
    pub program: String,
    /// It is an event of this recording, rather than of someone else's.
    pub own: bool,
    /// Position in [`super::Report::programs`].
    #[serde(skip)]
    pub(crate) position: usize,
}

/// Runs and time per run of a program from each source that has them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SourceRow {
    /// Position in [`super::Report::programs`].
    pub program: usize,
    /// Time per run by samples: their time by the runs of the best source. `null` where samples are not of all runs.
    pub sampled_ns_per_run: Option<f64>,
}

known_members!(IdleMembers { idle, idle_unknown, idle_reason }: Share);
known_members!(BusyMembers { busy, busy_unknown, busy_reason }: u64);
known_members!(MachineMembers { machine, machine_unknown, machine_reason }: u64);
known_members!(LostMembers { lost, lost_unknown, lost_reason }: u64);
known_members!(EntryMembers { entry_unattributed, entry_unattributed_unknown, entry_unattributed_reason }: Arc<Line>);
known_members!(InterpretedMembers { interpreted, interpreted_unknown, interpreted_reason }: Arc<Line>);
known_members!(UnknownCodeMembers { unknown_kernel_code, unknown_kernel_code_unknown, unknown_kernel_code_reason }: Arc<Line>);
known_members!(BlindSpotMembers { blind_spot, blind_spot_unknown, blind_spot_reason }: Count);

impl EventReport {
    /// A count as a share of the machine, in per cent; of all samples where the machine's maximum is not known.
    pub(crate) fn percent(&self, count: Count) -> Option<f64> {
        let whole = self.machine.value().copied().unwrap_or(self.samples.weight);
        (whole > 0).then(|| count.weight as f64 * 100.0 / whole as f64)
    }

    /// Shares of the machine are scaled up, as ticks of the timer are missing from all of the time.
    pub(crate) fn is_scaled(&self) -> bool {
        self.late_ticks.is_some_and(|late| late.missing == MissingTicks::All)
    }
}

/// The ledger of one event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EventReport {
    /// Its name.
    pub name: String,
    /// Unit of its weight.
    pub unit: Unit,
    /// All samples of the selection.
    pub samples: Count,
    /// Samples in which the idle task waited.
    #[serde(flatten, serialize_with = "IdleMembers::serialize")]
    #[schemars(with = "IdleMembers")]
    pub idle: Known<Share>,
    /// Weight of what was not idle.
    #[serde(flatten, serialize_with = "BusyMembers::serialize")]
    #[schemars(with = "BusyMembers")]
    pub busy: Known<u64>,
    /// Weight that shares of the machine are of: all that its CPUs could have done meanwhile, in the unit of the weight, or where ticks are
    /// missing from all of the time ([`EventReport::late_ticks`]) the weight of those that came.
    #[serde(flatten, serialize_with = "MachineMembers::serialize")]
    #[schemars(with = "MachineMembers")]
    pub machine: Known<u64>,
    /// Set where less than 95 % of the timer's ticks came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ticks: Option<LateTicks>,
    /// Samples that did not make it into the recording.
    #[serde(flatten, serialize_with = "LostMembers::serialize")]
    #[schemars(with = "LostMembers")]
    pub lost: Known<u64>,
    /// Samples that a BPF filter dropped.
    pub filtered: u64,
    /// Number of times that the kernel stopped sampling for the rest of a tick.
    pub throttled: u64,
    /// Kernel call chains are there: without, only `self` is known.
    #[serde(rename = "callchains")]
    pub has_chains: bool,
    /// A timer that cannot interrupt where interrupts are off.
    #[serde(rename = "timer")]
    pub is_timer: bool,
    /// Kind of aggregation, if samples were not kept one by one.
    pub aggregated: Option<Box<Aggregated>>,
    /// Programs that are shown, in order; none where they are put together.
    pub rows: Vec<Row>,
    /// Programs put together, in order: with `--by` owner, name, type or hook.
    pub groups: Vec<GroupRow>,
    /// Programs that have samples and are not shown.
    pub others: Others,
    /// Programs that count others, in one line unless they are asked for.
    pub counting_programs: Others,
    /// Programs without anything, which are not shown.
    pub quiet_programs: usize,
    /// In code that runs programs, no telling which.
    #[serde(flatten, serialize_with = "EntryMembers::serialize")]
    #[schemars(with = "EntryMembers")]
    pub entry_unattributed: Known<Arc<Line>>,
    /// In the interpreter, no telling which program.
    #[serde(flatten, serialize_with = "InterpretedMembers::serialize")]
    #[schemars(with = "InterpretedMembers")]
    pub interpreted: Known<Arc<Line>>,
    /// In code that nothing accounts for, where BPF code could be. Only what is known to be BPF is: it is no part of the total.
    #[serde(flatten, serialize_with = "UnknownCodeMembers::serialize")]
    #[schemars(with = "UnknownCodeMembers")]
    pub unknown_kernel_code: Known<Arc<Line>>,
    /// All that is charged to BPF: every program, and the lines that no program could be told for.
    pub total: Arc<Line>,
    /// Time in all programs that samples cannot see, where run statistics tell it: not in the total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsampled: Option<UnsampledTime>,
    /// Origin of its samples, if our sampling program made them.
    pub bpf_sampler: Option<Box<BpfSampler>>,
    /// The rows by their sources, where exact counters are one.
    pub sources: Vec<SourceRow>,
    /// Notes that belong to the numbers.
    pub notes: Arc<[Note]>,
}
