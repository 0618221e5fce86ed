//! `--aggregate`: a BPF program counts samples in the kernel; the recorder writes the counts as weighted samples at each interval.
//!
//! The program is attached to the sampling events themselves. This makes the recording small, but hides samples inside kprobe,
//! tracepoint and perf_event programs: the kernel drops samples there if the event has a program, and does not count these losses.
//! The recording therefore holds the counter values of the events beside the counts of the program: the difference shows the loss.
//!
//! A weighted sample has the time of the first sample that it represents. perf sorts records by round (FINISHED_ROUND
//! ends a round): a record of round 5 may be older than records of round 4, but not older than records of round 3. The
//! recorder therefore writes one FINISHED_ROUND per interval, after the samples.
//!
//! A weighted sample inside BPF code belongs to one program. The recorder holds a descriptor of every program until all other holders have
//! released the program, and reads the samples before it closes the descriptor. Until then, the kernel cannot load another program at the
//! same addresses.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use bprec_bpf::{Aggregator, Attached, PerCpuStats, Stack, UserDetail};
use bprec_format::bprec::state::{Aggregation, OVERFLOW_PID, State};
use bprec_format::records::{Comm, Mmap, write_record};
use bprec_format::{Endian, RecordType, SampleId, SampleLayout, SampleType, Writer, context, event_type, misc};

use super::{Context, Event, Source, Tick};
use crate::events::{EventFd, OpenEvents, Sampler, machine};
use crate::{Aggregate, Error, Level, Options, Result, sys};

/// Name of the task, and of the mapping, of overflow samples: samples that found no free entry in the stack table.
const OVERFLOW: &[u8] = b"[overflow]";
/// Address of overflow samples, and start address of their mapping.
const OVERFLOW_IP: u64 = 0x1000;

/// Counter of the samples of one event.
#[derive(Debug)]
struct CountedEvent {
    /// CPUs and attachments of the program; dropped before the program is unloaded.
    attached: Vec<(i32, Attached)>,
    aggregator: Aggregator,
    /// Index of the event.
    event: usize,
    layout: SampleLayout,
    /// Pairs of CPU and id of the event on that CPU, sorted by CPU.
    ids: Vec<(u32, u64)>,
    /// Pairs of CPU and its counts at the last reading.
    accounts: Vec<(u32, PerCpuStats)>,
    /// Sum of all weighted samples written.
    written: PerCpuStats,
    /// Counts before the file began.
    before: Aggregation,
}

/// Counters of all sampling events of a recording.
#[derive(Debug)]
pub(crate) struct Aggregates {
    /// The open events; `None` until [`Aggregates::set_events`] is called.
    opened: Option<Arc<OpenEvents>>,
    events: Vec<CountedEvent>,
    entries: u32,
    interval_ns: u64,
    /// Weighted samples written.
    records: u64,
}

impl Aggregates {
    /// Loads one counting program for each event.
    ///
    /// # Errors
    /// Fails if an event is a tracepoint, or if the kernel refuses the program.
    pub(crate) fn load(
        samplers: &[Sampler],
        options: &Options,
        how: Aggregate,
        interval_ns: u64,
    ) -> Result<Aggregates> {
        super::refuse_foreign_process_ids("--aggregate counts samples by")?;
        let user = UserDetail { chains: options.user_chains.are_by_kernel(), addresses: how.user_addresses };
        let entries = how.entries_on(machine::online_cpus().len());
        let mut events = Vec::new();
        for (event, sampler) in samplers.iter().enumerate() {
            if sampler.attr.kind == event_type::TRACEPOINT {
                let problem = "--aggregate counts samples of hardware and software events; a tracepoint event needs a BPF program of another type";
                return Err(Error::Event { event: sampler.spec.name.clone(), problem: problem.to_owned() });
            }
            let aggregator = Aggregator::load(entries, user).map_err(refused)?;
            let layout = SampleLayout::new(&sampler.attr, Endian::NATIVE);
            events.push(CountedEvent {
                attached: Vec::new(),
                aggregator,
                event,
                layout,
                ids: Vec::new(),
                accounts: Vec::new(),
                written: PerCpuStats::default(),
                before: Aggregation::default(),
            });
        }
        Ok(Aggregates { opened: None, events, entries, interval_ns, records: 0 })
    }

    /// Sets the open events.
    pub(crate) fn set_events(&mut self, opened: Arc<OpenEvents>) {
        self.opened = Some(opened);
    }

