//! The table for people: an opening that says what was measured, one row per program, the lines that no program could be
//! told for, the total, and notes on everything that is not a plain number.

mod opening;

use opening::opening;

use super::exact;
use super::notes::{write_notes, write_wrapped};
use super::rows::{Chosen, choose};
use super::text::{UNKNOWN, attachments, clean, fit, grouped, moment, owners, per_run, percent, program_name, seconds};
use crate::{Aggregated, Charges, Count, EventReport, Program, Report, Row, Unit};
use std::io::{self, Write};

pub(super) fn write(report: &Report, out: &mut dyn Write, width: usize) -> io::Result<()> {
    for (index, event) in report.events.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        opening(report, event, out, width)?;
        if report.programs.is_empty() {
            hottest(report, event, out, width)?;
        } else {
            let table = Table::new(report, event);
            table.write(out, width)?;
            table.sources(out, width)?;
            table.notes(out, width)?;
        }
    }
    if report.events.is_empty() {
        writeln!(out, "# no event of this recording says where the CPUs were")?;
    }
    closing(report, out, width)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// A column: its name, and how much it is worth keeping when the table is too wide (0: always).
pub(super) struct Column {
    pub(super) name: String,
    align: Align,
    drop_order: u8,
    /// Least width a column of text may be cut to.
    cut_to: Option<usize>,
}

pub(super) fn number(name: &str, drop_order: u8) -> Column {
    Column { name: name.into(), align: Align::Right, drop_order, cut_to: None }
}

fn text(name: &str, drop_order: u8, cut_to: usize) -> Column {
    Column { name: name.into(), align: Align::Left, drop_order, cut_to: Some(cut_to) }
}

/// The columns in order. The first to go are those with the highest number.
fn columns(report: &Report) -> Vec<Column> {
    let mut columns = vec![
        number("ID", 0),
        text("PROGRAM", 0, 24),
        text("TYPE", 8, 10),
        number("%MACHINE", 7),
        number("%BUSY", 3),
        number("%BPF", 2),
        number("SAMPLES", 1),
        number("SELF%", 1),
        number("HELPER%", 1),
        number("ENTRY%", 4),
        number("TOTAL%", 3),
        number("RUNS", 2),
        number("NS/RUN", 2),
        number("MISSES", 5),
    ];
    columns.extend(report.counting.iter().flat_map(exact::columns));
    columns.extend([number("LOADED", 6), number("UNLOADED", 6), text("ATTACHED TO", 9, 12), text("OWNER", 10, 10)]);
    columns
}

/// As many as there are columns.
type Cells = Vec<String>;

enum Line {
    Cells(Cells),
    Rule,
}

/// What the shares are of.
const LEGEND: &str = "%MACHINE: of all CPUs' time; %BUSY: of what was not idle; %BPF: of all BPF; \
    SELF% (own code) + HELPER% (what it called) + ENTRY% (what runs it), TOTAL% (inclusive): of all samples";

struct Table<'r> {
    report: &'r Report,
    event: &'r EventReport,
    chosen: Chosen<'r>,
    columns: Vec<Column>,
    notes: Vec<String>,
    lines: Vec<Line>,
}

