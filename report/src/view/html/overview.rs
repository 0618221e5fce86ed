//! First screen of the page: texts, and the lengths that the script draws.

use super::text;
use crate::model::text::{counted, fixed, grouped};
use crate::model::{
    EventReport, Known, NodeKind, Overview, Page, PayerSlice, Program, ProgramSlice, Recording, Runs, Slice, SourceLine,
};
use crate::view::by_prog::measured;
use crate::view::cells::{attachments, of_machine, percent};
use serde::Serialize;

/// Limit on marked loads and unloads.
const MAX_FLAGS: usize = 12;

#[derive(Serialize, Default)]
pub(super) struct First {
    pub(super) machine_facts: String,
    /// Cost of BPF with its unit of comparison.
    pub(super) percent: String,
    of: String,
    claims: Vec<Claim>,
    machine: Vec<PageCostPart>,
    pub(super) programs: Vec<PageRow>,
    payers: Vec<PagePayer>,
    /// Flows: program, payer, per cent.
    flows: Vec<(usize, usize, f64)>,
    interval_s: f64,
    elapsed_s: f64,
    flags: Vec<Flag>,
    trust: Vec<Trust>,
}

/// One of the three sentences of the first screen.
#[derive(Serialize)]
struct Claim {
    label: &'static str,
    name: String,
    /// Position of the sentence's program.
    program: Option<usize>,
    text: Vec<String>,
}

#[derive(Serialize)]
struct PageCostPart {
    name: &'static str,
    percent: f64,
    text: String,
}

#[derive(Serialize, Default)]
pub(super) struct PageRow {
    pub(super) name: String,
    /// Key in [`super::PageData::keys`]; empty for rows that are not programs.
    key: String,
    /// Owner: programs of one owner share a hue.
    owner: String,
    pub(super) about: String,
    percent: f64,
    pub(super) text: String,
    /// Self, helper and entry parts of `percent`.
    columns: [f64; 3],
    pub(super) runs: String,
    pub(super) time: String,
    intervals: Vec<(u64, f64)>,
    tree: Vec<PageNode>,
    lines: Vec<PageSourceLine>,
    advice: Vec<String>,
    /// True for the row that combines the remaining programs.
    is_folded: bool,
}

#[derive(Serialize)]
struct PageNode {
    depth: u32,
    kind: NodeKind,
    name: String,
    percent: f64,
    text: String,
}

#[derive(Serialize)]
struct PageSourceLine {
    file: String,
    line: u32,
    source: String,
    percent: f64,
    text: String,
}

#[derive(Serialize)]
struct PagePayer {
    name: String,
    about: String,
    percent: f64,
    text: String,
    tax: String,
}

#[derive(Serialize)]
struct Flag {
    at_s: f64,
    text: String,
}

#[derive(Serialize)]
struct Trust {
    text: String,
    /// True if the recording lacks something.
    lacks: bool,
}

pub(super) fn first(page: &Page, event: &EventReport, key: impl Fn(usize) -> String) -> First {
    let (overview, recording) = (&page.overview, &page.report.recording);
    let of = if overview.is_of_machine { "of this machine" } else { "of all samples" };
    let programs: Vec<PageRow> = overview.programs.iter().map(|slice| row(page, event, slice, &key)).collect();
    let in_cpus = overview
        .cpus
        .zip(recording.cpus)
        .map(|(used, cpus)| format!(": {} of {}", fixed(used, 2), counted(cpus.into(), "CPU")));
    First {
        machine_facts: text(&machine_facts(recording, event)),
        percent: of_machine(event.percent(event.total.count), event.is_scaled()),
        of: format!("{of}{}", in_cpus.unwrap_or_default()),
        claims: claims(event, overview, &programs),
        machine: machine(overview),
        payers: overview.payers.iter().map(|slice| payer(event, slice)).collect(),
        flows: overview.flows.iter().map(|it| (it.program, it.payer, it.percent.unwrap_or(0.0))).collect(),
        interval_s: overview.interval_ns as f64 / 1e9,
        elapsed_s: overview.elapsed_ns as f64 / 1e9,
        flags: flags(page),
        trust: trust(page, event),
        programs,
    }
}

