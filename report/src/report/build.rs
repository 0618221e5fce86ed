//! From a recording to its report.

use super::rows::{program_rows, programs};
use super::sampler::bpf_sampler;
use super::{Aggregated, Count, EventReport, Missed, Recorded, Report, Shown, Unit, blinded, is_asked_for, since};
use crate::index::{Index, Wanted};
use crate::pass::{self, Ledger, Selection};
use crate::recording::Recording;
use crate::window::Window;
use crate::{Error, Options, Result, Split, glob, hot};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use bprec_format::feature::{CpuCount, Feature, SampleTime};
use bprec_format::sampler::Parts;
use bprec_format::{SampleType, event_type, software};
use std::collections::BTreeSet;

/// What the recorder calls a recording of everything.
const SYSTEM_WIDE: &str = "system wide";

/// Makes the report.
pub(crate) fn build(recording: &Recording<'_>, options: &Options) -> Result<Report> {
    let events = asked_events(recording, options)?;
    let window = Window::of(&options.time, recording)?;
    let tasks = options.by == Some(Split::Comm) || !options.comms.is_empty();
    let wanted = Wanted { tasks, ..Wanted::default() };
    let index = Index::build(recording, &window, wanted);
    let comms = if options.comms.is_empty() {
        Vec::new()
    } else {
        let asked = |number| options.comms.iter().any(|pattern| glob::matches(pattern, index.tasks.name(number)));
        (0..index.tasks.len() as u32).map(asked).collect()
    };
    let selection = Selection { window: &window, options, events, comms };
    let ledger = pass::charge(recording, &index, &selection);
    let hot = if index.programs.known.is_empty() { hot::hottest(recording, &index, &selection) } else { Vec::new() };
    Ok(Builder { recording, options, window: &window, index: &index, ledger: &ledger, events: &selection.events, hot }
        .report())
}

/// By event: whether it is asked for.
fn asked_events(recording: &Recording<'_>, options: &Options) -> Result<Vec<bool>> {
    let asked: Vec<bool> = (0..recording.names.len()).map(|event| is_asked_for(recording, event, options)).collect();
    for name in &options.events {
        if !recording.names.iter().zip(&asked).any(|(known, asked)| *asked && known == name) {
            let known = recording.names.join(", ");
            return Err(Error::option("--event", name, format!("not in this recording, which has {known}")));
        }
    }
    Ok(asked)
}

struct Builder<'b> {
    recording: &'b Recording<'b>,
    options: &'b Options,
    window: &'b Window,
    index: &'b Index,
    ledger: &'b Ledger,
    events: &'b [bool],
    hot: Vec<Vec<super::Hot>>,
}

