//! Recordings of before and after: a table for people, lines for programs.

use super::cells::plain;
use super::grid::{Column, Grid};
use super::screen::Screen;
use super::{write_notes, write_wrapped, write_wrapped_in};
use crate::model::text::{UNKNOWN, decimal, fixed};
use crate::model::{
    Change, Diff, DiffMetric, DiffRecording, Judgment, Known, MetricDiff, MetricValue, ProgramDiff, Unit, Verdict,
};
use crate::options::Tone;
use std::io;

pub(super) fn table(diff: &Diff, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    for (side, recordings) in [("base", &diff.base), ("new", &diff.new)] {
        recordings.iter().try_for_each(|it| write_wrapped(&format!("{side}: {}", facts(it)), out, width))?;
    }
    if diff.events.is_empty() {
        rows(diff, None, true, out, width)?;
    }
    for (at, event) in diff.events.iter().enumerate() {
        writeln!(out, "#")?;
        writeln!(out, "# {}", event.name)?;
        rows(diff, Some((&event.name, event.unit)), at == 0, out, width)?;
    }
    if !diff.gate.is_empty() {
        writeln!(out, "#")?;
    }
    for judgment in &diff.gate {
        write_wrapped_in(Some(verdict_tone(&judgment.verdict)), &judged(judgment), out, width)?;
    }
    let mut notes = diff.problems.clone();
    notes.extend(diff.notes.iter().map(ToString::to_string));
    write_notes(&notes, out, width)
}

/// What a recording is of.
fn facts(recording: &DiffRecording) -> String {
    let mut facts = vec![recording.path.clone()];
    facts.extend(recording.hostname.clone());
    facts.extend(recording.os_release.clone());
    facts.extend(recording.cpus.map(|cpus| format!("{cpus} CPUs")));
    facts.extend(recording.elapsed_ns.map(|ns| format!("{} s", fixed(ns as f64 / 1e9, 1))));
    facts.join(" · ")
}

/// A table of an event; `has_runs` where it shows runs, which are of no event, as well.
fn rows(
    diff: &Diff,
    event: Option<(&str, Unit)>,
    has_runs: bool,
    out: &mut Screen<'_>,
    width: usize,
) -> io::Result<()> {
    let name = event.map(|(name, _)| name);
    let is_time = event.is_none_or(|(_, unit)| unit == Unit::Nanoseconds);
    let per_run = name.map_or_else(String::new, |name| format!("{name}/RUN"));
    let cost = if is_time { "%MACHINE" } else { "PER CPU-S" };
    let mut columns = vec![Column::text("PROGRAM").always().cut_to(16)];
    let mut add = |names: [String; 4], order: u8| {
        let [base, new, change, interval] = names;
        // More runs are neither better nor worse.
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
    // Time per run is what statistics tell better.
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
        // The share and the cost of a clock change alike.
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
        line.extend([program.prog_type.clone(), program.attached.join(" "), program.owners.join(" ")]);
        line
    };
    let mut lines: Vec<Vec<String>> = diff.programs.iter().map(line).collect();
    if name.is_some() {
        let mut total = vec!["TOTAL".to_owned()];
        total.extend(shown_as(&diff.total).into_iter().map(|cell| if cell == UNKNOWN { String::new() } else { cell }));
        total.extend(vec![String::new(); 4]);
        lines.push(total);
    }
    let mut grid = Grid::new(columns);
    grid.fit(&lines);
    let layout = grid.layout(width);
    layout.write(&lines, out)
}

/// The column of how runs per second changed.
const RUNS_CHANGE: &str = "ΔRUNS/S";

/// Of a change that chance does not explain: more is worse.
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

/// A number before and after, what changed, and the interval of that.
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

/// Behind a change that chance does not explain.
const SIGNIFICANT: &str = "*";

/// A change in per cent, with what is to be thought of it.
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

fn signed(percent: f64) -> String {
    // What rounds to nothing has no sign.
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

const CSV: [&str; 20] = [
    "kind",
    "name",
    "type",
    "attached",
    "status",
    "previous_name",
    "base_tags",
    "new_tags",
    "metric",
    "event",
    "base",
    "base_margin",
    "new",
    "new_margin",
    "difference",
    "percent",
    "from_percent",
    "to_percent",
    "significant",
    "unknown",
];

pub(super) fn csv(diff: &Diff, out: &mut Screen<'_>) -> io::Result<()> {
    out.values(CSV.map(str::to_owned), ",")?;
    for program in &diff.programs {
        let head = [
            "program".to_owned(),
            program.name.clone(),
            program.prog_type.clone(),
            program.attached.join(" "),
            program.status.name().to_owned(),
            program.previous_name.clone().unwrap_or_default(),
            program.base_tags.join(" "),
            program.new_tags.join(" "),
        ];
        program.metrics.iter().try_for_each(|metric| out.values(head.iter().cloned().chain(values(metric)), ","))?;
    }
    let head = ["total", "", "", "", "", "", "", ""].map(str::to_owned);
    diff.total.iter().try_for_each(|metric| out.values(head.iter().cloned().chain(values(metric)), ","))?;
    for judgment in &diff.gate {
        let mut line = vec![String::new(); CSV.len()];
        line[0] = "condition".to_owned();
        line[1] = judgment.program.clone().unwrap_or_default();
        line[4] = judgment.verdict.code().to_owned();
        line[8] = judgment.condition.clone();
        (line[10], line[12], line[15]) = (plain(judgment.base), plain(judgment.new), plain(judgment.percent));
        if let Some(interval) = judgment.interval {
            if judgment.is_relative {
                (line[16], line[17]) = (plain(Some(interval.from)), plain(interval.to));
            } else {
                line[13] = plain(interval.to.zip(judgment.new).map(|(to, new)| to - new));
            }
        }
        if let Verdict::Undecided { reason } = &judgment.verdict {
            line[19] = reason.to_string();
        }
        out.values(line, ",")?;
    }
    Ok(())
}

fn values(metric: &MetricDiff) -> Vec<String> {
    let value = |side: &MetricValue| plain(side.estimate.value().map(|it| it.value));
    let margin = |side: &MetricValue| plain(side.estimate.value().and_then(|it| it.margin));
    let change = metric.change.as_ref();
    let why = metric.base.estimate.why().or(metric.new.estimate.why());
    vec![
        metric.metric.name().to_owned(),
        metric.event.clone().unwrap_or_default(),
        value(&metric.base),
        margin(&metric.base),
        value(&metric.new),
        margin(&metric.new),
        plain(change.map(|it| it.difference)),
        plain(change.and_then(|it| it.percent)),
        plain(change.and_then(|it| it.from_percent)),
        plain(change.and_then(|it| it.to_percent)),
        plain(change.and_then(|it| it.significant.value().copied())),
        plain(why.or(change.and_then(|it| it.significant.why()))),
    ]
}
