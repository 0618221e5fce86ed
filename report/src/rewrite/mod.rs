//! A recording of any form into one file of the canonical form: cut off ones made whole, streams and directories as a
//! file, compressed records unpacked, samples selected.

mod selection;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use bprec_format::feature::{Feature, Payload as _, SampleTime};
use bprec_format::rewrite::{Care, Fate, Rewriter};
use bprec_format::{FeatureSection, Metadata, RecordType, Writer};

use crate::input::event_kind::EventKind;
use crate::input::source::{Arrival, Source, Visitor};
use crate::{CpuList, Error, ProgFilter, Result, TimeRange};

use selection::{Selection, Sieve};

/// Bytes are written out when this many are there.
const WRITE_BYTES: usize = 256 << 10;

/// What [`rewrite`] keeps.
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
}

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RewriteSummary {
    /// Records written.
    pub records: u64,
    /// Samples of where the machine was among them, as reports count them: neither what a recorder says about the machine in
    /// samples of an event of its own, nor the output of other programs.
    pub samples: u64,
    /// Samples that were not asked for.
    pub filtered: u64,
    /// How many programs of the recording are asked for, if any in particular are.
    pub matched_programs: Option<usize>,
    /// Records left out, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// What is wrong with the input, in words.
    pub problems: Vec<String>,
}

/// Writes `source` as a file. `out` must be empty.
///
/// # Errors
/// When the source is no recording, holds no record that can be kept, or the file cannot be written; when `options` ask for
/// a part of its time and it has no times.
pub fn rewrite(source: &mut Source, options: &RewriteOptions, out: &mut (impl Write + Seek)) -> Result<RewriteSummary> {
    let path = source.path().to_owned();
    let selection = Selection::new(source, options)?;
    let care = if options.repair { Care::Repair } else { Care::Keep };
    let mut copy = Copy {
        care,
        selection: selection.as_ref(),
        out,
        path,
        begun: None,
        buffer: Vec::new(),
        span: None,
        summary: RewriteSummary::default(),
    };
    let problems = source.for_each(care, &mut copy)?;
    let mut summary = copy.summary;
    summary.matched_programs = selection.as_ref().and_then(Selection::matched_programs);
    summary.problems.extend(problems);
    Ok(summary)
}

struct Copy<'o, W> {
    care: Care,
    /// `None` when all is kept.
    selection: Option<&'o Selection>,
    out: &'o mut W,
    path: PathBuf,
    begun: Option<Begun<'o>>,
    buffer: Vec<u8>,
    /// Times of the first and the last sample that was selected.
    span: Option<(u64, u64)>,
    summary: RewriteSummary,
}

/// What there is as soon as the events are known.
struct Begun<'o> {
    rewriter: Rewriter,
    /// By event. From the first sample on: a stream has told the names of its events by then.
    kinds: Option<Vec<EventKind>>,
    /// From the first sample on, too.
    sieve: Option<Sieve<'o>>,
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
        let Some(Begun { rewriter, kinds, sieve }) = &mut self.begun else { return Ok(ControlFlow::Continue(())) };
        let is_sample = record.kind == RecordType::SAMPLE && {
            let kinds = kinds.get_or_insert_with(|| EventKind::of_all(rewriter.events(), &metadata.event_names()));
            let kind = rewriter.events().index_of(record).and_then(|event| kinds.get(event));
            matches!(kind, Some(EventKind::Pmu | EventKind::BpfSampler))
        };
        if record.kind == RecordType::SAMPLE
            && let Some(selection) = self.selection
        {
            let sieve = sieve.get_or_insert_with(|| Sieve::new(selection, rewriter.events(), metadata));
            let (keeps, time_ns) = sieve.keeps(record, rewriter.events());
            if !keeps {
                self.summary.filtered += 1;
                return Ok(ControlFlow::Continue(()));
            }
            if let Some(time) = time_ns {
                let (first, last) = self.span.unwrap_or((time, time));
                self.span = Some((first.min(time), last.max(time)));
            }
        }
        match rewriter.record(record, arrival.is_description, &mut self.buffer) {
            Fate::Kept => {
                self.summary.records += 1;
                self.summary.samples += u64::from(is_sample);
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
        let span = self.span_section(metadata);
        let header = rewriter.finish(metadata, span.as_slice(), &mut self.buffer);
        self.write_out()?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()?;
        Ok(())
    }
}

impl<W: Write + Seek> Copy<'_, W> {
    fn begin(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        let rewriter = Rewriter::begin(metadata, self.care, &mut self.buffer);
        let rewriter = rewriter.map_err(|source| Error::Format { path: self.path.clone(), source })?;
        self.begun = Some(Begun { rewriter, kinds: None, sieve: None });
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
