//! Facts of a recording, the basis of all reports: the ledger (samples charged to each program), further tables from the same pass over the samples,
//! and their interpretation.

use super::blinded;
use super::groups::Grouping;
use super::rows::{Basis, programs};
use super::sampler::main_event;
use super::shares::{EventWhole, Zeros};
use super::traits::{Common, WithoutSamples, traits};
use super::{missing, notes};
use crate::index::Index;
use crate::input::cut_off::CutOff;
use crate::input::recording::OpenRecording;
use crate::input::window::since;
use crate::model::{
    BlindedEvent, Count, Counting, CpuNotSampled, Known, LateTicks, MissingTicks, Program, Reason, RecorderCost,
    StatisticsCost, TraceData, Unit,
};
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::sinks::ledger::{EventLedger, LedgerSink};
use crate::pass::sinks::pivot::{Charges, KeyBy, Pivot, Pivoted};
use crate::pass::sinks::sharing::HookWeights;
use crate::pass::{self, LeftOutSamples, Selection, Sink};
use crate::query::counters::CounterHistory;
use crate::query::counters::history::HistoryWalk;
use crate::{Options, Result, Split, model};
use bprec_format::SampleType;
use bprec_format::feature::{CpuCount, Feature};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Facts that a query needs in addition to the ledger.
#[derive(Default)]
pub(crate) struct WantedFacts {
    /// Keys by which further tables of charges are made in the pass, one table for each.
    pub(crate) pivots: Vec<KeyBy>,
    /// True if another sink needs names of tasks.
    pub(crate) comm: bool,
    /// True if [`Facts::history`] keeps the counts between snapshots.
    pub(crate) intervals: bool,
    /// Start and end of the recording, ns, if already known.
    pub(crate) span: Option<(u64, u64)>,
}

/// Facts of a recording.
pub(crate) struct Facts<'f> {
    pub(crate) recording: &'f OpenRecording<'f>,
    pub(crate) index: &'f Index,
    pub(crate) options: &'f Options,
    pub(crate) selection: Selection<'f>,
    pub(crate) history: CounterHistory,
    /// Ledgers by event.
    pub(crate) ledgers: ByEvent<EventLedger>,
    /// Tables of charges by key, in the order of [`WantedFacts::pivots`].
    pub(crate) pivots: Vec<Pivoted>,
    /// Charges by the parts that `--by` splits each program into.
    pub(super) split: Option<Pivoted>,
    /// Lost samples by event, if known.
    pub(super) lost: Vec<Option<u64>>,
    /// Groups of programs, with `--by owner` and similar.
    pub(super) grouping: Option<Grouping>,
    pub(super) left_out: LeftOutSamples,
    pub(super) zeros: Zeros,
    pub(crate) counting: Option<Counting>,
    /// Programs by number.
    pub(crate) programs: Arc<Vec<Program>>,
    pub(crate) recorded: model::Recording,
    pub(super) blinded_events: Vec<BlindedEvent>,
    pub(super) common: Common,
    /// Kind of time in which ticks are missing in the whole recording, by event; empty if the whole recording is selected, or if no ticks are late.
    pub(super) missing_in_whole: Vec<Option<MissingTicks>>,
}

/// Facts of an event.
pub(crate) struct EventFacts<'f> {
    pub(crate) ledger: &'f EventLedger,
    pub(crate) unit: Unit,
    pub(crate) has_chains: bool,
    pub(crate) late_ticks: Option<LateTicks>,
    /// Weight that stands for all CPU time of the machine.
    pub(crate) machine: Known<u64>,
    pub(super) idle: Known<Count>,
    pub(super) busy: Known<u64>,
    /// Sum of the charges of all programs.
    pub(super) charges: Charges,
    /// Sum of all charges to BPF.
    pub(crate) bpf: Count,
    pub(super) whole: EventWhole<'f>,
    pub(super) basis: Basis,
    /// True if tail calls may reach some program.
    pub(super) tail_calls: bool,
}

impl EventFacts<'_> {
    /// Returns true if ticks are missing in busy and in idle time alike: the arrived ticks then represent all ticks.
    pub(crate) fn is_scaled(&self) -> bool {
        LateTicks::scales(self.late_ticks)
    }
}

