//! Second pass: attributes every selected sample and passes it to a sink, with several threads.

pub(crate) mod attribution;
pub(crate) mod frames;
pub(crate) mod readings;
pub(crate) mod sinks;

use crate::error::sorted;
use crate::index::Index;
use crate::index::programs::IndexedProgram;
use crate::input::cache::read_ahead;
use crate::input::event_kind::{EventKind, payload};
use crate::input::recording::OpenRecording;
use crate::input::unpacked::RecordSlice;
use crate::input::window::Window;
use crate::input::{MAX_THREADS, threads_there_are};
use crate::model::Count;
use crate::options::names_event;
use crate::{Error, Options, ProgFilter, Result};
use attribution::{Attribution, Attributor};
use bprec_filter::Glob;
use bprec_format::{AttrFlags, Callchain, Endian, Record, Records, Sample, SampleType, misc};
use readings::Readings;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle};

/// Consumer of the samples of a pass.
///
/// Samples come in no particular order, and from several threads: each thread has its own sink, which is merged into the first at the end. A sink
/// that needs the order of the file keeps [`SampleView::offset`] with its results.
pub trait Sink: Sized + Send {
    /// Returns an empty sink of the same kind for another thread.
    fn fork(&self) -> Self;

    /// Adds a sample.
    ///
    /// # Errors
    /// Fails if a part of the sample that the sink needs cannot be read: the sample counts as unreadable.
    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()>;

    /// Adds the results of another thread's sink.
    fn merge(&mut self, other: Self);
}

/// A sink that ignores all samples.
impl Sink for () {
    fn fork(&self) {}

    fn sample(&mut self, _: &SampleView<'_>, _: &Attribution<'_>) -> bprec_format::Result<()> {
        Ok(())
    }

    fn merge(&mut self, (): ()) {}
}

/// Two sinks in one pass. A sample that the first sink rejects does not reach the second.
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

/// Several sinks in one pass. A sample that a sink rejects does not reach the sinks after it.
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

/// A selected sample.
pub struct SampleView<'s> {
    /// Position of the event in the recording. A sample may read all counters of a group (`{a,b}:S`). The sink then gets the record once for each
    /// event whose counter has grown since the previous sample.
    pub event: usize,
    /// Number of samples in the record, and number of events that they stand for.
    pub count: Count,
    /// Time of the sample, ns of the recording's clock.
    pub time_ns: Option<u64>,
    /// CPU of the sample.
    pub cpu: Option<u32>,
    /// Process and thread; `u32::MAX` if samples do not have them.
    pub pid_tid: (u32, u32),
    /// Address of the sample, if it was taken in the kernel.
    pub kernel_ip: Option<u64>,
    /// Offset of the record in the file.
    pub offset: u64,
    /// Record of the sample.
    pub record: &'s Record<'s>,
    /// Fields of the sample, decoded on access.
    pub fields: &'s Sample<'s>,
    /// Number of the task's name in the index; `None` if the name is unknown or not needed.
    pub(crate) comm: Option<u32>,
    pub(crate) kind: EventKind,
}

impl<'s> SampleView<'s> {
    /// Instruction pointer of the sample.
    pub fn ip(&self) -> Option<u64> {
        self.fields.ip()
    }

    /// Call chain, innermost first.
    ///
    /// # Errors
    /// Fails if the record is too short for the chain or for the fields before it.
    pub fn callchain(&self) -> bprec_format::Result<Option<Callchain<'s>>> {
        self.kind.callchain(self.fields, self.offset)
    }

    /// Cgroup that the sample was taken in.
    ///
    /// # Errors
    /// Fails if the record is too short for the cgroup or for the fields before it.
    pub fn cgroup(&self) -> bprec_format::Result<Option<u64>> {
        match self.kind {
            EventKind::BpfSampler => Ok(payload(self.fields, self.offset)?.cgroup),
            _ => Ok(self.fields.decode()?.cgroup),
        }
    }
}

