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

/// Table of an event. `has_runs` adds the columns of run statistics, which are the same for all events.
fn sheet(diff: &Diff, event: Option<(&str, Unit)>, has_runs: bool) -> Sheet {
    let name = event.map(|(name, _)| name);
    let is_time = event.is_none_or(|(_, unit)| unit == Unit::Nanoseconds);
    let per_run = name.map_or_else(String::new, |name| format!("{name}/RUN"));
    let cost = if is_time { "%MACHINE" } else { "PER CPU-S" };
    let mut columns = vec![Column::text("PROGRAM").always().cut_to(16)];
    let mut add = |names: [String; 4], order: u8| {
        let [base, new, change, interval] = names;
        // A change of the rate of runs has no tone: more runs are neither better nor worse.
        let tone = if change == RUNS_CHANGE { |_: &str| None } else { change_tone };
        columns.push(Column::number(base).droppable(order));
        columns.push(Column::number(new).droppable(order));
        columns.push(Column::number(change).toned(tone).droppable(order / 2));
        columns.push(Column::number(interval).droppable(order + 10));
    };
    let columns_of = |base: &str, new: &str, change: &str| {
        [base.to_owned(), new.to_owned(), change.to_owned(), "[FROM TO]".to_owned()]
    };
    add(columns_of(cost, if is_time { "NEW %MACHINE" } else { "NEW PER CPU-S" }, "ΔCOST"), 2);
    if has_runs {
        add(columns_of("NS/RUN", "NEW NS/RUN", "ΔNS/RUN"), 2);
        add(columns_of("RUNS/S", "NEW RUNS/S", RUNS_CHANGE), 8);
    }
    // An event that is a clock has no columns per run: its time per run from samples is worse than NS/RUN, which comes from run statistics.
    if !is_time {
        add(columns_of(&per_run, &format!("NEW {per_run}"), "Δ/RUN"), 6);
    }
    columns.push(Column::text("STATUS").droppable(1));
    columns.push(Column::text("TYPE").droppable(12));
    columns.push(Column::text("ATTACHED TO").droppable(16).cut_to(12));
    columns.push(Column::text("OWNER").droppable(18).cut_to(8));
    let shown_as = |metrics: &[MetricDiff]| {
        let find =
            |metric, event: Option<&str>| metrics.iter().find(|it| it.metric == metric && it.event.as_deref() == event);
        let mut cells = Vec::new();
        let of_cost = find(DiffMetric::Cost, name);
        // For a clock, the values are shares of the machine. The change shown is that of the cost, because the share changes in the same proportion.
        let values = if is_time { find(DiffMetric::Share, name) } else { of_cost };
        let decimals = if is_time { Some(2) } else { None };
        cells.extend(four(values, of_cost, decimals));
        if has_runs {
            let (time, runs) = (find(DiffMetric::TimePerRun, None), find(DiffMetric::RunsPerSecond, None));
            cells.extend(four(time, time, None));
            cells.extend(four(runs, runs, None));
        }
        if !is_time {
            let of_run = find(DiffMetric::EventPerRun, name);
            cells.extend(four(of_run, of_run, None));
        }
        cells
    };
    let line = |program: &ProgramDiff| {
        let mut line = vec![label(program)];
        line.extend(shown_as(&program.metrics));
        line.push(program.status.name().to_owned());
        let attached = attachments(&program.attached, Some(&program.prog_type));
        line.extend([program.prog_type.clone(), attached, program.owners.join(" ")]);
        line
    };
    let mut lines: Vec<Vec<String>> = diff.programs.iter().map(line).collect();
    if name.is_some() {
        let mut total = vec!["TOTAL".to_owned()];
        total.extend(shown_as(&diff.total).into_iter().map(|cell| if cell == UNKNOWN { String::new() } else { cell }));
        total.extend(vec![String::new(); 4]);
        lines.push(total);
    }
    Sheet { columns, rows: lines, totals: Vec::new() }
}

/// Name of the column of the change of runs per second.
const RUNS_CHANGE: &str = "ΔRUNS/S";

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

