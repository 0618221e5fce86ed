//! Comparison of recordings, as tables and as CSV.

use super::blocks::{Block, View, note, problems};
use super::cells::attachments;
use super::columns::{LineColumn, LineColumns};
use super::grid::{Column, Sheet};
use super::screen::Screen;
use crate::model::text::{UNKNOWN, decimal, fixed};
use crate::model::{
    Change, Diff, DiffMetric, DiffNote, DiffRecording, Judgment, Known, MetricDiff, MetricValue, PossibleRange,
    ProgramDiff, Unit, Verdict,
};
use crate::options::Tone;
use std::io;

pub(super) fn view(diff: &Diff, _: usize) -> View<'_> {
    let mut view = View::default();
    for (side, recordings) in [("base", &diff.base), ("new", &diff.new)] {
        view.0.extend(recordings.iter().map(|it| note(format!("{side}: {}", facts(it)))));
    }
    if diff.events.is_empty() {
        view.push(Block::Table(sheet(diff, None, true)));
    }
    for (at, event) in diff.events.iter().enumerate() {
        view.push(Block::Gap);
        view.push(Block::Fact(event.name.clone()));
        view.push(Block::Table(sheet(diff, Some((&event.name, event.unit)), at == 0)));
    }
    view.0.extend((!diff.gate.is_empty()).then_some(Block::Gap));
    let judgments = diff.gate.iter();
    view.0.extend(judgments.map(|it| Block::Note(judged(it), Some(verdict_tone(&it.verdict)))));
    let (legend, notes): (Vec<_>, Vec<_>) = diff.notes.iter().partition(|note| matches!(note, DiffNote::Marks { .. }));
    let notes = notes.into_iter().map(|note| (note.gravity(), note.to_string()));
    view.notes(legend.into_iter().map(ToString::to_string), problems(&diff.problems).chain(notes));
    view
}

/// Path, host, kernel, CPUs and duration of a recording, on one line.
fn facts(recording: &DiffRecording) -> String {
    let mut facts = vec![recording.path.clone()];
    facts.extend(recording.hostname.clone());
    facts.extend(recording.os_release.clone());
    facts.extend(recording.cpus.map(|cpus| format!("{cpus} CPUs")));
    facts.extend(recording.elapsed_ns.map(|ns| format!("{} s", fixed(ns as f64 / 1e9, 1))));
    facts.join(" · ")
}

/// A line of a table: a program, or `None` for all BPF together, and its metrics.
type TableLine<'r> = (Option<&'r ProgramDiff>, &'r [MetricDiff]);

/// Table of an event. `has_runs` adds the columns of run statistics, which are the same for all events.
fn sheet(diff: &Diff, event: Option<(&str, Unit)>, has_runs: bool) -> Sheet {
    let is_time = event.is_none_or(|(_, unit)| unit == Unit::Nanoseconds);
    let name = event.map(|(name, _)| name);
    let program = |(program, _): &TableLine<'_>| program.map_or("TOTAL".to_owned(), label);
    let mut fields = vec![LineColumn::text(Column::text("PROGRAM").always().cut_to(16), program)];
    // For a clock, the values are shares of the machine. The change shown is that of the cost, because the share changes in the same proportion.
    fields.extend(match is_time {
        true => four(["%MACHINE", "NEW %MACHINE", "ΔCOST"], 2, name, [DiffMetric::Share, DiffMetric::Cost]),
        false => four(["PER CPU-S", "NEW PER CPU-S", "ΔCOST"], 2, name, [DiffMetric::Cost; 2]),
    });
    if has_runs {
        fields.extend(four(["NS/RUN", "NEW NS/RUN", "ΔNS/RUN"], 2, None, [DiffMetric::TimePerRun; 2]));
        fields.extend(four(["RUNS/S", "NEW RUNS/S", "ΔRUNS/S"], 8, None, [DiffMetric::RunsPerSecond; 2]));
    }
    // An event that is a clock has no columns per run: its time per run from samples is worse than NS/RUN, which comes from run statistics.
    if let Some((event, Unit::Events)) = event {
        let names = [&*format!("{event}/RUN"), &format!("NEW {event}/RUN"), "Δ/RUN"];
        fields.extend(four(names, 6, name, [DiffMetric::EventPerRun; 2]));
    }
    fields.extend([
        text(Column::text("STATUS").droppable(1), |it| it.status.name().to_owned()),
        text(Column::text("TYPE").droppable(12), |it| it.prog_type.clone()),
        text(Column::text("ATTACHED TO").droppable(16).cut_to(12), |it| attachments(&it.attached, Some(&it.prog_type))),
        text(Column::text("OWNER").droppable(18).cut_to(8), |it| it.owners.join(" ")),
    ]);
    let programs = diff.programs.iter().map(|it| (Some(it), &*it.metrics));
    let lines: Vec<TableLine<'_>> = programs.chain(name.map(|_| (None, &*diff.total))).collect();
    LineColumns::new(fields).sheet(&lines, &[])
}

