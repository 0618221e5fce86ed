//! Comparison of recordings from before and after a change.

use super::diff_note::DiffNote;
use super::known::{Known, coded, known_members};
use super::text::decimal;
use super::{DiffMetric, Reason, Unit};
use schemars::JsonSchema;
use serde::Serialize;

/// Changes of each BPF program between recordings: the document of `bprec diff --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// Name of the document's format: `bprec diff`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// Confidence level of intervals and of `significant`, %.
    pub confidence_percent: f64,
    /// Recordings from before the change.
    pub base: Vec<DiffRecording>,
    /// Recordings from after the change.
    pub new: Vec<DiffRecording>,
    /// Compared events.
    pub events: Vec<DiffEvent>,
    /// Programs in the requested order.
    pub programs: Vec<ProgramDiff>,
    /// Count of hidden programs: programs with neither samples nor runs on either side, and programs beyond the limit.
    pub hidden_programs: usize,
    /// Metrics of all BPF together.
    pub total: Vec<MetricDiff>,
    /// Results of the conditions of `--fail-if`.
    pub gate: Vec<Judgment>,
    /// Problems in reading the recordings, in words.
    pub problems: Vec<String>,
    /// Notes that belong to the numbers.
    pub notes: Vec<DiffNote>,
    /// Number of programs that the requested filters match; the number of all programs without filters.
    #[serde(skip)]
    pub(crate) matched_programs: usize,
}

impl Diff {
    /// Returns the number of programs that [`crate::DiffOptions::programs`] matches; the number of all programs if this list is empty.
    pub fn matched_programs(&self) -> usize {
        self.matched_programs
    }

    /// Returns the number of failed conditions: the value is beyond the bound, even with its uncertainty.
    pub fn failed(&self) -> usize {
        self.gate.iter().filter(|judgment| judgment.verdict == Verdict::Fail).count()
    }

    /// Returns the number of undecided conditions.
    pub fn undecided(&self) -> usize {
        self.gate.iter().filter(|judgment| matches!(judgment.verdict, Verdict::Undecided { .. })).count()
    }
}

/// A compared recording.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DiffRecording {
    /// Path of the file.
    pub path: String,
    /// Host name of the machine.
    pub hostname: Option<String>,
    /// Kernel release.
    pub os_release: Option<String>,
    /// Architecture.
    pub arch: Option<String>,
    /// Count of online CPUs.
    pub cpus: Option<u32>,
    /// Duration of the recording, ns.
    pub elapsed_ns: Option<u64>,
    /// Number of intervals that the recording is divided into, to measure the variation of numbers.
    pub intervals: usize,
}

/// A compared event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DiffEvent {
    /// Name of the event.
    pub name: String,
    /// Unit of the weights.
    pub unit: Unit,
}

/// Change of a program's presence or identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// On the new side only.
    New,
    /// On the base side only.
    Gone,
    /// Same identity, another tag.
    NewVersion,
    /// Another name, same type, tag and attach points.
    Renamed,
    /// Other attach points, same type and name.
    Moved,
    /// Same identity; the tags are equal, or not comparable.
    Same,
}

impl Status {
    /// Name of the status in every view.
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

/// A program of either side. Programs of a recording with equal type, name and attach points count as one.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProgramDiff {
    /// Name on the new side; on the base side if the program is gone.
    pub name: String,
    /// Type; empty when unknown.
    #[serde(rename = "type")]
    pub prog_type: String,
    /// Attach points.
    pub attached: Vec<String>,
    /// Names of the processes that hold the program.
    pub owners: Vec<String>,
    /// Change of presence or identity.
    pub status: Status,
    /// Name on the base side, if different.
    pub previous_name: Option<String>,
    /// True if the tags of the two sides are comparable.
    pub is_tag_comparable: bool,
    /// Tags on the base side.
    pub base_tags: Vec<String>,
    /// Tags on the new side.
    pub new_tags: Vec<String>,
    /// Largest count of programs with this identity in one recording of the base side.
    pub base_programs: usize,
    /// Largest count of programs with this identity in one recording of the new side.
    pub new_programs: usize,
    /// Compared numbers.
    pub metrics: Vec<MetricDiff>,
}

impl ProgramDiff {
    /// Name to show: the name, or the tag of a program without a name.
    pub fn label(&self) -> String {
        match self.base_tags.iter().chain(&self.new_tags).next() {
            _ if !self.name.is_empty() => self.name.clone(),
            Some(tag) => format!("[{tag}]"),
            None => super::text::UNNAMED.into(),
        }
    }
}

/// A number on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MetricDiff {
    /// Kind of the number.
    pub metric: DiffMetric,
    /// Event of the number; `null` if the number does not depend on an event.
    pub event: Option<String>,
    /// Value before the change.
    pub base: MetricValue,
    /// Value after the change.
    pub new: MetricValue,
    /// Difference; `null` if one of the values is unknown.
    pub change: Option<Change>,
}

/// A number, or the reason why it is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MetricValue {
    /// The number.
    #[serde(flatten, serialize_with = "EstimateMembers::serialize")]
    #[schemars(with = "EstimateMembers")]
    pub estimate: Known<Estimate>,
}

/// A number with an error margin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Estimate {
    /// Mean over the recordings of the side.
    pub value: f64,
    /// Half of the confidence interval; `null` when unknown, and for the metrics `samples` and `lost`.
    pub margin: Option<f64>,
    /// Count of the side's recordings that have a value.
    pub recordings: usize,
}

