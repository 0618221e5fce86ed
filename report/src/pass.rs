//! The second pass: every sample to its place in the ledger, in parallel.

use crate::charge::{Attribution, Attributor, Column};
use crate::index::Index;
use crate::model::Count;
use crate::recording::{Recording, Role, payload};
use crate::sinks::ledger::{EventLedger, Key};
use crate::symbols::Kind;
use crate::window::Window;
use crate::{Options, Split};
use bprec_format::state::OVERFLOW_PID;
use bprec_format::{AttrFlags, Endian, Record, RecordType, Records, Sample, misc};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

/// More threads than this gain nothing, and each holds a ledger.
const MAX_THREADS: usize = 16;

/// What the samples of a recording add up to.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// By event.
    pub(crate) events: Vec<EventLedger>,
    /// Samples of no known event, or that could not be read.
    pub(crate) unreadable: u64,
    /// Why the first one could not be read.
    pub(crate) problem: Option<(u64, String)>,
}

impl Ledger {
    fn new(recording: &Recording<'_>, index: &Index) -> Ledger {
        let programs = index.programs.list.len();
        Ledger { events: vec![EventLedger::new(programs); recording.events.all().len()], unreadable: 0, problem: None }
    }

    fn merge(&mut self, other: Ledger) {
        for (mine, theirs) in self.events.iter_mut().zip(other.events) {
            mine.merge(theirs);
        }
        self.unreadable += other.unreadable;
        self.problem = [self.problem.take(), other.problem].into_iter().flatten().min();
    }
}

/// Which samples count, and how they are split.
pub(crate) struct Selection<'o> {
    pub(crate) window: &'o Window,
    pub(crate) options: &'o Options,
    /// By event: whether it is asked for.
    pub(crate) events: Vec<bool>,
    /// By number of a task's name: whether it is asked for; empty when all are.
    pub(crate) comms: Vec<bool>,
}

impl Selection<'_> {
    /// Whether a sample counts.
    #[inline]
    pub(crate) fn admits(&self, time_ns: Option<u64>, cpu: Option<u32>, comm: Option<u32>) -> bool {
        (self.window.whole || time_ns.is_some_and(|time| self.window.contains(time)))
            && self.options.cpus.as_ref().is_none_or(|cpus| cpu.is_some_and(|cpu| cpus.contains(cpu)))
            && (self.comms.is_empty() || comm.is_some_and(|comm| self.comms[comm as usize]))
    }
}

/// Charges all samples.
pub(crate) fn charge(recording: &Recording<'_>, index: &Index, selection: &Selection<'_>) -> Ledger {
    let threads =
        selection.options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    let mut worker = Worker::new(recording, index, selection);
    let mut slice = 0;
    recording.for_each_slice(&mut |records| {
        // What is damaged was found, and told, in the first pass.
        if let Ok(records) = records {
            let parts = cut(&records, slice, &index.parts, recording.endian());
            let threads = threads.clamp(1, MAX_THREADS).min(parts.len());
            if threads <= 1 {
                worker.charge(records);
            } else {
                worker.share(&parts, threads);
            }
        }
        slice += 1;
    });
    worker.ledger
}

/// The parts of a slice that start at these offsets.
fn cut<'a>(records: &Records<'a>, slice: u32, starts: &[(u32, u64)], endian: Endian) -> Vec<Records<'a>> {
    let (bytes, offset) = (records.rest(), records.offset());
    let end = offset + bytes.len() as u64;
    let inside = starts.iter().filter(|(of, start)| *of == slice && (offset..end).contains(start));
    let mut cuts: Vec<u64> = inside.map(|(_, start)| *start).chain([end]).collect();
    cuts.dedup();
    let part =
        |from: u64, to: u64| Records::new(&bytes[(from - offset) as usize..(to - offset) as usize], from, endian);
    cuts.windows(2).map(|pair| part(pair[0], pair[1])).collect()
}

/// One thread's work.
struct Worker<'i> {
    recording: &'i Recording<'i>,
    index: &'i Index,
    selection: &'i Selection<'i>,
    attributor: Attributor<'i>,
    ledger: Ledger,
    needs_comm: bool,
}

