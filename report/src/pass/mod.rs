//! The second pass: every sample that is asked for is attributed and handed to a sink, in parallel.

pub(crate) mod attribution;
pub(crate) mod frames;
pub(crate) mod readings;
pub(crate) mod sinks;

use crate::index::Index;
use crate::index::programs::Program;
use crate::input::cache::read_ahead;
use crate::input::event_kind::{EventKind, payload};
use crate::input::recording::Recording;
use crate::input::unpacked::Slice;
use crate::input::window::Window;
use crate::input::{MAX_THREADS, threads_there_are};
use crate::model::Count;
use crate::options::ProgMatcher;
use crate::options::glob::Glob;
use crate::{Error, Options, ProgFilter, Result};
use attribution::{Attribution, Attributor};
use bprec_format::{AttrFlags, Callchain, Endian, Record, Records, Sample, SampleType, misc};
use readings::Readings;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle};

/// Consumer of a pass.
///
/// Samples come in no particular order, and from several threads: each thread has a sink of its own, which is merged into the first at the
/// end. A sink that needs the order of the file keeps [`SampleView::offset`] with what it makes.
pub trait Sink: Sized + Send {
    /// An empty sink of the same kind, for another thread.
    fn fork(&self) -> Self;

    /// Takes a sample in.
    ///
    /// # Errors
    /// When a part of the sample that the sink needs cannot be read: the sample counts as unreadable.
    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()>;

    /// Adds what another thread's sink has taken in.
    fn merge(&mut self, other: Self);
}

/// Takes nothing in.
impl Sink for () {
    fn fork(&self) {}

    fn sample(&mut self, _: &SampleView<'_>, _: &Attribution<'_>) -> bprec_format::Result<()> {
        Ok(())
    }

    fn merge(&mut self, (): ()) {}
}

/// Two in one pass. What the first cannot take in, the second does not see.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn fork(&self) -> (A, B) {
        (self.0.fork(), self.1.fork())
    }

    #[inline(always)]
    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        self.0.sample(sample, attribution)?;
        self.1.sample(sample, attribution)
    }

    fn merge(&mut self, other: (A, B)) {
        self.0.merge(other.0);
        self.1.merge(other.1);
    }
}

/// Several in one pass. What one cannot take in, those behind it do not see.
impl<S: Sink> Sink for Vec<S> {
    fn fork(&self) -> Vec<S> {
        self.iter().map(Sink::fork).collect()
    }

    #[inline(always)]
    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.sample(sample, attribution))
    }

    fn merge(&mut self, other: Vec<S>) {
        self.iter_mut().zip(other).for_each(|(mine, theirs)| mine.merge(theirs));
    }
}

/// A sample that is asked for.
pub struct SampleView<'s> {
    /// Position of its event among those of the recording. Of a group that is read with its leader's samples (`{a,b}:S`), each event that
    /// has moved since the sample before gets the record as a sample of its own.
    pub event: usize,
    /// Number of samples in the record, and number of events they stand for.
    pub count: Count,
    /// When it was taken, ns of the recording's clock.
    pub time_ns: Option<u64>,
    /// On which CPU.
    pub cpu: Option<u32>,
    /// Process and thread; `u32::MAX` where samples do not tell.
    pub pid_tid: (u32, u32),
    /// Its address, if it was taken in the kernel.
    pub kernel_ip: Option<u64>,
    /// Position of its record in the file.
    pub offset: u64,
    /// Its record.
    pub record: &'s Record<'s>,
    /// Its fields, decoded as they are asked for.
    pub fields: &'s Sample<'s>,
    /// Number of the task's name, where names are kept.
    pub(crate) comm: Option<u32>,
    pub(crate) kind: EventKind,
}

impl<'s> SampleView<'s> {
    /// Instruction pointer.
    pub fn ip(&self) -> Option<u64> {
        self.fields.ip()
    }

    /// The call chain, innermost first.
    ///
    /// # Errors
    /// When the sample cannot be read up to there.
    pub fn callchain(&self) -> bprec_format::Result<Option<Callchain<'s>>> {
        self.kind.callchain(self.fields, self.offset)
    }

    /// The cgroup that the sample was taken in.
    ///
    /// # Errors
    /// When the sample cannot be read up to there.
    pub fn cgroup(&self) -> bprec_format::Result<Option<u64>> {
        match self.kind {
            EventKind::BpfSampler => Ok(payload(self.fields, self.offset)?.cgroup),
            _ => Ok(self.fields.decode()?.cgroup),
        }
    }
}

/// Samples that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    /// Number of them.
    pub(crate) samples: u64,
    /// Offset of the first, and the reason why it could not be read.
    pub(crate) first: Option<(u64, String)>,
}

