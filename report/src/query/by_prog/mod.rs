//! The report by program, made from the facts of a recording.

pub(crate) mod advice;
pub(crate) mod bill;
mod blinded;
mod coverage;
pub(crate) mod facts;
mod groups;
pub(crate) mod lazy;
mod missing;
mod notes;
pub(crate) mod over_time;
pub(crate) mod payers;
pub(crate) mod rows;
mod sampled;
mod sampler;
pub(crate) mod shares;
mod traits;
pub(crate) mod tree;
pub(crate) mod without;

use crate::index::Index;
use crate::input::recording::OpenRecording;
use crate::model::{Count, EventReport, JSON_VERSION, Known, Note, Others, Program, Reason, Report, SourceRow, Unit};
use crate::pass::sinks::pivot::Charges;
use crate::{Options, Result};
use facts::{Facts, WantedFacts};
use groups::{Grouped, grouped};
use rows::{Basis, ProgramRow, program_rows};
use shares::EventWhole;
use std::sync::Arc;
use traits::{ROWS_WITHOUT_SAMPLES, WithoutSamples};

/// Makes the report by program.
pub(crate) fn build(recording: &OpenRecording<'_>, index: &Index, options: &Options) -> Result<Report> {
    Ok(Facts::gather(recording, index, options, WantedFacts::default(), |_| ())?.0.report())
}