fn machine_facts(recording: &Recording, event: &EventReport) -> String {
    let mut facts: Vec<String> = recording.hostname.clone().into_iter().collect();
    facts.extend(recording.os_release.as_ref().map(|release| format!("Linux {release}")));
    facts.push(measured(recording, &event.name));
    facts.join(" · ")
}

fn name_of(slice: &Slice, name: String) -> String {
    slice.folded.map_or(name, |folded| format!("{folded} more"))
}

fn row(page: &Page, event: &EventReport, slice: &ProgramSlice, key: impl Fn(usize) -> String) -> PageRow {
    let program = slice.program.map(|at| &page.report.programs[at]);
    // Programs of equal names are labelled with their ids.
    let others = page.overview.programs.iter().filter_map(|other| Some(&page.report.programs[other.program?]));
    let has_twin = program.is_some_and(|program| others.filter(|other| other.label() == program.label()).count() > 1);
    let label = if has_twin { Program::label_with_id } else { Program::label };
    let name = program.map_or_else(|| slice.name.clone(), label);
    let runs = program.and_then(|program| program.runs.value());
    let estimate = |text: String, runs: &Runs| if runs.estimate.is_some() { format!("≈{text}") } else { text };
    let label = program.map(Program::label_with_id);
    let advice = page.advice.iter().filter(|it| {
        let mut programs = it.finding.programs().iter();
        label.as_ref().is_some_and(|label| programs.any(|of| of.program == *label))
    });
    let tree = page.trees.trees.iter().filter(|tree| Some(tree.program) == slice.program);
    let nodes = tree.flat_map(|tree| &tree.nodes).filter(|node| node.inclusive.weight > 0);
    PageRow {
        name: text(&name_of(&slice.slice, name)),
        key: slice.program.map(key).unwrap_or_default(),
        owner: text(&program.map(owner).unwrap_or_default()),
        about: text(&program.map(about).unwrap_or_else(|| {
            if slice.slice.folded.is_some() { "together" } else { "no telling of which program" }.to_owned()
        })),
        percent: slice.slice.percent.unwrap_or(0.0),
        text: of_machine(slice.slice.percent, event.is_scaled()),
        columns: slice.columns.map(|column| column.unwrap_or(0.0)),
        runs: runs.map(|runs| estimate(runs.per_second.map_or_else(String::new, short), runs)).unwrap_or_default(),
        time: runs.and_then(|runs| runs.ns_per_run).map(time).unwrap_or_default(),
        intervals: slice.intervals.clone(),
        tree: nodes
            .map(|node| PageNode {
                depth: node.depth,
                kind: node.kind,
                name: text(&node.name),
                percent: node.program_percent.unwrap_or(0.0),
                text: percent(node.program_percent),
            })
            .collect(),
        lines: slice.lines.iter().map(|(source, part)| line(source, *part)).collect(),
        advice: advice.map(|it| text(&format!("{} ({})", it.finding, it.measured()))).collect(),
        is_folded: slice.slice.folded.is_some(),
    }
}

fn owner(program: &Program) -> String {
    let holder = program.owners.first().map(|owner| owner.comm.clone());
    let pinned = || Some(program.pins.first()?.rsplit_once('/')?.0.to_owned());
    holder.or_else(pinned).unwrap_or_default()
}