impl Unreadable {
    fn merge(&mut self, other: Unreadable) {
        self.samples = self.samples.saturating_add(other.samples);
        self.first = [self.first.take(), other.first].into_iter().flatten().min();
    }
}

/// Plan for reading the samples of an event: made once for all of them.
#[derive(Debug, Clone, Copy)]
struct EventPlan {
    kind: EventKind,
    weight: Weight,
    /// The record says how many samples it is: they were counted in the kernel.
    is_aggregated: bool,
}

/// Number of its event that a sample stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// Its period, or without one this many.
    Period { without: u64 },
    /// Number in the payload of our sampling program, or without one this many.
    Payload { without: u64 },
    /// Growth of the counters that it reads, each a sample of the counter's own event.
    Readings,
}

impl EventPlan {
    /// `None` for events whose samples are not needed.
    fn new(recording: &Recording<'_>, index: &Index, event: usize, is_asked: bool) -> Option<EventPlan> {
        let kind = recording.kinds[event];
        let attr = &recording.event(event).attr;
        let weight = match kind {
            EventKind::Pmu if attr.sample_type.contains(SampleType::READ) => Weight::Readings,
            EventKind::Pmu => {
                Weight::Period { without: if attr.flags.contains(AttrFlags::FREQ) { 1 } else { attr.sample_period } }
            }
            EventKind::BpfSampler => {
                let told = index.states.sampler.as_ref().filter(|told| !told.is_frequency);
                Weight::Payload { without: told.map_or(1, |told| told.rate) }
            }
            EventKind::State | EventKind::Other => return None,
        };
        let is_aggregated = index.aggregations.contains_key(&event);
        // Readings are differences: also those that are not asked for have to be known.
        (is_asked || weight == Weight::Readings).then_some(EventPlan { kind, weight, is_aggregated })
    }

    /// Number of samples in a record, and number of events they stand for.
    #[inline(always)]
    fn count(&self, sample: &Sample<'_>, offset: u64) -> bprec_format::Result<Count> {
        let weight = match self.weight {
            Weight::Period { without } => sample.period().unwrap_or(without),
            Weight::Payload { without } => payload(sample, offset)?.period.unwrap_or(without),
            // Not asked of these: their samples are counted one by one.
            Weight::Readings => 0,
        };
        let samples = if self.is_aggregated { sample.decode()?.weight.unwrap_or(0) } else { 1 };
        Ok(Count { samples, weight })
    }
}

/// Programs that are asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked(Option<Vec<bool>>);

impl Asked {
    /// Without filters all are asked for.
    pub(crate) fn new(filters: &[ProgFilter], programs: &[Program]) -> Asked {
        let filters: Vec<ProgMatcher> = filters.iter().map(ProgMatcher::new).collect();
        let is_asked = |known: &Program| filters.iter().any(|it| it.matches(known.id, known.tag, known.name()));
        Asked((!filters.is_empty()).then(|| programs.iter().map(is_asked).collect()))
    }

    /// Returns true if nothing is left out.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if a program is asked for, by its number.
    pub(crate) fn has(&self, program: u32) -> bool {
        self.0.as_ref().is_none_or(|asked| asked.get(program as usize) == Some(&true))
    }
}

/// Selection of the samples that count.
#[derive(Clone)]
pub(crate) struct Selection<'o> {
    pub(crate) window: Window,
    pub(crate) options: &'o Options,
    /// Programs that are asked for. Samples of others count as well.
    pub(crate) asked: Asked,
    /// By event: whether it is asked for.
    pub(crate) events: Vec<bool>,
    /// By number of a task's name: whether it is asked for; empty when all are.
    pub(crate) comms: Vec<bool>,
    /// The names of tasks are needed, for this or by the sink.
    pub(crate) needs_comm: bool,
}

