//! Rewriting of any recording into a canonical file: truncated recordings repaired, streams and directories merged, compressed records unpacked,
//! samples selected.

mod repair;
pub(in crate::stream) mod selection;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use bprec_format::feature::{Feature, SampleTime, SectionContent as _};
use bprec_format::rewrite::{Fate, Rewriter};
use bprec_format::{Events, FeatureSection, File, Metadata, Record, RecordType, Writer};

use crate::input::event_kind::EventKind;
use crate::input::source::{Arrival, Care, Source, Visitor};
use crate::input::spool::Spool;
use crate::stream::redact::{Redact, Redactor};
use crate::{CpuList, Error, Input, ProgFilter, Progress, Result, TimeRange};

use repair::Repair;
use selection::{KeptReadings, RecordSelection, Sieve};

/// Buffer size for writing, bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Options of [`rewrite`].
#[derive(Debug, Clone, Default)]
pub struct RewriteOptions {
    /// True to drop inconsistent records, so that every version of perf opens the result.
    pub repair: bool,
    /// Selected CPUs: samples on other CPUs are left out. `None` selects all. Records other than samples stay, and so do the recorder's states.
    pub cpus: Option<CpuList>,
    /// Selected time.
    pub time: TimeRange,
    /// Selected programs: samples stay if a program, or the code that runs it, is in the kernel call chain. Empty selects all.
    pub programs: Vec<ProgFilter>,
    /// Selected names of tasks, as patterns with `*` and `?`. Empty selects all.
    pub comms: Vec<String>,
    /// Redaction of the output, if any.
    pub redact: Option<Redact>,
}

/// Counts of a rewrite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RewriteSummary {
    /// Written records.
    pub records: u64,
    /// Written samples, as reports count them: without the recorder's states and without data that BPF programs of other tools wrote.
    pub samples: u64,
    /// Samples outside the selection.
    pub filtered: u64,
    /// Records left out, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Bytes of records that the header announces; 0 if it announces none.
    pub announced_bytes: u64,
    /// Bytes of the announced records that the file lacks.
    pub missing_bytes: u64,
    /// Messages about defects of the input.
    pub problems: Vec<String>,
}

/// Rewrites `source` into a file. `out` must be empty.
///
/// # Errors
/// Fails if the source is no recording or has no usable record, if the file cannot be written, or if `options` select by time and the recording has
/// no timestamps.
pub fn rewrite(source: &mut Source, options: &RewriteOptions, out: &mut (impl Write + Seek)) -> Result<RewriteSummary> {
    let mut redactor = options.redact.map(Redactor::new);
    copy(source, options, redactor.as_mut(), out)
}

/// A recording to be redacted and then read like any other. All necessary files are open.
pub struct Redacting {
    source: Source,
    spool: Spool,
}

impl Redacting {
    /// Creates the temporary file for the redacted recording.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub fn begin(source: Source) -> Result<Redacting> {
        let failed = |error| Error::Io { call: "spool", path: source.path().to_owned(), source: error };
        let spool = Spool::create(u64::MAX).map_err(failed)?;
        Ok(Redacting { source, spool })
    }

    /// Returns true if the recording is a stream, which may need a temporary file of its own.
    pub fn is_stream(&self) -> bool {
        self.source.is_stream()
    }

    /// Progress of copying and redacting.
    pub fn progress(&self) -> &Arc<Progress> {
        self.source.progress()
    }

    /// Returns the redacted recording, and the counts of the rewrite. `redactor` may have been used for other recordings before.
    ///
    /// # Errors
    /// Errors of [`rewrite`].
    pub fn finish(mut self, redactor: &mut Redactor) -> Result<(Input, RewriteSummary)> {
        let name = redactor.recording_name(self.source.path());
        let summary = copy(&mut self.source, &RewriteOptions::default(), Some(redactor), &mut self.spool)?;
        Ok((Input::of_spool(&name, &self.spool)?, summary))
    }
}