impl<'r> Table<'r> {
    fn new(report: &'r Report, event: &'r EventReport) -> Table<'r> {
        let chosen = choose(report, event, true);
        let columns = columns(report);
        let mut table = Table { report, event, chosen, columns, notes: Vec::new(), lines: Vec::new() };
        for row in table.chosen.shown.clone() {
            table.program(row);
        }
        table.lines_without_program();
        table
    }

    /// Shares of machine, busy time and BPF time.
    fn shares(&self, count: Count) -> [String; 3] {
        let event = self.event;
        let busy = event.idle.map(|idle| event.samples.weight.saturating_sub(idle.weight));
        [
            percent(count.weight, event.machine),
            percent(count.weight, busy),
            percent(count.weight, Some(event.bpf().weight)),
        ]
    }

    /// Self, helper, entry and total, of all samples.
    fn ledger(&self, charges: &Charges, has_total: bool) -> [String; 4] {
        let all = Some(self.event.samples.weight);
        let of_all = |count: Count| percent(count.weight, all);
        let chained = |count: Count| if self.event.has_chains { of_all(count) } else { UNKNOWN.into() };
        let total = if has_total { chained(charges.total) } else { String::new() };
        [of_all(charges.own), chained(charges.helper), chained(charges.entry), total]
    }

    fn program(&mut self, row: &Row) {
        let program = &self.report.programs[row.program];
        let sum = row.charges.sum();
        let mut name = program_name(program);
        let mut shares = self.shares(sum);
        let mut ledger = self.ledger(&row.charges, true);
        let mut samples = grouped(sum.samples);
        if let Some(blind) = &row.blind {
            name.push('~');
            let note = format!("~ {}: {}", program_name(program), blind.0);
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
            if row.charges.total.samples == 0 {
                shares = [const { UNKNOWN }; 3].map(Into::into);
                ledger = [const { UNKNOWN }; 4].map(Into::into);
                samples = UNKNOWN.into();
            }
        }
        let [runs, per_run, misses] = match &self.report.counting {
            None => run_cells(program),
            Some(_) => exact::run_cells(program, run_cells(program)),
        };
        let [machine, busy, bpf] = shares;
        let [own, helper, entry, total] = ledger;
        let mut cells = vec![
            program.id.map_or(UNKNOWN.into(), |id| id.to_string()),
            name,
            program.prog_type.map_or(UNKNOWN.into(), |prog_type| prog_type.to_string()),
            machine,
            busy,
            bpf,
            samples,
            own,
            helper,
            entry,
            total,
            runs,
            per_run,
            misses,
        ];
        cells.extend(self.report.counting.iter().flat_map(|counting| exact::cells(program, counting)));
        cells.extend([moment(program.loaded), moment(program.unloaded), attachments(program), owners(program)]);
        self.lines.push(Line::Cells(cells));
        for part in &row.parts {
            let name = format!("  {}", clean(&part.name));
            self.line(name, part.charges.sum(), Some((&part.charges, part.has_total)));
        }
    }

    fn line(&mut self, name: String, count: Count, charges: Option<(&Charges, bool)>) {
        let [machine, busy, bpf] = self.shares(count);
        let mut cells = vec![String::new(); self.columns.len()];
        (cells[1], cells[3], cells[4], cells[5]) = (name, machine, busy, bpf);
        cells[6] = grouped(count.samples);
        if let Some((charges, has_total)) = charges {
            let [own, helper, entry, total] = self.ledger(charges, has_total);
            (cells[7], cells[8], cells[9], cells[10]) = (own, helper, entry, total);
        }
        self.lines.push(Line::Cells(cells));
    }

    /// A line of what is in no share but that of the machine.
    fn unplaced(&mut self, name: &str, count: Option<Count>) {
        let mut cells = vec![String::new(); self.columns.len()];
        cells[1] = name.to_owned();
        cells[3] = count.map_or(UNKNOWN.into(), |count| percent(count.weight, self.event.machine));
        cells[6] = count.map_or(UNKNOWN.into(), |count| grouped(count.samples));
        self.lines.push(Line::Cells(cells));
    }

    fn lines_without_program(&mut self) {
        let event = self.event;
        if self.chosen.rest > 0 {
            let charges = self.chosen.rest_charges;
            let name = format!("({} other program{})", self.chosen.rest, if self.chosen.rest == 1 { "" } else { "s" });
            self.line(name, charges.sum(), Some((&charges, false)));
        }
        if self.chosen.counting > 0 {
            let charges = self.chosen.counting_charges;
            let name = format!("(counting, {} programs)", self.chosen.counting);
            self.line(name, charges.sum(), Some((&charges, false)));
        }
        let entry = Charges { entry: event.entry, ..Charges::default() };
        if event.entry.samples > 0 {
            self.line("(entry, unattributed)".into(), event.entry, Some((&entry, false)));
        }
        if event.interpreted.samples > 0 {
            self.line("(interpreted programs)".into(), event.interpreted, None);
        }
        if let Some(unresolved) = event.unresolved.filter(|count| count.samples > 0) {
            self.line("(unresolved)".into(), unresolved, None);
        }
        self.lines.push(Line::Rule);
        let mut total: Charges = Charges::default();
        event.rows.iter().for_each(|row| total.merge(&row.charges));
        total.entry.merge(event.entry);
        self.line("TOTAL".into(), event.bpf(), Some((&total, false)));
        if let Some(aggregated) = &event.aggregated {
            // Of neither can it be told whether it was BPF, or idle.
            if aggregated.overflow.samples > 0 {
                self.unplaced("[overflow]", Some(aggregated.overflow));
            }
            self.unplaced("[blind spot]", aggregated.blind_spot);
        }
    }

    fn write(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        let widths = self.widths(width);
        let shown = |cells: &dyn Fn(usize) -> String| {
            let mut line = String::new();
            for (column, width) in
                self.columns.iter().enumerate().filter_map(|(at, column)| Some((at, widths[at]?)).map(|w| (column, w)))
            {
                let (at, width) = width;
                let cell = fit(&cells(at), width);
                let padding = " ".repeat(width - cell.chars().count());
                match column.align {
                    Align::Left => line.extend([cell.as_str(), &padding]),
                    Align::Right => line.extend([padding.as_str(), &cell]),
                }
                line.push_str("  ");
            }
            line.truncate(line.trim_end().len());
            line
        };
        writeln!(out, "{}", shown(&|at| self.columns[at].name.clone()))?;
        for line in &self.lines {
            match line {
                Line::Cells(cells) => writeln!(out, "{}", shown(&|at| cells[at].clone()))?,
                Line::Rule => {
                    let total: usize = widths.iter().flatten().map(|width| width + 2).sum();
                    writeln!(out, "{}", "-".repeat(total.saturating_sub(2)))?;
                }
            }
        }
        Ok(())
    }

    /// Width of each column; `None` of those left out. Columns without content go first, then, as long as the table is
    /// too wide, text is cut and the least important column left out.
    fn widths(&self, limit: usize) -> Vec<Option<usize>> {
        let columns = &self.columns;
        let mut widths: Vec<Option<usize>> = vec![None; columns.len()];
        let mut whole = vec![0; columns.len()];
        let cells = || {
            self.lines.iter().filter_map(|line| match line {
                Line::Cells(cells) => Some(cells),
                Line::Rule => None,
            })
        };
        for (at, column) in columns.iter().enumerate() {
            // A column that says n/a everywhere is left out, and a note says why.
            let says_something = |cell: &String| !cell.is_empty() && cell != UNKNOWN && cell != "0.00";
            let keep = column.drop_order == 0 || cells().any(|cells| says_something(&cells[at]));
            let widest = cells().map(|cells| cells[at].chars().count()).max().unwrap_or(0);
            whole[at] = widest.max(column.name.chars().count());
            widths[at] = keep.then_some(whole[at]);
        }
        let total =
            |widths: &[Option<usize>]| widths.iter().flatten().map(|width| width + 2).sum::<usize>().saturating_sub(2);
        while total(&widths) > limit {
            let over = total(&widths) - limit;
            // The widest text gives first.
            let cuttable =
                |at: usize| Some(widths[at]?.saturating_sub(columns[at].cut_to?.max(columns[at].name.chars().count())));
            let widest =
                (0..columns.len()).filter(|at| cuttable(*at).is_some_and(|room| room > 0)).max_by_key(|at| widths[*at]);
            if let Some(at) = widest {
                let room = cuttable(at).unwrap_or(0);
                widths[at] = widths[at].map(|width| width - over.min(room).min(4));
                continue;
            }
            let next = (0..columns.len()).filter(|at| widths[*at].is_some() && columns[*at].drop_order > 0);
            match next.max_by_key(|at| (columns[*at].drop_order, *at)) {
                Some(at) => widths[at] = None,
                None => break,
            }
        }
        // What was cut gets the room that a column which was left out has made.
        for at in 0..columns.len() {
            let room = limit.saturating_sub(total(&widths));
            widths[at] = widths[at].map(|width| width + room.min(whole[at] - width));
        }
        widths
    }

    /// The same by its sources, where exact counters are one.
    fn sources(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        if self.report.counting.is_none() {
            return Ok(());
        }
        let lines = exact::by_source(self.report, self.event, &self.chosen.shown);
        if lines.len() > 1 {
            writeln!(out, "#")?;
            write_wrapped(exact::SOURCES, out, width)?;
            lines.iter().try_for_each(|line| writeln!(out, "{}", fit(line, width)))?;
        }
        Ok(())
    }

    fn notes(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        let event = self.event;
        let mut notes = vec![LEGEND.to_owned()];
        notes.extend(
            self.report.counting.iter().flat_map(|counting| exact::notes(self.report, &self.chosen.shown, counting)),
        );
        for row in &self.chosen.shown {
            let program = &self.report.programs[row.program];
            let said = program.disagreements.iter().chain(&row.disagreement);
            notes.extend(said.map(|said| format!("≠ {}: {}", program_name(program), clean(said))));
        }
        notes.extend(self.notes.iter().cloned());
        if self.chosen.quiet > 0 {
            let s = if self.chosen.quiet == 1 { "" } else { "s" };
            notes
                .push(format!("{} program{s} without samples or runs not shown (--all shows them)", self.chosen.quiet));
        }
        for program in self.report.programs_on(&event.name) {
            notes.push(format!(
                "this event carries program {} ({}): it has the samples that the program lets through, and none from inside \
                 kprobe, tracepoint and perf_event programs",
                program_name(program),
                program.id.unwrap_or_default()
            ));
        }
        if !event.has_chains {
            notes
                .push("no kernel call chains in the recording: what programs call, and what calls them, is n/a".into());
        }
        if let Some(Err(unknown)) = self.report.programs.iter().map(|program| &program.runs).find(|runs| runs.is_err())
            && self.report.programs.iter().all(|program| program.runs.is_err())
        {
            notes.push(format!("runs: n/a, {}", unknown.0));
        }
        notes.extend(event.aggregated.iter().flat_map(|aggregated| counted_in_kernel(aggregated, event)));
        if event.machine.is_none() {
            let unit = match event.unit {
                Unit::Nanoseconds => "the recording does not say how long it was, or of how many CPUs",
                Unit::Events => "how many of this event the machine could have had is not known",
            };
            notes.push(format!("%MACHINE: n/a, {unit}"));
        }
        if event.idle.is_some() && !self.report.recorded.has_kernel_symbols {
            notes.push("no kernel symbols in the recording: all of the idle task but BPF counts as idle".into());
        }
        if event.unresolved.is_none() {
            notes.push("no kernel map in the recording: code that nothing accounts for cannot be told".into());
        }
        write_notes(&notes, out, width)
    }
}