/// Owner and hook of a program.
fn about(program: &Program) -> String {
    let hooks = attachments(program, false);
    let prog_type = program.prog_type.map(|it| it.to_string()).unwrap_or_default();
    let hook = if hooks.is_empty() { prog_type } else { hooks };
    let parts = [owner(program), hook];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn line(source: &SourceLine, part: f64) -> PageSourceLine {
    let file = source.file.rsplit('/').next().unwrap_or(&source.file);
    PageSourceLine {
        file: text(file),
        line: source.line,
        source: text(&source.text),
        percent: part,
        text: percent(Some(part)),
    }
}

fn payer(event: &EventReport, payer: &PayerSlice) -> PagePayer {
    let in_interrupts = payer.in_interrupts_percent.filter(|part| *part >= 0.5);
    PagePayer {
        name: text(&name_of(&payer.slice, payer.name.clone())),
        about: in_interrupts.map(|part| format!("{part:.0} % of it in interrupts")).unwrap_or_default(),
        percent: payer.slice.percent.unwrap_or(0.0),
        text: of_machine(payer.slice.percent, event.is_scaled()),
        tax: payer.payer_percent.map(|tax| format!("{} %", fixed(tax, 1))).unwrap_or_default(),
    }
}

/// Three sentences: the costliest program, the largest payer, the reason.
fn claims(event: &EventReport, overview: &Overview, rows: &[PageRow]) -> Vec<Claim> {
    let of = if overview.is_of_machine { "of the machine" } else { "of all samples" };
    let share = |slice: &Slice| {
        let of_bpf = slice.bpf_percent.map(|part| format!(", {part:.0} % of all BPF"));
        format!("{} % {of}{}", of_machine(slice.percent, event.is_scaled()), of_bpf.unwrap_or_default())
    };
    let mut claims = Vec::new();
    let at = overview.programs.iter().position(|slice| slice.program.is_some());
    let costliest = at.and_then(|at| Some((at, overview.programs.get(at)?, rows.get(at)?)));
    if let Some((at, slice, row)) = costliest {
        let runs = match (row.runs.is_empty(), row.time.is_empty()) {
            (false, false) => Some(format!("{} runs/s of {} each", row.runs, row.time)),
            _ => None,
        };
        let text = [share(&slice.slice)].into_iter().chain(runs).collect();
        claims.push(Claim { label: "Costs most", name: row.name.clone(), program: Some(at), text });
    }
    if let Some(payer) = overview.payers.first().filter(|payer| payer.slice.folded.is_none()) {
        let tax = payer.payer_percent.map(|tax| format!("{} % of its own CPU time", fixed(tax, 1)));
        let text = [share(&payer.slice)].into_iter().chain(tax).collect();
        claims.push(Claim { label: "Pays most", name: super::text(&payer.name), program: None, text });
    }
    if let Some((at, slice, row)) = costliest {
        let part = slice.parts.first().map(|(name, part)| {
            let name = match name.as_str() {
                "(own code)" => "its own code".to_owned(),
                "(entry)" => "code that runs it".to_owned(),
                "(interrupt)" => "interrupts that came".to_owned(),
                _ => text(name),
            };
            (name, format!("{part:.0}"))
        });
        let name = row.lines.first().map(|line| format!("{}:{}", line.file, line.line));
        let hottest = row.lines.first().map(|line| format!("{:.0} % of the program: {}", line.percent, line.source));
        let most = part.as_ref().map(|(name, part)| format!("{part} % in {name}"));
        let name = name.or_else(|| part.map(|(name, _)| name));
        let text = hottest.into_iter().chain(most).collect();
        claims.extend(name.map(|name| Claim { label: "Why", name, program: Some(at), text }));
    }
    claims
}

fn machine(overview: &Overview) -> Vec<PageCostPart> {
    let Some(parts) = overview.machine else { return Vec::new() };
    let named = [("idle", parts.idle), ("user", parts.user), ("kernel", parts.kernel), ("BPF", parts.bpf)];
    let shown = named.into_iter().filter(|(_, part)| *part > 0.0);
    shown.map(|(name, percent)| PageCostPart { name, percent, text: format!("{} %", fixed(percent, 1)) }).collect()
}

/// Loads and unloads of programs with samples.
fn flags(page: &Page) -> Vec<Flag> {
    let event = page.over_time.events.iter().find(|event| event.name == page.stacks.event);
    let rows = event.into_iter().flat_map(|event| &event.rows);
    let flags = rows.flat_map(|row| {
        let name = row.program.map_or_else(|| row.name.clone(), |at| page.over_time.programs[at].label());
        let bounds = [(row.loaded, "loaded"), (row.unloaded, "unloaded")];
        bounds.into_iter().filter_map(move |(bound, what)| {
            let at_s = bound?.before_ns as f64 / 1e9;
            (at_s >= 0.0).then(|| Flag { at_s, text: text(&format!("{name} {what}")) })
        })
    });
    flags.take(MAX_FLAGS).collect()
}

/// Statements about the confidence in the numbers.
fn trust(page: &Page, event: &EventReport) -> Vec<Trust> {
    let (report, overview) = (&page.report, &page.overview);
    let mut said = Vec::new();
    let mut push = |lacks: bool, text: String| said.push(Trust { text: super::text(&text), lacks });
    match event.lost {
        Known::Value(lost) => {
            push(lost > 0, format!("{} of {} lost", grouped(lost), counted(event.samples.samples, "sample")));
        }
        Known::Unknown(_) | Known::Impossible(_) => push(true, "lost samples were not counted".to_owned()),
    }
    if let Some(margin) = overview.margin_percent {
        push(false, format!("share of BPF ± {} %", fixed(margin, 2)));
    }
    let mut runs = report.programs.iter().filter_map(|program| program.runs.value()).peekable();
    match (runs.peek().is_some(), runs.any(|runs| runs.estimate.is_some())) {
        (true, false) => push(false, "runs: exact".to_owned()),
        (true, true) => push(false, "runs: ≈ estimated".to_owned()),
        (false, _) => push(true, "runs were not counted".to_owned()),
    }
    let blind = event.rows.iter().filter(|row| row.blind.is_some()).count() as u64;
    match (blind, report.missed.len() as u64) {
        (0, 0) => push(false, "every program seen and captured".to_owned()),
        (blind, missed) => {
            if blind > 0 {
                push(true, format!("{} that samples cannot see", counted(blind, "program")));
            }
            if missed > 0 {
                push(true, format!("{} seen but not captured", counted(missed, "program")));
            }
        }
    }
    if let Some(cost) = &report.recording.cost {
        let cpu_ns = cost.user_ns.saturating_add(cost.system_ns);
        push(false, format!("recording took {} of CPU time", time(cpu_ns as f64)));
    }
    if report.recording.unfinished {
        push(true, "the recording was cut off".to_owned());
    }
    if !report.problems.is_empty() {
        push(true, counted(report.problems.len() as u64, "problem"));
    }
    said
}

/// Formats a number with three digits.
fn short(value: f64) -> String {
    let units = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    let (value, unit) = units.iter().find(|(of, _)| value >= *of).map_or((value, ""), |(of, unit)| (value / of, unit));
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}{unit}")
}

/// Formats a time with three digits.
fn time(ns: f64) -> String {
    let units = [(1e9, " s"), (1e6, " ms"), (1e4, " µs")];
    match units.iter().find(|(of, _)| ns >= *of) {
        Some((of, unit)) => short(ns / if *of == 1e4 { 1e3 } else { *of }) + unit,
        None => format!("{ns:.0} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let numbers = [0.5, 12.345, 999.0, 1_234.0, 412_000.0, 1_210_000.0].map(short);
        assert_eq!(numbers, ["0.50", "12.3", "999", "1.23 k", "412 k", "1.21 M"]);
        assert_eq!([7.4, 9_871.0, 21_234.0, 1.5e6].map(time), ["7 ns", "9871 ns", "21.2 µs", "1.50 ms"]);
    }
}
