//! `--aggregate`: samples are counted in the kernel, and written as weighted ones at each interval.
//!
//! The program that counts sits on the sampling events themselves, which is what makes the recording small, and what
//! blinds it to samples inside kprobe, tracepoint and perf_event programs: there the kernel drops samples of events with a
//! program, and counts them nowhere. What the events themselves counted is kept beside what the program saw, so that the
//! difference can be told.
//!
//! A weighted sample has the time of the first sample that it stands for. A perf that reads the file sorts what lies
//! between two FINISHED_ROUND records, and does not expect what comes behind them to be older than what lies before the
//! first: so there is one such record per interval, behind the samples.
//!
//! A weighted sample is of one program. The recorder holds every program until everyone else has let go of it, and takes the samples out of the
//! kernel before it lets go itself: until then no other program can be at the same addresses, and the samples of the next one are counted anew.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use bprec_bpf::{Aggregator, Attached, PerCpuStats, Stack, UserDetail};
use bprec_format::bprec::state::{Aggregation, OVERFLOW_PID, State};
use bprec_format::records::{Comm, Mmap, write_record};
use bprec_format::{Endian, RecordType, SampleId, SampleLayout, SampleType, Writer, context, event_type, misc};

use super::{Context, Source, Tick};
use crate::events::{OpenEvents, Sampler, machine};
use crate::{Aggregate, Error, Level, Options, Result, sys};

/// The name of task and mapping that the samples without room have.
const OVERFLOW: &[u8] = b"[overflow]";
/// The address that they have, and that mapping's.
const OVERFLOW_IP: u64 = 0x1000;

/// Counter of the samples of one event.
#[derive(Debug)]
struct CountedEvent {
    /// Taken off before the program goes.
    attached: Vec<Attached>,
    aggregator: Aggregator,
    /// Index of the event.
    event: usize,
    layout: SampleLayout,
    /// An id of the event by CPU.
    ids: Vec<(u32, u64)>,
    /// Accounts of CPUs at the last reading.
    accounts: Vec<(u32, PerCpuStats)>,
    /// Sum of all rows written.
    written: PerCpuStats,
    /// Counts before the file began.
    before: Aggregation,
}

/// All of a recording's events, counted.
#[derive(Debug)]
pub(crate) struct Aggregates {
    /// Set when the events are open.
    opened: Option<Arc<OpenEvents>>,
    events: Vec<CountedEvent>,
    entries: u32,
    interval_ns: u64,
    /// Weighted samples written.
    records: u64,
}

impl Aggregates {
    /// Loads the program for each of the events.
    ///
    /// # Errors
    /// When an event takes no such program, or the kernel refuses it.
    pub(crate) fn load(
        samplers: &[Sampler],
        options: &Options,
        how: Aggregate,
        interval_ns: u64,
    ) -> Result<Aggregates> {
        super::refuse_foreign_process_ids("--aggregate counts by")?;
        let user = UserDetail { chains: options.user_chains.are_by_kernel(), addresses: how.user_addresses };
        let entries = how.entries_on(machine::online_cpus().len());
        let mut events = Vec::new();
        for (event, sampler) in samplers.iter().enumerate() {
            if sampler.attr.kind == event_type::TRACEPOINT {
                let problem = "--aggregate counts samples of hardware and software events; a tracepoint takes programs of \
                               another type";
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

    /// Tells it the events, which are open.
    pub(crate) fn set_events(&mut self, opened: Arc<OpenEvents>) {
        self.opened = Some(opened);
    }

    /// Takes out of the kernel what was counted since the last time: samples, then the account of each event, as it is now.
    fn drain(&mut self, context: &mut Context<'_>) -> Result<()> {
        let Some(opened) = &self.opened else { return Ok(()) };
        for counted in &mut self.events {
            let mut records = Vec::new();
            // Some of what was counted would be missing without a word if this could fail.
            self.records += counted.drain(&mut records)?;
            context.out.records(records)?;
            context.out.state(State::Aggregation(counted.account(opened, self.entries, self.interval_ns)))?;
        }
        context.out.summary.weighted = Some(self.records);
        context.out.end_round();
        Ok(())
    }

    /// Puts the programs on the events, which are not switched on yet.
    fn attach(&mut self, opened: &OpenEvents) -> Result<()> {
        for counted in &mut self.events {
            counted.layout = SampleLayout::new(&opened.events[counted.event].file.attr, Endian::NATIVE);
            for event_fd in opened.fds.iter().filter(|event_fd| event_fd.event == counted.event) {
                counted.attached.push(counted.aggregator.attach(event_fd.fd.as_fd()).map_err(refused)?);
                counted.ids.extend(u32::try_from(event_fd.cpu).ok().map(|cpu| (cpu, event_fd.id)));
            }
            counted.ids.sort_unstable();
            counted.ids.dedup_by_key(|(cpu, _)| *cpu);
        }
        Ok(())
    }
}

impl Source for Aggregates {
    fn begin_file(&mut self, is_first: bool, context: &mut Context<'_>) -> Result<()> {
        let Some(opened) = self.opened.clone() else { return Ok(()) };
        if is_first {
            self.attach(&opened)?;
            let text = "--aggregate cannot see inside kprobe, tracepoint and perf_event programs; reports have their samples as \
                        [blind spot] only";
            (context.notify)(Level::Notice, text);
        }
        // From the first state on, a reader knows what the samples are.
        for counted in &mut self.events {
            context.out.state(State::Aggregation(counted.account(&opened, self.entries, self.interval_ns)))?;
        }
        match context.out.layout() {
            Some(layout) => context.out.records(overflow_names(&layout)?),
            None => Ok(()),
        }
    }

    /// Takes out the samples also of programs that are about to be let go of. Releases are looked for ten times a second at most.
    fn tick(&mut self, tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        if tick.is_reading || context.programs.lets_go() {
            self.drain(context)?;
        }
        Ok(None)
    }

    /// Everything counts for the next file from here on.
    fn end_file(&mut self, _is_last: bool, context: &mut Context<'_>) -> Result<()> {
        self.drain(context)?;
        let Some(opened) = &self.opened else { return Ok(()) };
        for counted in &mut self.events {
            counted.before = counted.total(opened);
        }
        Ok(())
    }
}

/// The records that tell what the samples without room are.
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

    /// Counts since the file began.
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

    /// Counts since the recording began.
    fn total(&self, opened: &OpenEvents) -> Aggregation {
        // Samples that came after the tables were switched are in no row yet, and in the next file if another begins.
        let PerCpuStats { samples, period, overflow_samples, overflow_period } = self.written;
        let mut sum = Aggregation {
            time_ns: sys::monotonic_ns(),
            samples,
            period,
            overflow_samples,
            overflow_period,
            ..Aggregation::default()
        };
        let fds = opened.fds.iter().filter(|event_fd| event_fd.event == self.event);
        let counts = fds.map(|event_fd| sys::read_counter(event_fd.fd.as_fd()).map(|(value, _)| value));
        sum.counted = counts.sum::<std::io::Result<u64>>().ok();
        sum
    }
}

fn refused(error: bprec_bpf::Error) -> Error {
    Error::Other(format!("--aggregate: {error}"))
}

/// The id of the event on a CPU, or any.
fn id_on(ids: &[(u32, u64)], cpu: u32) -> u64 {
    let found = ids.binary_search_by_key(&cpu, |(cpu, _)| *cpu).unwrap_or(0);
    ids.get(found).map_or(0, |(_, id)| *id)
}

/// Appends a weighted sample, its fields in the order of the kernel's.
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
    .map_err(|error| Error::Other(format!("weighted sample: {error}")))
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