impl<'i> Worker<'i> {
    fn new(recording: &'i Recording<'_>, index: &'i Index, selection: &'i Selection<'_>) -> Worker<'i> {
        Worker {
            recording,
            index,
            selection,
            attributor: Attributor::new(index),
            ledger: Ledger::new(recording, index),
            needs_comm: !selection.comms.is_empty() || selection.options.by == Some(Split::Comm),
        }
    }

    /// Lets several threads charge these parts.
    fn share(&mut self, parts: &[Records<'_>], threads: usize) {
        let (recording, index, selection) = (self.recording, self.index, self.selection);
        let next = AtomicUsize::new(0);
        let ledgers = std::thread::scope(|scope| {
            let work = || {
                let mut worker = Worker::new(recording, index, selection);
                while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    worker.charge(part.clone());
                }
                worker.ledger
            };
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            handles.into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        for ledger in ledgers {
            match ledger {
                Ok(ledger) => self.ledger.merge(ledger),
                // Nothing is lost silently.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    }

    fn charge(&mut self, records: Records<'_>) {
        for record in records.map_while(Result::ok) {
            if record.kind == RecordType::SAMPLE {
                self.record(&record);
            }
        }
    }

    #[inline]
    fn record(&mut self, record: &Record<'_>) {
        let Some(event) = self.recording.events.index_of(record) else {
            return self.unreadable(record.offset, || "sample of an unknown event".into());
        };
        if !matches!(self.recording.roles[event], Role::Sampling | Role::Sampler) || !self.selection.events[event] {
            return;
        }
        let recording = self.recording;
        let layout = &recording.event(event).layout;
        let body_offset = record.offset + bprec_format::RECORD_HEADER_BYTES as u64;
        let charged = layout.sample(record.body(), body_offset).and_then(|sample| self.sample(record, &sample, event));
        if let Err(error) = charged {
            self.unreadable(record.offset, || error.to_string());
        }
    }

    #[cold]
    fn unreadable(&mut self, offset: u64, problem: impl FnOnce() -> String) {
        self.ledger.unreadable += 1;
        if self.ledger.problem.as_ref().is_none_or(|(first, _)| offset < *first) {
            self.ledger.problem = Some((offset, problem()));
        }
    }

    #[inline]
    fn sample(&mut self, record: &Record<'_>, sample: &Sample<'_>, event: usize) -> bprec_format::Result<()> {
        let time_ns = sample.time_ns();
        let cpu = sample.cpu();
        let (pid, tid) = sample.pid_tid().unwrap_or((u32::MAX, u32::MAX));
        let options = self.selection.options;
        let time = time_ns.unwrap_or(u64::MAX);
        let comm = if self.needs_comm { self.index.tasks.at(tid, time) } else { None };
        if !self.selection.admits(time_ns, cpu, comm) {
            return Ok(());
        }

        let role = self.recording.roles[event];
        let count = match role {
            Role::Sampler => Count { samples: 1, weight: sampler_weight(self.index, record, sample)? },
            _ => count(self.recording, self.index, event, sample)?,
        };
        let in_kernel = record.misc & misc::CPUMODE_MASK == misc::KERNEL;
        let leaf = if in_kernel { sample.ip() } else { None };
        let chain = if leaf.is_some() { role.callchain(sample, record.offset)? } else { None };
        let attribution = self.attributor.attribution(leaf, chain, time);
        let ledger = &mut self.ledger.events[event];
        ledger.sample(count, time_ns, cpu);
        if pid == OVERFLOW_PID && self.index.aggregations.contains_key(&event) {
            ledger.overflow.merge(count);
        }
        match attribution {
            Attribution::Elsewhere => {
                if pid == 0 && tid == 0 && is_idle(self.index, leaf) {
                    ledger.idle.merge(count);
                }
            }
            _ => {
                let part = match options.by {
                    None => Key::Unknown,
                    Some(split) => {
                        let cgroup = match (split, role) {
                            (Split::Cgroup, Role::Sampler) => payload(sample, record.offset)?.cgroup,
                            (Split::Cgroup, _) => sample.decode()?.cgroup,
                            _ => None,
                        };
                        part(split, self.index, &attribution, sample, cgroup, (comm, tid))
                    }
                };
                if self.attributor.is_guarded() {
                    ledger.guarded.merge(count);
                }
                ledger.charge(attribution, count, &self.attributor.inside, options.by, part);
            }
        }
        Ok(())
    }
}

/// How many samples a record is, and how many of its event they stand for.
#[inline]
pub(crate) fn count(
    recording: &Recording<'_>,
    index: &Index,
    event: usize,
    sample: &Sample<'_>,
) -> bprec_format::Result<Count> {
    let weight = weight(recording, event, sample);
    let samples = if index.aggregations.is_empty() || !index.aggregations.contains_key(&event) {
        1
    } else {
        sample.decode()?.weight.unwrap_or(0)
    };
    Ok(Count { samples, weight })
}

/// How many of its event a sample stands for.
#[inline]
fn weight(recording: &Recording<'_>, event: usize, sample: &Sample<'_>) -> u64 {
    sample.period().unwrap_or_else(|| {
        let attr = &recording.event(event).attr;
        if attr.flags.contains(AttrFlags::FREQ) { 1 } else { attr.sample_period }
    })
}

/// How many events a sample of our sampling program stands for: one where neither it nor the recording says.
fn sampler_weight(index: &Index, record: &Record<'_>, sample: &Sample<'_>) -> bprec_format::Result<u64> {
    let period = payload(sample, record.offset)?.period;
    let told = index.states.sampler.as_ref().filter(|told| !told.is_frequency);
    Ok(period.or(told.map(|told| told.rate)).unwrap_or(1))
}

/// Whether the idle task was waiting. Without the kernel's symbols all that it does, but run programs, counts as that.
fn is_idle(index: &Index, leaf: Option<u64>) -> bool {
    index.symbols.is_empty() || leaf.is_some_and(|leaf| index.symbols.kind_at(leaf) == Kind::Idle)
}

fn part(
    split: Split,
    index: &Index,
    attribution: &Attribution,
    sample: &Sample<'_>,
    cgroup: Option<u64>,
    (comm, tid): (Option<u32>, u32),
) -> Key {
    match split {
        Split::Comm => comm.map_or(Key::Thread(tid), Key::Comm),
        Split::Cpu => sample.cpu().map_or(Key::Unknown, Key::Cpu),
        Split::Cgroup => cgroup.map_or(Key::Unknown, Key::Cgroup),
        Split::Func => match attribution {
            Attribution::Program { function: Some(function), .. } => Key::Function(*function),
            _ => Key::Entry,
        },
        Split::Helper => match attribution {
            Attribution::Program { column: Column::Own, .. } => Key::Code,
            Attribution::Program { column: Column::Helper, called: Some(called), .. } => {
                index.symbols.find(*called).map_or(Key::Unknown, Key::Kernel)
            }
            Attribution::Program { column: Column::Entry, .. } => Key::Entry,
            _ => Key::Unknown,
        },
    }
}
