//! From any readable recording to the canonical file: header, id arrays, attrs, records, feature table, payloads.
//!
//! Compressed records are replaced by the records that they hold; the description of a stream, which is in records, becomes header and
//! features. Nothing else changes: rewriting a canonical file gives the same bytes. With [`Care::Repair`] only those
//! records are kept that make sense, so that every perf opens the result: one record of an unknown event, for example,
//! is enough for perf to give up a file.

use std::collections::BTreeMap;

use crate::feature::tracing::{TracingData, TracingSystem};
use crate::feature::{Feature, SampleTime, SectionCheck, SectionContent as _, SectionWriter};
use crate::file::FileLayout;
use crate::resync::Resync;
use crate::{
    Error, Events, FILE_HEADER_BYTES, FeatureSection, Metadata, Record, RecordType, Result, Writer, event_type,
};

/// Condition on which a record is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// Whole.
    Keep,
    /// Whole, of a known type and event, and readable.
    Repair,
}

/// Writes a file, record by record. The caller writes what is appended behind what was appended before, and at the end
/// the header over the first bytes.
#[derive(Debug)]
pub struct Rewriter {
    layout: FileLayout,
    events: Events,
    care: Care,
    data_bytes: u64,
    /// Offset in the new file and size of AUXTRACE records.
    traces: Vec<(u64, u64)>,
    /// Times of the first and the last sample, ns; of a repaired file only.
    times: Option<(u64, u64)>,
    /// The highest number of a CPU that a sample is of; of a repaired file only.
    highest_cpu: Option<u32>,
}

/// Fate of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It was appended.
    Kept,
    /// A file has its content elsewhere: in the header, in a feature, in the records that it held compressed.
    Moved,
    /// It was left out: why.
    Dropped(&'static str),
}

impl Rewriter {
    /// Begins a file with the events that `metadata` has, and appends its first bytes to `out`, which must be empty.
    ///
    /// # Errors
    /// When there is no event, or events cannot be told apart by their records.
    pub fn begin(metadata: &Metadata<'_>, care: Care, out: &mut Vec<u8>) -> Result<Rewriter> {
        let attrs = metadata.attrs();
        let Some(first) = attrs.first() else {
            return Err(Error::other(0, "attrs", "no event"));
        };
        let events = Events::new(attrs, metadata.endian())?;
        // A perf that could read the sizes as they are can read them again.
        let size = first.attr.size.max(64);
        let is_one_size = attrs.iter().all(|event| event.attr.size.max(64) == size);
        let layout = match care {
            Care::Keep if is_one_size && !metadata.is_stream() => {
                FileLayout::begin_sized(attrs, metadata.endian(), size, out)
            }
            _ => FileLayout::begin(attrs, metadata.endian(), out),
        };
        Ok(Rewriter { layout, events, care, data_bytes: 0, traces: Vec::new(), times: None, highest_cpu: None })
    }

    /// The events.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Appends a record, unless it is no part of a file or not fit to be kept. `is_description` is what
    /// [`Metadata::absorb`] said of it.
    pub fn record(&mut self, record: &Record<'_>, is_description: bool, out: &mut Vec<u8>) -> Fate {
        if is_description || matches!(record.kind, RecordType::COMPRESSED | RecordType::COMPRESSED2) {
            return Fate::Moved;
        }
        let endian = self.events.endian();
        let is_cut = record.announces_outside() && record.outside_bytes(endian) != Ok(record.outside.len() as u64);
        if is_cut {
            return Fate::Dropped("its data is not there");
        }
        // The output is a file, whatever the input is.
        let unfit = (self.care == Care::Repair).then(|| Resync::new(&self.events, false).unfit(record));
        if let Some(reason) = unfit.flatten() {
            return Fate::Dropped(reason);
        }
        if self.care == Care::Repair && record.kind == RecordType::SAMPLE {
            self.look_at_sample(record);
        }
        if record.kind == RecordType::AUXTRACE {
            self.traces.push((self.layout.data_offset() + self.data_bytes, record.bytes.len() as u64));
        }
        out.extend_from_slice(record.bytes);
        out.extend_from_slice(record.outside);
        self.data_bytes += record.total_bytes() as u64;
        Fate::Kept
    }

