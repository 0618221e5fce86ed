//! Counters: exact counts of each program, and all counters over time.

use super::known::{Known, known_members, schema_of_members};
use super::{Anomaly, Note, Unit};
use crate::model::text::UNNAMED;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Percentiles in [`Exact::percentiles`], in thousandths: 500 is the median.
pub const PERCENTILES: [u32; 3] = [500, 990, 999];

/// Configuration of the counters of a recording.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Counting {
    /// Counted events, in the order of [`Exact::events`].
    pub events: Vec<CountedEvent>,
    /// Requested events that are not counted, with the reasons.
    pub absent: Vec<AbsentEvent>,
    /// Overhead subtracted from the time of each measured run, ns; `null` when unknown: nothing is subtracted then.
    pub overhead_ns: Option<f64>,
    /// Number of runs in the measurement of the overhead.
    pub calibration_runs: u64,
    /// Time that counting adds to a measured run, ns.
    pub added_to_measured_ns: Option<f64>,
    /// Time that counting adds to a run that is not measured, ns.
    pub added_to_skipped_ns: Option<f64>,
    /// Budget of counting: share of the machine, %.
    pub budget_percent: Option<f64>,
    /// Method of counting, or the reason why nothing is counted, in words.
    pub note: String,
    /// Positions of instructions and cycles in `events`, if both are in one group and have the same modes.
    #[serde(skip)]
    pub(crate) ipc: Option<(usize, usize)>,
    /// Overheads of each calibration, in order. Each list has the overhead in ns, then the overhead in each event; `None` when unknown. `overhead_ns`
    /// and `events` have the values of the last calibration.
    #[serde(skip)]
    pub(crate) overheads: Vec<Vec<Option<f64>>>,
}

/// An event that is counted.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CountedEvent {
    /// Name of the event.
    pub name: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Group number: events of one group are scheduled on the PMU together.
    pub group: u32,
    /// True for a software event.
    pub software: bool,
    /// Count that the measurement itself adds to a run.
    pub overhead: Option<f64>,
}

/// A requested event that is not counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AbsentEvent {
    /// Name of the event.
    pub name: String,
    /// Reason why the event is not counted.
    pub reason: String,
}

/// A value per run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct PerRun {
    /// Mean over all runs, overhead subtracted.
    pub value: f64,
    /// Mean over all runs, overhead included.
    pub gross: f64,
    /// Half of the 95 % confidence interval; `null` if all runs were measured, or when unknown.
    pub error: Option<f64>,
}

impl PerRun {
    pub(crate) fn new(gross: f64, overhead: Option<f64>, error: Option<f64>) -> PerRun {
        PerRun { value: (gross - overhead.unwrap_or(0.0)).max(0.0), gross, error }
    }

    /// Returns true if subtracting the overhead leaves 0 of a value above 0. Only an upper bound of the value is then known.
    pub fn is_below_overhead(&self) -> bool {
        self.value == 0.0 && self.gross > 0.0
    }
}

/// Counts of an event in runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventPerRun {
    /// Events per run, scaled up if the event was multiplexed.
    pub per_run: PerRun,
    /// Events in all runs.
    pub total: f64,
    /// Share of the time that the event was scheduled on the PMU; less than 1 if multiplexed.
    pub running: f64,
}

/// Counts of an event for a program or another target.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Name of the event.
    pub name: String,
    /// Events, in total and per run.
    pub counted: Known<EventPerRun>,
    /// True for targets without runs: the value is the total.
    pub(crate) is_altogether: bool,
}

#[derive(Serialize, JsonSchema)]
struct EventMembers<'a> {
    name: &'a str,
    /// Events per run; `null` when unknown, missing for targets other than programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    per_run: Option<Option<PerRun>>,
    /// Total; `null` when unknown, missing for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Option<PerRun>>,
    /// Share of the time that the event was scheduled on the PMU.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<f64>,
    /// Reason why the value is unknown, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    /// Reason as an object with a code, for scripts.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<super::known::Lack>,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counted = self.counted.value();
        let per_run = counted.map(|counted| counted.per_run);
        let members = EventMembers {
            name: &self.name,
            per_run: (!self.is_altogether).then_some(per_run),
            value: self.is_altogether.then_some(per_run),
            running: counted.map(|counted| counted.running),
            unknown: self.counted.why(),
            reason: self.counted.lack(),
        };
        members.serialize(serializer)
    }
}

schema_of_members! { Event: EventMembers<'_> }

/// Histogram bucket that a percentile of the times per run lies in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Percentile {
    /// Percentile: share of the runs, %.
    pub percent: f64,
    /// Lower bound of the bucket, ns; `null` with too few runs.
    pub from_ns: Option<u64>,
    /// Upper bound of the bucket, ns.
    pub to_ns: Option<u64>,
}

