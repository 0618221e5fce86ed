//! A recording of any form into one file of the canonical form: cut off ones made whole, streams and directories as a
//! file, compressed records unpacked, samples selected.

mod selection;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use bprec_format::feature::{Feature, SampleTime, SectionContent as _};
use bprec_format::rewrite::{Care, Fate, Rewriter};
use bprec_format::{Events, FeatureSection, Metadata, Record, RecordType, Writer};

use crate::input::event_kind::EventKind;
use crate::input::source::{Arrival, Source, Visitor};
use crate::input::spool::Spool;
use crate::stream::redact::{Redact, Redactor};
use crate::{CpuList, Error, Input, ProgFilter, Progress, Result, TimeRange};

use selection::{KeptReadings, RecordSelection, Sieve};

/// Bytes are written out when this many are there.
const WRITE_BYTES: usize = 256 << 10;

/// Options of [`rewrite`].
#[derive(Debug, Clone, Default)]
pub struct RewriteOptions {
    /// Only records that make sense, so that every perf opens the result.
    pub repair: bool,
    /// Only samples on these CPUs. Records other than samples are all kept, and so is what the recorder says about the
    /// machine in samples of an event of its own.
    pub cpus: Option<CpuList>,
    /// Only samples within.
    pub time: TimeRange,
    /// Only samples that one of these programs is in: in the kernel call chain, or in what runs it. Empty: all.
    pub programs: Vec<ProgFilter>,
    /// Redaction of what is written.
    pub redact: Option<Redact>,
}

/// Bytes that were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RewriteSummary {
    /// Records written.
    pub records: u64,
    /// Samples of where the machine was among them, as reports count them: neither what a recorder says about the machine in
    /// samples of an event of its own, nor the output of other programs.
    pub samples: u64,
    /// Samples that were not asked for.
    pub filtered: u64,
    /// Number of programs of the recording that are asked for, if any in particular are.
    pub matched_programs: Option<usize>,
    /// Records left out, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Defects of the input, in words.
    pub problems: Vec<String>,
}

/// Writes `source` as a file. `out` must be empty.
///
/// # Errors
/// When the source is no recording, holds no record that can be kept, or the file cannot be written; when `options` ask for
/// a part of its time and it has no times.
pub fn rewrite(source: &mut Source, options: &RewriteOptions, out: &mut (impl Write + Seek)) -> Result<RewriteSummary> {
    let mut redactor = options.redact.map(Redactor::new);
    copy(source, options, redactor.as_mut(), out)
}

/// A recording that is to be read like any other once it is redacted. All that this needs is open.
pub struct Redacting {
    source: Source,
    spool: Spool,
}

impl Redacting {
    /// Makes the temporary file that the redacted recording will be in.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn begin(source: Source) -> Result<Redacting> {
        let failed = |error| Error::Io { call: "spool", path: source.path().to_owned(), source: error };
        let spool = Spool::create(u64::MAX).map_err(failed)?;
        Ok(Redacting { source, spool })
    }

    /// True if the recording arrives as a stream. It may yet have to be kept in a temporary file of its own.
    pub fn is_stream(&self) -> bool {
        self.source.is_stream()
    }

    /// Progress of copying and redacting.
    pub fn progress(&self) -> &Arc<Progress> {
        self.source.progress()
    }

    /// The redacted recording, and what could not be read or kept of the other. `redactor` may have replaced secrets of others before.
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
        care,
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
    summary.matched_programs = selection.as_ref().and_then(RecordSelection::matched_programs);
    summary.problems.extend(problems);
    Ok(summary)
}

struct Copy<'o, W> {
    care: Care,
    /// `None` when all is kept.
    selection: Option<&'o RecordSelection>,
    redactor: Option<&'o mut Redactor>,
    /// The record at hand, redacted.
    redacted: Vec<u8>,
    out: &'o mut W,
    path: PathBuf,
    begun: Option<Begun<'o>>,
    buffer: Vec<u8>,
    /// Times of the first and the last sample that was selected.
    span: Option<(u64, u64)>,
    summary: RewriteSummary,
}

/// State that exists as soon as the events are known.
struct Begun<'o> {
    rewriter: Rewriter,
    /// Events of the input.
    events: Events,
    /// By event. From the first sample on: a stream has told the names of its events by then.
    kinds: Option<Vec<EventKind>>,
    /// From the first sample on, too.
    sieve: Option<Sieve<'o>>,
    readings: KeptReadings,
}

impl<'a, W: Write + Seek> Visitor<'a> for Copy<'_, W> {
    fn mapped(&mut self, _files: Vec<&'a [u8]>) {}

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
                    Ok(record) => rewriter.record(&record, false, &mut self.buffer),
                    Err(reason) => Fate::Dropped(reason),
                }
            }
            _ => rewriter.record(record, arrival.is_description, &mut self.buffer),
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
            let source = bprec_format::Error::other(0, "records", "not one that can be kept");
            return Err(Error::Format { path: self.path.clone(), source });
        }
        let known = rewriter.events().all().len();
        if known < metadata.attrs().len() {
            let late = metadata.attrs().len() - known;
            self.summary.problems.push(format!("{late} events became known after the first records: left out"));
        }
        let unfit = rewriter.unfit_features(metadata);
        let left_out = unfit.iter().map(|(feature, error)| format!("feature {feature} is damaged, left out: {error}"));
        self.summary.problems.extend(left_out);
        let span = self.span_section(metadata);
        let header = match &mut self.redactor {
            Some(redactor) => rewriter.finish(&redactor.sections(metadata), span.as_slice(), &mut self.buffer),
            None => rewriter.finish(metadata, span.as_slice(), &mut self.buffer),
        };
        self.write_out()?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()?;
        Ok(())
    }
}

/// A record, redacted into `out`. `kind` is that of its event, if it is a sample.
///
/// # Errors
/// Why it is left out.
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
    let (event, new_event) = pair.ok_or("of an event that is not known: not redacted")?;
    redactor.record(record, event, kind.unwrap_or(EventKind::Other), &new_event.layout, out)?;
    Record::parse_alone(out, record.offset, new_events.endian()).map_err(|_| "not redacted")
}

impl<W: Write + Seek> Copy<'_, W> {
    fn begin(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        let failed = |source| Error::Format { path: self.path.clone(), source };
        let events = Events::new(metadata.attrs(), metadata.endian()).map_err(failed)?;
        let rewriter = match &mut self.redactor {
            Some(redactor) => Rewriter::begin(&redactor.events(metadata), self.care, &mut self.buffer),
            None => Rewriter::begin(metadata, self.care, &mut self.buffer),
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

    /// The times of the first and the last sample, when the recording says them and others were selected.
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