    /// Reads the counts since the last call, and writes for each event its weighted samples and then its current totals.
    fn drain(&mut self, context: &mut Context<'_>) -> Result<()> {
        let Some(opened) = &self.opened else { return Ok(()) };
        for counted in &mut self.events {
            let mut records = Vec::new();
            // An error ends the source: otherwise, counts would be missing without a message.
            self.records += counted.drain(&mut records)?;
            context.out.records(records)?;
            context.out.state(State::Aggregation(counted.account(opened, self.entries, self.interval_ns)))?;
        }
        context.out.summary.weighted = Some(self.records);
        context.out.end_round();
        Ok(())
    }

    /// Attaches the programs to the events, which are still disabled.
    fn attach(&mut self, opened: &OpenEvents) -> Result<()> {
        for counted in &mut self.events {
            counted.layout = SampleLayout::new(&opened.events[counted.event].file.attr, Endian::NATIVE);
            let event = counted.event;
            for event_fd in opened.fds().iter().filter(|event_fd| event_fd.event == event) {
                counted.attach(event_fd)?;
            }
        }
        Ok(())
    }
}

impl Source for Aggregates {
    fn begin_file(&mut self, is_first: bool, context: &mut Context<'_>) -> Result<()> {
        let Some(opened) = self.opened.clone() else { return Ok(()) };
        if is_first {
            self.attach(&opened)?;
            let text = "--aggregate cannot see inside kprobe, tracepoint and perf_event programs; reports show \
                 samples in these programs only as [blind spot]";
            (context.notify)(Level::Notice, text);
        }
        // This first state marks the samples as weighted, before any of them is written.
        for counted in &mut self.events {
            context.out.state(State::Aggregation(counted.account(&opened, self.entries, self.interval_ns)))?;
        }
        match context.out.layout() {
            Some(layout) => context.out.records(overflow_names(&layout)?),
            None => Ok(()),
        }
    }

    /// Reads the samples at each interval. Also reads them before the recorder closes descriptors of programs, because
    /// the kernel may then load other programs at the same addresses.
    fn tick(&mut self, tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        for event in context.events.iter() {
            let Event::CpuReopened(reopened) = event else { continue };
            for (_, event_fd) in &reopened.fds {
                if let Some(counted) = self.events.iter_mut().find(|counted| counted.event == event_fd.event) {
                    counted.attached.retain(|(cpu, _)| *cpu != event_fd.cpu);
                    counted.attach(event_fd)?;
                }
            }
        }
        if tick.is_reading || context.programs.lets_go() {
            self.drain(context)?;
        }
        Ok(None)
    }

    /// Writes the last counts of the file, and starts the counts of the next file at 0.
    fn end_file(&mut self, _is_last: bool, context: &mut Context<'_>) -> Result<()> {
        self.drain(context)?;
        let Some(opened) = &self.opened else { return Ok(()) };
        for counted in &mut self.events {
            counted.before = counted.total(opened);
        }
        Ok(())
    }
}

/// Encodes the COMM and MMAP records that name overflow samples.
fn overflow_names(layout: &SampleLayout) -> Result<Vec<u8>> {
    let comm = Comm { pid: OVERFLOW_PID, tid: OVERFLOW_PID, comm: OVERFLOW };
    let map = Mmap {
        pid: OVERFLOW_PID,
        tid: OVERFLOW_PID,
        addr: OVERFLOW_IP,
        len_bytes: 0x1000,
        pgoff: 0,
        filename: OVERFLOW,
    };
    let mut out = Vec::new();
    record(&mut out, RecordType::COMM, 0, layout, |w| comm.encode(w))?;
    record(&mut out, RecordType::MMAP, misc::USER, layout, |w| map.encode(w))?;
    Ok(out)
}

