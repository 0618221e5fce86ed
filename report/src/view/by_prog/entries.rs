//! Lines of the table by program and of its CSV.

use super::columns::Rates;
use crate::model::text::UNKNOWN;
use crate::model::{
    Columns, Count, EventReport, GroupRow, Known, Line, Program, Report, Row, Runs, Shares, StatisticsCost,
    UnsampledTime,
};
use crate::view::cells::{estimate, percent};
use std::borrow::Cow;

/// Name of the row below the total for time in programs that samples cannot see.
const UNSAMPLED: &str = "+ programs marked ~";

/// Place of a line: in tables and CSV, or only in CSV.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EntryPlacement {
    /// Among the rows of tables, and in CSV.
    Row,
    /// Below the rule of tables, and in CSV.
    Total,
    /// Only in CSV.
    #[default]
    Csv,
}

/// A line: a program, a part of a program, a group, unattributed samples, or a sum.
#[derive(Clone, Default)]
pub(super) struct LedgerEntry<'r> {
    /// Event of the line.
    pub(super) event: Option<&'r EventReport>,
    /// Kind in CSV; empty for lines that only tables have.
    pub(super) kind: &'static str,
    pub(super) shown: EntryPlacement,
    /// Name in tables.
    pub(super) name: Cow<'r, str>,
    /// Name in CSV, for lines that are not programs.
    pub(super) plain_name: Option<&'r str>,
    /// Program of the line; for a part, the program that it belongs to.
    pub(super) program: Option<&'r Program>,
    pub(super) row: Option<&'r Row>,
    pub(super) group: Option<&'r GroupRow>,
    pub(super) part: Option<&'r str>,
    pub(super) programs: Option<usize>,
    /// Charged samples, for the cells of tables.
    pub(super) line: Option<&'r Line>,
    /// Charged samples by column (self, helper, entry, inclusive), for CSV.
    pub(super) columns: Option<&'r Columns>,
    pub(super) samples: Option<u64>,
    pub(super) weight: Option<u64>,
    pub(super) shares: Shares,
    /// Cell of the share of the machine; `None` if `line` has the share.
    pub(super) machine: Option<String>,
    /// True for a line without samples: tables show only its share of the machine.
    pub(super) is_share: bool,
    pub(super) unsampled: Option<&'r UnsampledTime>,
    pub(super) runs: Option<&'r Runs>,
    pub(super) run_count: Option<u64>,
    pub(super) run_time_ns: Option<u64>,
    pub(super) misses: Option<u64>,
}

