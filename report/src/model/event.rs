//! The ledger of an event, which is the table of the report by program: rows, sums, and the totals that shares refer to.

use super::known::known_members;
use super::program::RunsMembers;
use super::{Known, Note, Reason, Runs};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Number and weight of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Count {
    /// Number of samples.
    pub samples: u64,
    /// Sum of the periods: events, or ns of a clock.
    pub weight: u64,
}

impl Count {
    #[inline]
    pub(crate) fn merge(&mut self, other: Count) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }

    /// Subtracts `part`; the result is not below 0.
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

/// A count and its share of all samples.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct Share {
    /// Number of samples, and their weight.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the weight of all samples of the event, %; `null` without samples.
    pub percent: Option<f64>,
}

/// Shares of a count; `null` where the total is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct Shares {
    /// Share of the capacity of all CPUs, %.
    #[serde(rename = "machine_percent")]
    pub machine: Option<f64>,
    /// Share of the time that was not idle, %.
    #[serde(rename = "busy_percent")]
    pub busy: Option<f64>,
    /// Share of the cost of all BPF, %.
    #[serde(rename = "bpf_percent")]
    pub bpf: Option<f64>,
    /// Share of the weight of all samples, %.
    #[serde(rename = "samples_percent")]
    pub samples: Option<f64>,
}

/// Columns of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Columns {
    /// Samples in the program's own functions.
    #[serde(rename = "self")]
    pub own: Known<Share>,
    /// Samples in kernel code that the program called, or that interrupted the program.
    pub helper: Known<Share>,
    /// Samples in the kernel code that runs the program.
    pub entry: Known<Share>,
    /// Estimated part of `entry`: if a hook has several programs, they share its samples in the ratio of their runs.
    pub entry_shared: Known<Share>,
    /// Samples in the program and in programs that ran inside it; not part of [`Line::count`].
    pub inclusive: Known<Share>,
}

impl Columns {
    /// Returns true if a part of `entry` is an estimate.
    pub(crate) fn has_shared_entry(&self) -> bool {
        self.entry_shared.value().is_some_and(|share| share.count != Count::default())
    }
}

/// A line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// Samples charged to this line; each sample is charged to one line.
    #[serde(flatten)]
    pub count: Count,
    /// Shares of the charged samples.
    #[serde(flatten)]
    pub shares: Shares,
    /// Charged samples by column; the members are missing for lines that are not split into columns. Lines without charges share one `Columns` in
    /// memory.
    #[serde(flatten)]
    pub columns: Option<Arc<Columns>>,
}

/// Time, by run statistics, in programs that samples cannot see. The cost of these programs is this time plus the time charged by samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct UnsampledTime {
    /// Time on all CPUs, ns.
    pub time_ns: u64,
    /// Share of the capacity of all CPUs, %.
    pub machine_percent: Option<f64>,
}

/// Missing ticks of the sampling timer: the kernel merges late ticks, for instance on a virtual CPU that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct LateTicks {
    /// Time of all CPUs, ns: the weight that the samples would have if all ticks arrived.
    pub capacity_ns: u64,
    /// Share of `capacity_ns` with ticks, %.
    pub arrived_percent: f64,
    /// Kind of time in which ticks are missing.
    pub missing: MissingTicks,
}

impl LateTicks {
    /// Returns true if ticks are missing in busy and in idle time alike: shares of the machine are then scaled up.
    pub(crate) fn scales(ticks: Option<LateTicks>) -> bool {
        ticks.is_some_and(|late| late.missing == MissingTicks::All)
    }

    /// Note that explains the effect on shares of the machine.
    pub(crate) fn note(self) -> Note {
        Note::LateTicks { arrived_percent: self.arrived_percent, missing: self.missing }
    }
}

/// Kind of time in which ticks are missing, inferred from run statistics of sampled programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingTicks {
    /// Busy and idle time, in proportion: shares of the machine refer to the ticks that arrived.
    All,
    /// Idle time: shares of the machine are right, and the idle share is too low.
    Idle,
    /// Unknown: shares of the machine may be too low.
    Unknown,
}

/// A program's line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// Position in [`super::Report::programs`].
    pub program: usize,
    /// Id of the program.
    pub id: Option<u32>,
    /// Name of the program.
    pub name: String,
    /// Reason why the event cannot sample the program, or samples it too rarely. Missing samples then do not mean 0 %.
    pub blind: Option<Reason>,
    /// Events per run: an estimate from the program's samples and its count of runs.
    pub sampled_per_run: Known<SampledPerRun>,
    /// Samples charged to the program. The members are missing if [`Row::blind`] is set and no sample is charged. Programs without samples share one
    /// `Line` in memory.
    #[serde(flatten)]
    pub line: Option<Arc<Line>>,
    /// Time in the program that samples cannot see, from run statistics. The cost of the program is this time plus the time charged by samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsampled: Option<UnsampledTime>,
    /// Parts of the program's cost, largest first; missing if `--by` does not split programs into parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<Part>>,
}

