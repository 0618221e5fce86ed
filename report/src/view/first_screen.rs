//! First screen of the HTML page and of the terminal: texts, and shares that scripts and terminals draw as lengths.

mod claims;
mod history;
mod owners;

use super::by_prog::{self, Rates, measured};
use super::cells::{attachments, of_machine, percent};
use super::hues::Hues;
use crate::model::text::{LEAST_SHOWN_PERCENT, clean, counted, fixed, grouped};
use crate::model::{
    EventFinding, EventReport, Flow, History, Interval, Known, MissingTicks, NodeKind, Overview, Page, PayerSlice,
    Program, ProgramSlice, Recording, Report, Runs, Slice, SourceLine, TimeBound, Tree,
};
use owners::OwnerOfAll;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cmp::Reverse;

/// Limit on the loads and unloads that the screen marks.
const MAX_FLAGS: usize = 12;

/// Costs by interval: (index of the interval, weight as a number of samples of mean weight).
type TimedCosts = Vec<(u32, f64)>;

/// Answer on one screen: cost of BPF, costliest programs, payers, reasons, and confidence.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct FirstScreen {
    /// Machine, event, and length of the measurement.
    pub machine_facts: String,
    /// Cost of BPF, %.
    pub percent: String,
    /// Base of the shares, and the cost in CPUs: `of this machine: 0.12 of 4 CPUs`.
    pub of: String,
    /// True if shares refer to the machine, false if they refer to all samples.
    #[serde(skip)]
    pub is_of_machine: bool,
    claims: Vec<Claim>,
    /// Parts of the machine's time; empty if only some programs are selected.
    pub machine: Vec<MachinePart>,
    /// Rows of programs, rows of unattributed samples, and one row for the remaining programs.
    pub programs: Vec<ScreenRow>,
    payers: Vec<PayerOfAll>,
    owners: Vec<OwnerOfAll>,
    /// Costs of programs to payers: (position in `programs`, position in `payers`, share in %, cost by interval).
    flows: Vec<(usize, usize, f64, TimedCosts)>,
    interval_s: f64,
    elapsed_s: f64,
    /// All samples in each interval: the total that costs are shares of. Empty if costs are shares of time.
    samples: TimedCosts,
    /// Loads and unloads of programs.
    pub flags: Vec<Flag>,
    /// Statements about the confidence in the numbers.
    pub trust: Vec<Trust>,
    /// Start of [`ScreenRow::series`], seconds since the recording's start.
    #[serde(skip)]
    pub series_from_s: f64,
    /// Time that [`ScreenRow::series`] covers, seconds.
    #[serde(skip)]
    pub series_s: f64,
}

/// A sentence of the first screen.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Claim {
    label: &'static str,
    name: String,
    /// Row of the program that the sentence is about; `None` for other sentences.
    program: Option<usize>,
    text: Vec<String>,
}

/// Part of the machine's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachinePart {
    /// `idle`, `user`, `kernel` or `BPF`.
    pub name: &'static str,
    /// Share of the machine's time, %.
    pub percent: f64,
    /// The share as text.
    pub text: String,
}

/// A program, unattributed samples, or several programs as one row.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct ScreenRow {
    /// Name of the row.
    pub name: String,
    /// Key of the program in the page's table; empty for rows that are not programs.
    key: String,
    /// Owner of the program: name of a process, or directory of a pin; empty if unknown. Programs of one owner share a hue.
    pub owner: String,
    /// Colour on the HTML page, as (red, green, blue); `None` for grey.
    colour: Option<[u8; 3]>,
    /// Owner and hook.
    pub about: String,
    /// Share of the machine, or of all samples, %.
    pub percent: f64,
    /// The share as text.
    pub text: String,
    /// Parts of `percent`: self, helper and entry.
    pub columns: [f64; 3],
    /// Runs per second; empty if unknown.
    pub runs: String,
    /// Time per run, with its unit; empty if unknown.
    pub time: String,
    intervals: Vec<(u64, f64)>,
    tree: Vec<Node>,
    /// Hottest source lines, the costliest first.
    pub lines: Vec<HotLine>,
    /// Remedies, each with its finding and measurement, the largest saving first.
    advice: Vec<(&'static str, String)>,
    /// True for the row that combines the remaining programs.
    pub is_folded: bool,
    /// Position in [`Report::programs`]; `None` for rows that are not one program.
    #[serde(skip)]
    pub program: Option<usize>,
    /// Share of the machine by the kernel's run statistics, %; empty if unknown.
    #[serde(skip)]
    pub statistics: String,
    /// Own code, entry code and helpers, the costliest first.
    #[serde(skip)]
    pub parts: Vec<CostPart>,
    /// Payers of the program, the largest first.
    #[serde(skip)]
    pub payers: Vec<CostPart>,
    /// Shares over time, %, the oldest first. All rows of a screen have the same number of values.
    #[serde(skip)]
    pub series: Vec<f64>,
}

