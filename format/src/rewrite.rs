//! Writes any readable recording as a canonical file: header, id arrays, attrs, records, table of features, sections.
//!
//! Compressed records are unpacked; records that describe a stream become header and features. Nothing else changes: rewriting a canonical file gives
//! the same bytes. The caller chooses the damaged records and features to leave out: [`Resync::unfit`](crate::Resync::unfit) and
//! [`SectionCheck`](crate::feature::SectionCheck) find them.

use std::collections::BTreeMap;

use crate::feature::{AuxtraceIndex, Feature, SectionContent as _};
use crate::file::FileLayout;
use crate::{Error, Events, FILE_HEADER_BYTES, FeatureSection, Metadata, Record, RecordType, Result, Section};

/// Writer of a file, record by record. The caller writes the appended bytes in sequence and, at the end, overwrites the first bytes with the header.
#[derive(Debug)]
pub struct Rewriter {
    layout: FileLayout,
    events: Events,
    data_bytes: u64,
    /// Offset in the new file and size of AUXTRACE records.
    traces: Vec<Section>,
}

/// Fate of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The record was appended.
    Kept,
    /// The content of the record is elsewhere in the file: in the header, in a feature, or in unpacked records.
    Moved,
    /// The record was left out, for this reason.
    Dropped(&'static str),
}

impl Rewriter {
    /// Begins a file with the events of `metadata`, and appends its first bytes to `out`, which must be empty. If all attrs of a file have the same
    /// size, they keep it: a perf that can read the input can then read the new file.
    ///
    /// # Errors
    /// Fails without an event, or if the ids of several events are not at the same position in their records.
    pub fn begin(metadata: &Metadata<'_>, out: &mut Vec<u8>) -> Result<Rewriter> {
        let mut sizes = metadata.attrs().iter().map(|event| event.attr.size.max(64));
        let first = sizes.next().filter(|_| !metadata.is_stream());
        Rewriter::with_size(metadata, first.filter(|first| sizes.all(|size| size == *first)), out)
    }

    /// Begins a file like [`Rewriter::begin`], but with attrs of the smallest size: most versions of perf can read these.
    ///
    /// # Errors
    /// Fails like [`Rewriter::begin`].
    pub fn begin_smallest(metadata: &Metadata<'_>, out: &mut Vec<u8>) -> Result<Rewriter> {
        Rewriter::with_size(metadata, None, out)
    }

    fn with_size(metadata: &Metadata<'_>, attr_size: Option<u32>, out: &mut Vec<u8>) -> Result<Rewriter> {
        let (attrs, endian) = (metadata.attrs(), metadata.endian());
        if attrs.is_empty() {
            return Err(Error::other(0, "attrs", "the recording has no event"));
        }
        let events = Events::new(attrs, endian)?;
        let layout = match attr_size {
            Some(size) => FileLayout::begin_sized(attrs, endian, size, out),
            None => FileLayout::begin(attrs, endian, out),
        };
        Ok(Rewriter { layout, events, data_bytes: 0, traces: Vec::new() })
    }

    /// The events.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Appends a record if it belongs into the data section of a file, and the data after the record is complete. `is_description` is the result of
    /// [`Metadata::absorb`] for the record.
    pub fn record(&mut self, record: &Record<'_>, is_description: bool, out: &mut Vec<u8>) -> Fate {
        if is_description || record.kind.is_compressed() {
            return Fate::Moved;
        }
        let endian = self.events.endian();
        let is_cut = record.announces_outside() && record.outside_bytes(endian) != Ok(record.outside.len() as u64);
        if is_cut {
            return Fate::Dropped("the data after the record is missing");
        }
        if record.kind == RecordType::AUXTRACE {
            let offset = self.layout.data_offset() + self.data_bytes;
            self.traces.push(Section { offset, size: record.bytes.len() as u64 });
        }
        out.extend_from_slice(record.bytes);
        out.extend_from_slice(record.outside);
        self.data_bytes += record.total_bytes() as u64;
        Fate::Kept
    }

    /// Features of the new file, made from these sections, by bit. Several sections of one feature become one. Incomplete sections are
    /// left out, and so are COMPRESSED and DIR_FORMAT, which describe the form of the input. AUXTRACE gets the new offsets of the AUXTRACE records.
    pub fn features<'s>(&self, sections: impl Iterator<Item = &'s FeatureSection<'s>>) -> BTreeMap<u8, Vec<u8>> {
        let mut parts = BTreeMap::<u8, Vec<&[u8]>>::new();
        let mut had_traces = false;
        for section in sections {
            match section.feature {
                Feature::AUXTRACE => had_traces = true,
                Feature::COMPRESSED | Feature::DIR_FORMAT => {}
                feature if section.is_whole => parts.entry(feature.0).or_default().push(&section.bytes),
                _ => {}
            }
        }
        let endian = self.events.endian();
        let merged = parts.into_iter().map(|(bit, parts)| (bit, merge(Feature(bit), &parts, endian)));
        let mut features: BTreeMap<u8, Vec<u8>> = merged.collect();
        if had_traces && !self.traces.is_empty() {
            features.insert(Feature::AUXTRACE.0, AuxtraceIndex(self.traces.clone()).to_bytes(endian));
        }
        features
    }

    /// Ends the file with the features of `metadata` and further sections: appends them to `out` and returns the header.
    pub fn finish(
        self,
        metadata: &Metadata<'_>,
        extra: &[FeatureSection<'_>],
        out: &mut Vec<u8>,
    ) -> [u8; FILE_HEADER_BYTES] {
        let features = self.features(metadata.sections().iter().chain(extra));
        self.finish_with(features, out)
    }

    /// Ends the file with these features, as [`Rewriter::features`] returns them: appends them to `out` and returns the header.
    pub fn finish_with(self, features: BTreeMap<u8, Vec<u8>>, out: &mut Vec<u8>) -> [u8; FILE_HEADER_BYTES] {
        let bits: Vec<u8> = features.keys().copied().collect();
        let features: Vec<(u8, Vec<u8>)> = features.into_iter().collect();
        self.layout.features(self.data_bytes, &features, out);
        self.layout.header(self.data_bytes, &bits)
    }

    /// Bytes of records so far. perf treats a file without records as cut off.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }
}

/// Returns true if perf reads this number in a sample as a CPU. perf ignores numbers that are negative as an `i32`.
pub fn is_cpu(cpu: u32) -> bool {
    i32::try_from(cpu).is_ok()
}

/// Merges sections of one feature: programs, BTF and build ids are joined; of other features the last section is used.
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