impl KeyBy {
    fn of_split(split: Split) -> KeyBy {
        match split {
            Split::Payer(payer) => KeyBy::Payers { payers: vec![payer], is_whole: false },
            Split::Helper => KeyBy::Helper,
            Split::Func => KeyBy::Function,
        }
    }
}

impl<'f> Facts<'f> {
    /// Reads the selected samples in one pass, for the ledger, the wanted facts and another sink. If only a part of the time is selected, and ticks
    /// are late in this part, reads the samples of the whole recording as well.
    ///
    /// # Errors
    /// Fails if `options` name an event or a time that the recording does not have.
    pub(crate) fn gather<S: Sink>(
        recording: &'f OpenRecording<'_>,
        index: &'f Index,
        options: &'f Options,
        wanted: WantedFacts,
        sink: impl FnOnce(&Selection<'_>) -> S,
    ) -> Result<(Facts<'f>, S)> {
        let mut selection = Selection::new(recording, index, options)?;
        let mut keys = wanted.pivots;
        keys.extend(options.split().map(KeyBy::of_split));
        selection.needs_comm |= wanted.comm || keys.iter().any(KeyBy::needs_comm);
        let events = recording.events.all().len();
        let grouping = options.group().map(|by| Grouping::new(index, by, &selection.asked, options));
        let ledger = LedgerSink::new(index, grouping.as_ref().map_or(&[][..], |grouping| &grouping.of), events);
        let pivots: Vec<Pivot<'_>> = keys.into_iter().map(|by| Pivot::new(index, by, events)).collect();
        let mut history = HistoryWalk::new(recording, index, &selection.window, wanted.intervals);
        let sinks = (sink(&selection), (pivots, ledger));
        let ((sink, (pivots, ledger)), left_out) =
            pass::run(recording, index, &selection, sinks, |slice, records| history.slice(slice, records));
        let history = history.finish();
        let weights = HookWeights::new(index, &selection.window);
        let ledgers = ledger.finish(&weights);
        let mut pivots: Vec<Pivoted> = pivots.into_iter().map(|pivot| pivot.finish(&weights)).collect();
        let split = options.split().and_then(|_| pivots.pop());
        let (first, last) = wanted.span.unwrap_or_else(|| {
            let sampled = ledgers.iter().filter_map(|event| event.span);
            let sampled = sampled.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
            time_span(recording, index, || sampled)
        });
        let window = &selection.window;
        let elapsed_ns = window.length_ns(first, last);
        let selected = window.selected(first, last).map(|(from, to)| (since(from, first), since(to, first))).collect();
        let cpus = cpus(recording, index, options, &ledgers);
        let recorded = recorded(recording, index, first, (elapsed_ns > 0).then_some(elapsed_ns), cpus);
        let recorded = model::Recording { selected, ..recorded };
        let counting = history.counting();
        let programs = programs(index, &history, window, first, counting.as_ref());
        let blinded_events = blinded::find(&index.states.attachments, &programs, &recording.names);
        let traits = traits(index, &programs, &selection.asked, grouping.as_ref(), options);
        let how_many = |how| traits.iter().filter(|traits| traits.without_samples == how).count();
        let common = Common {
            listed: how_many(WithoutSamples::Listed),
            quiet: how_many(WithoutSamples::Quiet),
            has_tail_called: traits.iter().any(|traits| traits.is_tail_called),
            traits,
            members: grouping.as_ref().map_or(Vec::new(), |it| it.members(&programs, recorded.elapsed_ns)),
            main_event: main_event(recording, index, &selection.events),
            carried: notes::carried(&blinded_events),
            no_runs: notes::no_runs(&programs),
        };
        let mut facts = Facts {
            recording,
            index,
            options,
            history,
            ledgers,
            pivots,
            split,
            lost: missing::lost(recording, index),
            grouping,
            left_out,
            zeros: Zeros::default(),
            counting,
            programs: Arc::new(programs),
            recorded,
            blinded_events,
            common,
            selection,
            missing_in_whole: Vec::new(),
        };
        facts.missing_in_whole = facts.find_missing_in_whole()?;
        Ok((facts, sink))
    }

    /// Returns the time of all CPUs in the selected time, ns, if the event is a clock.
    pub(super) fn capacity_ns(&self, event: usize) -> Known<u64> {
        match self.index.unit(self.recording, event) {
            Unit::Events => Known::Unknown(Reason::CapacityUnknown),
            Unit::Nanoseconds => {
                let capacity = || self.recorded.elapsed_ns?.checked_mul(u64::from(self.recorded.cpus?));
                Known::or_unknown(capacity(), Reason::LengthUnknown)
            }
        }
    }

    /// Positions of the selected events.
    pub(crate) fn events(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.selection.events.len()).filter(|event| self.selection.events[*event])
    }