/// Part of a program's cost.
#[derive(Debug, Clone, PartialEq)]
pub struct CostPart {
    /// Name of the part.
    pub name: String,
    /// Share, %.
    pub percent: f64,
    /// The share as text.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Node {
    depth: u32,
    kind: NodeKind,
    name: String,
    percent: f64,
    text: String,
    intervals: TimedCosts,
}

/// Source line of a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotLine {
    /// Name of the file, without directories.
    pub file: String,
    /// Line number in the file.
    pub line: u32,
    /// Text of the line.
    pub source: String,
    /// Share of the program's cost, %.
    pub percent: f64,
    /// The share as text.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct PayerOfAll {
    name: String,
    about: String,
    percent: f64,
    text: String,
    tax: String,
    /// All samples of the payer, not only those in BPF.
    all: TimedCosts,
}

/// Load or unload of a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flag {
    /// Time of the load or unload: seconds of the selected time before it.
    pub at_s: f64,
    /// Name of the program, and `loaded` or `unloaded`.
    pub text: String,
}

/// Statement about the confidence in the numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trust {
    /// The statement.
    pub text: String,
    /// True if the recording lacks something.
    pub lacks: bool,
}

impl Report {
    /// First screen of an event of the report, from the overview of the event. Rows have the order of the table.
    pub fn first_screen(&self, event: usize, overview: &Overview) -> FirstScreen {
        match self.events.get(event) {
            Some(event) => {
                let rates = Rates::Count;
                ScreenSource { report: self, event, overview, advice: &[], trees: &[], rates }.of_terminal()
            }
            None => FirstScreen::default(),
        }
    }
}

impl Interval {
    /// First screen of an event of the interval. The series of programs are shares in earlier intervals by run statistics, if known.
    pub fn first_screen(&self, event: usize, history: &History) -> FirstScreen {
        let (Some(event), Some(overview)) = (self.report.events.get(event), self.overviews.get(event)) else {
            return FirstScreen::default();
        };
        let rates = Rates::PerSecond;
        let source = ScreenSource { report: &self.report, event, overview, advice: &[], trees: &[], rates };
        let mut screen = source.of_terminal();
        screen.add_history(&self.report, history);
        let sampled_s = self.sampled_ns.unwrap_or(self.to_ns.saturating_sub(self.from_ns)) as f64 / 1e9;
        let samples = counted(event.samples.samples, "sample");
        let own = self.own_cpu_percent.map(|it| format!("bprec itself {} % of a CPU", fixed(it, 2)));
        let counting = self.counting_percent.map(|it| format!("counting runs ≈{} %", fixed(it, 2)));
        let sampled = format!("{samples} of {} in {} s", clean(&event.name), fixed(sampled_s, 1));
        let said = own.into_iter().chain([sampled]).chain(counting).map(|text| Trust { text, lacks: false });
        // Inserted after the statement on lost samples: a narrow screen shows only the first statements.
        screen.trust.splice(1..1, said);
        screen
    }
}

/// First screen of an HTML page.
pub(super) fn of_page(page: &Page, event: &EventReport, key: impl Fn(usize) -> String) -> FirstScreen {
    let (report, overview) = (&page.report, &page.overview);
    let (advice, trees, rates) = (&page.advice[..], &page.trees.trees[..], Rates::Count);
    let source = ScreenSource { report, event, overview, advice, trees, rates };
    let programs = overview
        .programs
        .iter()
        .map(|slice| ScreenRow { key: slice.program.map(&key).unwrap_or_default(), ..source.row(slice) });
    let mut programs: Vec<ScreenRow> = programs.collect();
    let hues = Hues::default().of(&programs);
    let colours = hues.into_iter().map(|hue| hue.number.map(|_| hue.rgb));
    programs.iter_mut().zip(colours).for_each(|(row, colour)| row.colour = colour);
    let of_event = page.over_time.events.iter().find(|event| event.name == page.stacks.event);
    let timed = of_event.into_iter().flat_map(|event| &event.rows).map(|row| {
        let name = row.program.map_or_else(|| row.name.clone(), |at| page.over_time.programs[at].label());
        (name, row.loaded, row.unloaded)
    });
    let owners = page.bill.as_ref().map(owners::of_bill).unwrap_or_default();
    FirstScreen { owners, ..source.screen(programs, flags(&report.recording, timed)) }
}