/// Cells: value before, value after, change, and confidence interval of the change.
fn four(values: Option<&MetricDiff>, of_change: Option<&MetricDiff>, decimals: Option<usize>) -> [String; 4] {
    let cell = |side: fn(&MetricDiff) -> &MetricValue| {
        let value = values.and_then(|it| side(it).estimate.value());
        value.map_or(UNKNOWN.into(), |it| decimals.map_or_else(|| decimal(it.value), |digits| fixed(it.value, digits)))
    };
    let change = of_change.and_then(|it| it.change.as_ref());
    let interval = change.and_then(|it| it.from_percent.zip(it.to_percent));
    [
        cell(|it| &it.base),
        cell(|it| &it.new),
        change.map_or(UNKNOWN.into(), changed),
        interval.map_or(UNKNOWN.into(), |(from, to)| format!("[{} {}]", signed(from), signed(to))),
    ]
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

/// A CSV line.
enum DiffLine<'r> {
    /// A metric of a program, or of all BPF if there is no program.
    Metric(Option<&'r ProgramDiff>, &'r MetricDiff),
    Condition(&'r Judgment),
}

impl<'r> DiffLine<'r> {
    fn program(&self) -> Option<&'r ProgramDiff> {
        match self {
            DiffLine::Metric(program, _) => *program,
            DiffLine::Condition(_) => None,
        }
    }

    fn metric(&self) -> Option<&'r MetricDiff> {
        match self {
            DiffLine::Metric(_, metric) => Some(metric),
            DiffLine::Condition(_) => None,
        }
    }

    fn change(&self) -> Option<&'r Change> {
        self.metric()?.change.as_ref()
    }

    fn condition(&self) -> Option<&'r Judgment> {
        match self {
            DiffLine::Metric(..) => None,
            DiffLine::Condition(judgment) => Some(judgment),
        }
    }

    /// Confidence interval of the change, %, in the line of a condition on a relative change.
    fn relative(&self) -> Option<PossibleRange> {
        self.condition().filter(|it| it.is_relative)?.interval
    }

    fn unknown(&self) -> Option<String> {
        match self {
            DiffLine::Metric(_, metric) => {
                let why = metric.base.estimate.why().or(metric.new.estimate.why());
                why.or(metric.change.as_ref().and_then(|it| it.significant.why()))
            }
            DiffLine::Condition(Judgment { verdict: Verdict::Undecided { reason }, .. }) => Some(reason.to_string()),
            DiffLine::Condition(_) => None,
        }
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
        F::csv("kind", |it| match it {
            DiffLine::Metric(Some(_), _) => Some("program"),
            DiffLine::Metric(None, _) => Some("total"),
            DiffLine::Condition(_) => Some("condition"),
        }),
        F::csv("name", |it| it.program().map(|it| it.name.clone()).or_else(|| it.condition()?.program.clone())),
        F::csv("type", |it| Some(it.program()?.prog_type.clone())),
        F::csv("attached", |it| Some(it.program()?.attached.join(" "))),
        F::csv("status", |it| it.program().map(|it| it.status.name()).or_else(|| Some(it.condition()?.verdict.code()))),
        F::csv("previous_name", |it| it.program()?.previous_name.clone()),
        F::csv("base_tags", |it| Some(it.program()?.base_tags.join(" "))),
        F::csv("new_tags", |it| Some(it.program()?.new_tags.join(" "))),
        F::csv("metric", |it| match it {
            DiffLine::Metric(_, metric) => Some(metric.metric.to_string()),
            DiffLine::Condition(judgment) => Some(judgment.condition.clone()),
        }),
        F::csv("event", |it| it.metric()?.event.clone()),
        F::csv("base", move |it| value(it.metric().map(|it| &it.base)).or_else(|| it.condition()?.base)),
        F::csv("base_margin", move |it| margin(it.metric().map(|it| &it.base))),
        F::csv("new", move |it| value(it.metric().map(|it| &it.new)).or_else(|| it.condition()?.new)),
        F::csv("new_margin", move |it| margin(it.metric().map(|it| &it.new)).or_else(|| absolute(it.condition()?))),
        F::csv("difference", |it| Some(it.change()?.difference)),
        F::csv("percent", |it| it.change().and_then(|it| it.percent).or_else(|| it.condition()?.percent)),
        F::csv("from_percent", |it| {
            it.change().and_then(|it| it.from_percent).or(it.relative().map(|interval| interval.from))
        }),
        F::csv("to_percent", |it| it.change().and_then(|it| it.to_percent).or_else(|| it.relative()?.to)),
        F::csv("significant", |it| it.change()?.significant.value().copied()),
        F::csv("unknown", DiffLine::unknown),
    ];
    let programs = diff.programs.iter().flat_map(|it| it.metrics.iter().map(move |metric| (Some(it), metric)));
    let totals = diff.total.iter().map(|metric| (None, metric));
    let metrics = programs.chain(totals).map(|(program, metric)| DiffLine::Metric(program, metric));
    LineColumns::new(fields).write_csv(metrics.chain(diff.gate.iter().map(DiffLine::Condition)), out)
}
