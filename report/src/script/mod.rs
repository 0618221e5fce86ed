//! Records as text, in the order of their times: for people and for grep. One pass, with memory for what waits to be put
//! in order and for the names of tasks and mappings, so that a stream may go on for ever.

mod ahead;
mod deferred;
mod dump;
mod fields;
mod frames;
mod line;
mod memory;
mod sampled;
mod side;
mod state;
mod tasks;
mod text;

use std::collections::HashMap;
use std::io::Write;
use std::ops::ControlFlow;

use bprec_format::feature::tracing::{EventFormat, PrintFormat, TracingData};
use bprec_format::feature::{Feature, Partial, Payload as _, Text};
use bprec_format::records::Payload;
use bprec_format::{
    AttrFlags, Callchain, Endian, Event, EventAttr, Events, Metadata, ReadFormat, Record, RecordType, SampleFields,
    SampleId, SampleType, context, event_type, sampler,
};

use crate::order::Order;
use crate::source::{Arrival, Source, Visitor};
use crate::window::Window;
use crate::{Error, Result, TimeRange};

pub use fields::{Field, Fields};
pub use side::Show;

use deferred::{Deferred, Waiting};
use frames::FrameTexts;
use line::{Line, Stamp, Style, TracepointFormat};
use tasks::Tasks;

/// Frames of a call chain that are shown when nothing else is asked for: as many as the kernel records by default.
pub const MAX_STACK: usize = 127;
/// Text is written out when this much of it is there.
const WRITE_BYTES: usize = 64 << 10;
/// How often the names of events are worked out again because a stream says more of them.
const RENAMES_MAX: u32 = 1000;

/// What [`script`] shows, and how.
#[derive(Debug, Clone, Default)]
pub struct ScriptOptions {
    /// Fields of samples.
    pub fields: Fields,
    /// Other records to show.
    pub show: Show,
    /// Every record as it is, in the order of the input, instead of lines.
    pub dump: bool,
    /// Times to the nanosecond instead of the microsecond.
    pub nanoseconds: bool,
    /// One line per sample even where it has a call chain.
    pub hide_call_chains: bool,
    /// User parts of call chains that came later as records of their own, instead of with their sample.
    pub keep_chains_apart: bool,
    /// The most frames of a call chain; [`MAX_STACK`] when not given.
    pub max_stack: Option<usize>,
    /// Only samples of these CPUs; of all when empty.
    pub cpus: Vec<u32>,
    /// Only samples of these processes; of all when empty.
    pub pids: Vec<u32>,
    /// Only samples of these threads; of all when empty.
    pub tids: Vec<u32>,
    /// Only samples of tasks with these names; of all when empty.
    pub comms: Vec<String>,
    /// Only samples within.
    pub time: TimeRange,
}

impl ScriptOptions {
    fn needs_names(&self) -> bool {
        !self.dump && (self.fields.has(Field::Sym) || self.fields.has(Field::Dso))
    }
}

/// What there was to show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptSummary {
    /// Samples shown; each member of a group that is read together counts.
    pub samples: u64,
    /// Other records shown.
    pub others: u64,
    /// Records that came later than their time allows to put in order.
    pub late: u64,
    /// Records whose event is not known.
    pub unknown: u64,
    /// Records that could not be read.
    pub unreadable: u64,
    /// The first of them: where it is, and why.
    pub first_unreadable: Option<bprec_format::Error>,
    /// What is wrong with the input, in words.
    pub problems: Vec<String>,
}

/// Writes the records of `source` as text.
///
/// # Errors
/// When the source is no recording, its events cannot be told apart, or the text cannot be written.
pub fn script(source: &mut Source, options: &ScriptOptions, out: &mut dyn Write) -> Result<ScriptSummary> {
    let path = source.path().to_owned();
    let window = source.window(&options.time)?;
    let kernel_symbols = if options.needs_names() { ahead::kernel_symbols(source) } else { Vec::new() };
    let mut script = Script {
        order: Order::default(),
        printer: Printer::new(options, window, out),
        events: None,
        revision: 0,
        renames: 0,
        path,
    };
    script.printer.tasks.add_kernel(kernel_symbols);
    let problems = source.for_each(&mut script)?;
    let Script { order, printer, .. } = script;
    let mut summary = printer.summary;
    summary.late = order.late();
    summary.problems = problems;
    if printer.tasks.forgot {
        summary.problems.push("more tasks, mappings or symbols than are remembered: some names are missing".into());
    }
    Ok(summary)
}