    /// Returns the facts of an event.
    pub(crate) fn event(&self, event: usize) -> EventFacts<'_> {
        let ledger = &self.ledgers[event];
        let attr = &self.recording.event(event).attr;
        let unit = self.index.unit(self.recording, event);
        let capacity_ns = self.capacity_ns(event);
        let late_ticks = capacity_ns.value().and_then(|capacity_ns| self.late_ticks(event, *capacity_ns));
        // If ticks are missing on idle and busy CPUs alike, the ticks that arrived stand for all of the machine's time.
        let machine = match late_ticks {
            Some(late) if late.missing == MissingTicks::All => Known::Value(ledger.samples.weight),
            _ => capacity_ns.clone(),
        };
        let idle = if !attr.sample_type.contains(SampleType::TID) {
            Known::Unknown(Reason::NoTaskIds)
        } else if ledger.has_foreign_tasks && self.index.code.kernel.is_empty() {
            Known::Unknown(Reason::ForeignTasks)
        } else {
            Known::Value(ledger.idle)
        };
        let busy = idle.clone().map(|idle| ledger.samples.weight.saturating_sub(idle.weight));
        let charges = ledger.programs.sum();
        let bpf = charges.sum() + ledger.entry + ledger.interpreted;
        let has_chains = self.index.has_chains(self.recording, event);
        EventFacts {
            whole: EventWhole {
                samples: ledger.samples.weight,
                machine: machine.value().copied(),
                capacity_ns: capacity_ns.value().copied(),
                busy: busy.value().copied(),
                bpf: bpf.weight,
                has_chains,
                zeros: &self.zeros,
            },
            basis: Basis {
                samples: ledger.samples,
                is_timer: unit == Unit::Nanoseconds,
                aggregated_over_ns: self.index.aggregations.get(&event).map(|account| account.interval_ns),
                is_counted_by_programs: self.is_sampled_by_program(event)
                    || self.index.aggregations.contains_key(&event),
                samples_are_whole: self.samples_are_whole(event),
                adds_to_runs: unit == Unit::Nanoseconds && self.narrowed().is_none(),
            },
            tail_calls: self.common.has_tail_called || self.has_tail_calls(ledger),
            ledger,
            unit,
            has_chains,
            late_ticks,
            machine,
            idle,
            busy,
            charges,
            bpf,
        }
    }

    /// Number of lost samples of an event.
    pub(crate) fn lost(&self, event: usize) -> Known<u64> {
        Known::or_unknown(self.lost[event], Reason::LostTogether { records: self.index.lost.of_any_event() })
    }

    /// Count of times that the kernel throttled an event.
    pub(crate) fn throttled(&self, event: usize) -> u64 {
        self.index.lost.throttled.get(&event).copied().unwrap_or(0)
    }

    /// Messages about problems in reading the recording.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = self.index.all_problems(self.recording);
        if let Some((_, problem)) = &self.left_out.first {
            problems.push(format!("{} samples could not be read, the first: {problem}", self.left_out.samples));
        }
        problems
    }
}

/// Returns the start and end of the recording, ns, from the recorder's state or else from the samples.
pub(crate) fn time_span(
    recording: &OpenRecording<'_>,
    index: &Index,
    sampled: impl Fn() -> Option<(u64, u64)>,
) -> (u64, u64) {
    let told = recording.stated_span();
    let first = index.start_ns().or_else(|| told.or_else(&sampled).map(|(first, _)| first)).unwrap_or(0);
    let last = index.states.cost.map(|cost| cost.end_ns).or(told.map(|(_, last)| last)).unwrap_or_else(|| {
        // The end was not recorded, but the recording lasted at least until the last sample and the last reading of run statistics.
        sampled().map(|(_, last)| last).max(index.runs.moments_ns().next_back()).unwrap_or(first)
    });
    (first, last.max(first))
}

