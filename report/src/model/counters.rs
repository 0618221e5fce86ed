//! Counters: what exact ones say of each program, and all of them over time.

use super::known::{Known, known_members};
use super::{Anomaly, Note, Unit};
use crate::model::text::UNNAMED;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Shares of the runs, in thousandths, that [`Exact::percentiles`] are of.
pub const PERCENTILES: [u32; 3] = [500, 990, 999];

/// Configuration of the counters of a recording.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Counting {
    /// The events, in the order of [`Exact::events`].
    pub events: Vec<CountedEvent>,
    /// Events that were asked for and are not counted, each with its reason.
    pub absent: Vec<AbsentEvent>,
    /// Overhead that was subtracted from the time of each measured run, ns; `null` when it is unknown, and nothing is
    /// subtracted.
    pub overhead_ns: Option<f64>,
    /// Runs that it was found with.
    pub calibration_runs: u64,
    /// Time that counting adds to a measured run, ns.
    pub added_to_measured_ns: Option<f64>,
    /// Time that counting adds to a run that is not measured, ns.
    pub added_to_skipped_ns: Option<f64>,
    /// Share of the machine that counting may take, per cent.
    pub budget_percent: Option<f64>,
    /// Way of counting, or the reason why nothing is counted, in words.
    pub note: String,
    /// Positions of instructions and cycles among the events, when they are counted together.
    #[serde(skip)]
    pub(crate) ipc: Option<(usize, usize)>,
    /// Overheads subtracted after each calibration: of the time, then of each event. The last equal the members above.
    #[serde(skip)]
    pub(crate) overheads: Vec<Vec<Option<f64>>>,
}

/// An event that is counted.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CountedEvent {
    /// Its name.
    pub name: String,
    /// Unit of the value.
    pub unit: Unit,
    /// Events of one number are on the hardware together or not at all.
    pub group: u32,
    /// The kernel counts it, not the hardware.
    pub software: bool,
    /// Count that the counting itself adds to a measured run.
    pub overhead: Option<f64>,
}

/// An event that was asked for and is not counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AbsentEvent {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// A value per run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct PerRun {
    /// Mean over all runs, what the counting adds taken off.
    pub value: f64,
    /// The same with it.
    pub gross: f64,
    /// Half of the 95 % confidence interval, when only some of the runs were measured and it can be told.
    pub error: Option<f64>,
}

impl PerRun {
    pub(crate) fn new(gross: f64, overhead: Option<f64>, error: Option<f64>) -> PerRun {
        PerRun { value: (gross - overhead.unwrap_or(0.0)).max(0.0), gross, error }
    }

    /// The run does less than the counting adds: all that can be said is that it is little.
    pub fn is_below_overhead(&self) -> bool {
        self.value == 0.0 && self.gross > 0.0
    }
}

/// An event per run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventPerRun {
    /// Events per run, scaled to all of the time when the event took turns with others.
    pub per_run: PerRun,
    /// Events in all runs.
    pub total: f64,
    /// Share of the time for which it was counted; less than 1 when it took turns.
    pub running: f64,
}

/// An event of a program, or of another target.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Events, in total and per run.
    pub counted: Known<EventPerRun>,
    /// It is of no runs: the value is all that was counted.
    pub(crate) is_altogether: bool,
}

#[derive(Serialize, JsonSchema)]
struct EventMembers<'a> {
    name: &'a str,
    /// Per run; `null` when it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    per_run: Option<Option<PerRun>>,
    /// Altogether, of targets that are no programs; `null` when it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Option<PerRun>>,
    /// Share of the time for which it was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<f64>,
    /// Why it is not known, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    /// The same for programs.
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

impl JsonSchema for Event {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        EventMembers::json_schema(generator)
    }
}

/// The bucket of a histogram that a share of the runs stays within.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Percentile {
    /// Share of the runs, in per cent.
    pub percent: f64,
    /// First time of the bucket, ns; `null` with too few runs.
    pub from_ns: Option<u64>,
    /// Last time of the bucket, ns.
    pub to_ns: Option<u64>,
}

impl Percentile {
    /// The middle of the bucket.
    pub fn middle_ns(&self) -> Option<u64> {
        let (from_ns, to_ns) = self.from_ns.zip(self.to_ns)?;
        Some(from_ns.midpoint(to_ns))
    }
}

/// Exact counts of a program, or of one of its functions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Exact {
    /// Number of the function: 0 is the entry.
    pub function: u32,
    /// Its name; empty for the entry.
    pub name: String,
    /// Runs, those that the recursion guard kept from being counted among them.
    pub runs: u64,
    /// Runs that were measured.
    pub measured: u64,
    /// Runs not measured because too many were open.
    pub nesting_overflow: u64,
    /// Runs of which only the begin or the end was seen.
    pub discarded: u64,
    /// Runs that the recursion guard kept from being measured, if that is known.
    pub misses: Option<u64>,
    /// One in so many runs was measured in the end.
    pub every: u64,
    /// Not all runs were measured: values are estimates.
    pub is_estimate: bool,
    /// Time per run, ns.
    #[serde(rename = "ns_per_run")]
    pub time: Known<PerRun>,
    /// Events per run, in the order of [`Counting::events`].
    pub events: Vec<Event>,
    /// Instructions per cycle.
    pub ipc: Option<f64>,
    /// Times per run that shares of the runs stay within, by [`PERCENTILES`]; what the counting adds taken off.
    pub percentiles: Vec<Percentile>,
    /// Impossible values among these numbers.
    pub anomalies: Vec<Anomaly>,
    /// Why counting of it ended before the recording.
    pub ended: Option<String>,
    /// From when, ns of the recording's clock.
    #[serde(skip)]
    pub from_ns: u64,
    /// Up to when.
    #[serde(skip)]
    pub to_ns: u64,
    /// Standard deviation of the time of a measured run, ns.
    #[serde(skip)]
    pub deviation_ns: Option<f64>,
}

