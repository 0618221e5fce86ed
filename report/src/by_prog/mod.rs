//! From the ledger and the index to the report by program.

pub(crate) mod advice;
mod blinded;
mod groups;
mod notes;
pub(crate) mod over_time;
pub(crate) mod payers;
pub(crate) mod rows;
mod sampled;
mod sampler;
mod shares;
mod sharing;
mod similar;
pub(crate) mod tree;

use crate::counters::history::{History, HistoryWalk};
use crate::index::Index;
use crate::index::runners::Group;
use crate::input::cut_off::{Cause, CutOff};
use crate::input::event_kind::EventKind;
use crate::input::recording::Recording;
use crate::input::window::{Window, since};
use crate::model::{
    Aggregated, Count, CpuNotSampled, EventReport, Hot, JSON_VERSION, Known, MissedProgram, Others, Program, Reason,
    RecorderCost, Report, SourceRow, StatisticsCost, TimeBound, TraceData, Unit,
};
use crate::pass::{self, Selection, Sink, Unreadable};
use crate::sinks::hot;
use crate::sinks::ledger::{Charges, EventLedger, LedgerSink};
use crate::{Options, Result, model};
use bprec_format::SampleType;
use bprec_format::bpf::Tag;
use bprec_format::feature::{CpuCount, Feature, SampleTime};
use groups::{Grouped, Grouping, grouped};
use rows::{Basis, ProgramRow, program_rows, programs};
use rustc_hash::FxHashSet;
use sampler::bpf_sampler;
use shares::{Whole, percent};
use sharing::HookWeights;
use std::collections::BTreeSet;

/// What the recorder calls a recording of everything.
const SYSTEM_WIDE: &str = "system wide";

/// Makes the report.
pub(crate) fn build(recording: &Recording<'_>, index: &Index, options: &Options) -> Result<Report> {
    build_with(recording, index, options, false, ()).map(|built| built.report)
}

/// A report, and what was made beside it.
pub(crate) struct Built<S> {
    pub(crate) report: Report,
    /// What another sink took in.
    pub(crate) sink: S,
    /// In what ratio programs share hooks.
    weights: HookWeights,
}

/// Makes the report, and feeds another sink in the same pass; `needs_comm`: with names of tasks.
pub(crate) fn build_with<S: Sink>(
    recording: &Recording<'_>,
    index: &Index,
    options: &Options,
    needs_comm: bool,
    other: S,
) -> Result<Built<S>> {
    let window = Window::of(&options.time, recording, index.start_ns())?;
    let mut selection = Selection::new(recording, index, &window, options)?;
    selection.needs_comm |= needs_comm;
    let grouping = options.group().map(|by| Grouping::new(index, by, options));
    let group_of = grouping.as_ref().map_or(&[][..], |grouping| &grouping.of);
    let sink = LedgerSink::new(index, options.split(), group_of, recording.events.all().len());
    let mut history = HistoryWalk::new(recording, index, &window, false);
    let ((other, sink), unreadable) =
        pass::run(recording, index, &selection, (other, sink), |slice, records| history.slice(slice, records));
    let hot = if index.programs.list.is_empty() { hot::hottest(recording, index, &selection) } else { Vec::new() };
    let (ledgers, history) = (sink.events, history.finish());
    let events = &selection.events;
    let grouping = grouping.as_ref();
    let window = &window;
    let lost = lost(recording, index);
    let builder =
        Builder { recording, options, window, index, history, ledgers, lost, grouping, unreadable, events, hot };
    let (report, weights) = builder.report();
    Ok(Built { report, sink: other, weights })
}