impl Builder<'_> {
    fn report(&self) -> Report {
        let (first, last) = self.time_span();
        let elapsed_ns = self.window.length_ns(first, last);
        let recorded = self.recorded(first, (elapsed_ns > 0).then_some(elapsed_ns));
        let counting = self.index.counters.counting();
        let (programs, order) = programs(self.index, self.window, first, counting.as_ref());
        let events = (0..self.events.len()).filter(|event| self.events[*event]);
        let events = events.map(|event| self.event(event, &recorded, &programs, &order)).collect::<Vec<_>>();
        let asked = (!self.options.programs.is_empty()).then(|| {
            let asked = |p: &super::Program| {
                self.options.programs.iter().any(|filter| filter.matches(p.id, p.tag.map(|tag| tag.0), &p.name))
            };
            programs.iter().map(asked).collect()
        });
        Report {
            missed: self.missed(&programs, first),
            blinded: {
                // Of our own programs it is told elsewhere.
                let counts = |program: &&super::Program| {
                    program.prog_type == Some(ProgType::PERF_EVENT) && !program.name.starts_with("bprec_")
                };
                let ids: Vec<Option<u32>> =
                    programs.iter().map(|program| Some(program).filter(counts).and_then(|it| it.id)).collect();
                blinded::find(&self.index.states.attachments, &ids, &self.recording.names)
            },
            recorded,
            split: self.options.by,
            sort: self.options.sort,
            counting,
            programs,
            events,
            problems: self.problems(),
            shown: Shown { asked, limit: self.options.limit, all: self.options.all },
        }
    }

    /// When the recording started and ended: as the recorder says, or else by the samples.
    fn time_span(&self) -> (u64, u64) {
        let states = &self.index.states;
        let told: Option<SampleTime> = self.recording.feature(Feature::SAMPLE_TIME);
        let told = told.filter(|time| time.first_ns <= time.last_ns && time.last_ns > 0);
        let sampled = self.ledger.events.iter().filter_map(|event| event.span);
        let sampled = sampled.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        let first = states.session.as_ref().map(|session| session.start_ns);
        let first = first.or(told.map(|time| time.first_ns)).or(sampled.map(|(first, _)| first)).unwrap_or(0);
        let last = states.cost.map(|cost| cost.end_ns);
        let last = last.or(told.map(|time| time.last_ns)).or(sampled.map(|(_, last)| last)).unwrap_or(first);
        (first, last.max(first))
    }

    fn recorded(&self, start_ns: u64, elapsed_ns: Option<u64>) -> Recorded {
        let states = &self.index.states;
        let session = states.session.as_ref();
        let said = |text: fn(&bprec_format::state::Session) -> &String| {
            session.map(text).filter(|text| !text.is_empty()).cloned()
        };
        Recorded {
            hostname: self.recording.text(Feature::HOSTNAME),
            os_release: self.recording.text(Feature::OSRELEASE),
            arch: self.recording.text(Feature::ARCH),
            cpus: self.cpus(),
            elapsed_ns,
            start_ns,
            realtime_ns: session.map(|session| session.realtime_ns).filter(|time| *time > 0),
            target: said(|session| &session.target),
            event_note: said(|session| &session.event_note),
            counters: said(|session| &session.counters),
            counters_note: states.counters_note(),
            lost_records: self.index.lost.records,
            loss_not_counted: states.loss.as_ref().is_some_and(|loss| loss.not_counted),
            cpus_not_sampled: states.cpus_not_sampled.clone(),
            cost: states.cost,
            unfinished: self.recording.is_unfinished(),
            has_kernel_symbols: !self.index.symbols.is_empty(),
        }
    }

    /// CPUs that the samples are of, online ones, or else those that have samples.
    fn cpus(&self) -> Option<u32> {
        let online = self.index.states.session.as_ref().map(|session| session.cpus_online);
        let count: Option<CpuCount> = self.recording.feature(Feature::NRCPUS);
        let online = online.or(count.map(|count| count.online)).filter(|cpus| *cpus > 0);
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        for event in &self.ledger.events {
            let bits = event.cpus.iter().enumerate();
            seen.extend(bits.flat_map(|(word, bits)| {
                (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word as u32 * 64 + bit)
            }));
        }
        let seen = (!seen.is_empty()).then_some(seen.len() as u32);
        // A selection of CPUs is measured against these alone.
        if self.options.cpus.is_some() { seen } else { online.or(seen) }
    }

    fn event(&self, event: usize, recorded: &Recorded, programs: &[super::Program], order: &[u32]) -> EventReport {
        let ledger = &self.ledger.events[event];
        let attr = &self.recording.event(event).attr;
        let bpf_sampler = bpf_sampler(self.recording, self.index, &self.ledger.events, self.events, event);
        // What our sampling program makes is of the event that carries it.
        let carrier = self.index.states.sampler.as_ref().filter(|_| bpf_sampler.is_some());
        let kind = carrier.map_or((attr.kind, attr.config), |carrier| (carrier.event_type, carrier.event_config));
        let is_clock = matches!(kind, (event_type::SOFTWARE, software::CPU_CLOCK | software::TASK_CLOCK));
        let has_chains = match carrier {
            Some(carrier) => carrier.parts.contains(Parts::STACK),
            None => {
                attr.sample_type.contains(SampleType::CALLCHAIN)
                    && !attr.flags.contains(bprec_format::AttrFlags::EXCLUDE_CALLCHAIN_KERNEL)
            }
        };
        let capacity = || recorded.elapsed_ns?.checked_mul(u64::from(recorded.cpus?));
        let has_pids = attr.sample_type.contains(SampleType::TID);
        let lost = &self.index.lost;
        let mut report = EventReport {
            name: self.recording.names[event].clone(),
            unit: if is_clock { Unit::Nanoseconds } else { Unit::Events },
            samples: ledger.samples,
            idle: has_pids.then_some(ledger.idle),
            machine: if is_clock { capacity() } else { None },
            has_chains,
            is_timer: is_clock,
            samples_are_whole: self.samples_are_whole(event, recorded),
            rows: Vec::new(),
            entry: ledger.entry,
            interpreted: ledger.interpreted,
            unresolved: (!self.index.kernel.is_empty()).then_some(ledger.unresolved),
            lost: self.lost(event),
            filtered: lost.filtered.get(&event).copied().unwrap_or(0),
            throttled: lost.throttled.get(&event).copied().unwrap_or(0),
            aggregated: self.aggregated(event),
            hot: self.hot.get(event).cloned().unwrap_or_default(),
            bpf_sampler,
        };
        report.rows = program_rows(self.index, ledger, programs, order, &report, self.options);
        report
    }

    /// Whether samples are of all that ran, and of all of the time that other counts are of.
    fn samples_are_whole(&self, event: usize, recorded: &Recorded) -> bool {
        let is_all = self.window.whole && self.options.cpus.is_none() && self.options.comms.is_empty();
        // A timer that comes late has fewer samples than there was time for.
        let weight = self.ledger.events[event].samples.weight;
        let cpus = recorded.cpus.unwrap_or(0);
        let machine_ns = recorded.elapsed_ns.unwrap_or(0).saturating_mul(cpus.into());
        let all_there = u128::from(weight) * 10 >= u128::from(machine_ns) * 9;
        let throttled = self.index.lost.throttled.get(&event).is_some_and(|times| *times > 0);
        is_all
            && recorded.target.as_deref() == Some(SYSTEM_WIDE)
            && all_there
            && self.lost(event) == Some(0)
            && !throttled
    }

    fn aggregated(&self, event: usize) -> Option<Aggregated> {
        let account = self.index.aggregations.get(&event)?;
        let options = self.options;
        // Nor is a part all that is left of a recording: one that was cut off, or a part that was written as one.
        let ledger = &self.ledger.events[event];
        let seen = Count { samples: account.samples, weight: account.period };
        let is_all = self.window.whole && options.cpus.is_none() && options.comms.is_empty() && ledger.samples == seen;
        let unseen = account.counted.filter(|_| is_all).map(|counted| counted.saturating_sub(account.period));
        // At the rate of those that were seen.
        let samples = |weight: u64| {
            let samples = u128::from(weight) * u128::from(account.samples) / u128::from(account.period.max(1));
            u64::try_from(samples).unwrap_or(u64::MAX)
        };
        Some(Aggregated {
            entries: account.entries,
            interval_ns: account.interval_ns,
            overflow: ledger.overflow,
            blind_spot: unseen.map(|weight| Count { samples: samples(weight), weight }),
        })
    }

    /// Lost samples of an event: counted by the kernel, or else as LOST_SAMPLES says. LOST counts the same losses, of all
    /// events together.
    fn lost(&self, event: usize) -> Option<u64> {
        if let Some(loss) = &self.index.states.loss
            && !loss.not_counted
        {
            let ids = &self.recording.event(event).ids;
            let mine = loss.events.iter().filter(|loss| ids.contains(&loss.event_id));
            return Some(mine.fold(0, |sum, loss| sum.saturating_add(loss.lost)));
        }
        let told = self.index.lost.samples.get(&event).copied();
        told.or((self.index.lost.records == 0).then_some(0))
    }

    fn missed(&self, programs: &[super::Program], start_ns: u64) -> Vec<Missed> {
        let since_start = |time: u64| since(time, start_ns);
        let told = self.index.states.missed.iter().map(|missed| Missed {
            id: missed.id,
            tag: missed.tag.map(Tag),
            time_ns: Some(since_start(missed.time_ns)),
            reason: missed.reason.clone(),
        });
        let mut missed: Vec<Missed> = told.collect();
        for program in programs.iter().filter(|program| !program.captured && !program.counts_others()) {
            let Some(id) = program.id else { continue };
            if missed.iter().all(|missed| missed.id != id) {
                let time_ns = match program.loaded {
                    Some(super::Origin::At(time)) => Some(time),
                    _ => None,
                };
                let reason = if self.recording.is_unfinished() {
                    "the recording was cut off before its program infos were written"
                } else {
                    "no bpf_prog_info in the recording"
                };
                missed.push(Missed { id, tag: program.tag, time_ns, reason: reason.into() });
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
        if let Some((_, problem)) = &self.ledger.problem {
            problems.push(format!("{} samples could not be read, the first: {problem}", self.ledger.unreadable));
        }
        problems
    }
}
