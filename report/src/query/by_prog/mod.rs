//! From the ledger and the index to the report by program.

pub(crate) mod advice;
mod blinded;
mod coverage;
mod groups;
mod missing;
mod notes;
pub(crate) mod over_time;
pub(crate) mod payers;
pub(crate) mod rows;
mod sampled;
mod sampler;
mod shares;
mod sharing;
mod traits;
pub(crate) mod tree;

use crate::index::Index;
use crate::index::runners::Group;
use crate::input::cut_off::CutOff;
use crate::input::recording::Recording;
use crate::input::window::{Window, since};
use crate::model::{
    Count, CpuNotSampled, EventReport, JSON_VERSION, Known, MissingTicks, Others, Program, Reason, RecorderCost,
    Report, SourceRow, StatisticsCost, TraceData, Unit,
};
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::sinks::ledger::{Charges, EventLedger, LedgerSink};
use crate::pass::{self, Selection, Sink, Unreadable};
use crate::query::counters::CounterHistory;
use crate::query::counters::history::HistoryWalk;
use crate::{Options, Result, model};
use bprec_format::SampleType;
use bprec_format::feature::{CpuCount, Feature, SampleTime};
use groups::{Grouped, Grouping, grouped};
use rows::{Basis, ProgramRow, RowsOf, program_rows, programs};
use sampler::bpf_sampler;
use shares::{Whole, Zeros};
use sharing::HookWeights;
use std::collections::BTreeSet;
use std::sync::Arc;
use traits::{Common, ROWS_WITHOUT_SAMPLES, WithoutSamples};

/// Makes the report.
pub(crate) fn build(recording: &Recording<'_>, index: &Index, options: &Options) -> Result<Report> {
    build_with(recording, index, options, false, ()).map(|built| built.report)
}

/// A report, and what was made beside it.
pub(crate) struct Built<'i, S> {
    pub(crate) report: Report,
    /// What another sink took in.
    pub(crate) sink: S,
    /// In what ratio programs share hooks.
    weights: HookWeights<'i>,
}

/// Makes the report, and feeds another sink in the same pass; `needs_comm`: with names of tasks.
pub(crate) fn build_with<'i, S: Sink>(
    recording: &Recording<'_>,
    index: &'i Index,
    options: &Options,
    needs_comm: bool,
    other: S,
) -> Result<Built<'i, S>> {
    let window = Window::of(&options.time, recording, index.start_ns())?;
    let mut selection = Selection::new(recording, index, &window, options)?;
    selection.needs_comm |= needs_comm;
    let grouping = options.group().map(|by| Grouping::new(index, by, options));
    let group_of = grouping.as_ref().map_or(&[][..], |grouping| &grouping.of);
    let sink = LedgerSink::new(index, options.split(), group_of, recording.events.all().len());
    let mut history = HistoryWalk::new(recording, index, &window, false);
    let ((other, sink), unreadable) =
        pass::run(recording, index, &selection, (other, sink), |slice, records| history.slice(slice, records));
    let (ledgers, history) = (sink.finish(), history.finish());
    let events = &selection.events;
    let grouping = grouping.as_ref();
    let window = &window;
    let lost = missing::lost(recording, index);
    let builder = Builder {
        recording,
        options,
        window,
        index,
        history,
        ledgers,
        lost,
        grouping,
        unreadable,
        events,
        zeros: Zeros::default(),
    };
    let (report, weights) = builder.report();
    Ok(Built { report, sink: other, weights })
}

struct Builder<'b, 'i> {
    recording: &'b Recording<'b>,
    options: &'b Options,
    window: &'b Window,
    index: &'i Index,
    history: CounterHistory,
    /// By event.
    ledgers: ByEvent<EventLedger>,
    /// Lost samples, by event.
    lost: Vec<Option<u64>>,
    /// Where programs are put together.
    grouping: Option<&'b Grouping>,
    unreadable: Unreadable,
    events: &'b [bool],
    zeros: Zeros,
}