struct Script<'a, 'o> {
    order: Order<'a>,
    printer: Printer<'o>,
    events: Option<Events>,
    /// Of the metadata that the events are from.
    revision: u64,
    renames: u32,
    path: std::path::PathBuf,
}

impl<'a> Visitor<'a> for Script<'a, '_> {
    fn mapped(&mut self, files: Vec<&'a [u8]>) {
        self.order.set_files(files);
    }

    fn record(&mut self, arrival: &Arrival<'_>, metadata: &Metadata<'_>) -> Result<ControlFlow<()>> {
        let record = &arrival.record;
        if record.kind.is_kernel() {
            self.refresh(metadata)?;
        }
        let events = self.events.as_ref();
        if self.printer.options.dump {
            let event = events.and_then(|events| events.all().get(events.index_of(record)?));
            dump::record(&mut self.printer.text, record, metadata.endian(), event);
            let is_sample = record.kind == RecordType::SAMPLE;
            let shown = &mut self.printer.summary;
            *(if is_sample { &mut shown.samples } else { &mut shown.others }) += 1;
            self.printer.write_if_much()?;
            return Ok(ControlFlow::Continue(()));
        }
        let Some(events) = events else { return Ok(ControlFlow::Continue(())) };
        let printer = &mut self.printer;
        if record.kind == RecordType::FINISHED_ROUND {
            self.order.round(&mut |bytes, offset| printer.deliver(events, bytes, offset))?;
            return Ok(ControlFlow::Continue(()));
        }
        if !record.kind.is_kernel() {
            printer.tool_record(events, record)?;
            return Ok(ControlFlow::Continue(()));
        }
        let Some(event) = events.index_of(record).and_then(|index| events.all().get(index)) else {
            printer.summary.unknown += 1;
            return Ok(ControlFlow::Continue(()));
        };
        // Without times on all records there is no order but that of the input. Records that a tool synthesized have time 0:
        // they describe what was there before.
        let sorts = events.all().first().is_some_and(|first| first.attr.flags.contains(AttrFlags::SAMPLE_ID_ALL));
        match time_ns(event, record).filter(|time_ns| sorts && *time_ns != 0 && *time_ns != u64::MAX) {
            Some(time_ns) => {
                self.order.push(time_ns, record.bytes, record.offset, arrival.mapped);
                if self.order.is_full() {
                    self.order.make_room(&mut |bytes, offset| printer.deliver(events, bytes, offset))?;
                }
            }
            None => printer.deliver(events, record.bytes, record.offset)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    fn end(&mut self, _metadata: &Metadata<'_>) -> Result<()> {
        if let Some(events) = &self.events {
            self.order.finish(&mut |bytes, offset| self.printer.deliver(events, bytes, offset))?;
            self.printer.give_up_waiting(events);
        }
        self.printer.write_out()
    }
}

/// The words of a call chain whose user part the processor has kept as a stack of calls (`PERF_SAMPLE_BRANCH_CALL_STACK`): it
/// stands in place of the one that the kernel has walked.
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

fn time_ns(event: &Event, record: &Record<'_>) -> Option<u64> {
    let offset = record.offset + bprec_format::RECORD_HEADER_BYTES as u64;
    match record.kind {
        RecordType::SAMPLE => event.layout.sample(record.body(), offset).ok()?.time_ns(),
        _ => event.layout.split_trailer(record).ok()?.1.time_ns,
    }
}

impl Script<'_, '_> {
    /// Learns what the recording says about its events, when it says something new.
    fn refresh(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        if self.events.is_some() && self.revision == metadata.revision() {
            return Ok(());
        }
        self.revision = metadata.revision();
        let failed = |source| Error::Format { path: self.path.clone(), source };
        match &mut self.events {
            None => self.events = Some(Events::new(metadata.attrs(), metadata.endian()).map_err(failed)?),
            Some(events) => {
                for attr in metadata.attrs().iter().skip(events.all().len()) {
                    events.push(attr).map_err(failed)?;
                }
            }
        }
        if self.renames < RENAMES_MAX {
            self.renames += 1;
            self.printer.learn_names(metadata);
        }
        Ok(())
    }
}

/// Turns records into text, in the order in which they are handed to it.
struct Printer<'o> {
    options: &'o ScriptOptions,
    window: Window,
    style: Style,
    out: &'o mut dyn Write,
    text: String,
    tasks: Tasks,
    frames: FrameTexts,
    deferred: Deferred,
    /// By event.
    names: Vec<String>,
    /// By event: the format of a tracepoint.
    formats: Vec<Option<TracepointFormat>>,
    /// What registers are called on the machine that was recorded, where that is known.
    registers: &'static [&'static str],
    /// By id: the count at the last sample, of events that are read with samples.
    counts: HashMap<u64, u64>,
    /// Number of sections when names were last read from them.
    sections: Option<usize>,
    summary: ScriptSummary,
}

