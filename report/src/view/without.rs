//! Predictions: CPU time of payers without some programs.

use super::blocks::{Block, View, graded, problems};
use super::by_prog::{late_ticks, measured};
use super::cells::{self, estimate, of_machine, percent};
use super::columns::{LineColumn, LineColumns};
use super::grid::{Column, Sheet};
use super::payers::key_column;
use super::screen::Screen;
use crate::model::text::{UNKNOWN, counted, decimal, fixed, grouped, listed};
use crate::model::{CpuChange, CpuTime, EventWithout, Exact, LateTicks, Note, RemovedProgram, Without};
use std::borrow::Cow;
use std::io;

/// Legend of the columns, and of costs that the prediction leaves out.
const LEGEND: &str = "NOW: CPU time of the payer, in thousandths of one CPU; SAVED: the part that the removed programs take, also as %MACHINE; \
    TAX %PAYER: SAVED as share of NOW. ±: half of the 95 % confidence interval from the number of samples; for predicted numbers, it includes ± 15 % \
    of SAVED for costs that samples do not show, such as cache misses and mispredicted branches of the payers";
/// Meaning of `≈`: other programs share the code of hooks.
const SHARED: &str = "≈: programs that stay share hooks with the removed programs. Work that a hook does for each program is split by the runs of the programs";
/// Legend of the columns with operations.
const OPERATIONS: &str = "OPS/S: operations of the payer per second, counted by {}; NOW/OP, SAVED/OP: CPU time per operation in ns, or \
    the count of an event that is no clock, such as cycles";
/// Limit on the names of removed programs above a table. With more programs, the line has only their count.
const NAMES_SHOWN: usize = 3;

pub(super) fn view(report: &Without, _: usize) -> View<'_> {
    let mut view = View::default();
    view.events(&report.events, "the recording has no samples, so there is no prediction", |event| {
        let saved = &event.total.saved;
        let fact = format!(
            "{} · without {}: {} ± {} % of the machine less",
            counted(event.samples.samples, "sample"),
            removed(report),
            of_machine(saved.machine_percent, LateTicks::scales(event.late_ticks) || is_shared(&event.total)),
            percent(saved.margin_percent)
        );
        let blocks = [
            Block::Fact(measured(&report.recording, &event.name)),
            Block::Fact(fact),
            Block::Gap,
            Block::Table(payers(report, event)),
        ];
        let has_times = report.programs.iter().any(|program| program.exact.is_some());
        let times = has_times.then(|| [Block::Gap, Block::Table(times(report))]);
        blocks.into_iter().chain(times.into_iter().flatten())
    });
    let staying = report.events.iter().map(|event| event.total.staying.samples).sum();
    let shared = report.events.iter().any(|event| is_shared(&event.total)).then(|| match staying {
        0 => SHARED.to_owned(),
        _ => format!(
            "{SHARED}; {} in code that a hook runs once for all its programs {} not part of SAVED",
            counted(staying, "sample"),
            if staying == 1 { "is" } else { "are" }
        ),
    });
    let operations = report.operation.iter().map(|event| OPERATIONS.replace("{}", event));
    let late = late_ticks(report.events.iter().map(|event| event.late_ticks));
    let is_shown = |note: &&Note| {
        matches!(note, Note::IdleUnknown { .. } | Note::NotInSamples { .. } | Note::OperationsMissing { .. })
    };
    let notes = report.notes.iter().filter(is_shown).map(graded);
    let legend = [LEGEND.to_owned()].into_iter().chain(operations).chain(shared);
    view.notes(legend, late.into_iter().chain(notes).chain(problems(&report.problems)));
    view
}

/// Names of the removed owners with the count of their programs. Without owners: names of the removed programs, or their count.
fn removed(report: &Without) -> String {
    let programs = counted(report.programs.len() as u64, "program");
    if !report.owners.is_empty() {
        return format!("{} ({programs})", listed(&report.owners));
    }
    let named = report.programs.iter().map(|program| match program.id {
        Some(id) => format!("{} ({id})", program.name),
        None => program.name.clone(),
    });
    if report.programs.len() > NAMES_SHOWN { programs } else { listed(&named.collect::<Vec<_>>()) }
}