/// Estimate of the events per run, from samples, in the unit of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct SampledPerRun {
    /// Events per run.
    pub value: f64,
    /// Half of the 95 % confidence interval of the estimate.
    pub margin: f64,
}

/// Several programs with a common property, in one line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GroupRow {
    /// Common property.
    pub name: String,
    /// Positions in [`super::Report::programs`]; the same in all events.
    pub programs: Arc<[usize]>,
    /// Number of programs that the event cannot sample, or samples too rarely.
    pub blind_programs: usize,
    /// Samples charged to the programs. The members are missing if the event can sample no program of the group and no sample is charged. The
    /// inclusive column counts samples under any program of the group.
    #[serde(flatten)]
    pub line: Option<Line>,
    /// Time in programs that samples cannot see, by run statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsampled: Option<UnsampledTime>,
    /// Number of programs with known runs. If smaller than the number of programs, the sums of `runs` are lower bounds.
    pub programs_with_runs: usize,
    /// Sums of run statistics over the programs with known runs.
    #[serde(flatten, serialize_with = "RunsMembers::serialize")]
    #[schemars(with = "RunsMembers")]
    pub runs: Known<Box<Runs>>,
}

/// A part of a program's cost.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Part {
    /// Name of the function, task, CPU, cgroup or helper.
    pub name: String,
    /// Samples of this part.
    #[serde(flatten)]
    pub line: Line,
}

/// Several programs in one line.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Others {
    /// Number of programs with samples.
    pub programs: usize,
    /// Samples charged to these programs.
    #[serde(flatten)]
    pub line: Arc<Line>,
}

/// Unit of an event's periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub enum Unit {
    /// Nanoseconds of CPU time.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Events of the counted kind.
    #[default]
    #[serde(rename = "events")]
    Events,
}

/// Aggregation in the kernel: the recording has counts of samples by stack instead of single samples.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Aggregated {
    /// Size of the kernel's table of stacks, entries.
    pub entries: u32,
    /// Time between two readings of the table of stacks, ns: the resolution of the times of samples.
    pub interval_ns: u64,
    /// Samples that did not fit into the table of stacks: their stacks are unknown. [`EventReport::samples`] includes them.
    pub overflow: Count,
    /// Share of the overflow in the machine's capacity, %.
    pub overflow_machine_percent: Option<f64>,
    /// Samples that the event counted but the program that counts stacks did not see, scaled to the full recording. They lie in kprobe, tracepoint
    /// and perf_event programs, where the kernel drops samples. No other number includes them. `null` if not counted, or if the recording is
    /// incomplete or only partly selected.
    #[serde(flatten, serialize_with = "BlindSpotMembers::serialize")]
    #[schemars(with = "BlindSpotMembers")]
    pub blind_spot: Known<Count>,
    /// Share of the blind spot in the machine's capacity, %.
    pub blind_spot_machine_percent: Option<f64>,
}

/// Facts about the recorder's sampling program, if this program wrote the samples.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BpfSampler {
    /// Name of the event on which the sampling program runs (the carrier); `null` when unknown.
    pub carrier: Option<String>,
    /// Number of carrier events that were opened: one per CPU, or one per task and CPU.
    pub carriers: Option<u32>,
    /// Samples per second of the carrier.
    pub frequency: Option<u64>,
    /// Events per sample of the carrier.
    pub period: Option<u64>,
    /// Runs of the sampling program. This member and the next four are `null` if the recording was cut off.
    pub runs: Option<u64>,
    /// Samples written.
    pub written: Option<u64>,
    /// Samples lost because the ring buffer was full.
    pub full: Option<u64>,
    /// Samples that the kernel refused for another reason.
    pub failed: Option<u64>,
    /// Error number of the last sample in `failed`.
    pub last_errno: Option<u32>,
    /// Blind spot of the sampling program, measured with another event; `null` if no event is suitable.
    pub blind_spot: Option<BlindSpot>,
}

/// Blind spot of the sampling program: samples of another event, the main event, inside kprobe, tracepoint and perf_event programs. The sampling
/// program does not run there, so its own samples have this gap.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BlindSpot {
    /// Name of the main event.
    pub event: String,
    /// Samples of the main event inside kprobe, tracepoint and perf_event programs.
    #[serde(flatten)]
    pub inside: Count,
    /// All samples of the main event.
    pub of: Count,
    /// Share of the samples inside these programs in all samples of the main event, %.
    pub percent: Option<f64>,
}

/// A perf event with a perf_event program. Inside kprobe, tracepoint and perf_event programs, the perf_event program does not run: the kernel drops
/// the event's samples there without counting them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BlindedEvent {
    /// Name of the event; empty when unknown.
    pub event: String,
    /// Id of the attached program.
    pub program_id: Option<u32>,
    /// Name of the attached program.
    pub program: String,
    /// True for an event of this recording, false for an event of another user.
    pub own: bool,
    /// Position in [`super::Report::programs`].
    #[serde(skip)]
    pub(crate) position: usize,
}