known_members!(EstimateMembers { estimate, unknown, reason }: Estimate);

/// Change of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// New value minus base value.
    pub difference: f64,
    /// Difference in % of the base; `null` if the base is 0.
    pub percent: Option<f64>,
    /// Lower end of the confidence interval, %; `null` when unknown, or if the base may be 0.
    pub from_percent: Option<f64>,
    /// Upper end of the confidence interval, %; `null` when unknown, or if the base may be 0.
    pub to_percent: Option<f64>,
    /// True if chance does not explain the difference.
    #[serde(flatten, serialize_with = "SignificanceMembers::serialize")]
    #[schemars(with = "SignificanceMembers")]
    pub significant: Known<bool>,
}

known_members!(SignificanceMembers { significant, significant_unknown, significant_reason }: bool);

/// Result of a condition for one program.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Judgment {
    /// The condition.
    pub condition: String,
    /// Program; `null` for all BPF together.
    pub program: Option<String>,
    /// True if the bound limits the change, false if it limits the new value.
    pub is_relative: bool,
    /// Value before, if known.
    pub base: Option<f64>,
    /// Value after, if known.
    pub new: Option<f64>,
    /// Change in % of the base, if known.
    pub percent: Option<f64>,
    /// Interval compared with the bound: of the change in % if the bound is relative, otherwise of the new value. `null` when unknown.
    pub interval: Option<PossibleRange>,
    /// Smallest violation that a comparison with this uncertainty detects in 19 of 20 cases: a change in % for a relative bound, otherwise a value.
    /// `null` if the comparison detects no violation so reliably.
    pub least_shown: Option<f64>,
    /// True if the bound is an upper limit, false if it is a lower limit.
    #[serde(skip)]
    pub(crate) is_upper: bool,
    /// Verdict on the condition.
    pub verdict: Verdict,
}

/// Range of possible values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct PossibleRange {
    /// The lower end.
    pub from: f64,
    /// Upper end; `null` if unlimited, because the base may be 0.
    pub to: Option<f64>,
}

coded! {
    /// Verdict on a condition.
    Verdict {
        /// The whole interval lies beyond the bound.
        Fail = "fail": "the whole confidence interval lies beyond the bound";
        /// The whole interval lies within the bound.
        Within = "ok": "the whole confidence interval lies within the bound";
        /// The bound lies inside the interval, or the value is unknown.
        Undecided { reason: Reason } = "undecided": "{reason}";
    }
}

impl Verdict {
    /// Returns the word that is printed before the condition.
    pub fn mark(&self) -> &'static str {
        match self {
            Verdict::Fail => "FAIL",
            Verdict::Within => "ok",
            Verdict::Undecided { .. } => "?",
        }
    }
}

impl Judgment {
    /// Returns the evidence in words: measured value, range of possible values, and smallest detectable violation.
    pub fn evidence(&self) -> String {
        // Whole numbers, such as counts, are printed without a decimal.
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
                text += &format!(" (detectable: {number}s {side} {}{sign})", unit(least, away));
            }
            None if self.new.is_some() => text += &format!(" (no {number} is detectable)"),
            None => {}
        }
        text
    }
}

/// Formats a signed percentage. `round` rounds the last digit: outwards for the ends of an interval, so that a displayed interval is never too
/// narrow.
fn percents(value: f64, round: fn(f64) -> f64) -> String {
    let (scale, decimals) = if value.abs() < 99.95 { (10.0, 1) } else { (1.0, 0) };
    // Adding 0.0 turns -0 into 0.
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
        assert_eq!(made.evidence(), "+166 % measured, -177…+523 % possible (no change is detectable)");
        let least = |interval, least_shown| Judgment { interval, least_shown, ..made.clone() };
        let narrow = least(Some(PossibleRange { from: 161.0, to: Some(171.0) }), Some(8.71));
        assert_eq!(narrow.evidence(), "+166 % measured, +161…+171 % possible (detectable: changes above +8.8 %)");
        let unbounded = least(Some(PossibleRange { from: 1.99, to: None }), None);
        assert_eq!(unbounded.evidence(), "+166 % measured, +1.9…+∞ % possible (no change is detectable)");
        let reason = Reason::TooFewIntervals;
        let short = Judgment { interval: None, verdict: Verdict::Undecided { reason }, ..made.clone() };
        assert!(
            short.evidence().starts_with("+166 % measured, the recordings have too few independent intervals"),
            "{}",
            short.evidence()
        );
        let number = Judgment { is_relative: false, least_shown: Some(2_000.0), ..made };
        let shown = Some(PossibleRange { from: 1_100.0, to: Some(1_450.0) });
        assert_eq!(
            Judgment { interval: shown, ..number.clone() }.evidence(),
            "1,274 measured, 1,100…1,450 possible (detectable: values above 2,000)"
        );
        let count = Judgment { interval: Some(PossibleRange { from: 7.0, to: Some(7.0) }), new: Some(7.0), ..number };
        let lower = Judgment { is_upper: false, ..count };
        assert_eq!(lower.evidence(), "7 measured (detectable: values below 2,000)");
        let none = Judgment { program: None, base: None, new: None, percent: None, interval: None, ..lower };
        let reason = Reason::NoSuchEvent;
        let none = Judgment { least_shown: None, verdict: Verdict::Undecided { reason }, ..none };
        assert_eq!(none.evidence(), "not every recording has samples of the event");
    }

    /// Ends are rounded outwards, so that a bound inside an interval is also inside the printed interval.
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
