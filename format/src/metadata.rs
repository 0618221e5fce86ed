//! Description of a recording: events, their names, feature sections. In a file most of it stands in the header
//! and behind the data, in a stream it comes in records; some of it comes in records in both.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::feature::Feature;
use crate::records::UserPayload;
use crate::records::user::Update;
use crate::{Endian, Error, File, FileAttr, Record, RecordType, Result, Section};

/// The most events that a recording may have; perf has the same bound.
const EVENTS_LIMIT: usize = 1 << 16;

/// Everything needed to read a recording's records. Complete from the start for a file, growing for a stream: every
/// record has to be shown to [`Metadata::absorb`] before it is decoded.
#[derive(Debug, Clone)]
pub struct Metadata<'a> {
    endian: Endian,
    attrs: Vec<FileAttr>,
    /// Names by one of the event's ids, from EVENT_UPDATE.
    names: HashMap<u64, Vec<u8>>,
    sections: Vec<FeatureSection<'a>>,
    /// `attr.config` and name, of old streams.
    event_types: Vec<(u64, Vec<u8>)>,
    revision: u64,
    is_stream: bool,
    unused_bytes: u64,
}

/// The bytes of a feature.
#[derive(Debug, Clone)]
pub struct FeatureSection<'a> {
    /// Bit of the feature.
    pub feature: Feature,
    /// Offset of the bytes in the input.
    pub offset: u64,
    /// The bytes, as far as they are there.
    pub bytes: Cow<'a, [u8]>,
    /// All bytes are there.
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
            endian: file.endian(),
            attrs: file.attrs().to_vec(),
            names: HashMap::new(),
            sections: file.features().iter().filter_map(section).collect(),
            event_types: Vec::new(),
            revision: 0,
            is_stream: false,
            unused_bytes: file.unused_table_bytes(),
        }
    }

    /// Empty metadata of a stream in this byte order.
    pub fn of_stream(endian: Endian) -> Metadata<'static> {
        Metadata {
            endian,
            attrs: Vec::new(),
            names: HashMap::new(),
            sections: Vec::new(),
            event_types: Vec::new(),
            revision: 0,
            is_stream: true,
            unused_bytes: 0,
        }
    }

    /// The same recording with other events and sections. Names that records gave to events are not in it: they come with those records.
    pub fn redescribed<'s>(&self, attrs: Vec<FileAttr>, sections: Vec<FeatureSection<'s>>) -> Metadata<'s> {
        Metadata {
            endian: self.endian,
            attrs,
            names: HashMap::new(),
            sections,
            event_types: Vec::new(),
            revision: self.revision,
            is_stream: self.is_stream,
            unused_bytes: self.unused_bytes,
        }
    }

    /// True for a stream, false for a file.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Zero bytes that the file has behind its feature table.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.unused_bytes
    }

    /// The byte order of the recording.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Changes whenever a record has added something.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The events so far.
    pub fn attrs(&self) -> &[FileAttr] {
        &self.attrs
    }

    /// The name that a record has given an event: EVENT_UPDATE, or an old stream's HEADER_EVENT_TYPE. The EVENT_DESC
    /// feature may have another; [`Metadata::event_names`] weighs them all.
    pub fn name(&self, event: usize) -> Option<&[u8]> {
        self.updated_name(event).or_else(|| self.typed_name(event))
    }

    /// The name that an EVENT_UPDATE has given an event.
    pub(crate) fn updated_name(&self, event: usize) -> Option<&[u8]> {
        self.attrs.get(event)?.ids.iter().find_map(|id| self.names.get(id)).map(Vec::as_slice)
    }

    /// The name that an old stream has given to all events with this one's `config`.
    pub(crate) fn typed_name(&self, event: usize) -> Option<&[u8]> {
        let config = self.attrs.get(event)?.attr.config;
        self.event_types.iter().find(|(named, _)| *named == config).map(|(_, name)| name.as_slice())
    }

    /// All feature sections, in the order of the input.
    pub fn sections(&self) -> &[FeatureSection<'a>] {
        &self.sections
    }

    /// The sections of one feature. A stream may have several, each a whole section (one BPF program each, for example).
    pub fn feature(&self, feature: Feature) -> impl Iterator<Item = &FeatureSection<'a>> {
        self.sections.iter().filter(move |section| section.feature == feature)
    }

    /// Looks at a record; true when it belongs to the description of the recording, and to nothing else.
    ///
    /// # Errors
    /// When it does but cannot be read.
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
                // The list ends with a number beyond the writer's last feature, and no bytes.
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

    /// Adds a section that stands somewhere else than in the file.
    pub fn push_section(&mut self, section: FeatureSection<'a>) {
        self.sections.push(section);
    }

    fn add_section(&mut self, feature: Feature, offset: u64, bytes: &[u8]) {
        self.sections.push(FeatureSection { feature, offset, bytes: Cow::Owned(bytes.to_vec()), is_whole: true });
    }
}
