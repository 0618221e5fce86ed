//! Two sides held against each other: recordings of before and after.

use super::diff_note::DiffNote;
use super::known::{Known, coded, coded_schema, known_members};
use super::{Reason, Unit};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// What changed for each BPF program between recordings: the document of `bprec diff --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// `bprec diff`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// Of intervals and of what is significant, in per cent.
    pub confidence_percent: f64,
    /// Recordings of before.
    pub base: Vec<DiffRecording>,
    /// Recordings of after.
    pub new: Vec<DiffRecording>,
    /// Events that are compared.
    pub events: Vec<DiffEvent>,
    /// Programs, in order.
    pub programs: Vec<ProgramDiff>,
    /// Programs that are not shown: without samples and runs on either side, or beyond the limit.
    pub hidden_programs: usize,
    /// All of BPF together.
    pub total: Vec<MetricDiff>,
    /// What the conditions came to.
    pub gate: Vec<Judgment>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
    /// What has to be said beside the numbers.
    pub notes: Vec<DiffNote>,
    /// How many programs were asked for; all when none in particular was.
    #[serde(skip)]
    pub(crate) matched_programs: usize,
}

impl Diff {
    /// How many programs [`crate::DiffOptions::programs`] matches; all when it asks for none in particular.
    pub fn matched_programs(&self) -> usize {
        self.matched_programs
    }

    /// Conditions that were met.
    pub fn failed(&self) -> usize {
        self.gate.iter().filter(|judgment| judgment.verdict == Verdict::Exceeded).count()
    }

    /// Conditions that could not be judged.
    pub fn not_judged(&self) -> usize {
        self.gate.iter().filter(|judgment| matches!(judgment.verdict, Verdict::NotJudged { .. })).count()
    }
}

/// The JSON schema of [`Diff`].
pub fn diff_schema() -> Schema {
    schemars::generate::SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Diff>()
}

/// A recording that is compared.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DiffRecording {
    /// Its file.
    pub path: String,
    /// Machine's name.
    pub hostname: Option<String>,
    /// Kernel release.
    pub os_release: Option<String>,
    /// Architecture.
    pub arch: Option<String>,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// How long it is, ns.
    pub elapsed_ns: Option<u64>,
    /// Intervals that it is cut into, to see how much numbers vary.
    pub intervals: usize,
}

/// An event that is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DiffEvent {
    /// Its name.
    pub name: String,
    /// What its weight is.
    pub unit: Unit,
}

/// What became of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is on the new side alone.
    New,
    /// It is on the base side alone.
    Gone,
    /// It has another tag.
    NewVersion,
    /// It has another name, and the same type, tag and place.
    Renamed,
    /// It is attached elsewhere.
    Moved,
    /// It is on both sides.
    Same,
}

impl Status {
    /// Its name in every view.
    pub fn name(self) -> &'static str {
        match self {
            Status::New => "new",
            Status::Gone => "gone",
            Status::NewVersion => "new version",
            Status::Renamed => "renamed",
            Status::Moved => "moved",
            Status::Same => "",
        }
    }
}

/// A program of either side; all of a recording that have its type, name and place, in one.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProgramDiff {
    /// Name, on the new side where it is there.
    pub name: String,
    /// Type; empty where it is not known.
    #[serde(rename = "type")]
    pub prog_type: String,
    /// Where it is attached.
    pub attached: Vec<String>,
    /// Names of the processes that hold it.
    pub owners: Vec<String>,
    /// What became of it.
    pub status: Status,
    /// Its name on the base side, where that is another.
    pub previous_name: Option<String>,
    /// Whether tags of the two sides mean the same.
    pub is_tag_comparable: bool,
    /// Tags on the base side.
    pub base_tags: Vec<String>,
    /// Tags on the new side.
    pub new_tags: Vec<String>,
    /// Most programs that it is in a recording of the base side.
    pub base_programs: usize,
    /// The same of the new side.
    pub new_programs: usize,
    /// Its numbers.
    pub metrics: Vec<MetricDiff>,
}

impl ProgramDiff {
    /// What it is called, also where it has no name.
    pub fn label(&self) -> String {
        match self.base_tags.iter().chain(&self.new_tags).next() {
            _ if !self.name.is_empty() => self.name.clone(),
            Some(tag) => format!("[{tag}]"),
            None => super::text::UNNAMED.into(),
        }
    }
}

