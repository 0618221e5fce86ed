//! A recording in memory, record by record: the usual way to read perf.data.

use crate::order::{OrderedRun, TimeOrder};
use crate::records::Payload;
use crate::{
    AttrFlags, Chunks, Container, Endian, Error, Event, Events, File, Metadata, Origin, PIPE_HEADER_BYTES, Record,
    RecordType, Result, Sample, SampleId,
};

/// A recording in memory, mapped or read: a file or a whole stream. [`Stream`](crate::Stream) reads a stream that arrives in
/// pieces.
#[derive(Debug)]
pub struct Recording<'a> {
    bytes: &'a [u8],
    chunks: Chunks<'a>,
    metadata: Metadata<'a>,
    problems: Vec<Error>,
}

impl<'a> Recording<'a> {
    /// Opens a recording.
    ///
    /// # Errors
    /// Fails if the bytes are not perf.data, or the header of a file is damaged.
    pub fn open(bytes: &'a [u8]) -> Result<Recording<'a>> {
        match Container::detect(bytes)? {
            Container::File(_) => {
                let file = File::parse(bytes)?;
                let (chunks, metadata) = (file.chunks(), Metadata::of_file(&file));
                Ok(Recording { bytes, chunks, metadata, problems: file.problems().to_vec() })
            }
            Container::Pipe(endian) => {
                let records = bytes.get(PIPE_HEADER_BYTES..).unwrap_or_default();
                let chunks = Chunks::new(records, PIPE_HEADER_BYTES as u64, endian, None);
                Ok(Recording { bytes, chunks, metadata: Metadata::of_stream(endian), problems: Vec::new() })
            }
        }
    }

    /// Byte order of the machine that wrote the recording.
    pub fn endian(&self) -> Endian {
        self.metadata.endian()
    }

    /// Events and feature sections. A stream has them in records: they are not known before these records are read.
    pub fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    /// Damage of the container.
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    /// Records in the order of the input.
    pub fn records(self) -> RecordReader<'a> {
        RecordReader::new(self, false)
    }

    /// Records in the order of their times. A record without a time keeps its place in the input. Memory is limited if the recording has
    /// FINISHED_ROUND records, like those of perf and bprec. Without them, sorting takes at least 32 bytes per record.
    pub fn records_by_time(self) -> RecordReader<'a> {
        RecordReader::new(self, true)
    }
}

/// Reader of the records of a [`Recording`].
#[derive(Debug)]
pub struct RecordReader<'a> {
    recording: Recording<'a>,
    events: Events,
    /// Revision of the metadata when `events` was last updated.
    revision: u64,
    sorts: bool,
    order: TimeOrder<'a>,
    run: OrderedRun<'a>,
    at: usize,
    error: Option<Error>,
    is_at_end: bool,
}

/// A record and its event.
#[derive(Debug, Clone, Copy)]
pub struct Item<'r> {
    /// The record.
    pub record: Record<'r>,
    /// Event of the record; `None` for an unknown id, and for records that a tool wrote (types from 64).
    pub event: Option<&'r Event>,
    events: &'r Events,
    metadata: &'r Metadata<'r>,
}

/// Content of a record.
#[derive(Debug)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "only one value exists at a time, on the stack")]
pub enum Decoded<'r> {
    /// A sample.
    Sample(Sample<'r>),
    /// Any other record: its payload and its trailer.
    Other(Payload<'r>, SampleId),
}

impl<'r> Item<'r> {
    /// Decodes the record.
    ///
    /// # Errors
    /// Fails if the record is too short for its fields, or a kernel record is of an unknown event.
    pub fn decode(&self) -> Result<Decoded<'r>> {
        let event = self.event.or_else(|| self.events.all().first().filter(|_| !self.record.kind.is_kernel()));
        let Some(event) = event else {
            return Err(Error::other(
                self.record.offset,
                "record",
                "the recording does not describe the event of the record",
            ));
        };
        if self.record.kind == RecordType::SAMPLE {
            return event.layout.sample(self.record.body(), self.record.body_offset()).map(Decoded::Sample);
        }
        let (payload, id) = Payload::decode(&self.record, &event.layout)?;
        Ok(Decoded::Other(payload, id))
    }

    /// Description of the recording, from the records read so far. The reader reads some records ahead.
    pub fn metadata(&self) -> &'r Metadata<'r> {
        self.metadata
    }

    /// Returns true if the record only describes the recording; [`Item::metadata`] holds its content.
    pub fn is_description(&self) -> bool {
        matches!(
            self.record.kind,
            RecordType::HEADER_ATTR
                | RecordType::HEADER_EVENT_TYPE
                | RecordType::HEADER_TRACING_DATA
                | RecordType::HEADER_BUILD_ID
                | RecordType::HEADER_FEATURE
        )
    }

    /// Decodes a sample; `None` for any other record, and for a damaged sample.
    pub fn sample(&self) -> Option<Sample<'r>> {
        match self.decode() {
            Ok(Decoded::Sample(sample)) => Some(sample),
            _ => None,
        }
    }
}