/// Time per run, by samples, of a program with exact counters. [`super::Report::programs`] has the program's runs and times by the other sources.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SourceRow {
    /// Position in [`super::Report::programs`].
    pub program: usize,
    /// Time per run by samples: sampled time divided by the number of runs, which exact counters give if they cover the whole recording, and run
    /// statistics otherwise. `null` if samples do not cover all runs.
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
    /// Returns the share of the machine, %, or of all samples if the machine's capacity is unknown; `None` if this total is 0.
    pub(crate) fn percent(&self, count: Count) -> Option<f64> {
        let whole = self.machine.value().copied().unwrap_or(self.samples.weight);
        (whole > 0).then(|| count.weight as f64 * 100.0 / whole as f64)
    }

    /// Returns true if shares of the machine are scaled up because timer ticks are missing in idle and in busy time.
    pub(crate) fn is_scaled(&self) -> bool {
        LateTicks::scales(self.late_ticks)
    }
}

/// Ledger of one event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EventReport {
    /// Name of the event.
    pub name: String,
    /// Unit of the weights.
    pub unit: Unit,
    /// All samples of the selection.
    pub samples: Count,
    /// Samples in which the idle task waited.
    #[serde(flatten, serialize_with = "IdleMembers::serialize")]
    #[schemars(with = "IdleMembers")]
    pub idle: Known<Share>,
    /// Weight of samples that were not idle.
    #[serde(flatten, serialize_with = "BusyMembers::serialize")]
    #[schemars(with = "BusyMembers")]
    pub busy: Known<u64>,
    /// Weight that is 100 % of the machine: the capacity of all CPUs in the unit of the weight. If timer ticks are missing in idle and in busy time
    /// ([`EventReport::late_ticks`]), this is the weight of the ticks that arrived.
    #[serde(flatten, serialize_with = "MachineMembers::serialize")]
    #[schemars(with = "MachineMembers")]
    pub machine: Known<u64>,
    /// Facts about missing ticks of the timer; set if fewer than 95 % of the ticks arrived and nothing else explains this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_ticks: Option<LateTicks>,
    /// Samples lost before they reached the recording.
    #[serde(flatten, serialize_with = "LostMembers::serialize")]
    #[schemars(with = "LostMembers")]
    pub lost: Known<u64>,
    /// Samples that a BPF filter dropped.
    pub filtered: u64,
    /// Count of times that the kernel throttled the event.
    pub throttled: u64,
    /// True if samples have kernel call chains. Without call chains, only `self` is known.
    #[serde(rename = "callchains")]
    pub has_chains: bool,
    /// True if the event is a timer: a timer cannot sample code that runs with interrupts off.
    #[serde(rename = "timer")]
    pub is_timer: bool,
    /// Aggregation, if samples were counted in the kernel.
    pub aggregated: Option<Box<Aggregated>>,
    /// Shown programs, in the requested order; empty if programs are grouped.
    pub rows: Vec<Row>,
    /// Groups of programs, in the requested order, for `--by` owner, name, type or hook; empty otherwise.
    pub groups: Vec<GroupRow>,
    /// Hidden programs that have samples, combined in one line.
    pub others: Others,
    /// The recorder's programs that count other programs, and for `bprec top` also other recorders' and unnamed programs, combined in one line. Empty
    /// if programs are requested, and with `--all`.
    pub counting_programs: Others,
    /// Count of hidden programs without samples.
    pub quiet_programs: usize,
    /// Samples in code that runs programs, if the program is unknown.
    #[serde(flatten, serialize_with = "EntryMembers::serialize")]
    #[schemars(with = "EntryMembers")]
    pub entry_unattributed: Known<Arc<Line>>,
    /// Samples in the interpreter, if the program is unknown.
    #[serde(flatten, serialize_with = "InterpretedMembers::serialize")]
    #[schemars(with = "InterpretedMembers")]
    pub interpreted: Known<Arc<Line>>,
    /// Samples at unknown kernel addresses where BPF code could be. The total does not include them: it has only known BPF code.
    #[serde(flatten, serialize_with = "UnknownCodeMembers::serialize")]
    #[schemars(with = "UnknownCodeMembers")]
    pub unknown_kernel_code: Known<Arc<Line>>,
    /// Everything charged to BPF: programs and unattributed lines.
    pub total: Arc<Line>,
    /// Time, by run statistics, in all programs that samples cannot see. The total does not include this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsampled: Option<UnsampledTime>,
    /// Source of the samples, if the recorder's sampling program wrote them.
    pub bpf_sampler: Option<Box<BpfSampler>>,
    /// Time per run, by samples, of each shown program with exact counters, to compare it with the other sources.
    pub sources: Vec<SourceRow>,
    /// Notes on the numbers of the event.
    pub notes: Arc<[Note]>,
}