/// Which number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum DiffMetric {
    /// Share of the machine, in per cent.
    #[serde(rename = "share")]
    Share,
    /// What is charged, per second and CPU: ns of clocks, otherwise events.
    #[serde(rename = "cost")]
    Cost,
    /// Runs per second, of all CPUs.
    #[serde(rename = "runs/s")]
    RunsPerSecond,
    /// Time per run by the kernel's statistics, ns: the mean of the middle half of the intervals.
    #[serde(rename = "time/run")]
    TimePerRun,
    /// Time per run by the kernel's statistics, ns, of all runs.
    #[serde(rename = "mean-time/run")]
    MeanTimePerRun,
    /// Weight per run, estimated from samples and runs.
    #[serde(rename = "event/run")]
    EventPerRun,
    /// Samples of a recording.
    #[serde(rename = "samples")]
    Samples,
    /// Samples lost, in per cent of all.
    #[serde(rename = "lost")]
    Lost,
}

impl DiffMetric {
    /// Its name in every view, and in conditions.
    pub fn name(self) -> &'static str {
        match self {
            DiffMetric::Share => "share",
            DiffMetric::Cost => "cost",
            DiffMetric::RunsPerSecond => "runs/s",
            DiffMetric::TimePerRun => "time/run",
            DiffMetric::MeanTimePerRun => "mean-time/run",
            DiffMetric::EventPerRun => "event/run",
            DiffMetric::Samples => "samples",
            DiffMetric::Lost => "lost",
        }
    }
}

/// A number on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MetricDiff {
    /// Which.
    pub metric: DiffMetric,
    /// Of which event; `null` for what is counted without.
    pub event: Option<String>,
    /// Before.
    pub base: MetricValue,
    /// After.
    pub new: MetricValue,
    /// What changed; `null` where one of them is not known.
    pub change: Option<Change>,
}

/// A number, or why it is not known.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MetricValue {
    /// The number.
    #[serde(flatten, serialize_with = "EstimateMembers::serialize")]
    #[schemars(with = "EstimateMembers")]
    pub estimate: Known<Estimate>,
}

/// A number that may be off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Estimate {
    /// Mean of the recordings of the side.
    pub value: f64,
    /// Half of its confidence interval; `null` where it cannot be told, and for samples and losses, which are counts.
    pub margin: Option<f64>,
    /// Recordings of the side that have it.
    pub recordings: usize,
}

known_members!(EstimateMembers { estimate, unknown, reason }: Estimate);

/// What changed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// New less base.
    pub difference: f64,
    /// The same in per cent of the base; `null` of nothing.
    pub percent: Option<f64>,
    /// From where the confidence interval of that reaches; `null` where it cannot be told, or the base cannot be told from nothing.
    pub from_percent: Option<f64>,
    /// Up to where.
    pub to_percent: Option<f64>,
    /// Whether chance does not explain it.
    #[serde(flatten, serialize_with = "SignificanceMembers::serialize")]
    #[schemars(with = "SignificanceMembers")]
    pub significant: Known<bool>,
}

known_members!(SignificanceMembers { significant, significant_unknown, significant_reason }: bool);

/// What a condition came to for a program.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Judgment {
    /// The condition.
    pub condition: String,
    /// The program; `null` for all together, and where none is meant.
    pub program: Option<String>,
    /// Before, where it is known.
    pub base: Option<f64>,
    /// After, where it is known.
    pub new: Option<f64>,
    /// The change in per cent of the base, where it is known.
    pub percent: Option<f64>,
    /// What it came to.
    pub verdict: Verdict,
}

coded! {
    /// What a condition came to.
    Verdict {
        /// The number is beyond the bound, with the confidence that is asked for.
        Exceeded = "exceeded",
        /// That cannot be said of it.
        Held = "held",
        /// Nothing can be said.
        NotJudged {
            /// Why.
            reason: Reason,
        } = "not_judged",
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Exceeded => f.write_str("exceeded"),
            Verdict::Held => f.write_str("held"),
            Verdict::NotJudged { reason } => write!(f, "not judged: {reason}"),
        }
    }
}