/// Models from which the first screen of an event is made.
struct ScreenSource<'m> {
    report: &'m Report,
    event: &'m EventReport,
    overview: &'m Overview,
    advice: &'m [EventFinding],
    trees: &'m [Tree],
    /// Form of runs: per second for an interval of a recording that is under way, a count for a recording.
    rates: Rates,
}

impl ScreenSource<'_> {
    fn screen(&self, programs: Vec<ScreenRow>, flags: Vec<Flag>) -> FirstScreen {
        let (event, overview, recording) = (self.event, self.overview, &self.report.recording);
        let of = if overview.is_of_machine { "of this machine" } else { "of all samples" };
        let in_cpus = overview
            .cpus
            .zip(recording.cpus)
            .map(|(used, cpus)| format!(": {} of {}", fixed(used, 2), counted(cpus.into(), "CPU")));
        let elapsed_s = overview.elapsed_ns as f64 / 1e9;
        let flows = overview.flows.iter();
        let flows =
            flows.map(|it| (it.program, it.payer, it.percent.unwrap_or(0.0), timed_costs(event, &it.by_interval)));
        FirstScreen {
            machine_facts: clean(&machine_facts(recording, event)),
            percent: of_machine(event.percent(event.total.count), event.is_scaled()),
            of: format!("{of}{}", in_cpus.unwrap_or_default()),
            is_of_machine: overview.is_of_machine,
            claims: self.claims(&programs),
            machine: machine(overview),
            payers: overview.payers.iter().map(|slice| payer(event, slice)).collect(),
            owners: Vec::new(),
            flows: flows.collect(),
            interval_s: overview.interval_ns as f64 / 1e9,
            elapsed_s,
            samples: timed_costs(event, &overview.samples_by_interval),
            flags,
            trust: self.trust(),
            programs,
            series_from_s: 0.0,
            series_s: elapsed_s,
        }
    }

    /// First screen of a terminal. Rows have the order of the table. A program without samples has a row if run statistics give it time.
    fn of_terminal(&self) -> FirstScreen {
        let (overview, rates) = (self.overview, self.rates);
        let intervals = overview.elapsed_ns.div_ceil(overview.interval_ns.max(1)) as usize;
        let mut rows: Vec<ScreenRow> = Vec::new();
        let mut others: Vec<ScreenRow> = Vec::new();
        for (at, slice) in overview.programs.iter().enumerate() {
            let mut row = self.row(slice);
            let part = |name: &str, percent: f64, text: String| CostPart { name: clean(name), percent, text };
            row.parts = slice.parts.iter().map(|(name, share)| part(name, *share, percent(Some(*share)))).collect();
            let mut flows: Vec<&Flow> = overview.flows.iter().filter(|flow| flow.program == at).collect();
            flows.sort_by_key(|flow| Reverse(flow.count.weight));
            let paid =
                flows.into_iter().filter(|flow| flow.percent.is_some_and(|percent| percent >= LEAST_SHOWN_PERCENT));
            row.payers = paid
                .map(|flow| {
                    let payer = &overview.payers[flow.payer];
                    let name = name_of(&payer.slice, payer.name.clone());
                    part(&name, flow.percent.unwrap_or(0.0), of_machine(flow.percent, self.event.is_scaled()))
                })
                .collect();
            row.series = vec![0.0; intervals];
            for (interval, share) in &slice.intervals {
                if let Some(of) = row.series.get_mut(*interval as usize) {
                    *of = *share;
                }
            }
            if slice.program.is_some() { rows.push(row) } else { others.push(row) }
        }
        let mut found: FxHashMap<usize, ScreenRow> =
            rows.into_iter().filter_map(|row| Some((row.program?, row))).collect();
        let mut programs: Vec<ScreenRow> = Vec::new();
        for of_table in &self.event.rows {
            let unseen = of_table.unsampled.and_then(|unsampled| unsampled.machine_percent).unwrap_or(0.0);
            let by_statistics = self.report.programs[of_table.program].runs.value().and_then(|it| it.machine_percent);
            let by_statistics = by_statistics.filter(|_| rates == Rates::PerSecond).unwrap_or(0.0);
            let found = found.remove(&of_table.program).or_else(|| {
                let slice = ProgramSlice { program: Some(of_table.program), ..ProgramSlice::default() };
                let is_shown = unseen.max(by_statistics) >= LEAST_SHOWN_PERCENT;
                is_shown.then(|| ScreenRow { series: vec![0.0; intervals], ..self.row(&slice) })
            });
            if let Some(row) = found {
                let text = by_prog::cost(self.event, of_table, rates);
                programs.push(ScreenRow { text, percent: row.percent + unseen, ..row });
            }
        }
        programs.extend(others);
        let shown = programs.iter().filter_map(|row| Some(&self.report.programs[row.program?]));
        let flags =
            flags(&self.report.recording, shown.map(|program| (program.label(), program.loaded, program.unloaded)));
        self.screen(programs, flags)
    }

    /// Statements about the confidence in the numbers.
    fn trust(&self) -> Vec<Trust> {
        let (report, overview, event) = (self.report, self.overview, self.event);
        let mut said = Vec::new();
        let mut push = |lacks: bool, text: String| said.push(Trust { text: clean(&text), lacks });
        match event.lost {
            Known::Value(lost) => {
                push(lost > 0, format!("{} of {} lost", grouped(lost), counted(event.samples.samples, "sample")));
            }
            Known::Unknown(_) | Known::Impossible(_) => push(true, "lost samples were not counted".to_owned()),
        }
        if let Some(late) = event.late_ticks {
            let effect = match late.missing {
                MissingTicks::All => "shares scaled up",
                MissingTicks::Idle => "the rest is idle",
                MissingTicks::Unknown => "shares may be low",
            };
            push(true, format!("{:.0} % of timer ticks: {effect}", late.arrived_percent));
        }
        if let Some(margin) = overview.margin_percent {
            let samples = counted(event.total.count.samples, "sample");
            push(false, format!("BPF ± {} points, {samples}", fixed(margin, 2)));
        }
        let mut runs = report.programs.iter().filter_map(|program| program.runs.value()).peekable();
        match (runs.peek().is_some(), runs.any(|runs| runs.estimate.is_some())) {
            (true, false) => push(false, "runs: exact".to_owned()),
            (true, true) => push(false, "runs: ≈ estimated".to_owned()),
            (false, _) => push(true, "runs were not counted".to_owned()),
        }
        let blind = event.rows.iter().filter(|row| row.blind.is_some()).count() as u64;
        match (blind, report.missed.len() as u64) {
            (0, 0) => push(false, "samples can see every program".to_owned()),
            (blind, missed) => {
                if blind > 0 {
                    push(true, format!("{} that samples cannot see", counted(blind, "program")));
                }
                if missed > 0 {
                    push(true, format!("code and run counts of {} are missing", counted(missed, "program")));
                }
            }
        }
        if let Some(cost) = &report.recording.cost {
            let cpu_ns = cost.user_ns.saturating_add(cost.system_ns);
            push(false, format!("the recorder took {} of CPU time, start and end included", time(cpu_ns as f64)));
        }
        if report.recording.unfinished && self.rates == Rates::Count {
            push(true, "the recording was cut off".to_owned());
        }
        if !report.problems.is_empty() {
            push(true, counted(report.problems.len() as u64, "problem"));
        }
        said
    }

    fn row(&self, slice: &ProgramSlice) -> ScreenRow {
        let (event, programs) = (self.event, &self.report.programs);
        let program = slice.program.map(|at| &programs[at]);
        // If several programs have the same name, the label includes the id.
        let others = self.overview.programs.iter().filter_map(|other| Some(&programs[other.program?]));
        let has_twin =
            program.is_some_and(|program| others.filter(|other| other.label() == program.label()).count() > 1);
        let label = if has_twin { Program::label_with_id } else { Program::label };
        let name = program.map_or_else(|| slice.name.clone(), label);
        let runs = program.and_then(|program| program.runs.value());
        let estimate = |text: String, runs: &Runs| if runs.estimate.is_some() { format!("≈{text}") } else { text };
        let label = program.map(Program::label_with_id);
        let advice = self.advice.iter().filter(|it| {
            let mut programs = it.finding.programs().iter();
            label.as_ref().is_some_and(|label| programs.any(|of| of.program == *label))
        });
        let tree = self.trees.iter().filter(|tree| Some(tree.program) == slice.program);
        let nodes = tree.flat_map(|tree| &tree.nodes).filter(|node| node.inclusive.weight > 0);
        ScreenRow {
            name: clean(&name_of(&slice.slice, name)),
            owner: clean(&program.map(owner).unwrap_or_default()),
            about: clean(&program.map(about).unwrap_or_else(|| {
                if slice.slice.folded.is_some() { "together" } else { "program not known" }.to_owned()
            })),
            percent: slice.slice.percent.unwrap_or(0.0),
            text: of_machine(slice.slice.percent, event.is_scaled()),
            columns: slice.columns.map(|column| column.unwrap_or(0.0)),
            runs: runs.map(|runs| estimate(runs.per_second.map_or_else(String::new, short), runs)).unwrap_or_default(),
            time: runs.and_then(|runs| runs.ns_per_run).map(time).unwrap_or_default(),
            intervals: slice.intervals.clone(),
            tree: nodes
                .map(|node| Node {
                    depth: node.depth,
                    kind: node.kind,
                    name: if node.kind == NodeKind::Entry { "what runs it".to_owned() } else { clean(&node.name) },
                    percent: node.program_percent.unwrap_or(0.0),
                    text: percent(node.program_percent),
                    intervals: timed_costs(event, &node.by_interval),
                })
                .collect(),
            lines: slice.lines.iter().map(|(source, part)| line(source, *part)).collect(),
            advice: advice
                .map(|it| (it.finding.remedy(), clean(&format!("{}: {}", it.measured(), it.finding))))
                .collect(),
            is_folded: slice.slice.folded.is_some(),
            program: slice.program,
            statistics: runs.map(|runs| percent(runs.machine_percent)).unwrap_or_default(),
            ..ScreenRow::default()
        }
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

fn owner(program: &Program) -> String {
    let holder = program.owner_names().next().map(str::to_owned);
    let pinned = || Some(program.pins.first()?.rsplit_once('/')?.0.to_owned());
    holder.or_else(pinned).unwrap_or_default()
}

/// Owner and hooks of a program; its type if no hook is known.
fn about(program: &Program) -> String {
    let hooks = attachments(&program.attached(), None);
    let prog_type = program.prog_type.map(|it| it.to_string()).unwrap_or_default();
    let hook = if hooks.is_empty() { prog_type } else { hooks };
    let parts = [owner(program), hook];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn line(source: &SourceLine, part: f64) -> HotLine {
    let file = source.file.rsplit('/').next().unwrap_or(&source.file);
    HotLine {
        file: clean(file),
        line: source.line,
        source: clean(&source.text),
        percent: part,
        text: percent(Some(part)),
    }
}

fn payer(event: &EventReport, payer: &PayerSlice) -> PayerOfAll {
    let in_interrupts = payer.in_interrupts_percent.filter(|part| *part >= 0.5);
    PayerOfAll {
        name: clean(&name_of(&payer.slice, payer.name.clone())),
        about: in_interrupts.map(|part| format!("{part:.0} % of it in interrupts")).unwrap_or_default(),
        percent: payer.slice.percent.unwrap_or(0.0),
        text: of_machine(payer.slice.percent, event.is_scaled()),
        tax: payer.payer_percent.map(|tax| format!("{} %", fixed(tax, 1))).unwrap_or_default(),
        all: timed_costs(event, &payer.all_by_interval),
    }
}

/// Converts weights to samples of mean weight, rounded to hundredths: this is precise enough for shares, and short in the page.
fn timed_costs(event: &EventReport, by_interval: &[(u32, u64)]) -> TimedCosts {
    let mean_weight = event.samples.weight.max(1) as f64 / event.samples.samples.max(1) as f64;
    let samples = |weight: u64| (weight as f64 * 100.0 / mean_weight).round() / 100.0;
    by_interval.iter().map(|(interval, weight)| (*interval, samples(*weight))).collect()
}

fn machine(overview: &Overview) -> Vec<MachinePart> {
    let Some(parts) = overview.machine else { return Vec::new() };
    let named = [("idle", parts.idle), ("user", parts.user), ("kernel", parts.kernel), ("BPF", parts.bpf)];
    let shown = named.into_iter().filter(|(_, part)| *part > 0.0);
    shown.map(|(name, percent)| MachinePart { name, percent, text: format!("{} %", fixed(percent, 1)) }).collect()
}

/// Marks of loads and unloads. `programs` are (name, load time, unload time).
fn flags(
    recording: &Recording,
    programs: impl Iterator<Item = (String, Option<TimeBound>, Option<TimeBound>)>,
) -> Vec<Flag> {
    let flags = programs.flat_map(|(name, loaded, unloaded)| {
        let bounds = [(loaded, "loaded"), (unloaded, "unloaded")];
        bounds.into_iter().filter_map(move |(bound, what)| {
            let at_s = recording.selected_before(bound?.before_ns)? as f64 / 1e9;
            (at_s >= 0.0).then(|| Flag { at_s, text: clean(&format!("{name} {what}")) })
        })
    });
    flags.take(MAX_FLAGS).collect()
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
