//! Records as text in time order, for people and for grep. One pass with limited memory for reordering and names, so that a stream may be endless.

mod ahead;
mod deferred;
mod fields;
mod frames;
mod header;
mod line;
mod mappings;
mod naming;
mod printer;
mod sampled;
mod side;
mod state;
mod tasks;
mod team;
mod text;

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use bprec_format::{Events, Metadata, RecordType, TimeOrder};

use crate::index::stream_symbols::{SectionSymbols, SymbolsAhead};
use crate::input::source::{Arrival, Care, Source, Visitor};
use crate::input::{MAX_THREADS, threads_there_are};
use crate::stream::rewrite::selection::{RecordSelection, Sieve};
use crate::{CpuList, Error, ProgFilter, Result, RewriteOptions, TimeRange};

pub use fields::{Field, Fields};
pub use header::header;
pub use side::Show;

use naming::Naming;
use printer::{Batch, Printed, Printer, TextSink, WorkShare};
use team::Team;
use text::Text;

/// Default limit on printed frames of a call chain: the kernel's default limit.
pub const MAX_STACK: usize = 127;
/// Buffer size for writing, bytes.
const WRITE_BYTES: usize = 64 << 10;
/// Least part of a recording for each thread, bytes. A smaller part would be printed before another thread has started.
const SHARED_BYTES: usize = 1 << 20;
/// Approximate number of records per batch: the records that are submitted to the printing threads at once.
const BATCH_RECORDS: usize = 4096;
/// Limit on updates of event names from a stream; later names are ignored.
const RENAMES_MAX: u32 = 1000;

/// Options of [`script`].
#[derive(Debug, Clone, Default)]
pub struct ScriptOptions {
    /// Printed fields of samples.
    pub fields: Fields,
    /// Printed records other than samples.
    pub show: Show,
    /// True for times in nanoseconds, false for microseconds.
    pub nanoseconds: bool,
    /// True to omit call chains.
    pub hide_call_chains: bool,
    /// True to print deferred user call chains as records of their own instead of with their samples.
    pub keep_chains_apart: bool,
    /// Limit on frames of a call chain; [`MAX_STACK`] if `None`.
    pub max_stack: Option<usize>,
    /// True to keep mangled function names.
    pub keep_mangled: bool,
    /// Selected CPUs; `None` selects all.
    pub cpus: Option<CpuList>,
    /// Selected processes; empty selects all.
    pub pids: Vec<u32>,
    /// Selected threads; empty selects all.
    pub tids: Vec<u32>,
    /// Selected programs, as [`crate::RewriteOptions::programs`].
    pub programs: Vec<ProgFilter>,
    /// Selected task names (patterns); empty selects all.
    pub comms: Vec<String>,
    /// Selected time.
    pub time: TimeRange,
    /// Number of printing threads; `None` for one per CPU. The text does not depend on it.
    pub threads: Option<usize>,
}

impl ScriptOptions {
    fn needs_names(&self) -> bool {
        self.fields.has(Field::Sym) || self.fields.has(Field::Dso)
    }
}

/// Counts of printed records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptSummary {
    /// Printed lines of samples. A sample with the counters of a group has a line for each counter that has grown.
    pub samples: u64,
    /// Other printed records.
    pub others: u64,
    /// Records that arrived too late to be sorted by time.
    pub late: u64,
    /// Records of unknown events.
    pub unknown: u64,
    /// Unreadable records.
    pub unreadable: u64,
    /// First unreadable record: offset and reason.
    pub first_unreadable: Option<bprec_format::Error>,
    /// Messages about defects of the input.
    pub problems: Vec<String>,
}