/// Lost samples of each event: counted by the kernel, or else as LOST_SAMPLES says. LOST counts the same losses, of all events
/// together. Where LOST_SAMPLES leaves open of which event some are, no event's are known.
fn lost(recording: &Recording<'_>, index: &Index) -> Vec<Option<u64>> {
    let events = recording.events.all().len();
    if let Some(loss) = &index.states.loss
        && !loss.not_counted
    {
        let mut lost = vec![Some(0u64); events];
        for of_one in &loss.events {
            let event = recording.events.index_of_id(of_one.event_id).and_then(|event| lost.get_mut(event));
            event.into_iter().flatten().for_each(|lost| *lost = lost.saturating_add(of_one.lost));
        }
        return lost;
    }
    if index.lost.samples_of_any > 0 {
        return vec![None; events];
    }
    let none = (index.lost.records == 0).then_some(0);
    (0..events).map(|event| index.lost.samples.get(&event).copied().or(none)).collect()
}

struct Builder<'b> {
    recording: &'b Recording<'b>,
    options: &'b Options,
    window: &'b Window,
    index: &'b Index,
    history: History,
    /// By event.
    ledgers: Vec<EventLedger>,
    /// Lost samples, by event.
    lost: Vec<Option<u64>>,
    /// Where programs are put together.
    grouping: Option<&'b Grouping>,
    unreadable: Unreadable,
    events: &'b [bool],
    hot: Vec<Vec<hot::Hot>>,
}

