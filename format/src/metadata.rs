//! Description of a recording: events, their names, feature sections. A file has most of the description in the header and after the records; a
//! stream has all of it in records. A few parts, such as EVENT_UPDATE, are records in a file, too.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::feature::Feature;
use crate::records::UserPayload;
use crate::records::user::Update;
use crate::{Endian, Error, File, FileAttr, Record, RecordType, Result, Section};

/// Limit on the events of a recording, the same as in perf.
const EVENTS_LIMIT: usize = 1 << 16;

/// Description of a recording, needed to decode its records. The description of a file is complete from the start. That of a stream grows: pass each
/// record to [`Metadata::absorb`] before decoding it.
#[derive(Debug, Clone)]
pub struct Metadata<'a> {
    endian: Endian,
    attrs: Vec<FileAttr>,
    /// Names from EVENT_UPDATE records, by an id of the named event.
    names: HashMap<u64, Vec<u8>>,
    sections: Vec<FeatureSection<'a>>,
    /// `attr.config` and name of events, from old streams.
    event_types: Vec<(u64, Vec<u8>)>,
    revision: u64,
    is_stream: bool,
}

/// Section of a feature.
#[derive(Debug, Clone)]
pub struct FeatureSection<'a> {
    /// Bit of the feature.
    pub feature: Feature,
    /// Offset of the bytes in the input.
    pub offset: u64,
    /// Bytes of the section that the input has.
    pub bytes: Cow<'a, [u8]>,
    /// True if the input has all bytes of the section.
    pub is_whole: bool,
}

impl<'a> Metadata<'a> {
    /// Description in a file's header.
    pub fn of_file(file: &File<'a>) -> Metadata<'a> {
        let section = |(bit, section): &(u8, Section)| {
            let (bytes, offset) = file.feature(*bit)?;
            let is_whole = bytes.len() as u64 == section.size;
            Some(FeatureSection { feature: Feature(*bit), offset, bytes: Cow::Borrowed(bytes), is_whole })
        };
        Metadata {
            attrs: file.attrs().to_vec(),
            sections: file.features().iter().filter_map(section).collect(),
            is_stream: false,
            ..Metadata::of_stream(file.endian())
        }
    }

    /// Empty metadata of a stream in this byte order.
    pub fn of_stream(endian: Endian) -> Metadata<'a> {
        Metadata {
            endian,
            attrs: Vec::new(),
            names: HashMap::new(),
            sections: Vec::new(),
            event_types: Vec::new(),
            revision: 0,
            is_stream: true,
        }
    }

    /// Metadata of the same recording with other events and sections, and without the names that records gave to events.
    pub fn redescribed<'s>(&self, attrs: Vec<FileAttr>, sections: Vec<FeatureSection<'s>>) -> Metadata<'s> {
        Metadata {
            attrs,
            sections,
            revision: self.revision,
            is_stream: self.is_stream,
            ..Metadata::of_stream(self.endian)
        }
    }

    /// Returns true for a stream, false for a file.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Byte order of the recording.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Number that changes when a record adds to the description.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Events known so far.
    pub fn attrs(&self) -> &[FileAttr] {
        &self.attrs
    }

    /// Name that a record gave to an event: EVENT_UPDATE, or HEADER_EVENT_TYPE of an old stream. [`Metadata::event_names`] uses
    /// the EVENT_DESC feature, too.
    pub fn name(&self, event: usize) -> Option<&[u8]> {
        self.updated_name(event).or_else(|| self.typed_name(event))
    }

    /// Name that an EVENT_UPDATE gave to an event.
    pub(crate) fn updated_name(&self, event: usize) -> Option<&[u8]> {
        self.attrs.get(event)?.ids.iter().find_map(|id| self.names.get(id)).map(Vec::as_slice)
    }

    /// Name that an old stream gave to all events with the `config` of this event.
    pub(crate) fn typed_name(&self, event: usize) -> Option<&[u8]> {
        let config = self.attrs.get(event)?.attr.config;
        self.event_types.iter().find(|(named, _)| *named == config).map(|(_, name)| name.as_slice())
    }

    /// Feature sections in the order of the input.
    pub fn sections(&self) -> &[FeatureSection<'a>] {
        &self.sections
    }

    /// Sections of one feature. A stream may have several complete sections, for example one per BPF program.
    pub fn feature(&self, feature: Feature) -> impl Iterator<Item = &FeatureSection<'a>> {
        self.sections.iter().filter(move |section| section.feature == feature)
    }

    /// Adds the content of a record to the description. Returns true if the record only describes the recording.
    ///
    /// # Errors
    /// Fails if such a record is damaged.
    #[inline]
    pub fn absorb(&mut self, record: &Record<'_>) -> Result<bool> {
        if record.kind.is_kernel() { Ok(false) } else { self.absorb_user(record) }
    }

    fn absorb_user(&mut self, record: &Record<'_>) -> Result<bool> {
        match record.kind {
            RecordType::HEADER_ATTR
            | RecordType::HEADER_EVENT_TYPE
            | RecordType::HEADER_TRACING_DATA
            | RecordType::HEADER_BUILD_ID
            | RecordType::EVENT_UPDATE
            | RecordType::HEADER_FEATURE => {}
            _ => return Ok(false),
        }
        self.revision += 1;
        match UserPayload::decode(record, self.endian)? {
            UserPayload::Attr(attr) => {
                if self.attrs.len() >= EVENTS_LIMIT {
                    return Err(Error::value(
                        record.offset,
                        "HEADER_ATTR",
                        EVENTS_LIMIT as u64,
                        "at most 65536 events",
                    ));
                }
                self.attrs.push(FileAttr { attr: attr.attr, ids: attr.ids });
            }
            UserPayload::EventType(named) => self.event_types.push((named.config, named.name.to_vec())),
            UserPayload::TracingData { size_bytes, inside } => {
                let outside = record.outside.get(..size_bytes as usize).unwrap_or(record.outside);
                let bytes = if inside.is_empty() { outside } else { inside };
                self.add_section(Feature::TRACING_DATA, record.offset + record.bytes.len() as u64, bytes);
            }
            UserPayload::BuildId(_) => self.add_section(Feature::BUILD_ID, record.offset, record.bytes),
            UserPayload::Feature(feature) => {
                // The last HEADER_FEATURE record has a number beyond the last feature, and no bytes.
                let bit = u8::try_from(feature.feature).ok().filter(|_| !feature.bytes.is_empty());
                if let Some(bit) = bit {
                    self.add_section(Feature(bit), record.offset + 16, feature.bytes);
                }
            }
            UserPayload::EventUpdate(update) => {
                if let Update::Name(name) = update.update {
                    self.names.insert(update.id, name.to_vec());
                }
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Adds a section that is not in the input.
    pub fn push_section(&mut self, section: FeatureSection<'a>) {
        self.sections.push(section);
    }

    fn add_section(&mut self, feature: Feature, offset: u64, bytes: &[u8]) {
        self.sections.push(FeatureSection { feature, offset, bytes: Cow::Owned(bytes.to_vec()), is_whole: true });
    }
}
