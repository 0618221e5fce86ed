//! Printing of records in order: the work of a printing thread.

use std::sync::Arc;

use bprec_format::records::Payload;
use bprec_format::{
    AttrFlags, Callchain, Endian, Event, EventAttr, Events, OrderedRun, Record, RecordType, SampleFields, SampleId,
    SampleType, bprec::sampler, context,
};

use super::deferred::{self, Deferred, Waiting};
use super::fields::Field;
use super::frames::FrameTexts;
use super::line::{PrintedLine, Stamp, Style, UNKNOWN_EVENT};
use super::naming::Naming;
use super::tasks::{self, StreamTasks};
use super::text::Text;
use super::{MAX_STACK, ScriptOptions, sampled, side};
use crate::input::event_kind::EventKind;
use crate::input::window::Window;
use crate::pass::readings::Readings;
use bprec_filter::Glob;

/// Number of records per block, the unit that threads share work in.
pub(super) const BLOCK_RECORDS: usize = 512;
/// Limit on the text of a record, bytes; beyond it, no further line is printed. A record has a line for each of its counters, with the whole call
/// chain.
const RECORD_TEXT_BYTES: usize = 1 << 19;

/// Receiver of printed text: takes long texts, so that the buffer stays small.
pub(super) trait TextSink {
    /// Takes the text if it is long; called after each record.
    fn take_much(&mut self, text: &mut Text);

    /// Marks the current end of the text as the end of a block.
    fn end_block(&mut self, _text: &Text) {}
}

/// Records in order, with the events and the names that hold for them.
pub(super) struct Batch<'a> {
    pub(super) events: Arc<Events>,
    pub(super) naming: Arc<Naming>,
    pub(super) run: OrderedRun<'a>,
    /// Number of records before the batch.
    pub(super) before: u64,
}

impl Batch<'_> {
    /// Returns true if the text of a sample depends on earlier samples: a single thread then prints everything.
    pub(super) fn is_sequential(&self) -> bool {
        self.events.all().iter().any(|event| {
            event.attr.sample_type.contains(SampleType::READ) || event.attr.flags.contains(AttrFlags::DEFER_CALLCHAIN)
        })
    }
}

/// Part of a batch that one printer prints: every `of`th block, from number `index` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkShare {
    pub(super) index: usize,
    pub(super) of: usize,
}

impl WorkShare {
    /// Share with all blocks.
    pub(super) const ALL: WorkShare = WorkShare { index: 0, of: 1 };
    /// Share without blocks.
    pub(super) const NONE: WorkShare = WorkShare { index: 1, of: 1 };
}

/// Counts of a printer.
#[derive(Debug, Default)]
pub(super) struct Printed {
    pub(super) samples: u64,
    pub(super) others: u64,
    pub(super) unreadable: u64,
    /// Number and error of the first unreadable record.
    pub(super) first_unreadable: Option<(u64, bprec_format::Error)>,
    /// True if names were dropped because of a limit.
    pub(super) forgot: bool,
}

impl Printed {
    /// Adds the counts of another printer.
    pub(super) fn merge(&mut self, other: Printed) {
        self.samples += other.samples;
        self.others += other.others;
        self.unreadable += other.unreadable;
        let both = [self.first_unreadable.take(), other.first_unreadable].into_iter().flatten();
        self.first_unreadable = both.min_by_key(|(number, _)| *number);
        self.forgot |= other.forgot;
    }
}

/// Returns the call chain with another user part: the processor's call stack (`PERF_SAMPLE_BRANCH_CALL_STACK`) in place of the part that the kernel
/// unwound. `None` if the event does not record that call stack.
fn with_branch_stack(fields: &SampleFields<'_>, attr: &EventAttr, endian: Endian) -> Option<Vec<u8>> {
    const CALL_STACK: u64 = 1 << 11;
    let (chain, branches) = (fields.callchain?, fields.branches.as_ref()?);
    if attr.branch_sample_type & CALL_STACK == 0 {
        return None;
    }
    let user = chain.iter().position(|word| word == context::USER)?;
    let newest = branches.iter().next()?.to;
    let callers = branches.iter().map(|branch| branch.from);
    let words = chain.iter().take(user + 1).chain([newest]).chain(callers);
    Some(words.flat_map(|word| endian.bytes_u64(word)).collect())
}