fn copy(
    source: &mut Source,
    options: &RewriteOptions,
    redactor: Option<&mut Redactor>,
    out: &mut (impl Write + Seek),
) -> Result<RewriteSummary> {
    let path = source.path().to_owned();
    let selection = RecordSelection::new(source, options)?;
    let care = if options.repair { Care::Repair } else { Care::Keep };
    let mut copy = Copy {
        repair: options.repair.then(Repair::default),
        selection: selection.as_ref(),
        redactor,
        redacted: Vec::new(),
        out,
        path,
        begun: None,
        buffer: Vec::new(),
        span: None,
        summary: RewriteSummary::default(),
    };
    let problems = source.for_each(care, &mut copy)?;
    let mut summary = copy.summary;
    summary.problems.extend(problems);
    Ok(summary)
}

struct Copy<'o, W> {
    /// Repair, which drops records that perf would reject; `None` keeps all that can be read.
    repair: Option<Repair>,
    /// Selection of records; `None` keeps all.
    selection: Option<&'o RecordSelection>,
    redactor: Option<&'o mut Redactor>,
    /// Buffer of the current redacted record.
    redacted: Vec<u8>,
    out: &'o mut W,
    path: PathBuf,
    begun: Option<Begun<'o>>,
    buffer: Vec<u8>,
    /// Times of the first and the last selected sample.
    span: Option<(u64, u64)>,
    summary: RewriteSummary,
}

/// State that depends on the events.
struct Begun<'o> {
    rewriter: Rewriter,
    /// Events of the input.
    events: Events,
    /// Kinds by event. Set at the first sample, because a stream has named its events by then.
    kinds: Option<Vec<EventKind>>,
    /// Selector of samples, also set at the first sample.
    sieve: Option<Sieve<'o>>,
    readings: KeptReadings,
}

impl<'a, W: Write + Seek> Visitor<'a> for Copy<'_, W> {
    fn mapped(&mut self, files: Vec<&'a [u8]>) {
        let Some(file) = files.first().and_then(|bytes| File::parse(bytes).ok()) else { return };
        self.summary.announced_bytes = file.announced_bytes();
        self.summary.missing_bytes = file.announced_bytes().saturating_sub(file.records().rest().len() as u64);
    }

    fn record(&mut self, arrival: &Arrival<'_>, metadata: &Metadata<'_>) -> Result<ControlFlow<()>> {
        let record = &arrival.record;
        if self.begun.is_none() {
            if arrival.is_description {
                return Ok(ControlFlow::Continue(()));
            }
            self.begin(metadata)?;
        }
        let mut replaced = None;
        let Some(Begun { rewriter, events, kinds, sieve, readings }) = &mut self.begun else {
            return Ok(ControlFlow::Continue(()));
        };
        let kind = (record.kind == RecordType::SAMPLE).then(|| {
            let kinds = kinds.get_or_insert_with(|| EventKind::of_all(events, &metadata.event_names()));
            let kind = events.index_of(record).and_then(|event| kinds.get(event));
            kind.copied().unwrap_or(EventKind::Other)
        });
        if record.kind == RecordType::SAMPLE
            && let Some(selection) = self.selection
        {
            let sieve = sieve.get_or_insert_with(|| Sieve::new(selection, events, metadata));
            let (keeps, time_ns) = sieve.keeps(record, events);
            replaced = readings.replace(record, events, keeps);
            if !keeps {
                self.summary.filtered += 1;
                return Ok(ControlFlow::Continue(()));
            }
            if let Some(time) = time_ns {
                let (first, last) = self.span.unwrap_or((time, time));
                self.span = Some((first.min(time), last.max(time)));
            }
        }
        let replaced = replaced.as_deref().and_then(|it| Record::parse_alone(it, record.offset, events.endian()).ok());
        let record = replaced.as_ref().unwrap_or(record);
        let fate = match &mut self.redactor {
            Some(redactor) if !arrival.is_description => {
                self.redacted.clear();
                match redact(redactor, record, events, kind, rewriter.events(), &mut self.redacted) {
                    Ok(record) => write(rewriter, &mut self.repair, &record, false, &mut self.buffer),
                    Err(reason) => Fate::Dropped(reason),
                }
            }
            _ => write(rewriter, &mut self.repair, record, arrival.is_description, &mut self.buffer),
        };
        match fate {
            Fate::Kept => {
                self.summary.records += 1;
                self.summary.samples += u64::from(matches!(kind, Some(EventKind::Pmu | EventKind::BpfSampler)));
            }
            Fate::Moved => {}
            Fate::Dropped(reason) => *self.summary.dropped.entry(reason).or_default() += 1,
        }
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn end(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        if self.begun.is_none() {
            self.begin(metadata)?;
        }
        let Some(Begun { rewriter, .. }) = self.begun.take() else { return Ok(()) };
        if rewriter.data_bytes() == 0 {
            let source = bprec_format::Error::other(0, "records", "the recording has no record that can be kept");
            return Err(Error::Format { path: self.path.clone(), source });
        }
        let known = rewriter.events().all().len();
        if known < metadata.attrs().len() {
            let late = metadata.attrs().len() - known;
            self.summary.problems.push(format!(
                "{late} events are left out, because the recording describes them only after its first records"
            ));
        }
        let unfit = self.repair.as_ref().map(|repair| repair.unfit_features(metadata)).unwrap_or_default();
        let left_out = unfit
            .iter()
            .map(|(feature, error)| format!("feature section {feature} is left out, because it is damaged: {error}"));
        self.summary.problems.extend(left_out);
        let span = self.span_section(metadata);
        let redacted = self.redactor.as_mut().map(|redactor| redactor.sections(metadata));
        let metadata = redacted.as_ref().unwrap_or(metadata);
        let header = match &self.repair {
            Some(repair) => {
                let features = repair.features(&rewriter, metadata, span.as_slice());
                rewriter.finish_with(features, &mut self.buffer)
            }
            None => rewriter.finish(metadata, span.as_slice(), &mut self.buffer),
        };
        self.write_out()?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()?;
        Ok(())
    }
}