impl<'a> RecordReader<'a> {
    fn new(recording: Recording<'a>, sorts: bool) -> RecordReader<'a> {
        let mut order = TimeOrder::default();
        order.set_files(vec![recording.bytes]);
        RecordReader {
            events: Events::none(recording.endian()),
            recording,
            revision: u64::MAX,
            sorts,
            order,
            run: OrderedRun::default(),
            at: 0,
            error: None,
            is_at_end: false,
        }
    }

    /// Next record; `None` at the end. After damage in a compressed record, the records after it follow; any other error ends
    /// the reading.
    #[expect(clippy::should_implement_trait, reason = "a record borrows from the buffer it was unpacked into")]
    pub fn next(&mut self) -> Option<Result<Item<'_>>> {
        while self.at == self.run.entries.len() {
            if let Some(error) = self.error.take() {
                return Some(Err(error));
            }
            if self.is_at_end {
                return None;
            }
            self.fill();
            self.run = self.order.take();
            self.at = 0;
        }
        let entry = &self.run.entries[self.at];
        self.at += 1;
        let event = entry.event().and_then(|index| self.events.all().get(index));
        let metadata = &self.recording.metadata;
        let item = |record| Item { record, event, events: &self.events, metadata };
        Some(self.run.record(entry, metadata.endian())?.map(item))
    }

    /// Description of the recording, from the records read so far.
    pub fn metadata(&self) -> &Metadata<'a> {
        self.recording.metadata()
    }

    /// Reads until records are ready, an error occurs, or the input ends.
    fn fill(&mut self) {
        while self.order.ready() == 0 && self.error.is_none() && !self.is_at_end {
            let Recording { chunks, metadata, .. } = &mut self.recording;
            let chunk = match chunks.next() {
                None => {
                    self.order.finish();
                    self.is_at_end = true;
                    return;
                }
                Some(Err(error)) => {
                    self.error = Some(error);
                    self.order.finish();
                    return;
                }
                Some(Ok(chunk)) => chunk,
            };
            let file = (chunk.origin != Origin::Decompressed).then_some(0);
            for record in chunk.records() {
                let record = match record {
                    Ok(record) => record,
                    Err(error) => {
                        self.error = Some(error);
                        break;
                    }
                };
                if record.kind.is_compressed() {
                    continue;
                }
                let mut failed = metadata.absorb(&record).err();
                if self.revision != metadata.revision() {
                    self.revision = metadata.revision();
                    for attr in metadata.attrs().iter().skip(self.events.all().len()) {
                        failed = failed.or(self.events.push(attr).err());
                    }
                }
                self.error = self.error.take().or(failed);
                let index = record.kind.is_kernel().then(|| self.events.index_of(&record)).flatten();
                let event = index.and_then(|index| self.events.all().get(index)).filter(|_| self.sorts);
                if record.kind == RecordType::FINISHED_ROUND {
                    self.order.round();
                }
                match event.and_then(|event| self.events.sort_key_ns(event, &record)) {
                    Some(time_ns) => self.order.push(time_ns, &record, index, file),
                    None => self.order.pass(&record, index, file),
                }
            }
            if self.order.is_full() {
                self.order.make_room();
            }
        }
    }
}

impl Events {
    /// Time by which a record is sorted, ns. `None` for a record that keeps its place in the input: it has no time, or the time `u64::MAX` or 0, or
    /// the first event lacks `sample_id_all`. Time 0 marks records that a tool synthesized; they describe the state before the recording.
    pub fn sort_key_ns(&self, event: &Event, record: &Record<'_>) -> Option<u64> {
        let has_times = self.all().first().is_some_and(|first| first.attr.flags.contains(AttrFlags::SAMPLE_ID_ALL));
        event.time_ns(record).filter(|time_ns| has_times && *time_ns != 0 && *time_ns != u64::MAX)
    }
}

impl Event {
    /// Time in a record of the event, ns; `None` if the record has no time or is damaged.
    pub fn time_ns(&self, record: &Record<'_>) -> Option<u64> {
        match record.kind {
            RecordType::SAMPLE => self.layout.sample(record.body(), record.body_offset()).ok()?.time_ns(),
            _ => self.layout.split_trailer(record).ok()?.1.time_ns,
        }
    }
}