known_members!(ExactMembers { exact, exact_unknown, exact_reason }: Box<Exact>);

impl Exact {
    /// True if the count spans at least 95 % of this time.
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
    /// Programs of the recorder around each counted one.
    Exact,
    /// Counters that are read at context switches.
    Shared,
}

impl CounterSource {
    /// Its name in every view.
    pub fn name(self) -> &'static str {
        match self {
            CounterSource::Stats => "stats",
            CounterSource::Exact => "exact",
            CounterSource::Shared => "shared",
        }
    }
}

/// Target that is counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CounterTarget {
    /// `program`, or `machine`, `cpu`, `pid`, `tgid`, `cgroup` of shared counters.
    pub kind: &'static str,
    /// Id of the program, number of the CPU or task, id of the cgroup; 0 for the machine.
    pub id: u64,
    /// When the program was loaded, ns since boot.
    pub load_time_ns: Option<u64>,
    /// Number of the program's function: 0 is the entry.
    pub function: u32,
    /// The CPU that it was counted on; `null` for all, and for a target that is a CPU.
    pub cpu: Option<u32>,
    /// Name of the program or function, of the task, path of the cgroup.
    pub name: String,
}

/// Counts of one target, between two snapshots or altogether.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CounterRow {
    /// Source of the counts.
    pub source: CounterSource,
    /// Target of the counts.
    #[serde(flatten)]
    pub target: CounterTarget,
    /// From when, ns since the recording's start.
    pub from_ns: i64,
    /// Up to when.
    pub to_ns: i64,
    /// The counts.
    #[serde(flatten, serialize_with = "CountsMembers::serialize")]
    #[schemars(with = "CountsMembers")]
    pub counts: Known<CounterTotals>,
}

known_members!(CountsMembers { counts, unknown, reason }: CounterTotals);

/// A reading, as it was: nothing taken off and nothing scaled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NamedReading {
    /// Name of the event.
    pub event: Option<String>,
    /// Number of events.
    pub value: u64,
    /// Time for which it was to be counted, ns.
    pub enabled_ns: u64,
    /// Time for which it was counted.
    pub running_ns: u64,
}

/// Counts as they were read, and what follows from them.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterTotals {
    /// They are of a target that is no program: there are no runs, and events are not per run but altogether.
    pub(crate) is_shared: bool,
    /// Time of the measured runs, ns, nothing taken off. 0 for shared counters.
    pub measured_ns: u64,
    /// Readings of the measured runs.
    pub readings: Vec<NamedReading>,
    /// Time of all runs of one CPU's time, in per cent; `None` when the time is not known, and for shared counters.
    pub cpu_percent: Option<f64>,
    /// Runs, and values per run. For shared counters there are no runs, and events are not per run but altogether.
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

impl JsonSchema for CounterTotals {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CounterTotals".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        EitherTotals::json_schema(generator)
    }
}

/// A target that was never counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RefusedTarget {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: u64,
    /// Why.
    pub reason: String,
}

/// Counters over time: the document of `bprec report --counters --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CountersReport {
    /// `bprec counters`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// When the recording started, ns of its clock.
    pub start_ns: u64,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// Why not more is counted, in words.
    pub counters_note: Option<String>,
    /// Configuration of exact counters.
    pub exact: Option<Counting>,
    /// Configuration of shared counters.
    pub shared: Option<Counting>,
    /// From snapshot to snapshot, by time.
    #[serde(rename = "intervals")]
    pub rows: Vec<CounterRow>,
    /// The same targets over all of the time that is looked at.
    pub totals: Vec<CounterRow>,
    /// Targets that were never counted.
    pub refused: Vec<RefusedTarget>,
    /// Parts that could not be read, in words.
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

/// Counts of one interval, or of all of the time, made without a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct StatSnapshot {
    /// It is all of the time, and not the last interval.
    pub is_total: bool,
    /// From when, ns since counting began.
    pub from_ns: i64,
    /// Up to when.
    pub to_ns: i64,
    /// Targets that are counted, in words.
    pub target: String,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// Configuration of exact counters.
    pub exact: Option<Counting>,
    /// Configuration of counters of other targets than programs.
    pub shared: Option<Counting>,
    /// Why not more is counted.
    pub note: Option<String>,
    /// Per target: in an interval by id, altogether by cost, the most expensive first.
    pub rows: Vec<StatRow>,
    /// Programs that are left out because they did not run.
    pub quiet: usize,
    /// Programs that came and went before they could be counted: id and reason.
    pub missed: Vec<(u32, String)>,
    /// Notes that belong to the numbers.
    pub notes: Vec<Note>,
}

/// One target, from each source that counts it.
#[derive(Debug, Clone, PartialEq)]
pub struct StatRow {
    /// Target of the counts.
    pub target: CounterTarget,
    /// Type of the program; empty for other targets.
    pub prog_type: String,
    /// By programs around it; `None` when nobody tried.
    pub exact: Option<Known<CounterRow>>,
    /// By the kernel's run statistics; `None` for what these do not have.
    pub stats: Option<CounterRow>,
    /// By perf events, for targets that are not programs.
    pub shared: Option<Known<CounterRow>>,
    /// When it was unloaded, ns since counting began.
    pub unloaded_ns: Option<i64>,
}

impl CounterTarget {
    /// Name to show.
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