/// Writes the records of `source` as text.
///
/// # Errors
/// Fails if the source is no recording, its records cannot be assigned to events, or the text cannot be written.
pub fn script(source: &mut Source, options: &ScriptOptions, out: &mut dyn Write) -> Result<ScriptSummary> {
    let path = source.path().to_owned();
    let window = super::window(source, &options.time)?;
    let of_programs = RewriteOptions { programs: options.programs.clone(), ..RewriteOptions::default() };
    let selection = RecordSelection::new(source, &of_programs)?;
    let lasting = source.lasting();
    // Number of threads that pay off: one for each `SHARED_BYTES` of a single file, the maximum for a recording in several parts.
    let worth = lasting
        .map_or(1, |input| if input.parts().is_empty() { input.bytes().len() / SHARED_BYTES } else { MAX_THREADS });
    let threads = threads_there_are().min(worth);
    let threads = options.threads.unwrap_or(threads).clamp(1, MAX_THREADS);
    let needs_ahead = lasting.filter(|_| options.needs_names());
    let mut ahead = needs_ahead.map(|input| ahead::symbols(input, threads)).unwrap_or_default();
    ahead.keeps_mangled = options.keep_mangled;
    // Records of a stream are printed as they arrive: one thread keeps up with any pipe.
    let is_live = lasting.is_none();
    let threads = if is_live { 1 } else { threads };
    let window = &window;
    let summary = std::thread::scope(|scope| {
        let team = if threads > 1 { Team::start(scope, threads, || Printer::new(options, window)) } else { None };
        let printers = team.map_or_else(|| Printers::Alone(Box::new(Printer::new(options, window))), Printers::Team);
        let mut script = Script {
            options,
            selection: selection.as_ref(),
            sieve: None,
            order: TimeOrder::default(),
            printers,
            out,
            events: None,
            naming: Arc::default(),
            ahead,
            sections: None,
            revision: 0,
            renames: 0,
            is_live,
            unknown: 0,
            before: 0,
            path,
        };
        let problems = source.for_each(Care::Keep, &mut script)?;
        script.summary(problems)
    });
    // The threads have read the mapped input until here. Only now is it certain that all of it could be read.
    match source.lasting() {
        Some(input) => input.checked(summary),
        None => summary,
    }
}

/// Printers of the records: one printer in the reading thread, or a team of printing threads.
enum Printers<'scope, 'a, 'o> {
    Alone(Box<Printer<'o>>),
    Team(Team<'scope, 'a>),
}

struct Script<'scope, 'a, 'o> {
    options: &'o ScriptOptions,
    /// Selection by program, if any.
    selection: Option<&'o RecordSelection>,
    /// Filter of samples by the selection; `None` until the events are known.
    sieve: Option<Sieve<'o>>,
    order: TimeOrder<'a>,
    printers: Printers<'scope, 'a, 'o>,
    out: &'o mut dyn Write,
    events: Option<Arc<Events>>,
    naming: Arc<Naming>,
    /// Function names found by the look-ahead.
    ahead: SymbolsAhead,
    /// Number of sections at the last update of names.
    sections: Option<usize>,
    /// Revision of the metadata that the events come from.
    revision: u64,
    renames: u32,
    /// True for a stream that is printed as it arrives.
    is_live: bool,
    /// Number of records of unknown events.
    unknown: u64,
    /// Number of records that were submitted to the printers.
    before: u64,
    path: std::path::PathBuf,
}