impl<'o> Selection<'o> {
    /// Works out `options` for a recording.
    ///
    /// # Errors
    /// When they name an event or a time that the recording does not have.
    pub(crate) fn new(recording: &Recording<'_>, index: &Index, options: &'o Options) -> Result<Selection<'o>> {
        let window = Window::of(&options.time, recording, index.start_ns(), &index.gaps)?;
        let has_samples = |event: &usize| matches!(recording.kinds[*event], EventKind::Pmu | EventKind::BpfSampler);
        let is_asked = |event: usize| {
            has_samples(&event) && (options.events.is_empty() || options.events.contains(&recording.names[event]))
        };
        let events: Vec<bool> = (0..recording.names.len()).map(is_asked).collect();
        for name in &options.events {
            if !recording.names.iter().zip(&events).any(|(known, asked)| *asked && known == name) {
                let known = (0..recording.names.len()).filter(has_samples).map(|event| recording.names[event].as_str());
                let known = known.collect::<Vec<_>>().join(", ");
                let answer = format!("no samples of it in this recording, which has samples of {known}");
                return Err(Error::option("--event", name, answer));
            }
        }
        let comms = if options.comms.is_empty() {
            Vec::new()
        } else {
            let patterns: Vec<Glob> = options.comms.iter().map(|pattern| Glob::new(pattern)).collect();
            let asked = |number| patterns.iter().any(|pattern| pattern.matches(index.tasks.name(number)));
            (0..index.tasks.len() as u32).map(asked).collect()
        };
        let needs_comm = !comms.is_empty();
        let asked = Asked::new(&options.programs, &index.programs.list);
        Ok(Selection { window, options, asked, events, comms, needs_comm })
    }

    /// True if a sample counts.
    #[inline]
    pub(crate) fn admits(&self, time_ns: Option<u64>, cpu: Option<u32>, comm: Option<u32>) -> bool {
        (self.window.whole || time_ns.is_some_and(|time| self.window.contains(time)))
            && self.options.cpus.as_ref().is_none_or(|cpus| cpu.is_some_and(|cpu| cpus.contains(cpu)))
            && (self.comms.is_empty() || comm.is_some_and(|comm| self.comms[comm as usize]))
    }
}

#[cfg(test)]
thread_local! {
    /// Number of passes that this thread began.
    pub(crate) static PASSES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Hands every sample that is asked for to a sink. `each_slice` sees the number and the records of every slice, in order, while other
/// threads take in their samples.
pub(crate) fn run<S: Sink>(
    recording: &Recording<'_>,
    index: &Index,
    selection: &Selection<'_>,
    sink: S,
    mut each_slice: impl FnMut(u32, &Records<'_>),
) -> (S, Unreadable) {
    #[cfg(test)]
    PASSES.set(PASSES.get() + 1);
    let plan = |event| EventPlan::new(recording, index, event, selection.events[event]);
    let plans: Vec<Option<EventPlan>> = (0..recording.events.all().len()).map(plan).collect();
    // Growth of a counter can only be told in the order of the file.
    let needs_order = plans.iter().flatten().any(|plan| plan.weight == Weight::Readings);
    let threads = if needs_order { 1 } else { selection.options.threads.unwrap_or_else(threads_there_are) };
    let mut worker = Worker::new(recording, index, selection, &plans, sink);
    let mut slice = 0;
    recording.for_each_run(&mut |slices: &[Slice<'_>]| {
        // Damage was found, and told, in the first pass.
        let readable =
            || (slice..).zip(slices).filter_map(|(number, slice)| Some((number, slice.records.as_ref().ok()?)));
        let cut_up = readable().flat_map(|(number, records)| cut(records, number, &index.parts, recording.endian()));
        let parts: Vec<Records<'_>> = cut_up.collect();
        let threads = threads.clamp(1, MAX_THREADS).min(parts.len());
        worker.share(&parts, threads, || readable().for_each(|(number, records)| each_slice(number, records)));
        slice += slices.len() as u32;
    });
    (worker.sink, worker.unreadable)
}

/// The parts of a slice that start at these offsets, which are in order.
fn cut<'a>(records: &Records<'a>, slice: u32, starts: &[(u32, u64)], endian: Endian) -> Vec<Records<'a>> {
    let (bytes, offset) = (records.rest(), records.offset());
    let end = offset + bytes.len() as u64;
    let first = starts.partition_point(|(of, _)| *of < slice);
    let inside = starts[first..].iter().take_while(|(of, start)| *of == slice && (offset..end).contains(start));
    let mut cuts: Vec<u64> = inside.map(|(_, start)| *start).chain([end]).collect();
    cuts.dedup();
    let part =
        |from: u64, to: u64| Records::new(&bytes[(from - offset) as usize..(to - offset) as usize], from, endian);
    cuts.windows(2).map(|pair| part(pair[0], pair[1])).collect()
}

/// One thread's work.
struct Worker<'i, S> {
    recording: &'i Recording<'i>,
    index: &'i Index,
    selection: &'i Selection<'i>,
    plans: &'i [Option<EventPlan>],
    attributor: Attributor<'i>,
    readings: Readings,
    /// By event: what the last sample's counters have grown by.
    growth: Vec<(usize, u64)>,
    sink: S,
    unreadable: Unreadable,
}

