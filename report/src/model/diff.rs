//! Two sides held against each other: recordings of before and after.

use super::diff_note::DiffNote;
use super::known::{Known, coded, known_members};
use super::text::decimal;
use super::{Reason, Unit};
use schemars::{JsonSchema, Schema};
use serde::Serialize;

/// Changes of each BPF program between recordings: the document of `bprec diff --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// `bprec diff`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// Confidence level of intervals and of `significant`, per cent.
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
    /// Results of the conditions.
    pub gate: Vec<Judgment>,
    /// Parts that could not be read, in words.
    pub problems: Vec<String>,
    /// Notes that belong to the numbers.
    pub notes: Vec<DiffNote>,
    /// Number of programs that were asked for; all when none in particular was.
    #[serde(skip)]
    pub(crate) matched_programs: usize,
}

impl Diff {
    /// Number of programs that [`crate::DiffOptions::programs`] matches; all when it asks for none in particular.
    pub fn matched_programs(&self) -> usize {
        self.matched_programs
    }

    /// Judgments of numbers that are shown to be beyond a bound.
    pub fn failed(&self) -> usize {
        self.gate.iter().filter(|judgment| judgment.verdict == Verdict::Fail).count()
    }

    /// Judgments that show neither.
    pub fn undecided(&self) -> usize {
        self.gate.iter().filter(|judgment| matches!(judgment.verdict, Verdict::Undecided { .. })).count()
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
    /// Length of it, ns.
    pub elapsed_ns: Option<u64>,
    /// Intervals that it is cut into, to see how much numbers vary.
    pub intervals: usize,
}

/// An event that is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DiffEvent {
    /// Its name.
    pub name: String,
    /// Unit of its weight.
    pub unit: Unit,
}

/// Change of a program's presence or identity.
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
    /// Attach points.
    pub attached: Vec<String>,
    /// Names of the processes that hold it.
    pub owners: Vec<String>,
    /// Change of its presence or identity.
    pub status: Status,
    /// Its name on the base side, where that is another.
    pub previous_name: Option<String>,
    /// True if tags of the two sides can be compared.
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
    /// Name to show, also of a program without a name.
    pub fn label(&self) -> String {
        match self.base_tags.iter().chain(&self.new_tags).next() {
            _ if !self.name.is_empty() => self.name.clone(),
            Some(tag) => format!("[{tag}]"),
            None => super::text::UNNAMED.into(),
        }
    }
}

/// Number that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum DiffMetric {
    /// Share of the machine, in per cent.
    #[serde(rename = "share")]
    Share,
    /// Cost per second and CPU: ns of clocks, otherwise events.
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
    /// Event of the number; `null` for numbers without one.
    pub event: Option<String>,
    /// Before.
    pub base: MetricValue,
    /// After.
    pub new: MetricValue,
    /// Change; `null` where one of them is not known.
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

/// Change of a metric.
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
    /// True if chance does not explain it.
    #[serde(flatten, serialize_with = "SignificanceMembers::serialize")]
    #[schemars(with = "SignificanceMembers")]
    pub significant: Known<bool>,
}

known_members!(SignificanceMembers { significant, significant_unknown, significant_reason }: bool);

/// Result of a condition for a program.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Judgment {
    /// The condition.
    pub condition: String,
    /// The program; `null` for all together, and where none is meant.
    pub program: Option<String>,
    /// True if the bound limits the change; otherwise it limits the new number.
    pub is_relative: bool,
    /// Before, where it is known.
    pub base: Option<f64>,
    /// After, where it is known.
    pub new: Option<f64>,
    /// The change in per cent of the base, where it is known.
    pub percent: Option<f64>,
    /// The interval that the bound is compared with: of the change in per cent where that is bounded, otherwise of the new number. `null` where
    /// there is no telling.
    pub interval: Option<PossibleRange>,
    /// The least change in per cent, or number, beyond the bound that a comparison as uncertain as this one shows in 19 of 20 cases; `null`
    /// where none is.
    pub least_shown: Option<f64>,
    /// True if the bound is an upper limit of the numbers that it allows, for `least_shown`; otherwise it is a lower
    /// one.
    #[serde(skip)]
    pub(crate) is_upper: bool,
    /// Verdict on it.
    pub verdict: Verdict,
}

/// From where to where a number may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct PossibleRange {
    /// The lower end.
    pub from: f64,
    /// The upper end; `null`: there is none, as the base cannot be told from 0.
    pub to: Option<f64>,
}

coded! {
    /// Verdict on a condition.
    Verdict {
        /// The number is shown to be beyond the bound: all of the interval is.
        Fail = "fail": "shown to be beyond the bound";
        /// It is shown to be within: nothing of the interval is beyond.
        Within = "ok": "shown to be within the bound";
        /// Neither is shown.
        Undecided { reason: Reason } = "undecided": "{reason}";
    }
}

impl Verdict {
    /// The word before the condition.
    pub fn mark(&self) -> &'static str {
        match self {
            Verdict::Fail => "FAIL",
            Verdict::Within => "ok",
            Verdict::Undecided { .. } => "?",
        }
    }
}