/// Runs, time per run and misses, as the kernel counts them.
fn run_cells(program: &Program) -> [String; 3] {
    match &program.runs {
        Ok(runs) => [grouped(runs.count), per_run(runs), runs.misses.map_or(UNKNOWN.into(), grouped)],
        Err(_) => [const { UNKNOWN }; 3].map(Into::into),
    }
}

/// What is different about an event whose samples were counted in the kernel.
fn counted_in_kernel(aggregated: &Aggregated, event: &EventReport) -> Vec<String> {
    let late = if event.is_timer { ", and timer interrupts that came too late to be one each" } else { "" };
    let mut notes = vec![
        format!(
            "samples were counted in the kernel and written every {} s: no time is finer than that",
            seconds(aggregated.interval_ns as i64)
        ),
        format!(
            "[blind spot]: what the event counted and the program that counts samples did not see, in no other line: all of \
             kprobe, tracepoint and perf_event programs, and map system calls{late}"
        ),
    ];
    if aggregated.overflow.samples > 0 {
        notes.push(format!(
            "[overflow]: samples for which there was no room among {} stacks (bprec record --aggregate-entries)",
            grouped(aggregated.entries.into())
        ));
    }
    notes
}

/// What was hit most, when there is no program.
fn hottest(report: &Report, event: &EventReport, out: &mut dyn Write, width: usize) -> io::Result<()> {
    writeln!(out, "# no BPF programs in this recording; what was hit most:")?;
    writeln!(out, "SAMPLES%    SAMPLES  SYMBOL OR ADDRESS")?;
    let shown = event.hot.iter().take(report.shown.limit.unwrap_or(usize::MAX));
    for hot in shown {
        let line = format!(
            "{:>8}  {:>9}  {}  {}",
            percent(hot.count.weight, Some(event.samples.weight)),
            grouped(hot.count.samples),
            clean(&hot.name),
            clean(&hot.object)
        );
        writeln!(out, "{}", fit(line.trim_end(), width))?;
    }
    Ok(())
}