impl Builder<'_> {
    fn report(mut self) -> (Report, HookWeights) {
        let (first, last) = self.time_span();
        let elapsed_ns = self.window.length_ns(first, last);
        let recording = self.recorded(first, (elapsed_ns > 0).then_some(elapsed_ns));
        let counting = self.history.counters.counting();
        let (programs, order) = programs(self.index, &self.history, self.window, first, counting.as_ref());
        let points = std::mem::take(&mut self.history.sharers);
        let weights = HookWeights::new(self.index, &programs, &order, points);
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
            programs,
            events: Vec::new(),
            blinded_events,
            problems: self.problems(),
            notes: Vec::new(),
        };
        for event in (0..self.events.len()).filter(|event| self.events[*event]) {
            let made = self.event(event, &report, &order, asked.as_deref());
            report.events.push(made);
        }
        // Whoever names events wants to see each.
        if self.options.events.is_empty() {
            similar::mark(&mut report.events);
        }
        let side_band_lost = self.side_band_lost();
        report.notes = notes::of_recording(&report, side_band_lost, self.index.states.user_symbols.as_ref());
        (report, weights)
    }

    /// Events that have no part in the report, with the records of theirs that were lost.
    fn side_band_lost(&self) -> Vec<(String, u64)> {
        let kinds = self.recording.kinds.iter().zip(&self.recording.names);
        let side_band =
            kinds.zip(&self.lost).filter(|((kind, _), _)| matches!(kind, EventKind::State | EventKind::Other));
        let lost = side_band.filter_map(|((_, name), lost)| Some((name.clone(), (*lost).filter(|lost| *lost > 0)?)));
        lost.collect()
    }

    /// Shares what hooks of several programs cost between those.
    fn share_entry(&mut self, weights: &HookWeights) {
        let groups = self.index.hooks.groups();
        let weights = |group: &Group, interval| weights.of(group, interval);
        let group_of = self.grouping.map_or(&[][..], |grouping| &grouping.of);
        for ledger in &mut self.ledgers {
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
            let read = states.read_at_ns.iter().copied().max();
            sampled.map(|(_, last)| last).max(read).unwrap_or(first)
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
            start_ns,
            start_unix_ns: session.map(|session| session.realtime_ns).filter(|time| *time > 0),
            target: said(|session| &session.target),
            event_note: said(|session| &session.event_note),
            counters: said(|session| &session.counters),
            counters_note: states.counters_note(),
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
                run_statistics: cost.statistics_ns.map(|time_ns| StatisticsCost {
                    time_ns,
                    cpu_percent: self.length_ns(start_ns).map(|length_ns| time_ns as f64 * 100.0 / length_ns as f64),
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
        for event in &self.ledgers {
            let bits = event.cpus.iter().enumerate();
            seen.extend(bits.flat_map(|(word, bits)| {
                (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word as u32 * 64 + bit)
            }));
        }
        let seen = (!seen.is_empty()).then_some(seen.len() as u32);
        // A selection of CPUs is measured against these alone.
        if self.options.cpus.is_some() { seen } else { online.or(seen) }
    }

    fn event(&self, event: usize, report: &Report, order: &[u32], asked: Option<&[bool]>) -> EventReport {
        let (ledger, recorded) = (&self.ledgers[event], &report.recording);
        let attr = &self.recording.event(event).attr;
        let bpf_sampler = bpf_sampler(self.recording, self.index, &self.ledgers, self.events, event);
        let has_chains = self.index.has_chains(self.recording, event);
        let unit = self.index.unit(self.recording, event);
        let machine = match unit {
            Unit::Events => Known::Unknown(Reason::CapacityUnknown),
            Unit::Nanoseconds => {
                let capacity = || recorded.elapsed_ns?.checked_mul(u64::from(recorded.cpus?));
                Known::or_unknown(capacity(), Reason::LengthUnknown)
            }
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
        let charged: Count = ledger.programs.iter().map(Charges::sum).sum();
        let bpf = charged + ledger.entry + ledger.interpreted;
        let whole = Whole {
            samples: ledger.samples.weight,
            machine: machine.value().copied(),
            busy: busy.value().copied(),
            bpf: bpf.weight,
            has_chains,
        };
        let basis = Basis {
            name: &self.recording.names[event],
            samples: ledger.samples,
            is_timer: unit == Unit::Nanoseconds,
            is_counted_by_programs: bpf_sampler.is_some() || self.index.aggregations.contains_key(&event),
            samples_are_whole: self.samples_are_whole(event, recorded),
        };
        let rows = program_rows(self.index, ledger, &report.programs, order, &basis, self.options);
        let chosen = match self.grouping {
            None => self.choose(rows, &report.programs, asked, &whole),
            Some(grouping) => {
                let totals = &ledger.groups;
                let (groups, rest) = grouped(grouping, order, rows, totals, &report.programs, self.options.sort);
                let mut chosen = self.choose(rest, &report.programs, asked, &whole);
                // What gets no row was asked for by nobody, or counts others.
                chosen.groups = self.choose_groups(groups, &mut chosen, &report.programs, &whole);
                chosen
            }
        };
        let mut charges_of_all = Charges::default();
        ledger.programs.iter().for_each(|charges| charges_of_all.merge(charges));
        charges_of_all.entry.merge(ledger.entry);
        // Who of them has it is an estimate, and not that they have it.
        charges_of_all.shared_entry = Count::default();
        let mut total = whole.ledger(&charges_of_all, false);
        // Lines without columns are in the total too.
        let all_of_it = whole.line(bpf);
        (total.count, total.shares) = (all_of_it.count, all_of_it.shares);
        let lost = &self.index.lost;
        let mut made = EventReport {
            name: self.recording.names[event].clone(),
            unit,
            same_rows_as: None,
            samples: ledger.samples,
            idle: idle.map(|idle| whole.share(idle)),
            busy,
            machine,
            lost: Known::or_unknown(self.lost[event], Reason::LostTogether { records: lost.of_any_event() }),
            filtered: lost.filtered.get(&event).copied().unwrap_or(0),
            throttled: lost.throttled.get(&event).copied().unwrap_or(0),
            has_chains,
            is_timer: unit == Unit::Nanoseconds,
            aggregated: self.aggregated(event, &whole),
            sources: sources(&chosen.shown, report, &basis),
            groups: self
                .grouping
                .map_or(Vec::new(), |grouping| chosen.groups.iter().map(|group| group.row(grouping, &whole)).collect()),
            rows: chosen.shown.iter().map(|row| row.row(&report.programs, &whole, self.options)).collect(),
            others: Others { programs: chosen.rest.0, line: whole.ledger(&chosen.rest.1, false) },
            counting_programs: Others { programs: chosen.counting.0, line: whole.ledger(&chosen.counting.1, false) },
            quiet_programs: chosen.quiet,
            entry_unattributed: told(ledger.entry)
                .map(|entry| whole.ledger(&Charges { entry, ..Charges::default() }, false)),
            interpreted: told(ledger.interpreted).map(|count| whole.line(count)),
            unknown_kernel_code: unknown_kernel_code.map(|count| whole.line(count)),
            total,
            bpf_sampler,
            hot: {
                let hot = self.hot.get(event).into_iter().flatten();
                let hot = hot.map(|hot| Hot {
                    name: hot.name.clone(),
                    mangled: hot.mangled.clone(),
                    object: hot.object.clone(),
                    share: whole.share(hot.count),
                });
                hot.take(self.options.limit.unwrap_or(usize::MAX)).collect()
            },
            notes: Vec::new(),
        };
        let members = chosen.groups.iter().flat_map(|group| &group.rows);
        let shown: Vec<&ProgramRow> = chosen.shown.iter().chain(members).collect();
        made.notes = notes::of_event(report, &made, &shown, self.narrowed(recorded).as_deref());
        made
    }

    /// What makes the samples those of a part of the machine.
    fn narrowed(&self, recorded: &model::Recording) -> Option<String> {
        if self.options.cpus.is_some() {
            return Some("--cpu".into());
        }
        if !self.options.comms.is_empty() {
            return Some("--comms".into());
        }
        recorded.target.clone().filter(|target| target != SYSTEM_WIDE)
    }

    /// Which rows are shown, and what the rest adds up to.
    fn choose(&self, rows: Vec<ProgramRow>, programs: &[Program], asked: Option<&[bool]>, whole: &Whole) -> Chosen {
        let options = self.options;
        let mut chosen = Chosen::default();
        for row in rows {
            let program = &programs[row.program];
            let asked = asked.map(|asked| asked[row.program]);
            let is_loud = options.all || asked == Some(true) || row.happened(program);
            let has_room = options.limit.is_none_or(|limit| chosen.shown.len() < limit);
            if program.counts_others && asked.is_none() && !options.all {
                // There are two for each program that is counted: together they say what counting takes.
                chosen.counting.0 += usize::from(row.has_samples());
                chosen.counting.1.merge(&row.charges);
            } else if asked != Some(false) && is_loud && has_room && !self.is_small(&row.charges, &[&row], whole) {
                chosen.shown.push(row);
            } else if row.has_samples() {
                chosen.rest.0 += 1;
                chosen.rest.1.merge(&row.charges);
            } else {
                chosen.quiet += 1;
            }
        }
        chosen
    }

    /// Whether what is charged to these programs is known to be less of all samples than is shown.
    fn is_small(&self, charges: &Charges, rows: &[&ProgramRow], whole: &Whole) -> bool {
        let Some(limit) = self.options.percent_limit else { return false };
        let percent = whole.share(charges.sum()).percent;
        rows.iter().all(|row| row.unseen().is_none()) && percent.is_some_and(|percent| percent < limit)
    }

    /// Which groups are shown; the others are added to what is not.
    fn choose_groups(
        &self,
        groups: Vec<Grouped>,
        chosen: &mut Chosen,
        programs: &[Program],
        whole: &Whole,
    ) -> Vec<Grouped> {
        let options = self.options;
        let is_asked = !options.programs.is_empty();
        let mut shown = Vec::new();
        for group in groups {
            let is_loud = options.all || is_asked || group.rows.iter().any(|row| row.happened(&programs[row.program]));
            let has_room = options.limit.is_none_or(|limit| shown.len() < limit);
            let members: Vec<&ProgramRow> = group.rows.iter().collect();
            if is_loud && has_room && !self.is_small(&group.charges, &members, whole) {
                shown.push(group);
                continue;
            }
            let sampled = group.sampled_programs();
            chosen.rest.0 += sampled;
            chosen.rest.1.merge(&group.charges);
            chosen.quiet += group.rows.len() - sampled;
        }
        shown
    }

    /// Whether samples are of all that ran, and of all of the time that other counts are of.
    fn samples_are_whole(&self, event: usize, recorded: &model::Recording) -> bool {
        let is_all = self.window.whole && self.options.cpus.is_none() && self.options.comms.is_empty();
        // A timer that comes late has fewer samples than there was time for.
        let weight = self.ledgers[event].samples.weight;
        let cpus = recorded.cpus.unwrap_or(0);
        let machine_ns = recorded.elapsed_ns.unwrap_or(0).saturating_mul(cpus.into());
        let all_there = u128::from(weight) * 10 >= u128::from(machine_ns) * 9;
        let throttled = self.index.lost.throttled.get(&event).is_some_and(|times| *times > 0);
        is_all
            && recorded.target.as_deref() == Some(SYSTEM_WIDE)
            && all_there
            && self.lost[event] == Some(0)
            && !throttled
    }

    fn aggregated(&self, event: usize, whole: &Whole) -> Option<Aggregated> {
        let account = self.index.aggregations.get(&event)?;
        let options = self.options;
        // Nor is a part all that is left of a recording: one that was cut off, or a part that was written as one.
        let ledger = &self.ledgers[event];
        let seen = Count { samples: account.samples, weight: account.period };
        let is_all = self.window.whole && options.cpus.is_none() && options.comms.is_empty() && ledger.samples == seen;
        let unseen = account.counted.filter(|_| is_all).map(|counted| counted.saturating_sub(account.period));
        // At the rate of those that were seen.
        let samples = |weight: u64| {
            let samples = u128::from(weight) * u128::from(account.samples) / u128::from(account.period.max(1));
            u64::try_from(samples).unwrap_or(u64::MAX)
        };
        let blind_spot = unseen.map(|weight| Count { samples: samples(weight), weight });
        Some(Aggregated {
            entries: account.entries,
            interval_ns: account.interval_ns,
            overflow: ledger.overflow,
            overflow_machine_percent: percent(ledger.overflow.weight, whole.machine),
            blind_spot_machine_percent: blind_spot.and_then(|count| percent(count.weight, whole.machine)),
            blind_spot: Known::or_unknown(blind_spot, Reason::PartOnly),
        })
    }

    fn missed(&self, programs: &[Program], start_ns: u64) -> Vec<MissedProgram> {
        let since_start = |time: u64| since(time, start_ns);
        let told = self.index.states.missed.iter().map(|missed| MissedProgram {
            id: missed.id,
            tag: missed.tag.map(Tag),
            time_ns: Some(since_start(missed.time_ns)),
            reason: missed.reason.clone(),
        });
        let mut missed: Vec<MissedProgram> = told.collect();
        let mut ids: FxHashSet<u32> = missed.iter().map(|missed| missed.id).collect();
        for program in programs.iter().filter(|program| !program.captured && !program.counts_others) {
            let Some(id) = program.id else { continue };
            if ids.insert(id) {
                let time_ns = program.loaded.filter(TimeBound::is_exact).map(|loaded| loaded.after_ns);
                let reason = match self.recording.cut_off().map(|cut_off| &cut_off.cause) {
                    Some(Cause::Recorder(_)) => "the recording was cut off before its program infos were written",
                    Some(Cause::File | Cause::Stream(_)) => "the recording was cut off before its program infos",
                    None => "no bpf_prog_info in the recording",
                };
                missed.push(MissedProgram { id, tag: program.tag, time_ns, reason: reason.into() });
            }
        }
        missed.sort_by_key(|missed| (missed.id, missed.time_ns));
        missed
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
fn sources(rows: &[ProgramRow], report: &Report, basis: &Basis<'_>) -> Vec<SourceRow> {
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
