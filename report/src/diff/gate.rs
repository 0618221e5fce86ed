//! What the conditions of `--fail-if` come to.
//!
//! The bound is the null hypothesis: a condition is met when the number is beyond it at the confidence that is asked for, so that a change
//! which the bound allows is not taken for one that it forbids by chance. All judgments of a comparison share what chance is allowed
//! (Bonferroni): the more programs a pattern matches, the surer each has to be.

use super::estimate::{Pair, Side};
use super::student::Quantiles;
use crate::model::{DiffMetric, DiffSide, Judgment, Known, MetricDiff, Reason, Verdict};
use crate::options::condition::{Bound, Condition, Metric, Selector};
use crate::options::diff::Confidence;

/// A number of both sides, and how far it may be off.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) shown: MetricDiff,
    pub(super) base: Option<Side>,
    pub(super) new: Option<Side>,
}

/// A program that conditions may be about; `None` as a name for all together.
pub(super) struct Candidate<'c> {
    pub(super) label: Option<String>,
    pub(super) name: &'c str,
    pub(super) prog_type: &'c str,
    pub(super) owners: &'c [String],
    pub(super) metrics: &'c [Measured],
}

/// Judges all conditions.
pub(super) fn judge(conditions: &[Condition], candidates: &[Candidate<'_>], confidence: Confidence) -> Vec<Judgment> {
    let mut pairs: Vec<(&Condition, Option<&Candidate<'_>>)> = Vec::new();
    for condition in conditions {
        let is_meant = |candidate: &&Candidate<'_>| match &condition.selector {
            Selector::Total => candidate.label.is_none(),
            selector => {
                candidate.label.is_some() && selector.matches(candidate.name, candidate.prog_type, candidate.owners)
            }
        };
        let before = pairs.len();
        pairs.extend(candidates.iter().filter(is_meant).map(|candidate| (condition, Some(candidate))));
        if pairs.len() == before {
            pairs.push((condition, None));
        }
    }
    let by_chance = |(condition, candidate): &&(&Condition, Option<&Candidate<'_>>)| {
        candidate.is_some() && !condition.metric.is_count()
    };
    let judged = pairs.iter().filter(by_chance).count().max(1);
    let quantiles = Quantiles::new(confidence.error() / judged as f64);
    pairs.into_iter().map(|(condition, candidate)| judgment(condition, candidate, &quantiles)).collect()
}

fn judgment(condition: &Condition, candidate: Option<&Candidate<'_>>, quantiles: &Quantiles) -> Judgment {
    let mut judgment = Judgment {
        condition: condition.to_string(),
        program: candidate.and_then(|candidate| candidate.label.clone()),
        base: None,
        new: None,
        percent: None,
        verdict: Verdict::NotJudged { reason: Reason::NoProgramMatches },
    };
    let Some(candidate) = candidate else { return judgment };
    let Some(measured) = candidate.metrics.iter().find(|measured| is_of(&measured.shown, &condition.metric)) else {
        judgment.verdict = Verdict::NotJudged { reason: Reason::NoSuchEvent };
        return judgment;
    };
    let value = |side: &crate::model::MetricValue| side.estimate.value().map(|estimate| estimate.value);
    judgment.base = value(&measured.shown.base);
    judgment.new = value(&measured.shown.new);
    judgment.percent = measured.shown.change.as_ref().and_then(|change| change.percent);
    judgment.verdict = match verdict(condition, measured, quantiles) {
        Ok(true) => Verdict::Exceeded,
        Ok(false) => Verdict::Held,
        Err(reason) => Verdict::NotJudged { reason },
    };
    judgment
}

/// Whether a number is beyond the bound.
///
/// # Errors
/// Why that cannot be said.
fn verdict(condition: &Condition, measured: &Measured, quantiles: &Quantiles) -> Result<bool, Reason> {
    let lacks = |known: &Known<crate::model::Estimate>, side| match known {
        Known::Unknown(reason) => reason.clone(),
        _ => Reason::NotInRecordings { side },
    };
    let new = measured.new.as_ref().ok_or_else(|| lacks(&measured.shown.new.estimate, DiffSide::New))?;
    let is_beyond = match condition.bound {
        Bound::Above(limit) if condition.metric.is_count() => Some(new.value() > limit),
        Bound::Below(limit) if condition.metric.is_count() => Some(new.value() < limit),
        Bound::Above(limit) => new.is_beyond(limit, true, quantiles),
        Bound::Below(limit) => new.is_beyond(limit, false, quantiles),
        Bound::Grows(factor) | Bound::Falls(factor) => {
            let base = measured.base.as_ref().ok_or_else(|| lacks(&measured.shown.base.estimate, DiffSide::Base))?;
            Pair::new(base, new).is_beyond(factor, matches!(condition.bound, Bound::Grows(_)), quantiles)
        }
    };
    is_beyond.ok_or(Reason::TooFewIntervals)
}

/// Whether a number is the one that a condition names: of the first event, where it names none.
fn is_of(shown: &MetricDiff, metric: &Metric) -> bool {
    match metric {
        Metric::Share => shown.metric == DiffMetric::Share,
        Metric::Cost => shown.metric == DiffMetric::Cost,
        Metric::RunsPerSecond => shown.metric == DiffMetric::RunsPerSecond,
        Metric::TimePerRun => shown.metric == DiffMetric::TimePerRun,
        Metric::MeanTimePerRun => shown.metric == DiffMetric::MeanTimePerRun,
        Metric::EventPerRun(event) => {
            shown.metric == DiffMetric::EventPerRun && shown.event.as_deref() == Some(event.as_str())
        }
        Metric::Samples => shown.metric == DiffMetric::Samples,
        Metric::Lost => shown.metric == DiffMetric::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::estimate::Uncertain;
    use crate::model::{Estimate, MetricValue};

    /// Time per run of both sides, each with a deviation; 100 degrees of freedom.
    fn measured(base: f64, new: f64, deviation: f64) -> Measured {
        let side = |value: f64| {
            let variance = Some((deviation * deviation, 100.0));
            Side::of(&[Uncertain { value, mean: value, variance }]).unwrap()
        };
        let shown = |value| MetricValue { estimate: Known::Value(Estimate { value, margin: None, recordings: 1 }) };
        let (base_side, new_side) = (Some(side(base)), Some(side(new)));
        let metric = DiffMetric::TimePerRun;
        let shown = MetricDiff { metric, event: None, base: shown(base), new: shown(new), change: None };
        Measured { shown, base: base_side, new: new_side }
    }

    fn verdicts(condition: &str, programs: &[Measured]) -> Vec<&'static str> {
        let candidates: Vec<Candidate<'_>> = programs
            .iter()
            .map(|measured| Candidate {
                label: Some("p".into()),
                name: "p",
                prog_type: "xdp",
                owners: &[],
                metrics: std::slice::from_ref(measured),
            })
            .collect();
        let judged = judge(&[condition.parse().unwrap()], &candidates, Confidence::default());
        judged.iter().map(|judgment| judgment.verdict.code()).collect()
    }

    /// The difference of 100 and 110 has a deviation of √2 ≈ 1.41, and at 99.9 % on one side a margin of 3.17 times that, 4.5.
    #[test]
    fn the_bound_is_the_null_hypothesis() {
        let one = [measured(100.0, 110.0, 1.0)];
        assert_eq!(verdicts("prog:p time/run +0%", &one), ["exceeded"]);
        assert_eq!(verdicts("prog:p time/run +5%", &one), ["exceeded"]);
        // It is more by 3 and 1, of which chance explains 4.6.
        assert_eq!(verdicts("prog:p time/run +7%", &one), ["held"]);
        assert_eq!(verdicts("prog:p time/run +9%", &one), ["held"]);
        assert_eq!(verdicts("prog:p time/run -5%", &one), ["held"]);
        assert_eq!(verdicts("prog:p time/run > 106", &one), ["exceeded"]);
        assert_eq!(verdicts("prog:p time/run > 108", &one), ["held"]);
        assert_eq!(verdicts("prog:p time/run < 114", &one), ["exceeded"]);
        assert_eq!(verdicts("type:tc time/run +0%", &one), ["not_judged"]);
        assert_eq!(verdicts("prog:p cycles/run +0%", &one), ["not_judged"]);
    }

    /// With t = 3.5 one alone is told; one of a hundred has to be surer, at 99.999 %: t = 4.5.
    #[test]
    fn many_programs_have_to_be_surer_each() {
        let program = || measured(100.0, 100.0 + 3.5 * 2f64.sqrt(), 1.0);
        assert_eq!(verdicts("prog:p time/run +0%", &[program()]), ["exceeded"]);
        let many: Vec<Measured> = (0..100).map(|_| program()).collect();
        assert!(verdicts("prog:p time/run +0%", &many).iter().all(|verdict| *verdict == "held"));
    }
}
