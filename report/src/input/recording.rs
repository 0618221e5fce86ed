//! A recording that was opened: its events, what they are for, its features, its records.

use crate::input::cut_off::CutOff;
use crate::input::event_kind::EventKind;
use crate::input::unpacked::{RELEASE_BYTES, Slice, Unpacked};
use crate::{Error, Input, Result};
use bprec_format::feature::{Compression, Feature, Payload, SampleTime, Text};
use bprec_format::{
    Container, Endian, Event, Events, FeatureSection, File, Metadata, PIPE_HEADER_BYTES, RECORD_HEADER_BYTES,
    RecordType, Records,
};
use std::sync::OnceLock;

/// A recording.
#[derive(Debug)]
pub(crate) struct Recording<'a> {
    input: &'a Input,
    endian: Endian,
    sections: Vec<FeatureSection<'a>>,
    /// Bytes that are records, and their offset in their file.
    streams: Vec<(&'a [u8], u64)>,
    /// Records unpacked from compressed ones, if there are any.
    unpacked: Option<Unpacked<'a>>,
    cut_off: Option<CutOff>,
    problems: Vec<String>,
    pub(crate) events: Events,
    /// By event.
    pub(crate) names: Vec<String>,
    /// By event.
    pub(crate) kinds: Vec<EventKind>,
    /// Position of the event id in samples, if they have one.
    id_at: Option<usize>,
    /// Time of the first and last sample, once it has been looked for.
    sampled: OnceLock<Option<(u64, u64)>>,
}

impl<'a> Recording<'a> {
    pub(crate) fn open(input: &'a Input) -> Result<Recording<'a>> {
        let failed = |source| Error::Format { path: input.path().to_owned(), source };
        let mut problems = Vec::new();
        let (mut metadata, mut streams, mut cut_off);
        match Container::detect(input.bytes()).map_err(failed)? {
            Container::File(_) => {
                let file = File::parse(input.bytes()).map_err(failed)?;
                problems.extend(file.problems().iter().map(ToString::to_string));
                metadata = Metadata::of_file(&file);
                streams = vec![(file.records().rest(), file.data().offset)];
                streams.extend(input.parts().iter().map(|part| (part.bytes(), 0)));
                cut_off = CutOff::of_file(&file, input.journal(), &mut metadata);
            }
            Container::Pipe(endian) => {
                metadata = Metadata::of_stream(endian);
                let records = input.bytes().get(PIPE_HEADER_BYTES..).unwrap_or_default();
                streams = vec![(records, PIPE_HEADER_BYTES as u64)];
                cut_off = None;
            }
        }
        let endian = metadata.endian();
        let is_stream = metadata.attrs().is_empty();
        let is_unfinished = cut_off.as_ref().is_some_and(CutOff::is_unfinished);
        let mut compressed = metadata.sections().iter().any(|section| section.feature == Feature::COMPRESSED);
        if is_stream || is_unfinished {
            // A stream describes itself in its records, and only the records of a file that was cut off say that it is
            // compressed.
            let mut released = 0;
            for record in streams.iter().flat_map(|(bytes, at)| Records::new(bytes, *at, endian)) {
                let record = match record {
                    Ok(record) => record,
                    Err(error) => {
                        cut_off = cut_off.or_else(|| CutOff::of_stream(&error));
                        break;
                    }
                };
                if record.offset - released >= RELEASE_BYTES && input.is_spooled() {
                    input.release(released..record.offset);
                    released = record.offset;
                }
                compressed |= matches!(record.kind, RecordType::COMPRESSED | RecordType::COMPRESSED2);
                if is_stream && let Err(error) = metadata.absorb(&record) {
                    problems.push(error.to_string());
                }
            }
        }
        let journal_error = cut_off.as_ref().and_then(CutOff::journal_error);
        problems.extend(journal_error.map(|error| format!("journal beside it: {error}")));
        let sections = metadata.sections().to_vec();
        let events = Events::new(metadata.attrs(), endian).map_err(failed)?;
        let names = metadata.event_names();
        let kinds = EventKind::of_all(&events, &names);
        let unpacked = compressed.then(|| {
            let section = metadata.feature(Feature::COMPRESSED).next();
            let section = section.and_then(|it| Compression::parse(&it.bytes, it.offset, endian).ok());
            let limit = section.map(|section| section.value.mmap_len_bytes.into());
            Unpacked::new(input, streams.clone(), endian, limit)
        });
        let id_at = events.all().first().and_then(|event| event.layout.id_offset()).map(|at| RECORD_HEADER_BYTES + at);
        let sampled = OnceLock::new();
        Ok(Recording {
            input,
            endian,
            sections,
            streams,
            unpacked,
            cut_off,
            problems,
            events,
            names,
            kinds,
            id_at,
            sampled,
        })
    }

    /// A recording whose records can be read: without an event none of the kernel's can.
    pub(crate) fn open_with_events(input: &'a Input) -> Result<Recording<'a>> {
        let recording = Recording::open(input)?;
        if recording.events.all().is_empty() {
            let source = bprec_format::Error::other(0, "attrs", "no event");
            return Err(Error::Format { path: input.path().to_owned(), source });
        }
        Ok(recording)
    }

    /// Passes `found` on, unless a part of the input could not be read: see [`Input::checked`].
    pub(crate) fn checked<T>(&self, found: Result<T>) -> Result<T> {
        self.input.checked(found)
    }

    pub(crate) fn endian(&self) -> Endian {
        self.endian
    }

    /// Place where the file was cut off, if it was.
    pub(crate) fn cut_off(&self) -> Option<&CutOff> {
        self.cut_off.as_ref()
    }

    /// Damage of the container.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    pub(crate) fn event(&self, index: usize) -> &Event {
        &self.events.all()[index]
    }

    /// All feature sections.
    pub(crate) fn sections(&self) -> &[FeatureSection<'a>] {
        &self.sections
    }

    /// The sections of a feature: a stream may have several.
    pub(crate) fn sections_of(&self, feature: Feature) -> impl Iterator<Item = &FeatureSection<'a>> {
        self.sections.iter().filter(move |section| section.feature == feature)
    }

