//! A recording of any form into one file of the canonical form: cut off ones made whole, streams and directories as a
//! file, compressed records unpacked, samples selected.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use bprec_format::feature::Feature;
use bprec_format::journal::Journal;
use bprec_format::rewrite::{Care, Fate, Rewriter};
use bprec_format::{FeatureSection, Metadata, Record, RecordType};

use crate::source::{Arrival, Source, Visitor};
use crate::{Error, Result};

/// Bytes are written out when this many are there.
const WRITE_BYTES: usize = 256 << 10;

/// What [`rewrite`] keeps.
#[derive(Debug, Clone, Default)]
pub struct RewriteOptions {
    /// Only records that make sense, so that every perf opens the result.
    pub repair: bool,
    /// Only samples of these CPUs; of all when empty. Records other than samples are all kept.
    pub cpus: Vec<u32>,
    /// Only samples from the first to the last of these times, ns of the recording's clock.
    pub time_ns: Option<(u64, u64)>,
}

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RewriteSummary {
    /// Records written.
    pub records: u64,
    /// Samples among them.
    pub samples: u64,
    /// Samples that were not asked for.
    pub filtered: u64,
    /// Records left out, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// What is wrong with the input, in words.
    pub problems: Vec<String>,
}

/// Writes `source` as a file. `out` must be empty.
///
/// # Errors
/// When the source is no recording, holds no record that can be kept, or the file cannot be written.
pub fn rewrite(source: &mut Source, options: &RewriteOptions, out: &mut (impl Write + Seek)) -> Result<RewriteSummary> {
    let path = source.path().to_owned();
    let journal = source.journal().map(<[u8]>::to_vec);
    let mut copy =
        Copy { options, out, path, journal, rewriter: None, buffer: Vec::new(), summary: RewriteSummary::default() };
    let problems = source.for_each(&mut copy)?;
    let mut summary = copy.summary;
    summary.problems.extend(problems);
    Ok(summary)
}

struct Copy<'o, W> {
    options: &'o RewriteOptions,
    out: &'o mut W,
    path: PathBuf,
    journal: Option<Vec<u8>>,
    rewriter: Option<Rewriter>,
    buffer: Vec<u8>,
    summary: RewriteSummary,
}

impl<'a, W: Write + Seek> Visitor<'a> for Copy<'_, W> {
    fn mapped(&mut self, _files: Vec<&'a [u8]>) {}

    fn record(&mut self, arrival: &Arrival<'_>, metadata: &Metadata<'_>) -> Result<ControlFlow<()>> {
        let record = &arrival.record;
        if self.rewriter.is_none() {
            if arrival.is_description {
                return Ok(ControlFlow::Continue(()));
            }
            self.begin(metadata)?;
        }
        let Some(rewriter) = &mut self.rewriter else { return Ok(ControlFlow::Continue(())) };
        if record.kind == RecordType::SAMPLE && !is_wanted(self.options, rewriter, record) {
            self.summary.filtered += 1;
            return Ok(ControlFlow::Continue(()));
        }
        match rewriter.record(record, arrival.is_description, &mut self.buffer) {
            Fate::Kept => {
                self.summary.records += 1;
                self.summary.samples += u64::from(record.kind == RecordType::SAMPLE);
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
        if self.rewriter.is_none() {
            self.begin(metadata)?;
        }
        let Some(rewriter) = self.rewriter.take() else { return Ok(()) };
        if rewriter.data_bytes() == 0 {
            let source = bprec_format::Error::other(0, "records", "not one that can be kept");
            return Err(Error::Format { path: self.path.clone(), source });
        }
        let known = rewriter.events().all().len();
        if known < metadata.attrs().len() {
            let late = metadata.attrs().len() - known;
            self.summary.problems.push(format!("{late} events became known after the first records: left out"));
        }
        let journal = self.journal_sections(metadata);
        let header = rewriter.finish(metadata, &journal, &mut self.buffer);
        self.write_out()?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header)?;
        self.out.flush()?;
        Ok(())
    }
}

impl<W: Write + Seek> Copy<'_, W> {
    fn begin(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        let care = if self.options.repair { Care::Repair } else { Care::Keep };
        let begun = Rewriter::begin(metadata, care, &mut self.buffer);
        self.rewriter = Some(begun.map_err(|source| Error::Format { path: self.path.clone(), source })?);
        Ok(())
    }

    /// What the recorder had put aside for the features, when it could not write them.
    fn journal_sections(&mut self, metadata: &Metadata<'_>) -> Vec<FeatureSection<'static>> {
        let first_event_id = metadata.attrs().first().and_then(|attr| attr.ids.first().copied()).unwrap_or(0);
        if !metadata.sections().is_empty() {
            return Vec::new();
        }
        let Some(bytes) = &self.journal else { return Vec::new() };
        match Journal::parse(bytes, metadata.endian()) {
            Ok(journal) if journal.first_event_id == first_event_id => {
                let section = |(bit, bytes)| FeatureSection {
                    feature: Feature(bit),
                    offset: 0,
                    bytes: Cow::Owned(bytes),
                    is_whole: true,
                };
                journal.features.into_iter().map(section).collect()
            }
            Ok(_) => {
                self.summary.problems.push("the journal beside it is that of another recording".into());
                Vec::new()
            }
            Err(error) => {
                self.summary.problems.push(format!("journal: {error}"));
                Vec::new()
            }
        }
    }

    fn write_out(&mut self) -> Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

fn is_wanted(options: &RewriteOptions, rewriter: &Rewriter, record: &Record<'_>) -> bool {
    if options.cpus.is_empty() && options.time_ns.is_none() {
        return true;
    }
    let event = rewriter.events().index_of(record).and_then(|index| rewriter.events().all().get(index));
    let Some(sample) = event.and_then(|event| event.layout.sample(record.body(), record.offset).ok()) else {
        return false;
    };
    let on_cpu = options.cpus.is_empty() || sample.cpu().is_some_and(|cpu| options.cpus.contains(&cpu));
    let in_time = |(from, to)| sample.time_ns().is_some_and(|time| (from..=to).contains(&time));
    on_cpu && options.time_ns.is_none_or(in_time)
}