impl<'o> Printer<'o> {
    fn new(options: &'o ScriptOptions, window: Window, out: &'o mut dyn Write) -> Printer<'o> {
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
            style,
            out,
            text: String::new(),
            tasks: Tasks::default(),
            frames: FrameTexts::default(),
            deferred: Deferred::default(),
            names: Vec::new(),
            formats: Vec::new(),
            registers: &[],
            counts: HashMap::new(),
            sections: None,
            summary: ScriptSummary::default(),
        }
    }

    /// Learns the names that the recording's sections have for code and for events.
    fn learn_names(&mut self, metadata: &Metadata<'_>) {
        let sections = metadata.sections().len();
        if self.options.needs_names() && self.sections != Some(sections) {
            self.sections = Some(sections);
            self.tasks.read_names(metadata.sections(), metadata.endian());
        }
        self.names = metadata.event_names();
        let arch = metadata.feature(Feature::ARCH).next();
        let arch = arch.and_then(|section| Text::parse(&section.bytes, section.offset, metadata.endian()).ok());
        let arch = arch.map(|partial: Partial<Text<'_>>| String::from_utf8_lossy(partial.value.0).into_owned());
        self.registers = arch.and_then(|arch| sampler::register_names(&arch)).unwrap_or_default();
        self.style.event_width = self.names.iter().map(String::len).max().unwrap_or(0);
        self.formats = self.names.iter().map(|_| None).collect();
        for section in metadata.feature(Feature::TRACING_DATA) {
            let Ok(tracing) = TracingData::parse(&section.bytes, section.offset, metadata.endian()) else { continue };
            for (_, text) in tracing.value.systems.iter().flat_map(|s| s.formats.iter().map(move |text| (s, text))) {
                let Some(format) = EventFormat::parse(text) else { continue };
                let is_its =
                    |attr: &EventAttr| attr.kind == event_type::TRACEPOINT && attr.config == u64::from(format.id);
                for (slot, event) in self.formats.iter_mut().zip(metadata.attrs()) {
                    if is_its(&event.attr) {
                        *slot = Some(TracepointFormat {
                            print: PrintFormat::parse(&format),
                            text: text.to_vec(),
                            endian: tracing.value.endian,
                        });
                    }
                }
            }
        }
    }

    /// Prints a record if it is asked for, and learns from it.
    fn deliver(&mut self, events: &Events, bytes: &[u8], offset: u64) -> Result<()> {
        let Ok(record) = Record::parse_alone(bytes, offset, events.endian()) else { return Ok(()) };
        let Some(index) = events.index_of(&record) else { return Ok(()) };
        let Some(event) = events.all().get(index) else { return Ok(()) };
        let done = match record.kind {
            RecordType::SAMPLE => self.sample_or_wait(events, index, &record),
            RecordType::CALLCHAIN_DEFERRED => self.user_chain(events, event, &record),
            kind if self.options.show.shows(kind) || tasks::is_of_interest(kind) => self.side_band(event, &record),
            _ => Ok(()),
        };
        if let Err(error) = done {
            self.unreadable(&record, error);
        }
        self.write_if_much()
    }

    /// Says in its place that a record cannot be read.
    fn unreadable(&mut self, record: &Record<'_>, error: bprec_format::Error) {
        use std::fmt::Write as _;
        self.summary.unreadable += 1;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# {:#x}: PERF_RECORD_{} cannot be read: {error}", record.offset, record.kind);
        self.summary.first_unreadable.get_or_insert(error);
    }

    /// A record of a tool: shown where it stands.
    fn tool_record(&mut self, events: &Events, record: &Record<'_>) -> Result<()> {
        if self.options.show.shows(record.kind)
            && let Some(event) = events.all().first()
        {
            if let Err(error) = self.side_band(event, record) {
                self.unreadable(record, error);
            }
            self.write_if_much()?;
        }
        Ok(())
    }

    fn side_band(&mut self, event: &Event, record: &Record<'_>) -> bprec_format::Result<()> {
        let (payload, id) = Payload::decode(record, &event.layout)?;
        self.tasks.learn(record, &payload);
        if !self.options.show.shows(record.kind) {
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
        self.summary.others += 1;
        Ok(())
    }

    /// Prints a sample, unless the rest of its call chain is still to come.
    fn sample_or_wait(&mut self, events: &Events, index: usize, record: &Record<'_>) -> bprec_format::Result<()> {
        if !self.options.keep_chains_apart {
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

    /// The user part of call chains: with the samples that wait for it, or on its own.
    fn user_chain(&mut self, events: &Events, event: &Event, record: &Record<'_>) -> bprec_format::Result<()> {
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
        }
        Ok(())
    }

    /// What the recording ends without.
    fn give_up_waiting(&mut self, events: &Events) {
        while let Some(sample) = self.deferred.next() {
            self.waited(events, &sample, None);
        }
    }

    /// Prints a sample that waited for the user part of its chain.
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
        if !self.is_wanted(&fields) {
            return Ok(());
        }
        let Some(read) = &fields.read else {
            // Where all periods are the same, samples need not say so.
            let always = || (!event.attr.flags.contains(AttrFlags::FREQ)).then_some(event.attr.sample_period);
            self.sample_line(events, index, record, &fields, fields.period.or_else(always));
            return Ok(());
        };
        // The counts of a group go on from sample to sample; each member that moved makes a line.
        let is_group = event.layout.read_format().contains(ReadFormat::GROUP);
        for value in read.iter() {
            let id = value.id.or(fields.id.filter(|_| !is_group)).unwrap_or_default();
            let Some(member) = events.index_of_id(id) else {
                self.summary.unknown += 1;
                continue;
            };
            let before = self.counts.insert(id, value.value).unwrap_or_default();
            let period = value.value.wrapping_sub(before);
            if period != 0 {
                self.sample_line(events, member, record, &fields, Some(period));
            }
        }
        Ok(())
    }

    fn sample_line(
        &mut self,
        events: &Events,
        index: usize,
        record: &Record<'_>,
        fields: &SampleFields<'_>,
        period: Option<u64>,
    ) {
        self.summary.samples += 1;
        let format = self.formats.get(index).and_then(Option::as_ref);
        let event = self.names.get(index).map_or("[unknown]", String::as_str);
        let payload = fields.raw.filter(|_| event == sampler::EVENT_NAME);
        let payload = payload.and_then(|raw| sampler::Payload::parse(raw, record.offset, events.endian()).ok());
        let merged = payload.as_ref().map(|payload| sampled::merged(fields, payload));
        let line = Line {
            attr: &events.all()[index].attr,
            event,
            fields: merged.as_ref().unwrap_or(fields),
            period: merged.as_ref().and_then(|merged| merged.period).or(period),
            misc: record.misc,
            endian: events.endian(),
            format,
            sampled: payload.as_ref(),
            registers: self.registers,
        };
        self.style.sample(&mut self.text, (&self.tasks, &mut self.frames), &line);
    }

    fn is_wanted(&self, fields: &SampleFields<'_>) -> bool {
        let options = self.options;
        let among = |list: &[u32], value: Option<u32>| list.is_empty() || value.is_some_and(|v| list.contains(&v));
        let is_in_time = || fields.time_ns.is_some_and(|time| self.window.contains(time));
        among(&options.cpus, fields.cpu)
            && among(&options.pids, fields.pid_tid.map(|(pid, _)| pid))
            && among(&options.tids, fields.pid_tid.map(|(_, tid)| tid))
            && (self.window.whole || is_in_time())
            && (options.comms.is_empty() || {
                let comm = self.tasks.comm(fields.pid_tid.map_or(u32::MAX, |(_, tid)| tid));
                options.comms.iter().any(|wanted| wanted.as_bytes() == &*comm)
            })
    }

    fn write_if_much(&mut self) -> Result<()> {
        if self.text.len() < WRITE_BYTES { Ok(()) } else { self.write_out() }
    }

    fn write_out(&mut self) -> Result<()> {
        self.out.write_all(self.text.as_bytes())?;
        self.text.clear();
        Ok(())
    }
}