impl Percentile {
    /// Middle of the bucket, ns.
    pub fn middle_ns(&self) -> Option<u64> {
        let (from_ns, to_ns) = self.from_ns.zip(self.to_ns)?;
        Some(from_ns.midpoint(to_ns))
    }
}

/// Exact counts of a program or of one of its functions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Exact {
    /// Index of the function: 0 is the entry.
    pub function: u32,
    /// Name of the function; empty for the entry.
    pub name: String,
    /// Runs, including runs that the counting programs missed ([`Exact::misses`]).
    pub runs: u64,
    /// Measured runs.
    pub measured: u64,
    /// Runs that were not measured because too many runs were nested.
    pub nesting_overflow: u64,
    /// Runs that were not measured because only their start or only their end was seen.
    pub discarded: u64,
    /// Runs that the counting programs missed, because the kernel's recursion guard refused the counting programs; `null` when unknown.
    pub misses: Option<u64>,
    /// Sampling ratio at the end: 1 of `every` runs is measured.
    pub every: u64,
    /// True if some runs were not measured, so that values are estimates.
    pub is_estimate: bool,
    /// Time per run, ns.
    #[serde(rename = "ns_per_run")]
    pub time: Known<PerRun>,
    /// Events per run, in the order of [`Counting::events`].
    pub events: Vec<Event>,
    /// Instructions per cycle.
    pub ipc: Option<f64>,
    /// Percentiles of the time per run, by [`PERCENTILES`], overhead subtracted.
    pub percentiles: Vec<Percentile>,
    /// Contradictions among these numbers.
    pub anomalies: Vec<Anomaly>,
    /// Reason why counting ended before the recording.
    pub ended: Option<String>,
    /// Start of the counts, ns of the recording's clock.
    #[serde(skip)]
    pub from_ns: u64,
    /// End of the counts, ns of the recording's clock.
    #[serde(skip)]
    pub to_ns: u64,
    /// Standard deviation of the time of a measured run, ns.
    #[serde(skip)]
    pub deviation_ns: Option<f64>,
}

known_members!(ExactMembers { exact, exact_unknown, exact_reason }: Box<Exact>);

impl Exact {
    /// Returns true if the counts cover at least 95 % of a range of time, ns of the recording's clock.
    pub fn covers(&self, (from_ns, to_ns): (u64, u64)) -> bool {
        let missing_ns = self.from_ns.saturating_sub(from_ns).saturating_add(to_ns.saturating_sub(self.to_ns));
        missing_ns <= to_ns.saturating_sub(from_ns) / 20
    }
}

/// Source of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CounterSource {
    /// The kernel's run statistics.
    Stats,
    /// The recorder's programs that run before and after each counted program.
    Exact,
    /// Perf counters read at context switches.
    Shared,
}

impl CounterSource {
    /// Name of the source in every view.
    pub fn name(self) -> &'static str {
        match self {
            CounterSource::Stats => "stats",
            CounterSource::Exact => "exact",
            CounterSource::Shared => "shared",
        }
    }
}

/// A counted target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CounterTarget {
    /// `program`; for shared counters `machine`, `cpu`, `pid`, `tgid` or `cgroup`.
    pub kind: &'static str,
    /// Id of the program, task or cgroup; index of the CPU; 0 for the machine.
    pub id: u64,
    /// Load time of the program, ns since boot.
    pub load_time_ns: Option<u64>,
    /// Index of the program's function: 0 is the entry.
    pub function: u32,
    /// CPU of the counts; `null` for all CPUs, and for targets that are CPUs.
    pub cpu: Option<u32>,
    /// Name of the program, function or task; path of the cgroup.
    pub name: String,
}

/// Counts of a target, between two snapshots or over the whole time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CounterRow {
    /// Source of the counts.
    pub source: CounterSource,
    /// Target of the counts.
    #[serde(flatten)]
    pub target: CounterTarget,
    /// Start of the counts, ns since the recording's start.
    pub from_ns: i64,
    /// End of the counts, ns since the recording's start.
    pub to_ns: i64,
    /// The counts.
    #[serde(flatten, serialize_with = "CountsMembers::serialize")]
    #[schemars(with = "CountsMembers")]
    pub counts: Known<CounterTotals>,
}

known_members!(CountsMembers { counts, unknown, reason }: CounterTotals);

/// Raw reading of an event: no overhead subtracted, not scaled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NamedReading {
    /// Name of the event.
    pub event: Option<String>,
    /// Number of events.
    pub value: u64,
    /// Time that the event was enabled, ns.
    pub enabled_ns: u64,
    /// Time that the event was scheduled on the PMU, ns.
    pub running_ns: u64,
}

/// Raw counts, and the values derived from them.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterTotals {
    /// True for targets other than programs: no runs, and totals instead of values per run.
    pub(crate) is_shared: bool,
    /// Raw time of the measured runs, ns; 0 for shared counters.
    pub measured_ns: u64,
    /// Readings of the measured runs.
    pub readings: Vec<NamedReading>,
    /// Time of all runs, % of one CPU; `None` when unknown, and for shared counters.
    pub cpu_percent: Option<f64>,
    /// Runs and values per run. Shared counters have totals and no runs.
    pub values: Exact,
}

