//! Who pays: the payers, and what each program costs each of them.

use super::cells::{of_machine, percent, plain};
use super::grid::{Column, Sheet};
use super::opening::measured;
use super::screen::Screen;
use super::write_notes;
use crate::model::text::{UNKNOWN, counted, fixed, grouped};
use crate::model::{Count, EventPayers, PayerName, Payers};
use crate::options::Payer;
use std::io;

/// What the shares are of.
pub(super) const LEGEND: &str = "%PROGRAM: of what the program costs; %PAYER: of all samples of the payer; %BPF: of all BPF; %MACHINE: of all CPUs' time; \
    %ROW IN IRQ: of the row's samples, those in interrupts, charged to the task that they interrupted";

pub(super) fn table(report: &Payers, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    for (nth, event) in report.events.iter().enumerate() {
        if nth > 0 {
            writeln!(out)?;
        }
        writeln!(out, "# {}", measured(&report.recording, &event.name))?;
        let samples = counted(event.samples.samples, "sample");
        let (bpf, share) =
            (grouped(event.total.count.samples), of_machine(event.total.machine_percent, event.is_scaled));
        writeln!(out, "# {samples} · {bpf} in BPF ({share} % of the machine)")?;
        writeln!(out, "#")?;
        payers(report, event).write(out, width)?;
        writeln!(out, "#")?;
        pairs(report, event, Repeated::Blank).write(out, width)?;
    }
    if report.events.is_empty() {
        writeln!(out, "# no event of this recording samples the CPUs")?;
    }
    let mut notes = vec![LEGEND.to_owned()];
    notes.extend(report.problems.iter().cloned());
    write_notes(&notes, out, width)
}

fn key_columns(report: &Payers) -> impl Iterator<Item = Column> + '_ {
    report.keys.iter().map(|key| {
        let (name, least) = match key {
            Payer::Comm => ("COMM", 15),
            Payer::Pid => ("PROCESS", 15),
            Payer::Cgroup => ("CGROUP", 12),
            Payer::Container => ("CONTAINER", 20),
            Payer::Cpu => ("CPU", 6),
        };
        Column::text(name).always().cut_to(least)
    })
}

fn names(payer: &[PayerName]) -> impl Iterator<Item = String> + '_ {
    payer.iter().map(PayerName::label)
}

fn interrupts(percent: Option<f64>) -> String {
    percent.map_or_else(|| UNKNOWN.into(), |percent| fixed(percent, 1))
}

