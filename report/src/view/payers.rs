//! Payers (such as tasks or containers) of the cost of BPF, and the cost of each program to each payer.

use super::blocks::{Block, NO_EVENT, View, problems};
use super::by_prog::{late_ticks, measured};
use super::cells::{estimate, of_machine, percent};
use super::columns::{LineColumn, LineColumns};
use super::grid::{Column, Sheet};
use super::screen::Screen;
use crate::model::text::{UNKNOWN, counted, fixed, grouped};
use crate::model::{Count, EventPayers, LateTicks, PayerTotal, Payers};
use crate::options::Payer;
use std::borrow::Cow;
use std::io;

/// Legend of the shares: the total that is 100 % in each column.
pub(super) const LEGEND: &str = "shares: %PROGRAM of the program's cost; %PAYER of all samples of the payer; %BPF of the \
                                 cost of all BPF programs; %MACHINE of all CPUs' time; %ROW IN IRQ is the part of the row's \
                                 samples that an interrupt caused, not the task";

pub(super) fn view(report: &Payers, _: usize) -> View<'_> {
    let mut view = View::default();
    view.events(&report.events, NO_EVENT, |event| {
        let samples = counted(event.samples.samples, "sample");
        let (bpf, share) = (
            grouped(event.total.count.samples),
            of_machine(event.total.machine_percent, LateTicks::scales(event.late_ticks)),
        );
        [
            Block::Fact(measured(&report.recording, &event.name)),
            Block::Fact(format!("{samples} · {bpf} in BPF ({share} % of the machine)")),
            Block::Gap,
            Block::Table(payers(report, event)),
            Block::Gap,
            Block::Table(pairs(report, event, Repeated::Blank)),
        ]
    });
    let late = late_ticks(report.events.iter().map(|event| event.late_ticks));
    view.notes([LEGEND], late.into_iter().chain(problems(&report.problems)));
    view
}

/// A payer, a pair of program and payer, or a sum.
#[derive(Default)]
struct PayerLine<'r> {
    event: &'r str,
    is_scaled: bool,
    /// True if a part of the count is an estimate.
    is_estimate: bool,
    kind: &'static str,
    id: Option<u32>,
    program: Cow<'r, str>,
    /// True if the previous line has the same program.
    is_repeated: bool,
    /// Labels of the payer; empty for sums.
    payer: Vec<String>,
    count: Count,
    in_interrupts: Option<Count>,
    in_interrupts_percent: Option<f64>,
    all: Option<Count>,
    program_percent: Option<f64>,
    payer_percent: Option<f64>,
    bpf_percent: Option<f64>,
    machine_percent: Option<f64>,
}

impl<'r> PayerLine<'r> {
    fn of_payer(event: &'r EventPayers, payer: usize, kind: &'static str) -> PayerLine<'r> {
        let row = &event.payers[payer];
        PayerLine {
            kind,
            payer: row.payer.iter().map(|name| name.label()).collect(),
            in_interrupts: row.in_interrupts.value().copied(),
            in_interrupts_percent: row.in_interrupts_percent,
            all: Some(row.all),
            payer_percent: row.payer_percent,
            count: row.count,
            bpf_percent: row.bpf_percent,
            machine_percent: row.machine_percent,
            ..PayerLine::sum(event, "", &event.total, "".into())
        }
    }

    fn sum(event: &'r EventPayers, kind: &'static str, total: &PayerTotal, program: Cow<'r, str>) -> PayerLine<'r> {
        PayerLine {
            event: &event.name,
            is_scaled: LateTicks::scales(event.late_ticks),
            kind,
            program,
            count: total.count,
            bpf_percent: total.bpf_percent,
            machine_percent: total.machine_percent,
            ..PayerLine::default()
        }
    }

    fn is_sum(&self) -> bool {
        self.all.is_none()
    }

    /// Cell of a share of the line, with `≈` if the count is an estimate. A share of 100 % has no mark, because an estimate is exactly 100 % of
    /// itself.
    fn share(&self, share: Option<f64>) -> String {
        if self.is_estimate && share != Some(100.0) { estimate(share) } else { percent(share) }
    }

    fn unless_sum(&self, cell: String) -> String {
        if self.is_sum() { String::new() } else { cell }
    }
}

fn payer_lines(event: &EventPayers) -> impl Iterator<Item = PayerLine<'_>> {
    (0..event.payers.len()).map(move |payer| PayerLine::of_payer(event, payer, "payer"))
}

fn pair_lines(event: &EventPayers) -> impl Iterator<Item = PayerLine<'_>> {
    let mut last = None;
    event.rows.iter().map(move |row| {
        let program = (row.program, row.name.as_str());
        PayerLine {
            id: row.id,
            program: row.name.as_str().into(),
            is_repeated: last.replace(program) == Some(program),
            count: row.count,
            is_estimate: row.is_estimate,
            in_interrupts: row.in_interrupts.value().copied(),
            in_interrupts_percent: row.in_interrupts_percent,
            program_percent: row.program_percent,
            payer_percent: row.payer_percent,
            bpf_percent: row.bpf_percent,
            machine_percent: row.machine_percent,
            ..PayerLine::of_payer(event, row.payer, if row.program.is_some() { "program" } else { "other" })
        }
    })
}