#[derive(Serialize, JsonSchema)]
struct RunTotals<'a> {
    measured_ns: u64,
    cpu_percent: Option<f64>,
    readings: &'a [NamedReading],
    #[serde(flatten)]
    values: &'a Exact,
}

#[derive(Serialize, JsonSchema)]
struct SharedTotals<'a> {
    readings: &'a [NamedReading],
    events: &'a [Event],
    ipc: Option<f64>,
    anomalies: &'a [Anomaly],
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum EitherTotals<'a> {
    Runs(RunTotals<'a>),
    Shared(SharedTotals<'a>),
}

impl Serialize for CounterTotals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let CounterTotals { is_shared, measured_ns, readings, cpu_percent, values } = self;
        let totals = if *is_shared {
            let Exact { events, ipc, anomalies, .. } = values;
            EitherTotals::Shared(SharedTotals { readings, events, ipc: *ipc, anomalies })
        } else {
            EitherTotals::Runs(RunTotals { measured_ns: *measured_ns, cpu_percent: *cpu_percent, readings, values })
        };
        totals.serialize(serializer)
    }
}

schema_of_members! { CounterTotals: EitherTotals<'_> }

/// A target that was never counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RefusedTarget {
    /// Name of the target.
    pub name: String,
    /// Id of the target.
    pub id: u64,
    /// Reason why the target was never counted.
    pub reason: String,
}

/// Counters over time: the document of `bprec report --counters --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CountersReport {
    /// Name of the document's format: `bprec counters`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// Start of the recording, ns of its clock.
    pub start_ns: u64,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// Reason why some counters are missing, in words.
    pub counters_note: Option<String>,
    /// Configuration of exact counters.
    pub exact: Option<Counting>,
    /// Configuration of shared counters.
    pub shared: Option<Counting>,
    /// Rows for the time between two snapshots, ordered by time.
    #[serde(rename = "intervals")]
    pub rows: Vec<CounterRow>,
    /// Rows of the same targets over the selected time.
    pub totals: Vec<CounterRow>,
    /// Targets that were never counted.
    pub refused: Vec<RefusedTarget>,
    /// Problems in reading the recording, in words.
    pub problems: Vec<String>,
    /// Notes that belong to the numbers.
    pub notes: Vec<Note>,
}

impl CountersReport {
    /// Configuration of the counters of a source.
    pub fn counting(&self, source: CounterSource) -> Option<&Counting> {
        match source {
            CounterSource::Stats => None,
            CounterSource::Exact => self.exact.as_ref(),
            CounterSource::Shared => self.shared.as_ref(),
        }
    }
}

/// Live counts of an interval, or of the time since counting began.
#[derive(Debug, Clone, PartialEq)]
pub struct StatSnapshot {
    /// True for the time since counting began, false for the last interval.
    pub is_total: bool,
    /// Start, ns since counting began.
    pub from_ns: i64,
    /// End, ns since counting began.
    pub to_ns: i64,
    /// Counted targets, in words.
    pub target: String,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// Configuration of exact counters.
    pub exact: Option<Counting>,
    /// Configuration of counters of targets other than programs.
    pub shared: Option<Counting>,
    /// Reason why some counters are missing.
    pub note: Option<String>,
    /// Rows of the targets: ordered by id for an interval, by cost (the costliest first) for the whole time.
    pub rows: Vec<StatRow>,
    /// Number of hidden programs that did not run.
    pub quiet: usize,
    /// Programs unloaded before counting could start: id and reason.
    pub missed: Vec<(u32, String)>,
    /// Notes that belong to the numbers.
    pub notes: Vec<Note>,
}

/// A target with the counts of each source.
#[derive(Debug, Clone, PartialEq)]
pub struct StatRow {
    /// Target of the counts.
    pub target: CounterTarget,
    /// Type of the program; empty for other targets.
    pub prog_type: String,
    /// Counts by the recorder's programs; `None` if there are no such counts in this time.
    pub exact: Option<Known<CounterRow>>,
    /// Counts by the kernel's run statistics; `None` for targets without run statistics.
    pub stats: Option<CounterRow>,
    /// Counts by perf events, for targets other than programs.
    pub shared: Option<Known<CounterRow>>,
    /// Unload time, ns since counting began.
    pub unloaded_ns: Option<i64>,
}

impl CounterTarget {
    /// Name of the target for people.
    pub fn label(&self) -> String {
        match self.kind {
            "program" if self.name.is_empty() => UNNAMED.to_owned(),
            "program" | "cgroup" => self.name.clone(),
            "machine" => "all".to_owned(),
            "cpu" => format!("CPU{}", self.id),
            _ if self.name.is_empty() => self.id.to_string(),
            _ => format!("{}/{}", self.name, self.id),
        }
    }
}