/// Appends a record to `out`. Appends nothing if a repair drops the record, or if the output stores the record's content elsewhere, such as in a
/// section (`Fate::Moved`).
fn write(
    rewriter: &mut Rewriter,
    repair: &mut Option<Repair>,
    record: &Record<'_>,
    is_description: bool,
    out: &mut Vec<u8>,
) -> Fate {
    if let Some(repair) = repair
        && !is_description
        && !record.kind.is_compressed()
        && let Some(reason) = repair.unfit(rewriter.events(), record)
    {
        return Fate::Dropped(reason);
    }
    rewriter.record(record, is_description, out)
}

/// Redacts a record into `out`. `kind` is the kind of the record's event, given for samples only.
///
/// # Errors
/// Returns the reason for leaving out the record.
fn redact<'r>(
    redactor: &mut Redactor,
    record: &Record<'_>,
    events: &Events,
    kind: Option<EventKind>,
    new_events: &Events,
    out: &'r mut Vec<u8>,
) -> std::result::Result<Record<'r>, &'static str> {
    let index = events.index_of(record);
    let pair = index.and_then(|index| events.all().get(index).zip(new_events.all().get(index)));
    let (event, new_event) = pair.ok_or("bprec cannot redact records of unknown events")?;
    redactor.record(record, event, kind.unwrap_or(EventKind::Other), &new_event.layout, out)?;
    Record::parse_alone(out, record.offset, new_events.endian())
        .map_err(|_| "redaction would make these records invalid")
}

impl<W: Write + Seek> Copy<'_, W> {
    fn begin(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        let failed = |source| Error::Format { path: self.path.clone(), source };
        let events = Events::new(metadata.attrs(), metadata.endian()).map_err(failed)?;
        let redacted = self.redactor.as_mut().map(|redactor| redactor.events(metadata));
        let metadata = redacted.as_ref().unwrap_or(metadata);
        let rewriter = match self.repair {
            Some(_) => Rewriter::begin_smallest(metadata, &mut self.buffer),
            None => Rewriter::begin(metadata, &mut self.buffer),
        };
        self.begun = Some(Begun {
            rewriter: rewriter.map_err(failed)?,
            events,
            kinds: None,
            sieve: None,
            readings: KeptReadings::default(),
        });
        Ok(())
    }

    /// Returns a section with the times of the first and the last selected sample, if the recording has this section.
    fn span_section(&self, metadata: &Metadata<'_>) -> Option<FeatureSection<'static>> {
        let (first_ns, last_ns) = self.span?;
        metadata.feature(Feature::SAMPLE_TIME).next()?;
        let mut bytes = Vec::new();
        SampleTime { first_ns, last_ns }.encode(&mut Writer::new(&mut bytes, metadata.endian()));
        Some(FeatureSection { feature: Feature::SAMPLE_TIME, offset: 0, bytes: Cow::Owned(bytes), is_whole: true })
    }

    fn write_out(&mut self) -> Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