impl<'r> LedgerEntry<'r> {
    fn new(
        event: &'r EventReport,
        kind: &'static str,
        shown: EntryPlacement,
        name: impl Into<Cow<'r, str>>,
    ) -> LedgerEntry<'r> {
        LedgerEntry { event: Some(event), kind, shown, name: name.into(), ..LedgerEntry::default() }
    }

    fn csv(event: &'r EventReport, kind: &'static str) -> LedgerEntry<'r> {
        LedgerEntry::new(event, kind, EntryPlacement::Csv, "")
    }

    fn count(self, count: Option<Count>) -> LedgerEntry<'r> {
        LedgerEntry { samples: count.map(|it| it.samples), weight: count.map(|it| it.weight), ..self }
    }

    /// Sets the charged samples and the shares.
    fn sum(self, line: Option<&'r Line>) -> LedgerEntry<'r> {
        let shares = line.map(|line| line.shares).unwrap_or_default();
        LedgerEntry { line, shares, ..self.count(line.map(|line| line.count)) }
    }

    /// Sets the charged samples, the shares, and the columns self, helper, entry and inclusive.
    fn ledger(self, line: Option<&'r Line>) -> LedgerEntry<'r> {
        LedgerEntry { columns: line.and_then(|line| line.columns.as_deref()), ..self.sum(line) }
    }

    fn runs(self, runs: Option<&'r Runs>) -> LedgerEntry<'r> {
        LedgerEntry {
            runs,
            run_count: runs.map(|runs| runs.count),
            run_time_ns: runs.map(|runs| runs.time_ns),
            misses: runs.and_then(|runs| runs.misses),
            ..self
        }
    }

    /// Sets `machine` as the only share that tables show. CSV still has the count of samples.
    fn unplaced(self, machine: String) -> LedgerEntry<'r> {
        LedgerEntry { line: None, machine: Some(machine), ..self }
    }

    /// Program, in the main line of a program; `None` for parts of programs and all other lines.
    pub(super) fn head(&self) -> Option<&'r Program> {
        self.program.filter(|_| self.row.is_some())
    }

    /// Returns true for rows of programs and groups. If such a row lacks a value, its cell shows that the value is unknown. In all other lines, the
    /// cell is empty.
    pub(super) fn is_row(&self) -> bool {
        self.row.is_some() || self.group.is_some()
    }

    pub(super) fn of_line(&self, cell: impl Fn(&Line) -> String) -> String {
        match self.line {
            Some(line) => cell(line),
            None if self.is_row() => UNKNOWN.into(),
            None => String::new(),
        }
    }

    pub(super) fn of_runs(&self, cell: impl Fn(&Runs) -> String) -> String {
        match self.runs {
            Some(runs) => cell(runs),
            None if self.is_row() => UNKNOWN.into(),
            None => String::new(),
        }
    }

    /// Marks a group's sum with `≥` if the runs of some of its programs are unknown.
    pub(super) fn summed(&self, cell: String) -> String {
        let is_part = self.group.is_some_and(|group| group.programs_with_runs < group.programs.len());
        if is_part && cell != UNKNOWN { format!("≥{cell}") } else { cell }
    }

    /// Time that samples cannot see, in rows of programs and groups. The share of the machine includes this time; the other shares are unknown.
    pub(super) fn unseen(&self) -> Option<&'r UnsampledTime> {
        self.unsampled.filter(|_| self.is_row())
    }
}

/// Line of a program, then lines of its parts.
pub(super) fn program_lines<'r>(
    report: &'r Report,
    event: &'r EventReport,
    row: &'r Row,
) -> impl Iterator<Item = LedgerEntry<'r>> {
    let program = &report.programs[row.program];
    let blind = if row.blind.is_some() { "~" } else { "" };
    let line =
        LedgerEntry::new(event, "program", EntryPlacement::Row, program.label() + blind).ledger(row.line.as_deref());
    let line = line.runs(program.runs.value().map(AsRef::as_ref));
    let line = LedgerEntry { program: Some(program), row: Some(row), unsampled: row.unsampled.as_ref(), ..line };
    let parts = row.parts.iter().flatten().map(move |part| LedgerEntry {
        program: Some(program),
        part: Some(&part.name),
        ..LedgerEntry::new(event, "part", EntryPlacement::Row, format!("  {}", part.name)).ledger(Some(&part.line))
    });
    std::iter::once(line).chain(parts)
}