fn others(event: &EventPayers) -> PayerLine<'_> {
    let name = format!("({})", counted(event.others.pairs as u64, "more pair"));
    PayerLine::sum(event, "others", &event.others.total, name.into())
}

fn total(event: &EventPayers) -> PayerLine<'_> {
    PayerLine::sum(event, "total", &event.total, "TOTAL".into())
}

/// Tables of an event: payers, or pairs of program and payer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Payers,
    Pairs(Repeated),
}

/// Way to show the program in its second and further lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeated {
    /// Blank after the first line.
    Blank,
    /// Repeated in each line.
    Named,
}

/// Column of a key that identifies payers.
pub(super) fn key_column(key: Payer) -> Column {
    let (name, least) = match key {
        Payer::Comm => ("COMM", 15),
        Payer::Pid => ("PROCESS", 15),
        Payer::Cgroup => ("CGROUP", 12),
        Payer::Container => ("CONTAINER", 20),
        Payer::Cpu => ("CPU", 6),
    };
    Column::text(name).always().cut_to(least)
}

fn fields<'r>(report: &'r Payers, which: Which) -> LineColumns<'r, PayerLine<'r>> {
    type F<'r> = LineColumn<'r, PayerLine<'r>>;
    let is_pairs = which != Which::Payers;
    let shown = move |it: &PayerLine<'_>| !it.is_repeated || which == Which::Pairs(Repeated::Named);
    let in_pairs = |field: F<'r>, column, cell: fn(&PayerLine<'_>) -> String| match is_pairs {
        true => field.and_text(column, move |it| if shown(it) { cell(it) } else { String::new() }),
        false => field,
    };
    let id = Column::number("ID").always();
    let program = Column::text("PROGRAM").always().cut_to(16);
    let mut fields = vec![
        F::csv("event", |it| Some(it.event)),
        F::csv("kind", |it| Some(it.kind)),
        in_pairs(F::csv("id", |it| it.id), id, |it| it.id.map(|id| id.to_string()).unwrap_or_default()),
        in_pairs(F::csv("program", |it| Some(it.program.clone()).filter(|_| !it.is_sum())), program, |it| {
            it.program.to_string()
        }),
    ];
    for (at, key) in report.keys.iter().enumerate() {
        let label = move |it: &PayerLine<'r>| it.payer.get(at).cloned();
        fields.push(F::csv(key.to_string(), label).and_text(key_column(*key), move |it| {
            // The table of payers has no column of programs, so the names of sums are in the first column of payers.
            let sum = (at == 0 && !is_pairs).then(|| it.program.to_string());
            label(it).or(sum).unwrap_or_default()
        }));
    }
    let bpf = Column::number("%BPF");
    let bpf = if is_pairs { bpf.droppable(3) } else { bpf.always() };
    let shares = Column::number("%PROGRAM").always();
    fields.extend([
        F::csv("samples", |it| Some(it.count.samples))
            .and_text(Column::number("SAMPLES").always(), |it| grouped(it.count.samples)),
        F::csv("weight", |it| Some(it.count.weight)),
        F::csv("interrupt_samples", |it| Some(it.in_interrupts?.samples)),
        F::csv("interrupt_weight", |it| Some(it.in_interrupts?.weight)),
        F::csv("payer_samples", |it| Some(it.all?.samples)),
        F::csv("payer_weight", |it| Some(it.all?.weight)),
        match (F::csv("program_percent", |it| it.program_percent), is_pairs) {
            (field, true) => field.and_text(shares, |it| it.unless_sum(it.share(it.program_percent))),
            (field, false) => field,
        },
        F::csv("payer_percent", |it| it.payer_percent)
            .and_text(Column::number("%PAYER").share().always(), |it| it.unless_sum(it.share(it.payer_percent))),
        F::csv("bpf_percent", |it| it.bpf_percent)
            .and_text(bpf, |it| it.share(it.bpf_percent))
            .ahead(usize::from(!is_pairs)),
        F::csv("machine_percent", |it| it.machine_percent)
            .and_text(Column::number("%MACHINE").share().droppable(2), |it| {
                of_machine(it.machine_percent, it.is_scaled || it.is_estimate)
            }),
        F::text(Column::number("%ROW IN IRQ").droppable(1).nothing("0.0"), |it| {
            it.unless_sum(it.in_interrupts_percent.map_or_else(|| UNKNOWN.into(), |percent| fixed(percent, 1)))
        }),
    ]);
    LineColumns::new(fields)
}

/// Table of an event's payers.
pub(super) fn payers(report: &Payers, event: &EventPayers) -> Sheet {
    let rows: Vec<PayerLine<'_>> = payer_lines(event).collect();
    fields(report, Which::Payers).sheet(&rows, &[total(event)])
}

/// Table of pairs of program and payer.
pub(super) fn pairs(report: &Payers, event: &EventPayers, repeated: Repeated) -> Sheet {
    let mut rows: Vec<PayerLine<'_>> = pair_lines(event).collect();
    rows.extend((event.others.pairs > 0).then(|| others(event)));
    fields(report, Which::Pairs(repeated)).sheet(&rows, &[total(event)])
}

pub(super) fn csv(report: &Payers, out: &mut Screen<'_>) -> io::Result<()> {
    let lines = report
        .events
        .iter()
        .flat_map(|event| payer_lines(event).chain(pair_lines(event)).chain([others(event), total(event)]));
    fields(report, Which::Payers).write_csv(lines, out)
}