/// Prints records in the order of their submission.
///
/// Printers can share work: each printer receives all records and updates its names, but prints only its own blocks.
pub(super) struct Printer<'o> {
    options: &'o ScriptOptions,
    window: &'o Window,
    comms: Vec<Glob>,
    style: Style,
    /// Printed text that the sink has not taken yet.
    pub(super) text: Text,
    naming: Arc<Naming>,
    tasks: StreamTasks,
    frames: FrameTexts,
    deferred: Deferred,
    readings: Readings,
    /// Buffer for the counters of a sample: position of the event, and growth since the previous sample.
    growth: Vec<(usize, u64)>,
    /// Number of submitted records.
    number: u64,
    pub(super) printed: Printed,
}

impl<'o> Printer<'o> {
    pub(super) fn new(options: &'o ScriptOptions, window: &'o Window) -> Printer<'o> {
        let style = Style {
            fields: options.fields,
            nanoseconds: options.nanoseconds,
            chains: !options.hide_call_chains,
            max_stack: options.max_stack.unwrap_or(MAX_STACK),
            event_width: 0,
        };
        Printer {
            options,
            window,
            comms: options.comms.iter().map(|pattern| Glob::new(pattern)).collect(),
            style,
            text: Text::default(),
            naming: Arc::default(),
            tasks: StreamTasks::default(),
            frames: FrameTexts::default(),
            deferred: Deferred::default(),
            readings: Readings::like_perf(),
            growth: Vec::new(),
            number: 0,
            printed: Printed::default(),
        }
    }

    /// Prints the printer's own blocks of a batch, and updates names from the whole batch.
    pub(super) fn batch(&mut self, batch: &Batch<'_>, share: WorkShare, sink: &mut dyn TextSink) {
        self.name(&batch.naming);
        let events = &batch.events;
        for (block, entries) in batch.run.entries.chunks(BLOCK_RECORDS).enumerate() {
            let is_own = block % share.of == share.index;
            self.number = batch.before + (block * BLOCK_RECORDS) as u64;
            for entry in entries {
                self.number += 1;
                if let Some((bytes, offset)) = batch.run.bytes(entry)
                    && let Ok(record) = Record::parse_alone(bytes, offset, events.endian())
                {
                    self.record(events, entry.event().unwrap_or_default(), &record, is_own, sink);
                    sink.take_much(&mut self.text);
                }
            }
            if is_own {
                sink.end_block(&self.text);
            }
        }
    }

    fn name(&mut self, naming: &Arc<Naming>) {
        if !Arc::ptr_eq(&self.naming, naming) {
            self.naming = naming.clone();
            self.style.event_width = naming.event_width;
            self.tasks.set_sections(naming.code.clone());
            self.frames.clear();
        }
    }

    /// Counts of the printed records.
    pub(super) fn finish(self) -> Printed {
        Printed { forgot: self.tasks.has_forgotten(), ..self.printed }
    }

    /// Prints a record if it is selected and in a block of this printer, and updates names.
    fn record(&mut self, events: &Events, index: usize, record: &Record<'_>, is_own: bool, sink: &mut dyn TextSink) {
        let Some(event) = events.all().get(index) else { return };
        let done = match record.kind {
            RecordType::SAMPLE | RecordType::CALLCHAIN_DEFERRED if !is_own => Ok(()),
            RecordType::SAMPLE => self.sample_or_wait(events, index, record),
            RecordType::CALLCHAIN_DEFERRED => self.user_chain(events, event, record, sink),
            kind if self.options.show.shows(kind) || tasks::is_of_interest(kind) => {
                self.side_band(event, record, is_own)
            }
            _ => Ok(()),
        };
        if let Err(error) = done
            && is_own
        {
            self.unreadable(record, error);
        }
    }

    /// Reports an unreadable record in its place.
    fn unreadable(&mut self, record: &Record<'_>, error: bprec_format::Error) {
        self.printed.unreadable += 1;
        // Writing to a string cannot fail.
        self.text.line(format_args!("# {:#x}: PERF_RECORD_{} cannot be read: {error}", record.offset, record.kind));
        let number = self.number;
        self.printed.first_unreadable.get_or_insert((number, error));
    }

    fn side_band(&mut self, event: &Event, record: &Record<'_>, is_own: bool) -> bprec_format::Result<()> {
        let (payload, id) = Payload::decode(record, &event.layout)?;
        self.tasks.learn(record, &payload);
        if !is_own || !self.options.show.shows(record.kind) {
            return Ok(());
        }
        let subject = side::subject(&payload);
        let comm = self.tasks.comm(subject.or(id.pid_tid).map_or(u32::MAX, |(_, tid)| tid));
        let SampleId { pid_tid, cpu, time_ns, .. } = id;
        let has_chain = self.style.chains
            && self.options.fields.has(Field::Ip)
            && event.layout.sample_type().contains(SampleType::CALLCHAIN);
        let stamp = Stamp { comm: &comm, pid_tid: pid_tid.or(subject), cpu, time_ns, has_chain };
        self.style.stamp(&mut self.text, &stamp);
        side::describe(&mut self.text, record, &payload);
        self.text.push('\n');
        self.printed.others += 1;
        Ok(())
    }

    /// Prints a sample, or stores the sample until its deferred call chain comes.
    fn sample_or_wait(&mut self, events: &Events, index: usize, record: &Record<'_>) -> bprec_format::Result<()> {
        if !self.options.keep_chains_apart && events.all()[index].attr.flags.contains(AttrFlags::DEFER_CALLCHAIN) {
            let offset = record.offset + bprec_format::RECORD_HEADER_BYTES as u64;
            let sample = events.all()[index].layout.sample(record.body(), offset)?;
            if let Some(cookie) = sample.callchain()?.and_then(deferred::cookie) {
                let tid = sample.pid_tid().map_or(u32::MAX, |(_, tid)| tid);
                let oldest = self.deferred.keep(tid, cookie, record.bytes, record.offset);
                oldest.into_iter().for_each(|sample| self.waited(events, &sample, None));
                return Ok(());
            }
        }
        self.sample(events, index, record, None)
    }

    /// Handles a deferred user call chain: completes the waiting samples, or prints the chain by itself.
    fn user_chain(
        &mut self,
        events: &Events,
        event: &Event,
        record: &Record<'_>,
        sink: &mut dyn TextSink,
    ) -> bprec_format::Result<()> {
        let (payload, id) = Payload::decode(record, &event.layout)?;
        let Payload::CallchainDeferred(chain) = payload else { return Ok(()) };
        if self.options.keep_chains_apart {
            let fields =
                SampleFields { pid_tid: id.pid_tid, time_ns: id.time_ns, cpu: id.cpu, ..SampleFields::default() };
            if self.is_wanted(&fields) {
                self.style.user_chain(&mut self.text, (&self.tasks, &mut self.frames), &id, &chain);
            }
            return Ok(());
        }
        let tid = id.pid_tid.map_or(u32::MAX, |(_, tid)| tid);
        for (sample, is_its) in self.deferred.take(tid, chain.cookie) {
            self.waited(events, &sample, Some(chain.ips).filter(|_| is_its));
            sink.take_much(&mut self.text);
        }
        Ok(())
    }

    /// Prints the samples that still wait at the end of the recording.
    pub(super) fn give_up_waiting(&mut self, events: &Events, sink: &mut dyn TextSink) {
        while let Some(sample) = self.deferred.next() {
            self.waited(events, &sample, None);
            sink.take_much(&mut self.text);
        }
    }

    /// Prints a sample that waited for its deferred chain.
    fn waited(&mut self, events: &Events, sample: &Waiting, user: Option<Callchain<'_>>) {
        let Ok(record) = Record::parse_alone(&sample.bytes, sample.offset, events.endian()) else { return };
        let done = events.index_of(&record).map_or(Ok(()), |index| self.sample(events, index, &record, user));
        if let Err(error) = done {
            self.unreadable(&record, error);
        }
    }

    fn sample(
        &mut self,
        events: &Events,
        index: usize,
        record: &Record<'_>,
        user: Option<Callchain<'_>>,
    ) -> bprec_format::Result<()> {
        let event = &events.all()[index];
        let offset = record.offset + bprec_format::RECORD_HEADER_BYTES as u64;
        let mut fields = event.layout.sample(record.body(), offset)?.decode()?;
        let merged;
        if let (Some(chain), Some(user)) = (fields.callchain, user) {
            merged = deferred::merged(chain, user, events.endian());
            fields.callchain = Some(Callchain::new(&merged, events.endian()));
        }
        let branched = with_branch_stack(&fields, &event.attr, events.endian());
        if let Some(words) = &branched {
            fields.callchain = Some(Callchain::new(words, events.endian()));
        }
        if fields.read.is_some() {
            return self.readings(events, index, record, &fields);
        }
        if self.is_wanted(&fields) {
            // An event with a constant period has the period in its attributes, not in its samples.
            let always = || (!event.attr.flags.contains(AttrFlags::FREQ)).then_some(event.attr.sample_period);
            self.sample_line(events, index, record, &fields, fields.period.or_else(always));
        }
        Ok(())
    }

    /// Prints a line for each counter that has grown since the previous sample, selected or not.
    fn readings(
        &mut self,
        events: &Events,
        index: usize,
        record: &Record<'_>,
        fields: &SampleFields<'_>,
    ) -> bprec_format::Result<()> {
        let mut growth = std::mem::take(&mut self.growth);
        let mut taken = self.readings.take(events, index, fields, record.offset, &mut growth);
        if self.is_wanted(fields) {
            let start = self.text.len();
            for (member, period) in &growth {
                if self.text.len() - start > RECORD_TEXT_BYTES {
                    self.text.push_str("# lines of further counters, with the same call chain, are left out\n");
                    break;
                }
                self.sample_line(events, *member, record, fields, Some(*period));
            }
        } else {
            taken = Ok(());
        }
        self.growth = growth;
        taken
    }

    fn sample_line(
        &mut self,
        events: &Events,
        index: usize,
        record: &Record<'_>,
        fields: &SampleFields<'_>,
        period: Option<u64>,
    ) {
        self.printed.samples += 1;
        let plan = self.naming.plans.get(index).unwrap_or(&UNKNOWN_EVENT);
        let payload = fields.raw.filter(|_| plan.kind == EventKind::BpfSampler);
        let payload = payload.and_then(|raw| sampler::SamplerPayload::parse(raw, record.offset, events.endian()).ok());
        let merged = payload.as_ref().map(|payload| sampled::merged(fields, payload));
        let line = PrintedLine {
            attr: &events.all()[index].attr,
            plan,
            fields: merged.as_ref().unwrap_or(fields),
            period: merged.as_ref().and_then(|merged| merged.period).or(period),
            misc: record.misc,
            endian: events.endian(),
            sampled: payload.as_ref(),
            registers: self.naming.registers,
        };
        self.style.sample(&mut self.text, (&self.tasks, &mut self.frames), &line);
    }

    fn is_wanted(&self, fields: &SampleFields<'_>) -> bool {
        let options = self.options;
        let among = |list: &[u32], value: Option<u32>| list.is_empty() || value.is_some_and(|v| list.contains(&v));
        let is_in_time = || fields.time_ns.is_some_and(|time| self.window.contains(time));
        options.cpus.as_ref().is_none_or(|cpus| fields.cpu.is_some_and(|cpu| cpus.contains(cpu)))
            && among(&options.pids, fields.pid_tid.map(|(pid, _)| pid))
            && among(&options.tids, fields.pid_tid.map(|(_, tid)| tid))
            && (self.window.whole || is_in_time())
            && (options.comms.is_empty() || {
                let comm = self.tasks.comm(fields.pid_tid.map_or(u32::MAX, |(_, tid)| tid));
                let comm = String::from_utf8_lossy(&comm);
                self.comms.iter().any(|pattern| pattern.matches(&comm))
            })
    }
}
