//! Verdicts on the conditions of `--fail-if`.
//!
//! A condition is judged by the confidence interval of its number. It fails if the whole interval is beyond the bound, and is fulfilled if the whole
//! interval is within the bound. Otherwise, it is undecided. Chance thus neither fails an allowed change nor passes a forbidden one. All judgments of
//! a comparison share the allowed probability of error (Bonferroni): the more programs a pattern matches, the wider the interval of each judgment.

use super::estimate::{Levels, Pair, Side};
use crate::error::{similar, sorted};
use crate::model::{DiffSide, Judgment, Known, MetricDiff, PossibleRange, Reason, Verdict};
use crate::options::condition::{Bound, Condition, Selector};
use crate::options::diff::Confidence;
use crate::{Error, Result};

/// A number of a program, or of all programs, on both sides: as shown, and with the uncertainty that judgments need.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) shown: MetricDiff,
    pub(super) base: Option<Side>,
    pub(super) new: Option<Side>,
}

/// Program that conditions may select; the label is `None` for all programs together.
pub(super) struct Candidate<'c> {
    pub(super) label: Option<String>,
    pub(super) name: &'c str,
    pub(super) prog_type: &'c str,
    pub(super) owners: &'c [String],
    pub(super) metrics: &'c [Measured],
}

/// Judges all conditions.
///
/// # Errors
/// Fails if no program matches a condition: a condition with a misspelled name could never fail.
pub(super) fn judge(
    conditions: &[Condition],
    candidates: &[Candidate<'_>],
    confidence: Confidence,
) -> Result<Vec<Judgment>> {
    let mut pairs: Vec<(&Condition, &Candidate<'_>)> = Vec::new();
    for condition in conditions {
        let is_meant = |candidate: &&Candidate<'_>| match &condition.selector {
            Selector::Total => candidate.label.is_none(),
            selector => {
                candidate.label.is_some() && selector.matches(candidate.name, candidate.prog_type, candidate.owners)
            }
        };
        let before = pairs.len();
        pairs.extend(candidates.iter().filter(is_meant).map(|candidate| (condition, candidate)));
        if pairs.len() == before {
            return Err(no_program(condition, candidates));
        }
    }
    let judged = pairs.iter().filter(|(condition, _)| !condition.metric.is_count()).count().max(1);
    let levels = Levels::new(confidence.error() / judged as f64);
    Ok(pairs.into_iter().map(|(condition, candidate)| judgment(condition, candidate, &levels)).collect())
}

/// Error for a condition that no program matches, with similar names.
fn no_program(condition: &Condition, candidates: &[Candidate<'_>]) -> Error {
    let programs = candidates.iter().filter(|candidate| candidate.label.is_some());
    let (pattern, names): (&str, Vec<&str>) = match &condition.selector {
        Selector::Name(pattern) => (pattern, programs.map(|program| program.name).collect()),
        Selector::Type(pattern) => (pattern, programs.map(|program| program.prog_type).collect()),
        Selector::Owner(pattern) => {
            (pattern, programs.flat_map(|program| program.owners).map(String::as_str).collect())
        }
        Selector::Total => ("", Vec::new()),
    };
    let similar = similar([pattern.to_owned()].into_iter(), &sorted(names.into_iter()));
    let problem = format!("no program of either side matches; {similar}bprec diff --all lists all programs");
    Error::option("--fail-if", condition.to_string(), problem)
}

fn judgment(condition: &Condition, candidate: &Candidate<'_>, levels: &Levels) -> Judgment {
    let mut judgment = Judgment {
        condition: condition.to_string(),
        program: candidate.label.clone(),
        is_relative: condition.bound.is_relative,
        base: None,
        new: None,
        percent: None,
        interval: None,
        least_shown: None,
        is_upper: condition.bound.is_upper,
        verdict: Verdict::Undecided { reason: Reason::NoSuchEvent },
    };
    // A metric that names no event fits the numbers of all events; the first of them is judged.
    let is_meant = |it: &&Measured| {
        it.shown.metric == condition.metric && (condition.event.is_none() || it.shown.event == condition.event)
    };
    let Some(measured) = candidate.metrics.iter().find(is_meant) else { return judgment };
    let value = |side: &crate::model::MetricValue| side.estimate.value().map(|estimate| estimate.value);
    judgment.base = value(&measured.shown.base);
    judgment.new = value(&measured.shown.new);
    judgment.percent = measured.shown.change.as_ref().and_then(|change| change.percent);
    match evidence(condition, measured, levels) {
        Ok(evidence) => {
            let in_unit = |end: f64| if judgment.is_relative { (end - 1.0) * 100.0 } else { end };
            let is_bounded = |end: &f64| end.is_finite();
            judgment.interval = evidence
                .interval
                .filter(|(from, _)| is_bounded(from))
                .map(|(from, to)| PossibleRange { from: in_unit(from), to: Some(to).filter(is_bounded).map(in_unit) });
            judgment.least_shown = evidence.least_shown.map(in_unit);
            judgment.verdict = evidence.verdict(condition.bound);
        }
        Err(reason) => judgment.verdict = Verdict::Undecided { reason },
    }
    judgment
}

/// Values to compare with the bound of a condition. The values are numbers of the new side or, for a relative bound, ratios of the new number to the
/// base.
struct Evidence {
    interval: Option<(f64, f64)>,
    least_shown: Option<f64>,
}

impl Evidence {
    fn verdict(&self, bound: Bound) -> Verdict {
        let limit = bound.limit;
        let Some((from, to)) = self.interval else { return Verdict::Undecided { reason: Reason::TooFewIntervals } };
        let (is_beyond, is_within) =
            if bound.is_upper { (from > limit, to <= limit) } else { (to < limit, from >= limit) };
        match (is_beyond, is_within) {
            (true, _) => Verdict::Fail,
            (_, true) => Verdict::Within,
            _ => Verdict::Undecided { reason: Reason::NotShown },
        }
    }
}

/// Returns the confidence interval of the number that a condition bounds, and the nearest number that would be detected as beyond the bound.
///
/// # Errors
/// Fails with the reason if the number is unknown.
fn evidence(condition: &Condition, measured: &Measured, levels: &Levels) -> Result<Evidence, Reason> {
    let lacks = |known: &Known<crate::model::Estimate>, side| match known {
        Known::Unknown(reason) => reason.clone(),
        _ => Reason::NotInRecordings { side },
    };
    let new = measured.new.as_ref().ok_or_else(|| lacks(&measured.shown.new.estimate, DiffSide::New))?;
    let Bound { is_relative, is_upper, limit } = condition.bound;
    Ok(match (is_relative, condition.metric.is_count()) {
        (false, true) => Evidence { interval: Some((new.value(), new.value())), least_shown: Some(limit) },
        (false, false) => {
            let (value, margin) = new.interval(&levels.shown);
            // Numbers in conditions cannot be negative, so the interval does not go below 0.
            let interval = margin.map(|margin| ((value - margin).max(0.0), value + margin));
            Evidence { interval, least_shown: new.least_shown(limit, is_upper, levels) }
        }
        (true, _) => {
            let base = measured.base.as_ref().ok_or_else(|| lacks(&measured.shown.base.estimate, DiffSide::Base))?;
            let pair = Pair::new(base, new);
            let interval = pair.ratio_interval(&levels.shown);
            Evidence { interval, least_shown: pair.least_shown(limit, is_upper, levels) }
        }
    })
}

#[cfg(test)]
mod tests;