    /// Ends the file: appends the features to `out` and returns the header.
    ///
    /// `extra` are sections beside those of `metadata`; several of one feature become one. Features that are not whole,
    /// or about the old file's form, are left out.
    pub fn finish(
        self,
        metadata: &Metadata<'_>,
        extra: &[FeatureSection<'_>],
        out: &mut Vec<u8>,
    ) -> [u8; FILE_HEADER_BYTES] {
        let sections = || metadata.sections().iter().chain(extra);
        let mut features = BTreeMap::<u8, Vec<&[u8]>>::new();
        let unfit = self.unfit_features(metadata);
        let is_kept = |section: &&FeatureSection<'_>| {
            section.is_whole && !unfit.iter().any(|(feature, _)| *feature == section.feature)
        };
        for section in sections().filter(is_kept) {
            if !matches!(section.feature, Feature::COMPRESSED | Feature::DIR_FORMAT | Feature::AUXTRACE) {
                features.entry(section.feature.0).or_default().push(&section.bytes);
            }
        }
        let endian = self.events.endian();
        let mut merged: BTreeMap<u8, Vec<u8>> =
            features.into_iter().map(|(bit, parts)| (bit, merge(Feature(bit), &parts, endian))).collect();
        let had_traces = sections().any(|section| section.feature == Feature::AUXTRACE);
        if had_traces && !self.traces.is_empty() {
            let mut index = Vec::new();
            let mut w = Writer::new(&mut index, endian);
            w.u64(self.traces.len() as u64);
            for (offset, size) in &self.traces {
                w.u64(*offset).u64(*size);
            }
            merged.insert(Feature::AUXTRACE.0, index);
        }
        if self.care == Care::Repair && !merged.contains_key(&Feature::TRACING_DATA.0) {
            merged.extend(self.unknown_tracepoints().map(|section| (Feature::TRACING_DATA.0, section)));
        }
        if self.care == Care::Repair && merged.is_empty() {
            // Without a feature it would be one that was cut off.
            let (first_ns, last_ns) = self.times.unwrap_or_default();
            let mut section = Vec::new();
            SampleTime { first_ns, last_ns }.encode(&mut Writer::new(&mut section, endian));
            merged.insert(Feature::SAMPLE_TIME.0, section);
        }
        // Without any feature they would be taken for records.
        let has_room = self.care == Care::Keep && !merged.is_empty();
        let unused_bytes = if has_room { metadata.unused_bytes() } else { 0 };
        let bits: Vec<u8> = merged.keys().copied().collect();
        let features: Vec<(u8, Vec<u8>)> = merged.into_iter().collect();
        self.layout.features_behind(self.data_bytes, &features, unused_bytes, out);
        self.layout.header(self.data_bytes, &bits)
    }

    /// The features that a repaired file does not get, as perf would refuse the file for them, or fail.
    pub fn unfit_features(&self, metadata: &Metadata<'_>) -> Vec<(Feature, Error)> {
        if self.care == Care::Keep {
            return Vec::new();
        }
        let sections = metadata.sections().iter().filter(|section| section.is_whole);
        let sections = sections.map(|section| (section.feature, &*section.bytes));
        let check = SectionCheck::new(sections.clone(), metadata.endian(), SectionWriter::Anyone)
            .with_highest_cpu(self.highest_cpu);
        sections.filter_map(|(feature, bytes)| Some((feature, check.check(feature, bytes).err()?))).collect()
    }

    /// Bytes of records so far. Without any, perf takes a file for one that was cut off.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    fn look_at_sample(&mut self, record: &Record<'_>) {
        let event = self.events.index_of(record).and_then(|index| self.events.all().get(index));
        let Some(Ok(sample)) = event.map(|event| event.layout.sample(record.body(), record.offset)) else { return };
        if let Some(time_ns) = sample.time_ns().filter(|time_ns| *time_ns > 0) {
            let (first, last) = self.times.unwrap_or((time_ns, time_ns));
            self.times = Some((first.min(time_ns), last.max(time_ns)));
        }
        self.highest_cpu = self.highest_cpu.max(sample.cpu().filter(|cpu| is_cpu(*cpu)));
    }

    /// Formats for tracepoints of which nothing is known any more: without any, perf refuses the file. They have no field
    /// of their own.
    fn unknown_tracepoints(&self) -> Option<Vec<u8>> {
        let attrs = self.events.all().iter().map(|event| &event.attr);
        let mut ids: Vec<u64> =
            attrs.filter(|attr| attr.kind == event_type::TRACEPOINT).map(|attr| attr.config).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return None;
        }
        let texts: Vec<String> = ids.iter().map(|id| unknown_format(*id)).collect();
        let tracing = TracingData {
            endian: self.events.endian(),
            long_bytes: 8,
            page_size_bytes: 4096,
            header_page: HEADER_PAGE,
            header_event: b"",
            ftrace: Vec::new(),
            systems: vec![TracingSystem { name: b"unknown", formats: texts.iter().map(String::as_bytes).collect() }],
            kallsyms: b"",
            printk_formats: b"",
            saved_cmdlines: b"",
        };
        let mut section = Vec::new();
        tracing.encode(&mut Writer::new(&mut section, self.events.endian()));
        Some(section)
    }
}

/// Returns true if perf takes a sample's number for that of a CPU: negative ones are none.
pub fn is_cpu(cpu: u32) -> bool {
    i32::try_from(cpu).is_ok()
}

/// Layout of ring buffers of 64-bit kernels.
const HEADER_PAGE: &[u8] = b"\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";

/// The text of a tracepoint with the fields that all have.
fn unknown_format(id: u64) -> String {
    format!(
        "name: tracepoint_{id}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
         print fmt: \"\"\n"
    )
}

/// One section of several. Programs, BTF and build ids add up; of anything else the last one counts.
fn merge(feature: Feature, parts: &[&[u8]], endian: crate::Endian) -> Vec<u8> {
    match feature {
        Feature::BUILD_ID => parts.concat(),
        Feature::BPF_PROG_INFO | Feature::BPF_BTF if parts.len() > 1 => {
            let count =
                parts.iter().map(|part| endian.u32_at(part, 0).unwrap_or_default()).fold(0, u32::saturating_add);
            let mut section = endian.bytes_u32(count).to_vec();
            for part in parts {
                section.extend_from_slice(part.get(4..).unwrap_or_default());
            }
            section
        }
        _ => parts.last().map(|part| part.to_vec()).unwrap_or_default(),
    }
}