/// The payers of an event.
pub(super) fn payers(report: &Payers, event: &EventPayers) -> Sheet {
    let mut columns: Vec<Column> = key_columns(report).collect();
    columns.extend([
        Column::number("SAMPLES").always(),
        Column::number("%BPF").always(),
        Column::number("%PAYER").share().always(),
        Column::number("%MACHINE").share().droppable(2),
        Column::number("%ROW IN IRQ").droppable(1).nothing("0.0"),
    ]);
    let line = |payer: Vec<String>, numbers: [String; 5]| payer.into_iter().chain(numbers).collect::<Vec<_>>();
    let rows = event.payers.iter().map(|row| {
        line(
            names(&row.payer).collect(),
            [
                grouped(row.count.samples),
                percent(row.bpf_percent),
                percent(row.payer_percent),
                of_machine(row.machine_percent, event.is_scaled),
                interrupts(row.in_interrupts_percent),
            ],
        )
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let mut first = vec![String::new(); report.keys.len()];
    first[0] = "TOTAL".into();
    let total = &event.total;
    let shares = [
        grouped(total.count.samples),
        percent(total.bpf_percent),
        String::new(),
        of_machine(total.machine_percent, event.is_scaled),
        String::new(),
    ];
    Sheet { columns, rows, totals: vec![line(first, shares)] }
}

/// What stands for the program in lines of one that has several payers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeated {
    /// Nothing but in the first.
    Blank,
    /// Its name, in each.
    Named,
}

/// What each program costs each payer.
pub(super) fn pairs(report: &Payers, event: &EventPayers, repeated: Repeated) -> Sheet {
    let mut columns = vec![Column::number("ID").always(), Column::text("PROGRAM").always().cut_to(16)];
    columns.extend(key_columns(report));
    columns.extend([
        Column::number("SAMPLES").always(),
        Column::number("%PROGRAM").always(),
        Column::number("%PAYER").share().always(),
        Column::number("%BPF").droppable(3),
        Column::number("%MACHINE").share().droppable(2),
        Column::number("%ROW IN IRQ").droppable(1).nothing("0.0"),
    ]);
    let mut rows: Vec<Vec<String>> = Vec::with_capacity(event.rows.len());
    let mut last = None;
    for row in &event.rows {
        // A program's name stands at its first payer.
        let is_first = last.replace((row.program, &row.name)) != Some((row.program, &row.name));
        let mut cells = match is_first || repeated == Repeated::Named {
            true => vec![row.id.map_or_else(String::new, |id| id.to_string()), row.name.clone()],
            false => vec![String::new(), String::new()],
        };
        cells.extend(names(&event.payers[row.payer].payer));
        cells.extend([
            grouped(row.count.samples),
            percent(row.program_percent),
            percent(row.payer_percent),
            percent(row.bpf_percent),
            of_machine(row.machine_percent, event.is_scaled),
            interrupts(row.in_interrupts_percent),
        ]);
        rows.push(cells);
    }
    let keys = report.keys.len();
    let line = |name: String, samples: u64, bpf: Option<f64>, machine: Option<f64>| {
        let mut cells = vec![String::new(); keys + 8];
        (cells[1], cells[keys + 2]) = (name, grouped(samples));
        (cells[keys + 5], cells[keys + 6]) = (percent(bpf), of_machine(machine, event.is_scaled));
        cells
    };
    let others = &event.others;
    if others.pairs > 0 {
        let count = others.total.count.samples;
        let name = format!("({})", counted(others.pairs as u64, "more pair"));
        rows.push(line(name, count, others.total.bpf_percent, others.total.machine_percent));
    }
    let total = &event.total;
    let total = line("TOTAL".into(), total.count.samples, total.bpf_percent, total.machine_percent);
    Sheet { columns, rows, totals: vec![total] }
}

/// What lines of every kind have behind their names.
#[derive(Default)]
struct CsvLine {
    count: Count,
    in_interrupts: Option<Count>,
    payer: Option<Count>,
    program_percent: Option<f64>,
    payer_percent: Option<f64>,
    bpf_percent: Option<f64>,
    machine_percent: Option<f64>,
}

pub(super) fn csv(report: &Payers, out: &mut Screen<'_>) -> io::Result<()> {
    let mut columns: Vec<String> = ["event", "kind", "id", "program"].map(str::to_owned).into();
    columns.extend(report.keys.iter().map(ToString::to_string));
    columns.extend(
        [
            "samples",
            "weight",
            "interrupt_samples",
            "interrupt_weight",
            "payer_samples",
            "payer_weight",
            "program_percent",
            "payer_percent",
            "bpf_percent",
            "machine_percent",
        ]
        .map(str::to_owned),
    );
    out.values(columns, ",")?;
    let nobody = || vec![String::new(); report.keys.len()];
    for event in &report.events {
        let mut write = |kind: &str, program: [String; 2], payer: Vec<String>, line: CsvLine| {
            let [id, name] = program;
            let mut values = vec![event.name.clone(), kind.to_owned(), id, name];
            values.extend(payer);
            values.extend([line.count.samples.to_string(), line.count.weight.to_string()]);
            for count in [line.in_interrupts, line.payer] {
                values.extend([plain(count.map(|count| count.samples)), plain(count.map(|count| count.weight))]);
            }
            let shares = [line.program_percent, line.payer_percent, line.bpf_percent, line.machine_percent];
            values.extend(shares.map(plain));
            out.values(values, ",")
        };
        let no_program = || [String::new(), String::new()];
        for row in &event.payers {
            let line = CsvLine {
                count: row.count,
                in_interrupts: row.in_interrupts.value().copied(),
                payer: Some(row.all),
                program_percent: None,
                payer_percent: row.payer_percent,
                bpf_percent: row.bpf_percent,
                machine_percent: row.machine_percent,
            };
            write("payer", no_program(), names(&row.payer).collect(), line)?;
        }
        for row in &event.rows {
            let kind = if row.program.is_some() { "program" } else { "other" };
            let payer = &event.payers[row.payer];
            let line = CsvLine {
                count: row.count,
                in_interrupts: row.in_interrupts.value().copied(),
                payer: Some(payer.all),
                program_percent: row.program_percent,
                payer_percent: row.payer_percent,
                bpf_percent: row.bpf_percent,
                machine_percent: row.machine_percent,
            };
            write(kind, [plain(row.id), row.name.clone()], names(&payer.payer).collect(), line)?;
        }
        for (kind, total) in [("others", &event.others.total), ("total", &event.total)] {
            let (bpf_percent, machine_percent) = (total.bpf_percent, total.machine_percent);
            let line = CsvLine { count: total.count, bpf_percent, machine_percent, ..CsvLine::default() };
            write(kind, no_program(), nobody(), line)?;
        }
    }
    Ok(())
}