impl Judgment {
    /// Measured value, range of possible values, and least change that would have been seen.
    pub fn evidence(&self) -> String {
        // Counts are whole.
        let plain = |value: f64| decimal(value).trim_end_matches(".0").to_owned();
        let unit = |value: f64, round: fn(f64) -> f64| match self.is_relative {
            true => percents(value, round),
            false => plain(value),
        };
        let mut text = match (self.is_relative, self.percent, self.new) {
            (true, Some(percent), _) => format!("{} % measured", percents(percent, f64::round)),
            (true, None, Some(new)) if self.base == Some(0.0) && new > 0.0 => "+∞ % measured".to_owned(),
            (false, _, Some(new)) => format!("{} measured", plain(new)),
            _ => String::new(),
        };
        let mut add = |more: &str| {
            if !text.is_empty() {
                text += ", ";
            }
            text += more;
        };
        let sign = if self.is_relative { " %" } else { "" };
        match self.interval {
            Some(PossibleRange { from, to }) if to != Some(from) => {
                let to = to.map_or("+∞".to_owned(), |to| unit(to, f64::ceil));
                add(&format!("{}…{to}{sign} possible", unit(from, f64::floor)));
            }
            Some(_) => {}
            None => add(&self.verdict.to_string()),
        }
        let number = if self.is_relative { "change" } else { "value" };
        let side = if self.is_upper { "above" } else { "below" };
        match self.least_shown {
            Some(least) => {
                let away = if self.is_upper { f64::ceil } else { f64::floor };
                text += &format!(" ({number}s {side} {}{sign} would have been shown)", unit(least, away));
            }
            None if self.new.is_some() => text += &format!(" (no {number} would have been shown)"),
            None => {}
        }
        text
    }
}

/// A change with its sign, by a rounding of its last digit: an interval that is shown is never narrower than it is.
fn percents(value: f64, round: fn(f64) -> f64) -> String {
    let (scale, decimals) = if value.abs() < 99.95 { (10.0, 1) } else { (1.0, 0) };
    // A change that rounds to zero is no fall.
    let rounded = round(value * scale) / scale + 0.0;
    format!("{rounded:+.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judgment(condition: &str, verdict: Verdict) -> Judgment {
        Judgment {
            condition: condition.into(),
            program: Some("p".into()),
            is_relative: true,
            base: Some(478.3),
            new: Some(1_273.7),
            percent: Some(166.3),
            interval: Some(PossibleRange { from: -176.6, to: Some(522.6) }),
            least_shown: None,
            is_upper: true,
            verdict,
        }
    }

    #[test]
    fn a_judgment_says_what_it_rests_on() {
        let made = judgment("prog:p time/run +2%", Verdict::Undecided { reason: Reason::NotShown });
        assert_eq!(made.evidence(), "+166 % measured, -177…+523 % possible (no change would have been shown)");
        let least = |interval, least_shown| Judgment { interval, least_shown, ..made.clone() };
        let narrow = least(Some(PossibleRange { from: 161.0, to: Some(171.0) }), Some(8.71));
        assert_eq!(
            narrow.evidence(),
            "+166 % measured, +161…+171 % possible (changes above +8.8 % would have been shown)"
        );
        let unbounded = least(Some(PossibleRange { from: 1.99, to: None }), None);
        assert_eq!(unbounded.evidence(), "+166 % measured, +1.9…+∞ % possible (no change would have been shown)");
        let reason = Reason::TooFewIntervals;
        let short = Judgment { interval: None, verdict: Verdict::Undecided { reason }, ..made.clone() };
        assert!(short.evidence().starts_with("+166 % measured, too few independent intervals"), "{}", short.evidence());
        let number = Judgment { is_relative: false, least_shown: Some(2_000.0), ..made };
        let shown = Some(PossibleRange { from: 1_100.0, to: Some(1_450.0) });
        assert_eq!(
            Judgment { interval: shown, ..number.clone() }.evidence(),
            "1,274 measured, 1,100…1,450 possible (values above 2,000 would have been shown)"
        );
        let count = Judgment { interval: Some(PossibleRange { from: 7.0, to: Some(7.0) }), new: Some(7.0), ..number };
        let lower = Judgment { is_upper: false, ..count };
        assert_eq!(lower.evidence(), "7 measured (values below 2,000 would have been shown)");
        let none = Judgment { program: None, base: None, new: None, percent: None, interval: None, ..lower };
        let reason = Reason::NoProgramMatches;
        let none = Judgment { least_shown: None, verdict: Verdict::Undecided { reason }, ..none };
        assert_eq!(none.evidence(), "no program matches it");
    }

    /// Ends are rounded away from the middle, so that no bound lies within an interval and beyond its text.
    #[test]
    fn ends_of_intervals_are_rounded_outwards() {
        assert_eq!(percents(2.01, f64::ceil), "+2.1");
        assert_eq!(percents(2.01, f64::floor), "+2.0");
        assert_eq!(percents(-0.04, f64::round), "+0.0");
        assert_eq!(percents(-0.04, f64::floor), "-0.1");
        assert_eq!(percents(-2.01, f64::floor), "-2.1");
        assert_eq!(percents(523.1, f64::ceil), "+524");
    }
}