impl<'a> Visitor<'a> for Script<'_, 'a, '_> {
    fn mapped(&mut self, files: Vec<&'a [u8]>) {
        self.order.set_files(files);
    }

    fn record(&mut self, arrival: &Arrival<'_>, metadata: &Metadata<'_>) -> Result<ControlFlow<()>> {
        let record = &arrival.record;
        if record.kind.is_kernel() {
            self.refresh(metadata)?;
        }
        let Some(events) = &self.events else { return Ok(ControlFlow::Continue(())) };
        if record.kind == RecordType::FINISHED_ROUND {
            self.order.round();
            if self.is_live || self.order.ready() >= BATCH_RECORDS {
                self.submit()?;
            }
            return Ok(ControlFlow::Continue(()));
        }
        if !record.kind.is_kernel() {
            // Records that tools wrote, such as headers, have no time to be sorted by. They are printed at their place in the file.
            if self.options.show.shows(record.kind) {
                self.order.pass(record, None, arrival.mapped);
            }
            return Ok(ControlFlow::Continue(()));
        }
        let Some((index, event)) = events.index_of(record).and_then(|index| Some((index, events.all().get(index)?)))
        else {
            self.unknown += 1;
            return Ok(ControlFlow::Continue(()));
        };
        if let Some(sieve) = self.sieve.as_mut().filter(|_| record.kind == RecordType::SAMPLE)
            && !sieve.is_of_programs(record, events)
        {
            return Ok(ControlFlow::Continue(()));
        }
        match events.sort_key_ns(event, record) {
            Some(time_ns) => {
                self.order.push(time_ns, record, Some(index), arrival.mapped);
                if self.order.is_full() {
                    self.order.make_room();
                    self.submit()?;
                }
            }
            None => {
                self.order.pass(record, Some(index), arrival.mapped);
                if self.order.ready() >= BATCH_RECORDS {
                    self.submit()?;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn end(&mut self, _metadata: &Metadata<'_>) -> Result<()> {
        self.order.finish();
        self.submit()
    }
}

impl Script<'_, '_, '_> {
    /// Updates events and names if the metadata changed.
    fn refresh(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        if self.events.is_some() && self.revision == metadata.revision() {
            return Ok(());
        }
        // Records that are ready before the change are printed with the old names.
        self.submit()?;
        self.revision = metadata.revision();
        let failed = |source| Error::Format { path: self.path.clone(), source };
        match &mut self.events {
            None => self.events = Some(Arc::new(Events::new(metadata.attrs(), metadata.endian()).map_err(failed)?)),
            Some(events) => {
                // Batches in progress share the events, so a change copies all events. Once many names have changed, each further change first waits
                // for these batches, so that nothing is copied.
                if self.renames == RENAMES_MAX
                    && let Printers::Team(team) = &mut self.printers
                {
                    team.wait(self.out)?;
                }
                for attr in metadata.attrs().iter().skip(events.all().len()) {
                    Arc::make_mut(events).push(attr).map_err(failed)?;
                }
            }
        }
        let sieve = self.selection.zip(self.events.as_deref());
        self.sieve = sieve.map(|(selection, events)| Sieve::new(selection, events, metadata));
        if self.renames < RENAMES_MAX {
            self.renames += 1;
            let sections = metadata.sections().len();
            let mut code = self.naming.code.clone();
            if self.options.needs_names() && self.sections != Some(sections) {
                self.sections = Some(sections);
                code = Arc::new(SectionSymbols::new(metadata.sections(), metadata.endian(), &self.ahead));
            }
            self.naming = Arc::new(Naming::new(metadata, code));
        }
        Ok(())
    }

    /// Submits the records that are in order.
    fn submit(&mut self) -> Result<()> {
        let Some(events) = self.events.clone().filter(|_| self.order.ready() > 0) else { return Ok(()) };
        let run = self.order.take();
        let before = self.before;
        self.before += run.entries.len() as u64;
        let batch = Batch { events, naming: self.naming.clone(), run, before };
        match &mut self.printers {
            Printers::Alone(printer) => {
                let mut sink = Direct { out: self.out, result: Ok(()) };
                printer.batch(&batch, WorkShare::ALL, &mut sink);
                sink.result
            }
            Printers::Team(team) => team.submit(batch, self.out),
        }
    }

    fn summary(self, mut problems: Vec<String>) -> Result<ScriptSummary> {
        let (out, mut printed) = (self.out, Printed::default());
        match self.printers {
            Printers::Alone(mut printer) => {
                if let Some(events) = &self.events {
                    let mut sink = Direct { out, result: Ok(()) };
                    printer.give_up_waiting(events, &mut sink);
                    sink.result?;
                }
                write_out(out, &printer.text)?;
                printed.merge(printer.finish());
            }
            Printers::Team(team) => printed.merge(team.finish(self.events, out)?),
        }
        if printed.forgot {
            problems.push("too many tasks, mappings or symbols to keep: some names are missing".into());
        }
        Ok(ScriptSummary {
            samples: printed.samples,
            others: printed.others,
            late: self.order.late(),
            unknown: self.unknown,
            unreadable: printed.unreadable,
            first_unreadable: printed.first_unreadable.map(|(_, error)| error),
            problems,
        })
    }
}

/// Writes text directly. After an error, further text is dropped.
struct Direct<'o> {
    out: &'o mut dyn Write,
    result: Result<()>,
}

impl TextSink for Direct<'_> {
    fn take_much(&mut self, text: &mut Text) {
        match self.result {
            Ok(()) => self.result = write_if_much(self.out, text),
            Err(_) => text.clear(),
        }
    }
}

fn write_if_much(out: &mut dyn Write, text: &mut Text) -> Result<()> {
    if text.len() >= WRITE_BYTES {
        write_out(out, text)?;
        text.clear();
    }
    Ok(())
}

fn write_out(out: &mut dyn Write, text: &Text) -> Result<()> {
    Ok(out.write_all(text.as_bytes())?)
}