    /// A feature section, as far as it can be read.
    pub(crate) fn feature<'s, T: Payload<'s>>(&'s self, feature: Feature) -> Option<T> {
        let section = self.sections_of(feature).next()?;
        T::parse(&section.bytes, section.offset, self.endian).ok().map(|partial| partial.value)
    }

    /// A feature section that is one text.
    pub(crate) fn text(&self, feature: Feature) -> Option<String> {
        let Text(text) = self.feature(feature)?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Time of the first and last sample, where the file says so.
    pub(crate) fn told_span(&self) -> Option<(u64, u64)> {
        let SampleTime { first_ns, last_ns } = self.feature(Feature::SAMPLE_TIME)?;
        (first_ns <= last_ns && last_ns > 0).then_some((first_ns, last_ns))
    }

    /// The same, where it does not say so by a walk over all samples, which is made once.
    pub(crate) fn sampled_span(&self) -> Option<(u64, u64)> {
        self.told_span().or_else(|| *self.sampled.get_or_init(|| self.walk_for_span()))
    }

    fn walk_for_span(&self) -> Option<(u64, u64)> {
        let mut span: Option<(u64, u64)> = None;
        self.for_each_slice(|records| {
            let records = records.into_iter().flatten().map_while(std::result::Result::ok);
            for record in records.filter(|record| record.kind == RecordType::SAMPLE) {
                let event = self.events.index_of(&record);
                let sample = event.and_then(|event| self.event(event).layout.sample(record.body(), 0).ok());
                if let Some(time) = sample.and_then(|sample| sample.time_ns()) {
                    let (first, last) = span.get_or_insert((time, time));
                    *first = (*first).min(time);
                    *last = (*last).max(time);
                }
            }
        });
        span
    }

    /// A part of the input was read: it counts as progress, and its memory is let go of if it came through a pipe, which may be longer
    /// than memory is large.
    pub(crate) fn finish_part(&self, part: std::ops::Range<u64>) {
        if self.unpacked.is_none() {
            self.input.progress().add_read(part.end.saturating_sub(part.start));
            self.input.release(part);
        }
    }

    /// True if a sample, header included, may be of an event that carries states: where samples have ids, they tell.
    #[inline]
    pub(crate) fn may_hold_state(&self, record: &[u8]) -> bool {
        match self.id_at.and_then(|at| self.endian.u64_at(record, at)) {
            Some(id) => self.events.index_of_id(id).is_none_or(|event| self.kinds[event] == EventKind::State),
            None => true,
        }
    }

    /// Hands over the records, in the order of the input: whole files, or, where records are compressed, run by run. What is
    /// wrong on the way comes as an error; what is behind it still follows where that is possible.
    pub(crate) fn for_each_slice(&self, mut visit: impl FnMut(Slice<'_>)) {
        self.for_each_run(&mut |slices| slices.iter().cloned().for_each(&mut visit));
    }

    /// The same, several slices at once where they are at hand.
    pub(crate) fn for_each_run(&self, visit: &mut dyn FnMut(&[Slice<'_>])) {
        self.input.progress().begin_pass(self.streams.iter().map(|(bytes, _)| bytes.len() as u64).sum());
        match &self.unpacked {
            Some(unpacked) => unpacked.for_each(visit),
            None => {
                let records = |(bytes, offset): &(&'a [u8], u64)| Ok(Records::new(bytes, *offset, self.endian));
                self.streams.iter().for_each(|stream| visit(&[records(stream)]));
            }
        }
    }
}