impl<'i> Builder<'_, 'i> {
    fn report(mut self) -> (Report, HookWeights<'i>) {
        let (first, last) = self.time_span();
        let elapsed_ns = self.window.length_ns(first, last);
        let selected =
            self.window.selected(first, last).map(|(from, to)| (since(from, first), since(to, first))).collect();
        let recording = model::Recording { selected, ..self.recorded(first, (elapsed_ns > 0).then_some(elapsed_ns)) };
        let counting = self.history.counting();
        let (programs, order) = programs(self.index, &self.history, self.window, first, counting.as_ref());
        let weights = HookWeights::new(self.index, &programs, &order);
        self.share_entry(&weights);
        let asked: Option<Vec<bool>> = (!self.options.programs.is_empty()).then(|| {
            let asked = |p: &Program| {
                self.options.programs.iter().any(|filter| filter.matches(p.id, p.tag.map(|tag| tag.0), &p.name))
            };
            programs.iter().map(asked).collect()
        });
        let blinded_events = blinded::find(&self.index.states.attachments, &programs, &self.recording.names);
        let mut report = Report {
            format: "bprec by-prog",
            version: JSON_VERSION,
            missed: self.missed(&programs, first),
            matched_programs: asked.as_ref().map_or(programs.len(), |asked| asked.iter().filter(|it| **it).count()),
            recording,
            by: self.options.by,
            counting,
            programs: Arc::new(programs),
            events: Vec::with_capacity(self.events.iter().filter(|is_asked| **is_asked).count()),
            blinded_events,
            problems: self.problems(),
            notes: Vec::new(),
        };
        let mut positions = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(number, position)| positions[*number as usize] = position);
        let grouping = self.grouping;
        let traits = traits::traits(self.index, &report.programs, &order, asked.as_deref(), grouping, self.options);
        let how_many = |how| traits.iter().filter(|traits| traits.without_samples == how).count();
        let mut common = Common {
            listed: how_many(WithoutSamples::Listed),
            quiet: how_many(WithoutSamples::Quiet),
            has_tail_called: traits.iter().any(|traits| traits.is_tail_called),
            traits,
            members: grouping.map_or(Vec::new(), |grouping| grouping.members(&order, &report)),
            main_event: sampler::main_event(self.recording, self.index, self.events),
            carried: notes::carried(&report),
            no_runs: notes::no_runs(&report.programs),
            runs_are_corrected: self.index.runs.is_corrected(),
            rows_left: ROWS_WITHOUT_SAMPLES + report.programs.len(),
            order,
            positions,
            asked,
        };
        for event in (0..self.events.len()).filter(|event| self.events[*event]) {
            let mut made = self.event(event, &report, &mut common);
            // Events without samples have the same notes, and may be thousands.
            if let Some(before) = report.events.last().filter(|before| before.notes == made.notes) {
                made.notes = Arc::clone(&before.notes);
            }
            report.events.push(made);
        }
        let side_band_lost = self.side_band_lost();
        let states = &self.index.states;
        let unheld = states.cost.and_then(|cost| cost.unheld).unwrap_or(0);
        report.notes = notes::of_recording(&report, side_band_lost, states.user_symbols.as_ref(), unheld);
        (report, weights)
    }

    /// Shares what hooks of several programs cost between those.
    fn share_entry(&mut self, weights: &HookWeights<'_>) {
        let groups = self.index.hooks.groups();
        let weights = |group: &Group, interval| weights.of(group, interval);
        let group_of = self.grouping.map_or(&[][..], |grouping| &grouping.of);
        for ledger in self.ledgers.iter_mut() {
            ledger.share_entry(groups, weights, self.options.split(), group_of);
        }
    }

    /// When the recording started and ended: as the recorder says, or else by the samples.
    fn time_span(&self) -> (u64, u64) {
        let states = &self.index.states;
        let told: Option<SampleTime> = self.recording.feature(Feature::SAMPLE_TIME);
        let told = told.filter(|time| time.first_ns <= time.last_ns && time.last_ns > 0);
        let sampled = self.ledgers.iter().filter_map(|event| event.span);
        let sampled = sampled.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        let first = states.session.as_ref().map(|session| session.start_ns);
        let first = first.or(told.map(|time| time.first_ns)).or(sampled.map(|(first, _)| first)).unwrap_or(0);
        let last = states.cost.map(|cost| cost.end_ns).or(told.map(|time| time.last_ns)).unwrap_or_else(|| {
            // It was still going on when statistics were read.
            sampled.map(|(_, last)| last).max(self.index.runs.moments_ns().next_back()).unwrap_or(first)
        });
        (first, last.max(first))
    }

    /// How long sampling was on, whatever part of it is looked at.
    fn length_ns(&self, start_ns: u64) -> Option<u64> {
        self.index.states.cost?.end_ns.checked_sub(start_ns).filter(|length_ns| *length_ns > 0)
    }

    fn recorded(&self, start_ns: u64, elapsed_ns: Option<u64>) -> model::Recording {
        let states = &self.index.states;
        let session = states.session.as_ref();
        let said = |text: fn(&bprec_format::state::Session) -> &String| {
            session.map(text).filter(|text| !text.is_empty()).cloned()
        };
        model::Recording {
            hostname: self.recording.text(Feature::HOSTNAME),
            os_release: self.recording.text(Feature::OSRELEASE),
            arch: self.recording.text(Feature::ARCH),
            cpu_model: self.recording.text(Feature::CPUDESC),
            cpus: self.cpus(),
            elapsed_ns,
            selected: Vec::new(),
            start_ns,
            start_unix_ns: session.map(|session| session.realtime_ns).filter(|time| *time > 0),
            target: said(|session| &session.target),
            event_note: said(|session| &session.event_note),
            counters: said(|session| &session.counters),
            counters_note: states.counters_note(),
            statistics_of_others: self.index.were_statistics_on_for_others(),
            lost_records: self.index.lost.of_any_event(),
            loss_not_counted: states.loss.as_ref().is_some_and(|loss| loss.not_counted),
            cpus_not_sampled: {
                let not_sampled = states.cpus_not_sampled.iter().map(|it| CpuNotSampled {
                    cpu: it.cpu,
                    from_ns: it.time_ns,
                    after_ns: it.time_ns.saturating_sub(start_ns),
                    came_online: it.came_online,
                });
                not_sampled.collect()
            },
            trace_data: (self.index.traces.bytes > 0)
                .then(|| TraceData { kind: self.index.traces.kind(), bytes: self.index.traces.bytes }),
            cost: states.cost.map(|cost| RecorderCost {
                user_ns: cost.user_ns,
                system_ns: cost.system_ns,
                max_rss_bytes: cost.max_rss_bytes,
                written_bytes: cost.written_bytes,
                wakeups: cost.wakeups,
                run_statistics: cost.statistics_ns.map(|time_ns| {
                    let length_ns = self.length_ns(start_ns);
                    let cpu_percent = length_ns.map(|length_ns| time_ns as f64 * 100.0 / length_ns as f64);
                    let machine_percent = cpu_percent.zip(self.cpus()).map(|(percent, cpus)| percent / f64::from(cpus));
                    StatisticsCost { time_ns, cpu_percent, machine_percent }
                }),
            }),
            unfinished: self.recording.cut_off().is_some_and(CutOff::is_unfinished),
            has_kernel_symbols: !self.index.symbols.is_empty(),
        }
    }

    /// CPUs that the samples are of, online ones, or else those that have samples.
    fn cpus(&self) -> Option<u32> {
        let online = self.index.states.session.as_ref().map(|session| session.cpus_online);
        let count: Option<CpuCount> = self.recording.feature(Feature::NRCPUS);
        let online = online.or(count.map(|count| count.online)).filter(|cpus| *cpus > 0);
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        for event in self.ledgers.iter() {
            let bits = event.cpus.iter().enumerate();
            seen.extend(bits.flat_map(|(word, bits)| {
                (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word as u32 * 64 + bit)
            }));
        }
        let seen = (!seen.is_empty()).then_some(seen.len() as u32);
        // A selection of CPUs is measured against these alone.
        if self.options.cpus.is_some() { seen } else { online.or(seen) }
    }

    fn event(&self, event: usize, report: &Report, common: &mut Common) -> EventReport {
        let (ledger, recorded) = (&self.ledgers[event], &report.recording);
        let attr = &self.recording.event(event).attr;
        let bpf_sampler = bpf_sampler(self.recording, self.index, &self.ledgers, common.main_event, event);
        let has_chains = self.index.has_chains(self.recording, event);
        let unit = self.index.unit(self.recording, event);
        let capacity_ns = match unit {
            Unit::Events => Known::Unknown(Reason::CapacityUnknown),
            Unit::Nanoseconds => {
                let capacity = || recorded.elapsed_ns?.checked_mul(u64::from(recorded.cpus?));
                Known::or_unknown(capacity(), Reason::LengthUnknown)
            }
        };
        let late_ticks =
            capacity_ns.value().and_then(|capacity_ns| self.late_ticks(event, report, common, *capacity_ns));
        // Where they are late whatever they would have met, those that came stand for all.
        let machine = match late_ticks {
            Some(late) if late.missing == MissingTicks::All => Known::Value(ledger.samples.weight),
            _ => capacity_ns.clone(),
        };
        let idle = if !attr.sample_type.contains(SampleType::TID) {
            Known::Unknown(Reason::NoTaskIds)
        } else if ledger.has_foreign_tasks && self.index.symbols.is_empty() {
            Known::Unknown(Reason::ForeignTasks)
        } else {
            Known::Value(ledger.idle)
        };
        let busy = idle.clone().map(|idle| ledger.samples.weight.saturating_sub(idle.weight));
        let unknown_kernel_code = match self.index.kernel.is_empty() {
            false => Known::Value(ledger.unknown_code),
            true => Known::Unknown(Reason::NoKernelMap),
        };
        // Without the names of what leads to programs, none found is not none.
        let has_symbols = !self.index.symbols.is_empty();
        let told = |count: Count| match has_symbols || count.samples > 0 {
            true => Known::Value(count),
            false => Known::Unknown(Reason::NoKernelSymbols),
        };
        let mut charges_of_all = ledger.programs.sum();
        let bpf = charges_of_all.sum() + ledger.entry + ledger.interpreted;
        let whole = Whole {
            samples: ledger.samples.weight,
            machine: machine.value().copied(),
            capacity_ns: capacity_ns.value().copied(),
            busy: busy.value().copied(),
            bpf: bpf.weight,
            has_chains,
            zeros: &self.zeros,
        };
        let basis = Basis {
            samples: ledger.samples,
            is_timer: unit == Unit::Nanoseconds,
            aggregated_over_ns: self.index.aggregations.get(&event).map(|account| account.interval_ns),
            is_counted_by_programs: bpf_sampler.is_some() || self.index.aggregations.contains_key(&event),
            samples_are_whole: self.samples_are_whole(event, recorded),
            adds_to_runs: unit == Unit::Nanoseconds && self.narrowed(recorded).is_none(),
        };
        let of = RowsOf {
            index: self.index,
            ledger,
            programs: &report.programs,
            traits: &common.traits,
            order: &common.order,
            positions: &common.positions,
            basis: &basis,
            options: self.options,
        };
        let tail_calls = common.has_tail_called || of.has_tail_calls();
        let lists_without_samples = common.listed <= common.rows_left;
        common.rows_left -= if lists_without_samples { common.listed } else { 0 };
        let rows = program_rows(&of, lists_without_samples, tail_calls);
        let with_row = |how| rows.iter().filter(|row| common.traits[row.program].without_samples == how).count();
        let quiet = common.quiet - with_row(WithoutSamples::Quiet);
        let left_out = common.listed - with_row(WithoutSamples::Listed);
        let asked = common.asked.as_deref();
        // Rows of what is not asked for are left out.
        let unsampled_ns = rows.iter().filter(|_| asked.is_none()).filter_map(|row| row.unsampled_ns);
        let unsampled_ns = unsampled_ns.reduce(u64::saturating_add);
        let mut chosen = match self.grouping {
            None => self.choose(rows, &report.programs, asked, &whole),
            Some(grouping) => {
                let (groups, rest) = grouped(grouping, &common.members, &of, rows, tail_calls);
                let mut chosen = self.choose(rest, &report.programs, asked, &whole);
                // What gets no row was asked for by nobody, or counts others.
                chosen.groups = self.choose_groups(groups, &mut chosen, &whole);
                chosen
            }
        };
        chosen.quiet += quiet;
        charges_of_all.entry.merge(ledger.entry);
        // Who of them has it is an estimate, and not that they have it.
        charges_of_all.shared_entry = Count::default();
        let mut total = whole.ledger(&charges_of_all, false);
        // Lines without columns are in the total too.
        let all_of_it = whole.line(bpf);
        (total.count, total.shares) = (all_of_it.count, all_of_it.shares);
        let lost = &self.index.lost;
        let without_samples = whole.kept(whole.ledger(&Charges::default(), true));
        let mut made = EventReport {
            name: self.recording.names[event].clone(),
            unit,
            samples: ledger.samples,
            idle: idle.map(|idle| whole.share(idle)),
            busy,
            machine,
            late_ticks,
            lost: Known::or_unknown(self.lost[event], Reason::LostTogether { records: lost.of_any_event() }),
            filtered: lost.filtered.get(&event).copied().unwrap_or(0),
            throttled: lost.throttled.get(&event).copied().unwrap_or(0),
            has_chains,
            is_timer: unit == Unit::Nanoseconds,
            aggregated: self.aggregated(event, &whole).map(Box::new),
            sources: sources(&chosen.shown, report, &basis),
            groups: self.grouping.map_or(Vec::new(), |grouping| {
                chosen.groups.iter().map(|group| group.row(grouping, &common.members, &whole)).collect()
            }),
            rows: chosen
                .shown
                .iter()
                .map(|row| row.row(&report.programs, &whole, &without_samples, self.options))
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
        let notes = notes::of_event(report, &made, &shown, common, left_out, self.narrowed(recorded).as_deref());
        made.notes = notes.into();
        made
    }

    /// Which rows are shown, and what the rest adds up to.
    fn choose(
        &self,
        mut rows: Vec<ProgramRow>,
        programs: &[Program],
        asked: Option<&[bool]>,
        whole: &Whole<'_>,
    ) -> Chosen {
        let options = self.options;
        let mut chosen = Chosen::default();
        let mut shown = 0;
        // In place: with all programs that a recording has, rows are most of the memory.
        rows.retain(|row| {
            let program = &programs[row.program];
            let asked = asked.map(|asked| asked[row.program]);
            let is_loud = options.all || asked == Some(true) || row.happened(program);
            let has_room = options.limit.is_none_or(|limit| shown < limit);
            let is_tool = program.counts_others || options.folds_tools && program.is_of_tools();
            if is_tool && asked.is_none() && !options.all {
                // There are two for each program that is counted: together they say what counting takes.
                chosen.counting.0 += usize::from(row.has_samples());
                chosen.counting.1.merge(&row.charges);
                false
            } else if asked != Some(false)
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

    /// True if a cost is known to be less of all samples than is shown; `is_partial`: some of it is unknown.
    fn is_small(&self, cost: Count, is_partial: bool, whole: &Whole<'_>) -> bool {
        let Some(limit) = self.options.percent_limit else { return false };
        !is_partial && whole.share(cost).percent.is_some_and(|percent| percent < limit)
    }

    /// Which groups are shown; the others are added to what is not.
    fn choose_groups(&self, groups: Vec<Grouped>, chosen: &mut Chosen, whole: &Whole<'_>) -> Vec<Grouped> {
        let options = self.options;
        let is_asked = !options.programs.is_empty();
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

    fn problems(&self) -> Vec<String> {
        let mut problems = self.recording.problems().to_vec();
        problems.extend(self.index.problems.iter().cloned());
        if self.index.bad_records > 0 {
            problems.push(format!("{} more records could not be read", self.index.bad_records));
        }
        if let Some((_, problem)) = &self.unreadable.first {
            problems.push(format!("{} samples could not be read, the first: {problem}", self.unreadable.samples));
        }
        problems
    }
}

/// Rows that are shown, and what the others add up to: how many have samples, and what is charged to them.
#[derive(Default)]
struct Chosen {
    shown: Vec<ProgramRow>,
    groups: Vec<Grouped>,
    rest: (usize, Charges),
    counting: (usize, Charges),
    quiet: usize,
}

/// The rows by their sources, where exact counters are one.
fn sources(rows: &[ProgramRow], report: &Report, basis: &Basis) -> Vec<SourceRow> {
    let compared = rows.iter().filter_map(|row| {
        let program = &report.programs[row.program];
        program.exact.value()?;
        // Of the runs of all of the time, where samples are of all of them.
        let all_runs = program.exact_throughout().map(|exact| exact.runs);
        let all_runs = all_runs.or(program.runs.value().map(|runs| runs.count)).filter(|runs| *runs > 0);
        let total = row.charges.total;
        let is_time = basis.samples_are_whole && basis.is_timer && row.blind.is_none() && total.samples > 0;
        let sampled_ns_per_run = all_runs.filter(|_| is_time).map(|runs| total.weight as f64 / runs as f64);
        Some(SourceRow { program: row.program, sampled_ns_per_run })
    });
    compared.collect()
}
