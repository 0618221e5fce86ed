//! A comparison in three lines: all of BPF, programs that became more expensive, and programs that are cheaper, new or gone.

use super::diff::signed;
use crate::model::text::{counted, decimal, fixed, listed};
use crate::model::{Change, Diff, DiffMetric, Known, MetricDiff, ProgramDiff, Status, Verdict};

pub(super) fn lines(diff: &Diff) -> [String; 3] {
    let changed: Vec<(&ProgramDiff, &MetricDiff, f64)> = diff.programs.iter().filter_map(shown_change).collect();
    let named = |sign: f64| {
        let mut programs: Vec<_> = changed.iter().filter(|(.., percent)| percent * sign > 0.0).collect();
        programs.sort_by(|(.., a), (.., b)| (b * sign).total_cmp(&(a * sign)));
        let names: Vec<String> = programs.iter().map(|(program, metric, by)| change_of(program, metric, *by)).collect();
        listed(&names)
    };
    let with_status = |status| {
        let programs = diff.programs.iter().filter(|program| program.status == status);
        listed(&programs.map(ProgramDiff::label).collect::<Vec<_>>())
    };
    let mut rest = Vec::new();
    for (word, names) in
        [("cheaper", named(-1.0)), ("new", with_status(Status::New)), ("gone", with_status(Status::Gone))]
    {
        if !names.is_empty() {
            rest.push(format!("{word}: {names}"));
        }
    }
    let or_none = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
    [
        format!("all BPF: {}{}", total(diff), conditions(diff)),
        format!("more expensive: {}", or_none(named(1.0), "no program beyond chance")),
        or_none(rest.join("; "), "cheaper: no program beyond chance; no program was added or removed"),
    ]
}

/// Significant change of a program, in %, with its metric: the time per run, or the cost if the change of the time per run is not significant. `None`
/// if neither change is significant.
fn shown_change(program: &ProgramDiff) -> Option<(&ProgramDiff, &MetricDiff, f64)> {
    [DiffMetric::TimePerRun, DiffMetric::Cost].into_iter().find_map(|wanted| {
        program.metrics.iter().filter(|metric| metric.metric == wanted).find_map(|metric| {
            let change = metric.change.as_ref().filter(|change| change.significant == Known::Value(true))?;
            Some((program, metric, change.percent?))
        })
    })
}

fn change_of(program: &ProgramDiff, metric: &MetricDiff, percent: f64) -> String {
    let label = program.label();
    match (metric.metric, metric.base.estimate.value(), metric.new.estimate.value()) {
        (DiffMetric::TimePerRun, Some(base), Some(new)) => {
            format!("{label} {} -> {} ns/run ({} %)", decimal(base.value), decimal(new.value), signed(percent))
        }
        _ => format!("{label} cost {} %", signed(percent)),
    }
}

/// Share of the machine before and after, with the change of the cost and its confidence interval. If the share is unknown, the cost per second and
/// CPU.
fn total(diff: &Diff) -> String {
    let find = |wanted| diff.total.iter().find(|metric| metric.metric == wanted);
    let value = |metric: &MetricDiff| Some((metric.base.estimate.value()?.value, metric.new.estimate.value()?.value));
    let cost = find(DiffMetric::Cost);
    let share = find(DiffMetric::Share).and_then(value);
    let values = match (share, cost.and_then(value)) {
        (Some((base, new)), _) => format!("{} -> {} % of the machine", fixed(base, 2), fixed(new, 2)),
        (None, Some((base, new))) => format!("{} -> {} per second and CPU", decimal(base), decimal(new)),
        (None, None) => return "unknown on one side".to_owned(),
    };
    let Some(Change { percent: Some(percent), from_percent, to_percent, significant, .. }) =
        cost.and_then(|metric| metric.change.as_ref())
    else {
        return values;
    };
    let interval = from_percent.zip(*to_percent);
    let interval = interval.map_or(String::new(), |(from, to)| format!(", {} to {}", signed(from), signed(to)));
    let verdict = match significant {
        Known::Value(true) => "",
        Known::Value(false) => "; may be chance",
        Known::Unknown(_) | Known::Impossible(_) => "; too few intervals to tell from chance",
    };
    format!("{values} ({} %{interval}{verdict})", signed(*percent))
}

fn conditions(diff: &Diff) -> String {
    if diff.gate.is_empty() {
        return String::new();
    }
    let within = diff.gate.iter().filter(|judgment| judgment.verdict == Verdict::Within).count();
    let of = counted(diff.gate.len() as u64, "condition");
    format!("; {of}: {} FAIL, {} undecided, {within} ok", diff.failed(), diff.undecided())
}