fn is_shared(change: &CpuChange) -> bool {
    change.shared.weight > 0 || change.staying.weight > 0
}

/// A payer, or a sum of payers.
struct WithoutLine<'r> {
    event: &'r EventWithout,
    kind: &'static str,
    /// Labels of the payer, or the name of the sum.
    names: Vec<Cow<'r, str>>,
    change: &'r CpuChange,
}

impl WithoutLine<'_> {
    /// Cell of a value that depends on the saving. A known value has the mark `≈` if the saving is an estimate.
    fn predicted(&self, cell: String) -> String {
        let is_estimate = is_shared(self.change) && cell != UNKNOWN;
        if is_estimate { format!("≈{cell}") } else { cell }
    }
}

fn lines(event: &EventWithout) -> impl Iterator<Item = WithoutLine<'_>> {
    let payers = event.payers.iter().map(move |payer| WithoutLine {
        event,
        kind: "payer",
        names: payer.payer.iter().map(|name| name.label().into()).collect(),
        change: &payer.change,
    });
    let name = format!("({})", counted(event.others.payers as u64, "more payer")).into();
    let others = WithoutLine { event, kind: "others", names: vec![name], change: &event.others.change };
    payers.chain((event.others.payers > 0).then_some(others))
}

fn total(event: &EventWithout) -> WithoutLine<'_> {
    WithoutLine { event, kind: "total", names: vec!["TOTAL".into()], change: &event.total }
}

fn millicpus(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.into(), |value| fixed(value, 1))
}