/// A column of texts about programs.
fn text<'v>(column: Column, cell: fn(&ProgramDiff) -> String) -> LineColumn<'v, TableLine<'v>> {
    LineColumn::text(column, move |(program, _): &TableLine<'_>| program.map_or(String::new(), cell))
}

/// Columns: value before, value after, change, and confidence interval of the change. The values are those of the first metric, the change is that of
/// the second.
fn four<'v>(
    [base, new, change]: [&str; 3],
    order: u8,
    event: Option<&'v str>,
    [values, of_change]: [DiffMetric; 2],
) -> [LineColumn<'v, TableLine<'v>>; 4] {
    let number = |column: Column, metric: DiffMetric, cell: fn(&MetricDiff) -> Option<String>| {
        LineColumn::text(column, move |(program, metrics): &TableLine<'_>| {
            let found = metrics.iter().find(|it| it.metric == metric && it.event.as_deref() == event);
            let unknown = if program.is_some() { UNKNOWN } else { "" };
            found.and_then(cell).unwrap_or_else(|| unknown.to_owned())
        })
    };
    // A change of the rate of runs has no tone: more runs are neither better nor worse.
    let tone = if of_change == DiffMetric::RunsPerSecond { |_: &str| None } else { change_tone };
    [
        number(Column::number(base).droppable(order), values, |it| value(it.metric, &it.base)),
        number(Column::number(new).droppable(order), values, |it| value(it.metric, &it.new)),
        number(Column::number(change).toned(tone).droppable(order / 2), of_change, |it| {
            Some(changed(it.change.as_ref()?))
        }),
        number(Column::number("[FROM TO]").droppable(order + 10), of_change, |it| {
            let (from, to) = it.change.as_ref().and_then(|it| it.from_percent.zip(it.to_percent))?;
            Some(format!("[{} {}]", signed(from), signed(to)))
        }),
    ]
}

fn value(metric: DiffMetric, side: &MetricValue) -> Option<String> {
    let value = side.estimate.value()?.value;
    Some(if metric == DiffMetric::Share { fixed(value, 2) } else { decimal(value) })
}

/// Tone of a significant change: red for an increase, which is worse, and green for a decrease.
fn change_tone(cell: &str) -> Option<Tone> {
    match (cell.strip_suffix(SIGNIFICANT), cell.chars().next()) {
        (Some(_), Some('+')) => Some(Tone::Red),
        (Some(_), Some('-')) => Some(Tone::Green),
        _ => None,
    }
}

fn verdict_tone(verdict: &Verdict) -> Tone {
    match verdict {
        Verdict::Fail => Tone::Red,
        Verdict::Within => Tone::Green,
        Verdict::Undecided { .. } => Tone::Yellow,
    }
}

fn label(program: &ProgramDiff) -> String {
    match &program.previous_name {
        Some(previous) => format!("{} (was {previous})", program.label()),
        None => program.label(),
    }
}

/// Mark of a significant change, which chance does not explain.
const SIGNIFICANT: &str = "*";

/// Change in per cent, marked if it is significant, or with `?` if its significance is unknown. `∞` for a change from zero.
fn changed(change: &Change) -> String {
    let mark = match &change.significant {
        Known::Value(true) => SIGNIFICANT,
        Known::Value(false) => "",
        Known::Unknown(_) | Known::Impossible(_) => "?",
    };
    match change.percent {
        Some(percent) => format!("{}%{mark}", signed(percent)),
        None if change.difference == 0.0 => format!("0{mark}"),
        None => format!("{}{}{mark}", if change.difference > 0.0 { "+" } else { "-" }, "∞"),
    }
}

/// A percentage with its sign and one decimal.
pub(super) fn signed(percent: f64) -> String {
    // A number that rounds to zero has the sign `+`, never `-`.
    let text = format!("{percent:+.1}");
    if text == "-0.0" { "+0.0".to_owned() } else { text }
}