impl CountedEvent {
    /// Attaches the program to a descriptor of the event.
    fn attach(&mut self, event_fd: &EventFd) -> Result<()> {
        self.attached.push((event_fd.cpu, self.aggregator.attach(event_fd.fd.as_fd()).map_err(refused)?));
        if let Ok(cpu) = u32::try_from(event_fd.cpu)
            && let Err(place) = self.ids.binary_search_by_key(&cpu, |(cpu, _)| *cpu)
        {
            self.ids.insert(place, (cpu, event_fd.id));
        }
        Ok(())
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Result<u64> {
        let CountedEvent { aggregator, layout, ids, written, .. } = self;
        let mut records = 0;
        let mut failed = Ok(());
        let drained = aggregator.drain(|stack| {
            records += 1;
            written.add(stack.samples, stack.period);
            if let Err(error) = sample(layout, id_on(ids, stack.cpu), stack, out) {
                failed = Err(error);
            }
        });
        drained.map_err(refused)?;
        failed?;

        let accounts = aggregator.accounts().map_err(refused)?;
        let now_ns = sys::monotonic_ns();
        self.accounts.resize(accounts.len(), (0, PerCpuStats::default()));
        for ((cpu, now), (_, before)) in accounts.iter().zip(&self.accounts) {
            let stack = Stack {
                ip: OVERFLOW_IP,
                pid_tid: (OVERFLOW_PID, OVERFLOW_PID),
                cpu: *cpu,
                cgroup: 0,
                samples: now.overflow_samples - before.overflow_samples,
                period: now.overflow_period - before.overflow_period,
                first_ns: now_ns,
                chain: &[],
            };
            if stack.samples > 0 {
                records += 1;
                self.written.add(stack.samples, stack.period);
                self.written.overflow_samples += stack.samples;
                self.written.overflow_period += stack.period;
                sample(layout, id_on(ids, stack.cpu), &stack, out)?;
            }
        }
        self.accounts = accounts;
        Ok(records)
    }

    /// Returns the counts since the file began.
    fn account(&self, opened: &OpenEvents, entries: u32, interval_ns: u64) -> Aggregation {
        let (now, before) = (self.total(opened), self.before);
        Aggregation {
            event_id: opened.events[self.event].file.ids.first().copied().unwrap_or(0),
            entries,
            interval_ns,
            samples: now.samples - before.samples,
            period: now.period - before.period,
            overflow_samples: now.overflow_samples - before.overflow_samples,
            overflow_period: now.overflow_period - before.overflow_period,
            counted: now.counted.map(|counted| counted.saturating_sub(before.counted.unwrap_or(0))),
            ..now
        }
    }

    /// Returns the counts since the recording began.
    fn total(&self, opened: &OpenEvents) -> Aggregation {
        // `written` lacks the samples since the last reading of the program. If another file begins, they go into that file.
        let PerCpuStats { samples, period, overflow_samples, overflow_period } = self.written;
        let mut sum = Aggregation {
            time_ns: sys::monotonic_ns(),
            samples,
            period,
            overflow_samples,
            overflow_period,
            ..Aggregation::default()
        };
        let fds = opened.fds();
        let fds = fds.iter().filter(|event_fd| event_fd.event == self.event);
        sum.counted = fds.map(|event_fd| event_fd.counts().map(|(value, _)| value)).sum::<std::io::Result<u64>>().ok();
        sum
    }
}

fn refused(error: bprec_bpf::Error) -> Error {
    Error::Other(format!("--aggregate: {error}"))
}

/// Returns the id of the event on a CPU, or the id on the first CPU if the event has none on that CPU.
fn id_on(ids: &[(u32, u64)], cpu: u32) -> u64 {
    let found = ids.binary_search_by_key(&cpu, |(cpu, _)| *cpu).unwrap_or(0);
    ids.get(found).map_or(0, |(_, id)| *id)
}

/// Appends a weighted sample, with its fields in the order of the kernel.
fn sample(layout: &SampleLayout, id: u64, stack: &Stack<'_>, out: &mut Vec<u8>) -> Result<()> {
    let mode = if stack.chain.first() == Some(&context::KERNEL) { misc::KERNEL } else { misc::USER };
    let (pid, tid) = stack.pid_tid;
    let has_cgroup = layout.sample_type().contains(SampleType::CGROUP);
    write_record(out, RecordType::SAMPLE, mode, layout, &SampleId::default(), |w| {
        w.u64(id).u64(stack.ip).u32(pid).u32(tid).u64(stack.first_ns).u32(stack.cpu).u32(0).u64(stack.period);
        w.u64(stack.chain.len() as u64);
        stack.chain.iter().for_each(|word| {
            w.u64(*word);
        });
        w.u64(stack.samples);
        if has_cgroup {
            w.u64(stack.cgroup);
        }
    })
    .map_err(|error| Error::Other(format!("cannot write a weighted sample: {error}")))
}

fn record(
    out: &mut Vec<u8>,
    kind: RecordType,
    mode: u16,
    layout: &SampleLayout,
    fill: impl FnOnce(&mut Writer<'_>),
) -> Result<()> {
    write_record(out, kind, mode, layout, &SampleId::default(), fill)
        .map_err(|error| Error::Other(format!("{kind}: {error}")))
}