/// Samples that reach no sink.
#[derive(Debug, Default)]
pub(crate) struct LeftOutSamples {
    /// Number of unreadable samples.
    pub(crate) samples: u64,
    /// Offset of the first unreadable sample, and the error.
    pub(crate) first: Option<(u64, String)>,
    /// Samples in the selected time and on the selected CPUs that belong to tasks outside of the selection, by event.
    pub(crate) of_other_tasks: BTreeMap<usize, Count>,
}

impl LeftOutSamples {
    fn merge(&mut self, other: LeftOutSamples) {
        for (event, count) in other.of_other_tasks {
            self.of_other_tasks.entry(event).or_default().merge(count);
        }
        self.samples = self.samples.saturating_add(other.samples);
        self.first = [self.first.take(), other.first].into_iter().flatten().min();
    }
}

/// Plan for reading the samples of an event, made once for all samples.
#[derive(Debug, Clone, Copy)]
struct EventPlan {
    kind: EventKind,
    weight: Weight,
    /// True if a record stands for many samples, which were counted in the kernel.
    is_aggregated: bool,
}

/// Source of the number of events that a sample stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// Period of the sample; if the sample has no period, the number `without`.
    Period { without: u64 },
    /// Period in the payload of bprec's sampling program; if the payload has no period, the number `without`.
    Payload { without: u64 },
    /// Growth of the counters that the sample reads; each counter that has grown makes a sample of its own event.
    Readings,
}

impl EventPlan {
    /// Returns the plan for an event; `None` if its samples are not needed.
    fn new(recording: &OpenRecording<'_>, index: &Index, event: usize, is_asked: bool) -> Option<EventPlan> {
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
        // The growth of a counter is the difference of two readings. A sample that reads counters is therefore needed even if its event is not
        // selected.
        (is_asked || weight == Weight::Readings).then_some(EventPlan { kind, weight, is_aggregated })
    }

    /// Returns the number of samples in a record, and the number of events that they stand for.
    #[inline(always)]
    fn count(&self, sample: &Sample<'_>, offset: u64) -> bprec_format::Result<Count> {
        let weight = match self.weight {
            Weight::Period { without } => sample.period().unwrap_or(without),
            Weight::Payload { without } => payload(sample, offset)?.period.unwrap_or(without),
            // A sample that reads counters gets the growth of each counter instead of this value.
            Weight::Readings => 0,
        };
        let samples = if self.is_aggregated { sample.decode()?.weight.unwrap_or(0) } else { 1 };
        Ok(Count { samples, weight })
    }
}

/// Programs that the user requests: true by the number of the program; `None` for all programs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked(Option<Vec<bool>>);

impl Asked {
    /// Matches programs with filters; without filters, all programs match.
    pub(crate) fn new(filters: &[ProgFilter], programs: &[IndexedProgram]) -> Asked {
        let is_asked = |known: &IndexedProgram| filters.iter().any(|filter| known.matches(filter));
        Asked((!filters.is_empty()).then(|| programs.iter().map(is_asked).collect()))
    }

    /// Requested programs of `options`.
    ///
    /// # Errors
    /// Fails if no program matches although the options require a match.
    pub(crate) fn of(options: &Options, index: &Index) -> Result<Asked> {
        let programs = &index.programs.list;
        let asked = Asked::new(&options.programs, programs);
        match &asked.0 {
            Some(asked) if options.must_match && !asked.contains(&true) => {
                Err(Error::no_program(&options.programs, programs.iter().map(IndexedProgram::name)))
            }
            _ => Ok(asked),
        }
    }

    /// Returns true if all programs are requested.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if the program with this number is requested.
    pub(crate) fn has(&self, program: u32) -> bool {
        self.0.as_ref().is_none_or(|asked| asked.get(program as usize) == Some(&true))
    }
}