impl<'i, S: Sink> Worker<'i, S> {
    fn new(
        recording: &'i Recording<'_>,
        index: &'i Index,
        selection: &'i Selection<'_>,
        plans: &'i [Option<EventPlan>],
        sink: S,
    ) -> Worker<'i, S> {
        let attributor = Attributor::new(index);
        let (readings, growth, unreadable) = (Readings::default(), Vec::new(), Unreadable::default());
        Worker { recording, index, selection, plans, attributor, readings, growth, sink, unreadable }
    }

    /// Lets several threads take in these parts. This one does something else first.
    fn share(&mut self, parts: &[Records<'_>], threads: usize, first: impl FnOnce()) {
        let (recording, index, selection, plans) = (self.recording, self.index, self.selection, self.plans);
        let next = AtomicUsize::new(0);
        let forks: Vec<S> = (1..threads).map(|_| self.sink.fork()).collect();
        let work = |sink: S| {
            let mut worker = Worker::new(recording, index, selection, plans, sink);
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                worker.walk(part.clone());
            }
            (worker.sink, worker.unreadable)
        };
        let work = &work;
        let sinks = std::thread::scope(|scope| {
            // This thread works as well: with those of the others that can be had.
            let start = |sink| Builder::new().spawn_scoped(scope, move || work(sink)).ok();
            let handles: Vec<_> = forks.into_iter().map_while(start).collect();
            first();
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.walk(part.clone());
            }
            handles.into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        for result in sinks {
            match result {
                Ok((sink, unreadable)) => {
                    self.sink.merge(sink);
                    self.unreadable.merge(unreadable);
                }
                // Panics of a thread are passed on.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    }

    fn walk(&mut self, mut records: Records<'_>) {
        let start = records.offset();
        while let Some(record) = records.next_sample() {
            read_ahead(records.rest());
            self.record(&record);
        }
        self.recording.finish_part(start..records.offset());
    }

    #[inline(always)]
    fn record(&mut self, record: &Record<'_>) {
        let Some(event) = self.recording.events.index_of(record) else {
            return self.unreadable(record.offset, || "sample of an unknown event".into());
        };
        let Some(plan) = &self.plans[event] else { return };
        let layout = &self.recording.event(event).layout;
        let body_offset = record.offset + bprec_format::RECORD_HEADER_BYTES as u64;
        let taken = layout.sample(record.body(), body_offset).and_then(|sample| match plan.weight {
            Weight::Readings => self.readings(record, &sample, event, plan),
            _ => self.sample(record, &sample, event, plan, None),
        });
        if let Err(error) = taken {
            self.unreadable(record.offset, || error.to_string());
        }
    }

    #[cold]
    fn unreadable(&mut self, offset: u64, problem: impl FnOnce() -> String) {
        self.unreadable.samples += 1;
        if self.unreadable.first.as_ref().is_none_or(|(first, _)| offset < *first) {
            self.unreadable.first = Some((offset, problem()));
        }
    }

    /// Takes in the counters that a sample reads: each that has grown makes a sample of its own event. One that cannot be right does not
    /// keep the others from being counted.
    #[cold]
    fn readings(
        &mut self,
        record: &Record<'_>,
        fields: &Sample<'_>,
        event: usize,
        plan: &EventPlan,
    ) -> bprec_format::Result<()> {
        let decoded = fields.decode()?;
        let mut growth = std::mem::take(&mut self.growth);
        if let Err(error) = self.readings.take(&self.recording.events, event, &decoded, record.offset, &mut growth) {
            self.unreadable(record.offset, || error.to_string());
        }
        let asked = growth.iter().filter(|(event, _)| self.selection.events[*event]);
        let taken = asked.copied().try_for_each(|(event, weight)| {
            self.sample(record, fields, event, plan, Some(Count { samples: 1, weight }))
        });
        self.growth = growth;
        taken
    }

    /// Takes in a sample. `count` is for one whose plan does not tell.
    #[inline(always)]
    fn sample(
        &mut self,
        record: &Record<'_>,
        fields: &Sample<'_>,
        event: usize,
        plan: &EventPlan,
        count: Option<Count>,
    ) -> bprec_format::Result<()> {
        let time_ns = fields.time_ns();
        let cpu = fields.cpu();
        let pid_tid = fields.pid_tid().unwrap_or((u32::MAX, u32::MAX));
        let time = time_ns.unwrap_or(u64::MAX);
        let comm = if self.selection.needs_comm { self.index.tasks.at(pid_tid.1, time) } else { None };
        if !self.selection.admits(time_ns, cpu, comm) {
            return Ok(());
        }
        let count = match count {
            Some(count) => count,
            None => plan.count(fields, record.offset)?,
        };
        let in_kernel = record.misc & misc::CPUMODE_MASK == misc::KERNEL;
        let kernel_ip = if in_kernel { fields.ip() } else { None };
        let chain = if kernel_ip.is_some() { plan.kind.callchain(fields, record.offset)? } else { None };
        let attribution = self.attributor.attribution(kernel_ip, chain, time);
        let offset = record.offset;
        let kind = plan.kind;
        let view = SampleView { event, count, time_ns, cpu, pid_tid, kernel_ip, offset, record, fields, comm, kind };
        self.sink.sample(&view, &attribution)
    }
}