/// Length of the whole recording, ns.
fn length_ns(index: &Index, start_ns: u64) -> Option<u64> {
    index.recorded_ns(start_ns, index.states.cost?.end_ns)
}

fn recorded(
    recording: &OpenRecording<'_>,
    index: &Index,
    start_ns: u64,
    elapsed_ns: Option<u64>,
    cpus: Option<u32>,
) -> model::Recording {
    let states = &index.states;
    let session = states.session.as_ref();
    let said = |text: fn(&bprec_format::bprec::state::Session) -> &String| {
        session.map(text).filter(|text| !text.is_empty()).cloned()
    };
    model::Recording {
        hostname: recording.text(Feature::HOSTNAME),
        machine_id: said(|session| &session.machine_id),
        boot_id: said(|session| &session.boot_id),
        os_release: recording.text(Feature::OSRELEASE),
        arch: recording.text(Feature::ARCH),
        cpu_model: recording.text(Feature::CPUDESC),
        cpus,
        elapsed_ns,
        files: recording.files().len(),
        gaps: index.gaps.iter().map(|(from, to)| (since(*from, start_ns), since(*to, start_ns))).collect(),
        selected: Vec::new(),
        start_ns,
        start_unix_ns: session.map(|session| session.realtime_ns).filter(|time| *time > 0),
        target: said(|session| &session.target),
        event_note: said(|session| &session.event_note),
        counters: said(|session| &session.counters),
        counters_note: states.counters_note(),
        statistics_of_others: index.were_statistics_on_for_others(),
        lost_records: index.lost.of_any_event(),
        loss_not_counted: states.loss.as_ref().is_some_and(|loss| loss.not_counted),
        cpus_not_sampled: {
            let not_sampled = states.cpus_not_sampled.iter().map(|it| CpuNotSampled {
                cpu: it.cpu,
                from_ns: it.time_ns,
                after_ns: it.time_ns.saturating_sub(start_ns),
                until_ns: (it.until_ns > 0).then(|| it.until_ns.saturating_sub(start_ns)),
                came_online: it.came_online,
            });
            not_sampled.collect()
        },
        trace_data: (index.traces.bytes > 0)
            .then(|| TraceData { kind: index.traces.kind(), bytes: index.traces.bytes }),
        cost: states.cost.map(|cost| RecorderCost {
            user_ns: cost.user_ns,
            system_ns: cost.system_ns,
            max_rss_bytes: cost.max_rss_bytes,
            written_bytes: cost.written_bytes,
            wakeups: cost.wakeups,
            run_statistics: cost.statistics_ns.map(|time_ns| {
                let length_ns = length_ns(index, start_ns);
                let cpu_percent = length_ns.map(|length_ns| time_ns as f64 * 100.0 / length_ns as f64);
                let machine_percent = cpu_percent.zip(cpus).map(|(percent, cpus)| percent / f64::from(cpus));
                StatisticsCost { time_ns, cpu_percent, machine_percent }
            }),
        }),
        unfinished: recording.cut_off().is_some_and(CutOff::is_unfinished),
        has_kernel_symbols: !index.code.kernel.is_empty(),
    }
}

/// Returns the count of CPUs that samples cover: the online CPUs; the CPUs with samples if the online CPUs are unknown or CPUs were selected.
fn cpus(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
    ledgers: &ByEvent<EventLedger>,
) -> Option<u32> {
    let online = index.states.session.as_ref().map(|session| session.cpus_online);
    let count: Option<CpuCount> = recording.feature(Feature::NRCPUS);
    let online = online.or(count.map(|count| count.online)).filter(|cpus| *cpus > 0);
    let mut seen: BTreeSet<u32> = BTreeSet::new();
    for event in ledgers.iter() {
        let bits = event.cpus.iter().enumerate();
        seen.extend(bits.flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word as u32 * 64 + bit)
        }));
    }
    let seen = (!seen.is_empty()).then_some(seen.len() as u32);
    if options.cpus.is_some() { seen } else { online.or(seen) }
}