/// Selection of samples.
#[derive(Clone)]
pub(crate) struct Selection<'o> {
    pub(crate) window: Window,
    pub(crate) options: &'o Options,
    /// Programs that the user requests. The pass does not filter by program: sinks also get the samples of other programs.
    pub(crate) asked: Asked,
    /// For each event, true if it is selected.
    pub(crate) events: Vec<bool>,
    /// For each number of a task name, true if the name is selected; empty if all names are selected.
    pub(crate) comms: Vec<bool>,
    /// True if the selection or the sink needs the names of tasks.
    pub(crate) needs_comm: bool,
}

impl<'o> Selection<'o> {
    /// Resolves `options` for a recording.
    ///
    /// # Errors
    /// Fails if the options name an event or a time that the recording does not have, or if they require a match and no program or task matches.
    pub(crate) fn new(recording: &OpenRecording<'_>, index: &Index, options: &'o Options) -> Result<Selection<'o>> {
        let window = Window::of(&options.time, recording, index.start_ns(), &index.gaps)?;
        let has_samples = |event: &usize| matches!(recording.kinds[*event], EventKind::Pmu | EventKind::BpfSampler);
        let is_asked = |event: usize| {
            let is_named = |name: &String| names_event(name, &recording.names[event]);
            has_samples(&event) && (options.events.is_empty() || options.events.iter().any(is_named))
        };
        let events: Vec<bool> = (0..recording.names.len()).map(is_asked).collect();
        for name in &options.events {
            if !recording.names.iter().zip(&events).any(|(known, asked)| *asked && names_event(name, known)) {
                let known = (0..recording.names.len()).filter(has_samples).map(|event| recording.names[event].as_str());
                let known = known.collect::<Vec<_>>().join(", ");
                let answer = format!("the recording has no samples of this event; it has samples of {known}");
                return Err(Error::option("--event", name, answer));
            }
        }
        let comms = selected_comms(index, &options.comms, options.must_match)?;
        let needs_comm = !options.comms.is_empty();
        let asked = Asked::of(options, index)?;
        Ok(Selection { window, options, asked, events, comms, needs_comm })
    }

    /// Returns true if a time and a CPU are selected.
    #[inline]
    fn admits(&self, time_ns: Option<u64>, cpu: Option<u32>) -> bool {
        (self.window.whole || time_ns.is_some_and(|time| self.window.contains(time)))
            && self.options.cpus.as_ref().is_none_or(|cpus| cpu.is_some_and(|cpu| cpus.contains(cpu)))
    }

    /// Returns true if the name of a task is selected.
    #[inline]
    fn admits_task(&self, comm: Option<u32>) -> bool {
        self.comms.is_empty() || comm.is_some_and(|comm| self.comms[comm as usize])
    }
}

/// Returns true for each name of a task that one of the patterns matches, by the number of the name; empty without patterns. With `must_match`, fails
/// if no name matches.
pub(crate) fn selected_comms(index: &Index, comms: &[String], must_match: bool) -> Result<Vec<bool>> {
    if comms.is_empty() {
        return Ok(Vec::new());
    }
    let patterns: Vec<Glob> = comms.iter().map(|pattern| Glob::new(pattern)).collect();
    let names = || (0..index.tasks.len() as u32).map(|number| index.tasks.name(number));
    let selected: Vec<bool> = names().map(|name| patterns.iter().any(|pattern| pattern.matches(name))).collect();
    if must_match && !selected.contains(&true) {
        return Err(Error::NoTask { asked: comms.to_vec(), names: sorted(names()) });
    }
    Ok(selected)
}