/// Lines that are not programs: groups, unattributed samples, sums, and lines that only CSV has.
pub(super) fn other_lines<'r>(report: &'r Report, event: &'r EventReport, rates: Rates) -> Vec<LedgerEntry<'r>> {
    let mut lines: Vec<LedgerEntry<'r>> = Vec::new();
    lines.extend(event.groups.iter().map(|group| {
        let blind = if group.blind_programs > 0 { "~" } else { "" };
        let line = LedgerEntry::new(event, "group", EntryPlacement::Row, format!("{}{blind}", group.name))
            .ledger(group.line.as_ref());
        LedgerEntry {
            group: Some(group),
            plain_name: Some(&group.name),
            programs: Some(group.programs.len()),
            unsampled: group.unsampled.as_ref(),
            ..line.runs(group.runs.value().map(AsRef::as_ref))
        }
    }));
    let whose = if rates == Rates::PerSecond { "bprec and probes" } else { "counting" };
    let others = |programs: usize| format!("({programs} other program{})", if programs == 1 { "" } else { "s" });
    let counting = |programs: usize| format!("({whose}, {programs} programs)");
    for (kind, it, name) in [
        ("others", &event.others, &others as &dyn Fn(usize) -> String),
        ("counting", &event.counting_programs, &counting),
    ] {
        if it.programs > 0 {
            let line = LedgerEntry::new(event, kind, EntryPlacement::Row, name(it.programs)).ledger(Some(&it.line));
            lines.push(LedgerEntry { programs: Some(it.programs), ..line });
        }
    }
    for (kind, name, line) in [
        ("entry", "(entry, program unknown)", &event.entry_unattributed),
        ("interpreted", "(interpreted programs)", &event.interpreted),
    ] {
        let line = line.value().map(AsRef::as_ref);
        let is_shown = line.is_some_and(|line: &Line| line.count != Count::default());
        lines.push(
            LedgerEntry::new(event, kind, if is_shown { EntryPlacement::Row } else { EntryPlacement::Csv }, name)
                .sum(line),
        );
    }
    let total = LedgerEntry::new(event, "total", EntryPlacement::Total, "TOTAL").sum(Some(&event.total));
    lines.push(LedgerEntry { unsampled: event.unsampled.as_ref(), ..total });
    if let Some(unsampled) = &event.unsampled {
        let line =
            LedgerEntry::new(event, "", EntryPlacement::Total, UNSAMPLED).unplaced(estimate(unsampled.machine_percent));
        lines.push(LedgerEntry { is_share: true, ..line });
    }
    let below = |kind, name: &'static str, is_shown, machine| {
        LedgerEntry::new(event, kind, if is_shown { EntryPlacement::Total } else { EntryPlacement::Csv }, name)
            .unplaced(machine)
    };
    if let Some(statistics) = report.recording.cost.and_then(|cost| cost.run_statistics) {
        let StatisticsCost { time_ns, cpu_percent, machine_percent, .. } = statistics;
        // Tables leave out a cost that rounds to 0.00 % of one CPU.
        let tells = cpu_percent.is_some_and(|percent| percent >= 0.005);
        let line = below("run_statistics", "[cost of counting runs]", tells, estimate(machine_percent));
        lines.push(LedgerEntry { is_share: true, run_time_ns: Some(time_ns), ..line });
    }
    if let Some(line) = event.unknown_kernel_code.value() {
        let machine = percent(line.shares.machine);
        let shown = below("unknown_kernel_code", "[unknown kernel code]", line.count.samples > 0, String::new());
        lines.push(shown.sum(Some(line)).unplaced(machine));
    }
    lines.push(LedgerEntry::csv(event, "samples").count(Some(event.samples)));
    lines.push(LedgerEntry::csv(event, "idle").count(event.idle.value().map(|idle| idle.count)));
    if let Some(sampler) = &event.bpf_sampler {
        let lost = sampler.full.zip(sampler.failed).map(|(full, failed)| full.saturating_add(failed));
        let line = LedgerEntry::csv(event, "bpf_sampler");
        lines.push(LedgerEntry { samples: sampler.written, run_count: sampler.runs, misses: lost, ..line });
        if let Some(blind) = &sampler.blind_spot {
            let line = LedgerEntry::csv(event, "blind_spot").count(Some(blind.inside));
            let shares = Shares { samples: blind.percent, ..Shares::default() };
            lines.push(LedgerEntry { plain_name: Some(&blind.event), shares, ..line });
        }
    }
    if let Some(aggregated) = &event.aggregated {
        // Overflow and blind spot may belong to BPF, to other code or to idle time. Only their share of the machine is therefore known.
        let (overflow, machine) = (aggregated.overflow, percent(aggregated.overflow_machine_percent));
        lines.push(below("overflow", "[overflow]", overflow.samples > 0, machine).count(Some(overflow)));
        let machine = percent(aggregated.blind_spot_machine_percent);
        lines.push(below("blind_spot", "[blind spot]", true, machine).count(aggregated.blind_spot.value().copied()));
    }
    if let Known::Value(lost) = event.lost {
        lines.push(LedgerEntry { samples: Some(lost), ..LedgerEntry::csv(event, "lost") });
    }
    lines
}