impl Facts<'_> {
    /// Returns the report by program.
    pub(crate) fn report(&self) -> Report {
        let mut events: Vec<EventReport> = Vec::with_capacity(self.events().count());
        for mut made in self.event_reports() {
            // Events with equal notes share them in memory: there may be thousands of events without samples, all with the same notes.
            if let Some(before) = events.last().filter(|before| before.notes == made.notes) {
                made.notes = Arc::clone(&before.notes);
            }
            events.push(made);
        }
        self.report_of(events)
    }

    /// The report by program, with `events`.
    fn report_of<E>(&self, events: E) -> Report<E> {
        let asked = &self.selection.asked;
        Report {
            format: "bprec by-prog",
            version: JSON_VERSION,
            missed: self.missed(),
            matched_programs: (0..self.programs.len() as u32).filter(|program| asked.has(*program)).count(),
            recording: self.recorded.clone(),
            by: self.options.by,
            counting: self.counting.clone(),
            programs: Arc::clone(&self.programs),
            events,
            blinded_events: self.blinded_events.clone(),
            problems: self.problems(),
            notes: self.notes(),
        }
    }

    /// Reports of the selected events, each made when it is reached.
    fn event_reports(&self) -> impl Iterator<Item = EventReport> + Clone {
        let mut rows_left = ROWS_WITHOUT_SAMPLES + self.programs.len();
        self.events().map(move |event| self.event_report(event, &mut rows_left))
    }

    /// Returns the notes about the recording as a whole.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let states = &self.index.states;
        let unheld = states.cost.and_then(|cost| cost.unheld).unwrap_or(0);
        notes::of_recording(self, self.side_band_lost(), states.user_symbols.as_ref(), unheld)
    }

    /// Makes the report of an event. `rows_left` is the remaining limit on rows of programs without samples.
    fn event_report(&self, event: usize, rows_left: &mut usize) -> EventReport {
        let facts = self.event(event);
        let (ledger, whole, common) = (facts.ledger, &facts.whole, &self.common);
        let bpf_sampler = self.bpf_sampler(event);
        let lists_without_samples = common.listed <= *rows_left;
        *rows_left -= if lists_without_samples { common.listed } else { 0 };
        let rows = program_rows(self, event, &facts, lists_without_samples);
        let with_row = |how| rows.iter().filter(|row| common.traits[row.program].without_samples == how).count();
        let quiet = common.quiet - with_row(WithoutSamples::Quiet);
        let left_out = common.listed - with_row(WithoutSamples::Listed);
        // The total needs the rows of all programs, so it is unknown if only some programs are requested.
        let unsampled_ns = rows.iter().filter(|_| self.selection.asked.is_all()).filter_map(|row| row.unsampled_ns);
        let unsampled_ns = unsampled_ns.reduce(u64::saturating_add);
        let mut chosen = match &self.grouping {
            None => self.choose(rows, whole),
            Some(grouping) => {
                let (groups, rest) = grouped(grouping, self, &facts, rows);
                let mut chosen = self.choose(rest, whole);
                // `rest` has the programs without a group: programs that were not requested, and programs that count other programs.
                chosen.groups = self.choose_groups(groups, &mut chosen, whole);
                chosen
            }
        };
        chosen.quiet += quiet;
        let unknown_kernel_code = match self.index.code.maps.is_empty() {
            false => Known::Value(ledger.unknown_code),
            true => Known::Unknown(Reason::NoKernelMap),
        };
        // Without kernel symbols, entry code cannot be recognized. A count of 0 then means unknown.
        let has_symbols = !self.index.code.kernel.is_empty();
        let told = |count: Count| match has_symbols || count.samples > 0 {
            true => Known::Value(count),
            false => Known::Unknown(Reason::NoKernelSymbols),
        };
        let mut charges_of_all = facts.charges;
        charges_of_all.entry.merge(ledger.entry);
        // A program's share of a hook is an estimate, but the sum over all programs is exact. The total is therefore not marked as estimated.
        charges_of_all.shared_entry = Count::default();
        let mut total = whole.ledger(&charges_of_all, false);
        // The total includes interpreted programs. Their line has no columns, so the columns do not include them.
        let all_of_it = whole.line(facts.bpf);
        (total.count, total.shares) = (all_of_it.count, all_of_it.shares);
        let without_samples = whole.kept(whole.ledger(&Charges::default(), true));
        let mut made = EventReport {
            name: self.recording.names[event].clone(),
            unit: facts.unit,
            samples: ledger.samples,
            idle: facts.idle.clone().map(|idle| whole.share(idle)),
            busy: facts.busy.clone(),
            machine: facts.machine.clone(),
            late_ticks: facts.late_ticks,
            lost: self.lost(event),
            filtered: self.index.lost.filtered.get(&event).copied().unwrap_or(0),
            throttled: self.throttled(event),
            has_chains: facts.has_chains,
            is_timer: facts.unit == Unit::Nanoseconds,
            aggregated: self.aggregated(event, whole).map(Box::new),
            sources: sources(&chosen.shown, &self.programs, &facts.basis),
            groups: self.grouping.as_ref().map_or(Vec::new(), |grouping| {
                chosen.groups.iter().map(|group| group.row(grouping, &common.members, whole)).collect()
            }),
            rows: chosen
                .shown
                .iter()
                .map(|row| row.row(&self.programs, whole, &without_samples, self.options))
                .collect(),
            others: Others { programs: chosen.rest.0, line: whole.kept(whole.ledger(&chosen.rest.1, false)) },
            counting_programs: Others {
                programs: chosen.counting.0,
                line: whole.kept(whole.ledger(&chosen.counting.1, false)),
            },
            quiet_programs: chosen.quiet,
            entry_unattributed: told(ledger.entry)
                .map(|entry| whole.kept(whole.ledger(&Charges { entry, ..Charges::default() }, false))),
            interpreted: told(ledger.interpreted).map(|count| whole.kept(whole.line(count))),
            unknown_kernel_code: unknown_kernel_code.map(|count| whole.kept(whole.line(count))),
            total: whole.kept(total),
            unsampled: unsampled_ns.map(|time_ns| whole.unsampled(time_ns)),
            bpf_sampler: bpf_sampler.map(Box::new),
            notes: Arc::default(),
        };
        let members = chosen.groups.iter().flat_map(|group| &group.rows);
        let shown: Vec<&ProgramRow> = chosen.shown.iter().chain(members).collect();
        let left_out = if self.grouping.is_none() { left_out } else { 0 };
        let notes = notes::of_event(self, &made, &shown, left_out);
        made.notes = notes.into();
        made
    }

    /// Chooses the rows to show, and sums up the other rows.
    fn choose(&self, mut rows: Vec<ProgramRow>, whole: &EventWhole<'_>) -> Chosen {
        let (options, asked) = (self.options, &self.selection.asked);
        let mut chosen = Chosen::default();
        let mut shown = 0;
        // Filters in place: with many programs, rows take most of the memory.
        rows.retain(|row| {
            let program = &self.programs[row.program];
            let is_asked = asked.has(row.program as u32);
            let is_loud = options.all || !asked.is_all() && is_asked || row.happened(program);
            let has_room = options.limit.is_none_or(|limit| shown < limit);
            let is_tool = program.counts_others || options.folds_tools && program.is_of_tools();
            if is_tool && asked.is_all() && !options.all {
                // Programs that count other programs, and folded programs of tools, share one row.
                chosen.counting.0 += usize::from(row.has_samples());
                chosen.counting.1.merge(&row.charges);
                false
            } else if is_asked
                && is_loud
                && has_room
                && !self.is_small(row.cost(), row.unseen().is_some() && row.unsampled_ns.is_none(), whole)
            {
                shown += 1;
                true
            } else if row.has_samples() {
                chosen.rest.0 += 1;
                chosen.rest.1.merge(&row.charges);
                false
            } else {
                chosen.quiet += 1;
                false
            }
        });
        Chosen { shown: rows, ..chosen }
    }

    /// Returns true if a cost is below the percent limit; always false if a part of the cost is unknown (`is_partial`).
    fn is_small(&self, cost: Count, is_partial: bool, whole: &EventWhole<'_>) -> bool {
        let Some(limit) = self.options.percent_limit else { return false };
        !is_partial && whole.share(cost).percent.is_some_and(|percent| percent < limit)
    }

    /// Chooses the groups to show, and adds the other groups to the rest.
    fn choose_groups(&self, groups: Vec<Grouped>, chosen: &mut Chosen, whole: &EventWhole<'_>) -> Vec<Grouped> {
        let options = self.options;
        let is_asked = !self.selection.asked.is_all();
        let mut shown = Vec::new();
        for group in groups {
            let is_loud = options.all || is_asked || group.happened;
            let has_room = options.limit.is_none_or(|limit| shown.len() < limit);
            if is_loud
                && has_room
                && !self.is_small(group.cost(), group.unseen > 0 && group.unsampled_ns().is_none(), whole)
            {
                shown.push(group);
                continue;
            }
            let sampled = group.sampled_programs();
            chosen.rest.0 += sampled;
            chosen.rest.1.merge(&group.charges);
            chosen.quiet += group.programs - sampled;
        }
        shown
    }
}

/// Rows to show, and sums of the other rows as (number of programs with samples, their charges).
#[derive(Default)]
struct Chosen {
    shown: Vec<ProgramRow>,
    groups: Vec<Grouped>,
    rest: (usize, Charges),
    counting: (usize, Charges),
    quiet: usize,
}

/// Returns rows that compare the sources of a program's time per run, for programs with exact counters.
fn sources(rows: &[ProgramRow], programs: &[Program], basis: &Basis) -> Vec<SourceRow> {
    let compared = rows.iter().filter_map(|row| {
        let program = &programs[row.program];
        program.exact.value()?;
        // The sampled time is of the whole recording, so it is divided by the runs in the whole recording.
        let all_runs = program.exact_throughout().map(|exact| exact.runs);
        let all_runs = all_runs.or(program.runs.value().map(|runs| runs.count)).filter(|runs| *runs > 0);
        let total = row.charges.total;
        let is_time = basis.samples_are_whole && basis.is_timer && row.blind.is_none() && total.samples > 0;
        let sampled_ns_per_run = all_runs.filter(|_| is_time).map(|runs| total.weight as f64 / runs as f64);
        Some(SourceRow { program: row.program, sampled_ns_per_run })
    });
    compared.collect()
}