#[cfg(test)]
thread_local! {
    /// Number of passes that this thread started.
    pub(crate) static PASSES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Passes every selected sample to a sink. Calls `each_slice` with the number and the records of every readable slice of the recording, in order,
/// while other threads work on the samples.
pub(crate) fn run<S: Sink>(
    recording: &OpenRecording<'_>,
    index: &Index,
    selection: &Selection<'_>,
    sink: S,
    mut each_slice: impl FnMut(u32, &Records<'_>),
) -> (S, LeftOutSamples) {
    #[cfg(test)]
    PASSES.set(PASSES.get() + 1);
    let plan = |event| EventPlan::new(recording, index, event, selection.events[event]);
    let plans: Vec<Option<EventPlan>> = (0..recording.events.all().len()).map(plan).collect();
    // The growth of a counter can be computed only if its samples are read in the order of the file.
    let needs_order = plans.iter().flatten().any(|plan| plan.weight == Weight::Readings);
    let threads = if needs_order { 1 } else { selection.options.threads.unwrap_or_else(threads_there_are) };
    let mut worker = Worker::new(recording, index, selection, &plans, sink);
    let mut slice = 0;
    recording.for_each_run(&mut |slices: &[RecordSlice<'_>]| {
        // Unreadable slices are skipped: the first pass has reported them.
        let readable =
            || (slice..).zip(slices).filter_map(|(number, slice)| Some((number, slice.records.as_ref().ok()?)));
        let cut_up = readable().flat_map(|(number, records)| cut(records, number, &index.parts, recording.endian()));
        let parts: Vec<Records<'_>> = cut_up.collect();
        let threads = threads.clamp(1, MAX_THREADS).min(parts.len());
        worker.share(&parts, threads, || readable().for_each(|(number, records)| each_slice(number, records)));
        slice += slices.len() as u32;
    });
    (worker.sink, worker.left_out)
}

/// Cuts a slice into parts. `starts` has the starts of the parts in all slices as (number of the slice, offset), ascending.
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

/// Worker of one thread.
struct Worker<'i, S> {
    recording: &'i OpenRecording<'i>,
    index: &'i Index,
    selection: &'i Selection<'i>,
    plans: &'i [Option<EventPlan>],
    attributor: Attributor<'i>,
    readings: Readings,
    /// Buffer for the counters of the latest sample that have grown: (event, growth).
    growth: Vec<(usize, u64)>,
    sink: S,
    left_out: LeftOutSamples,
}

impl<'i, S: Sink> Worker<'i, S> {
    fn new(
        recording: &'i OpenRecording<'_>,
        index: &'i Index,
        selection: &'i Selection<'_>,
        plans: &'i [Option<EventPlan>],
        sink: S,
    ) -> Worker<'i, S> {
        let attributor = Attributor::new(index);
        let (readings, growth, left_out) = (Readings::default(), Vec::new(), LeftOutSamples::default());
        Worker { recording, index, selection, plans, attributor, readings, growth, sink, left_out }
    }

    /// Shares the parts among several threads. This thread calls `first` and then takes part.
    fn share(&mut self, parts: &[Records<'_>], threads: usize, first: impl FnOnce()) {
        let (recording, index, selection, plans) = (self.recording, self.index, self.selection, self.plans);
        let next = AtomicUsize::new(0);
        let forks: Vec<S> = (1..threads).map(|_| self.sink.fork()).collect();
        let work = |sink: S| {
            let mut worker = Worker::new(recording, index, selection, plans, sink);
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                worker.walk(part.clone());
            }
            (worker.sink, worker.left_out)
        };
        let work = &work;
        let sinks = std::thread::scope(|scope| {
            // This thread works on parts, too. If a thread cannot be started, the other threads process all parts.
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
                Ok((sink, left_out)) => {
                    self.sink.merge(sink);
                    self.left_out.merge(left_out);
                }
                // The panic of a thread continues in this thread.
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
        self.left_out.samples += 1;
        if self.left_out.first.as_ref().is_none_or(|(first, _)| offset < *first) {
            self.left_out.first = Some((offset, problem()));
        }
    }

    /// Processes the counters that a sample reads: each counter that has grown makes a sample of its own event. After an invalid value, the other
    /// values are still counted.
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

    /// Processes a sample. `count` replaces the count of the plan.
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
        if !self.selection.admits(time_ns, cpu) {
            return Ok(());
        }
        let count = match count {
            Some(count) => count,
            None => plan.count(fields, record.offset)?,
        };
        if !self.selection.admits_task(comm) {
            self.left_out.of_other_tasks.entry(event).or_default().merge(count);
            return Ok(());
        }
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