fn fields<'r>(report: &'r Without) -> LineColumns<'r, WithoutLine<'r>> {
    type F<'r> = LineColumn<'r, WithoutLine<'r>>;
    type Time = (&'static str, fn(&CpuChange) -> CpuTime);
    let mut fields: Vec<F<'r>> =
        vec![F::csv("event", |it| Some(it.event.name.clone())), F::csv("kind", |it| Some(it.kind))];
    for (at, key) in report.keys.iter().enumerate() {
        let label = move |it: &WithoutLine<'r>| it.names.get(at).map(Cow::to_string);
        let of_payer = move |it: &WithoutLine<'r>| label(it).filter(|_| it.kind == "payer");
        let field = F::csv(key.to_string(), of_payer);
        fields.push(field.and_text(key_column(*key), move |it| label(it).unwrap_or_default()));
    }
    let times: [Time; 3] = [("now", |it| it.now), ("without", |it| it.without), ("saved", |it| it.saved)];
    for (name, time) in times {
        let of = move |it: &WithoutLine<'r>| time(it.change);
        let cell = move |it: &WithoutLine<'r>| millicpus(of(it).millicpus);
        let margin = move |it: &WithoutLine<'r>| millicpus(of(it).margin_millicpus);
        let heading = format!("{} mCPU", name.to_uppercase());
        let column = Column::number(heading).droppable(if name == "saved" { 0 } else { 2 });
        fields.extend([
            F::csv(format!("{name}_samples"), move |it| Some(of(it).count.samples)),
            F::csv(format!("{name}_weight"), move |it| Some(of(it).count.weight)),
            F::csv(format!("{name}_machine_percent"), move |it| of(it).machine_percent),
            F::csv(format!("{name}_margin_percent"), move |it| of(it).margin_percent),
            F::csv(format!("{name}_millicpus"), move |it| of(it).millicpus)
                .and_text(column, move |it| if name == "now" { cell(it) } else { it.predicted(cell(it)) }),
            F::csv(format!("{name}_margin_millicpus"), move |it| of(it).margin_millicpus)
                .and_text(Column::number("±").droppable(3), margin),
        ]);
    }
    fields.extend([
        F::text(Column::number("%MACHINE").share().always(), |it| {
            of_machine(it.change.saved.machine_percent, LateTicks::scales(it.event.late_ticks) || is_shared(it.change))
        }),
        F::text(Column::number("±").droppable(1), |it| percent(it.change.saved.margin_percent)),
        F::csv("tax_percent", |it| it.change.tax_percent).and_text(
            Column::number("TAX %PAYER").share().always(),
            |it| {
                if is_shared(it.change) { estimate(it.change.tax_percent) } else { percent(it.change.tax_percent) }
            },
        ),
        F::csv("tax_margin_percent", |it| it.change.tax_margin_percent)
            .and_text(Column::number("±").always(), |it| percent(it.change.tax_margin_percent)),
    ]);
    if report.operation.is_some() {
        fields.extend(operations());
    }
    fields.extend([
        F::text(Column::number("SAMPLES").droppable(4), |it| grouped(it.change.saved.count.samples)),
        F::csv("shared_weight", |it| Some(it.change.shared.weight)),
        F::csv("staying_weight", |it| Some(it.change.staying.weight)),
    ]);
    LineColumns::new(fields)
}

/// Columns of operations and their cost.
fn operations<'r>() -> impl Iterator<Item = LineColumn<'r, WithoutLine<'r>>> {
    type F<'r> = LineColumn<'r, WithoutLine<'r>>;
    let number = |value: Option<f64>| value.map_or_else(|| UNKNOWN.into(), decimal);
    let of = |it: &WithoutLine<'r>| it.change.operations;
    [
        F::csv("operations", move |it| Some(of(it)?.count.weight)),
        F::csv("operations_per_second", move |it| of(it)?.per_second).and_text(
            Column::number("OPS/S").always(),
            move |it| {
                of(it).and_then(|it| it.per_second).map_or_else(|| "0".into(), |rate| grouped(rate.round() as u64))
            },
        ),
        F::csv("now_per_operation", move |it| of(it)?.now)
            .and_text(Column::number("NOW/OP").droppable(2), move |it| number(of(it).and_then(|it| it.now))),
        F::csv("saved_per_operation", move |it| of(it)?.saved)
            .and_text(Column::number("SAVED/OP").always(), move |it| {
                it.predicted(number(of(it).and_then(|it| it.saved)))
            }),
        F::csv("margin_per_operation", move |it| of(it)?.margin)
            .and_text(Column::number("±").always(), move |it| number(of(it).and_then(|it| it.margin))),
    ]
    .into_iter()
}

/// Table of the removed programs' times per run, by exact counters.
fn times(report: &Without) -> Sheet {
    type F<'r> = LineColumn<'r, RemovedProgram>;
    let exact = |it: &RemovedProgram, cell: fn(&Exact) -> String| it.exact.as_deref().map_or_else(String::new, cell);
    let mut fields: Vec<F<'_>> = vec![
        F::text(Column::text("PROGRAM").always().cut_to(20), |it| it.name.clone()),
        F::text(Column::number("ID"), |it| it.id.map_or_else(|| UNKNOWN.into(), |id| id.to_string())),
        F::text(Column::number("RUNS"), move |it| exact(it, |it| grouped(it.runs))),
        F::text(Column::number("NS/RUN"), move |it| exact(it, cells::time)),
    ];
    for (at, (name, order)) in cells::PERCENTILE_COLUMNS.into_iter().enumerate() {
        fields.push(F::text(Column::number(name).droppable(order), move |it| {
            it.exact.as_deref().map_or_else(String::new, |exact| cells::percentile(exact, at))
        }));
    }
    LineColumns::new(fields).sheet(&report.programs, &[])
}

/// Table of an event's payers.
fn payers(report: &Without, event: &EventWithout) -> Sheet {
    let rows: Vec<WithoutLine<'_>> = lines(event).collect();
    fields(report).sheet(&rows, &[total(event)])
}

pub(super) fn csv(report: &Without, out: &mut Screen<'_>) -> io::Result<()> {
    fields(report).write_csv(report.events.iter().flat_map(|event| lines(event).chain([total(event)])), out)
}