/// What concerns the recording as a whole.
fn closing(report: &Report, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let mut notes = Vec::new();
    if !report.missed.is_empty() {
        let s = if report.missed.len() == 1 { " was" } else { "s were" };
        notes.push(format!("{} program{s} seen but not captured:", report.missed.len()));
        for missed in &report.missed {
            let when = missed.time_ns.map(|time| format!(" at {} s", seconds(time))).unwrap_or_default();
            notes.push(format!("  id {}{when}: {}", missed.id, clean(&missed.reason)));
        }
    }
    for blinded in report.blinded.iter().filter(|blinded| !blinded.own) {
        let Some(program) = report.programs.get(blinded.program) else { continue };
        let event = match blinded.event.as_str() {
            "" => "a perf event, the kernel does not tell which".to_owned(),
            event if event.starts_with("event of ") => {
                format!("a perf {}, of which the kernel tells no more", clean(event))
            }
            event => format!("perf event {}", clean(event)),
        };
        let by = match owners(program) {
            owners if owners.is_empty() => String::new(),
            owners => format!(" of {owners}"),
        };
        notes.push(format!(
            "program {} ({}){by} is on {event}: whoever samples by that gets none from inside kprobe, tracepoint and perf_event \
             programs; the samples of this recording are not affected",
            program_name(program),
            program.id.unwrap_or_default()
        ));
    }
    if report.recorded.unfinished {
        notes.push("the recording was cut off: it ends where the recorder wrote last".into());
    }
    if let Some(cost) = &report.recorded.cost {
        notes.push(format!(
            "the recording itself took {} s user, {} s system, {} bytes",
            seconds(cost.user_ns as i64),
            seconds(cost.system_ns as i64),
            grouped(cost.written_bytes)
        ));
    }
    notes.extend(report.problems.iter().map(|problem| clean(problem)));
    write_notes(&notes, out, width)
}