fn judged(judgment: &Judgment) -> String {
    let mut text = format!("{} {}", judgment.verdict.mark(), judgment.condition);
    if let Some(program) = &judgment.program {
        text += &format!(": {program}");
    }
    if let (true, Some(base), Some(new)) = (judgment.is_relative, judgment.base, judgment.new) {
        text += &format!(": {} -> {}", decimal(base), decimal(new));
    }
    text + ": " + &judgment.evidence()
}

/// A CSV line: a metric of a program, or of all BPF if there is no program; or a condition.
#[derive(Clone, Copy, Default)]
struct DiffLine<'r> {
    program: Option<&'r ProgramDiff>,
    metric: Option<&'r MetricDiff>,
    condition: Option<&'r Judgment>,
}

impl<'r> DiffLine<'r> {
    fn change(&self) -> Option<&'r Change> {
        self.metric?.change.as_ref()
    }

    /// Confidence interval of the change, %, in the line of a condition on a relative change.
    fn relative(&self) -> Option<PossibleRange> {
        self.condition.filter(|it| it.is_relative)?.interval
    }

    fn unknown(&self) -> Option<String> {
        let undecided = self.condition.and_then(|it| match &it.verdict {
            Verdict::Undecided { reason } => Some(reason.to_string()),
            _ => None,
        });
        let why = undecided.or_else(|| self.metric?.base.estimate.why());
        let why = why.or_else(|| self.metric?.new.estimate.why());
        why.or_else(|| self.change()?.significant.why())
    }
}

pub(super) fn csv(diff: &Diff, out: &mut Screen<'_>) -> io::Result<()> {
    type F<'r> = LineColumn<'r, DiffLine<'r>>;
    let value = |side: Option<&MetricValue>| Some(side?.estimate.value()?.value);
    let margin = |side: Option<&MetricValue>| side?.estimate.value()?.margin;
    let absolute = |it: &Judgment| {
        let to = it.interval.filter(|_| !it.is_relative)?.to?;
        Some(to - it.new?)
    };
    let fields: [F<'_>; 20] = [
        F::csv("kind", |it| match (it.program, it.condition) {
            (Some(_), _) => Some("program"),
            (None, None) => Some("total"),
            (None, Some(_)) => Some("condition"),
        }),
        F::csv("name", |it| it.program.map(|it| it.name.clone()).or_else(|| it.condition?.program.clone())),
        F::csv("type", |it| Some(it.program?.prog_type.clone())),
        F::csv("attached", |it| Some(it.program?.attached.join(" "))),
        F::csv("status", |it| it.program.map(|it| it.status.name()).or_else(|| Some(it.condition?.verdict.code()))),
        F::csv("previous_name", |it| it.program?.previous_name.clone()),
        F::csv("base_tags", |it| Some(it.program?.base_tags.join(" "))),
        F::csv("new_tags", |it| Some(it.program?.new_tags.join(" "))),
        F::csv("metric", |it| {
            it.metric.map(|it| it.metric.to_string()).or_else(|| Some(it.condition?.condition.clone()))
        }),
        F::csv("event", |it| it.metric?.event.clone()),
        F::csv("base", move |it| value(it.metric.map(|it| &it.base)).or_else(|| it.condition?.base)),
        F::csv("base_margin", move |it| margin(it.metric.map(|it| &it.base))),
        F::csv("new", move |it| value(it.metric.map(|it| &it.new)).or_else(|| it.condition?.new)),
        F::csv("new_margin", move |it| margin(it.metric.map(|it| &it.new)).or_else(|| absolute(it.condition?))),
        F::csv("difference", |it| Some(it.change()?.difference)),
        F::csv("percent", |it| it.change().and_then(|it| it.percent).or_else(|| it.condition?.percent)),
        F::csv("from_percent", |it| {
            it.change().and_then(|it| it.from_percent).or(it.relative().map(|interval| interval.from))
        }),
        F::csv("to_percent", |it| it.change().and_then(|it| it.to_percent).or_else(|| it.relative()?.to)),
        F::csv("significant", |it| it.change()?.significant.value().copied()),
        F::csv("unknown", DiffLine::unknown),
    ];
    let of = |program, metric| DiffLine { program, metric: Some(metric), condition: None };
    let programs = diff.programs.iter().flat_map(|it| it.metrics.iter().map(move |metric| of(Some(it), metric)));
    let totals = diff.total.iter().map(|metric| of(None, metric));
    let conditions = diff.gate.iter().map(|it| DiffLine { condition: Some(it), ..DiffLine::default() });
    LineColumns::new(fields).write_csv(programs.chain(totals).chain(conditions), out)
}
