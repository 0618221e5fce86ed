//! An opened recording: its events and their kinds, its feature sections, its records.

use crate::input::cut_off::CutOff;
use crate::input::event_kind::EventKind;
use crate::input::unpacked::{RELEASE_BYTES, RecordBytes, RecordSlice, Unpacked};
use crate::{Error, Input, Result};
use bprec_format::bprec::state::State;
use bprec_format::feature::{ClockData, Compression, Feature, SampleTime, SectionContent, Text};
use bprec_format::{
    Container, Endian, Event, Events, FeatureSection, File, FileAttr, Metadata, PIPE_HEADER_BYTES, RECORD_HEADER_BYTES,
    Record, RecordType, Records,
};
use std::path::Path;
use std::sync::OnceLock;

/// An opened recording, of one file or of several consecutive files.
#[derive(Debug)]
pub(crate) struct OpenRecording<'a> {
    input: &'a Input,
    /// Files in the order of time.
    files: Vec<RecordedFile<'a>>,
    endian: Endian,
    sections: Vec<FeatureSection<'a>>,
    streams: Vec<RecordBytes<'a>>,
    /// Reader of the unpacked records, if any records are compressed.
    unpacked: Option<Unpacked<'a>>,
    cut_off: Option<CutOff>,
    problems: Vec<String>,
    pub(crate) events: Events,
    /// Name of each event.
    pub(crate) names: Vec<String>,
    pub(crate) kinds: Vec<EventKind>,
    /// Offset of the event id in sample records, if samples have an id.
    id_at: Option<usize>,
    /// Time of the first and last sample, ns. Computed at first use, by a walk over all samples.
    sampled: OnceLock<Option<(u64, u64)>>,
}

/// A file of a recording.
#[derive(Debug)]
pub(crate) struct RecordedFile<'a> {
    pub(crate) path: &'a Path,
    /// Time of the first and last sample, ns, if the file states them.
    pub(crate) span: Option<(u64, u64)>,
    /// Wall clock, ns since 1970, and the recording's clock at the same moment, ns.
    pub(crate) clock: Option<(u64, u64)>,
}

impl<'a> OpenRecording<'a> {
    /// Opens the files of an input as one recording.
    ///
    /// # Errors
    /// Fails if one of the files is no recording, or if the files do not belong together.
    pub(crate) fn open(input: &'a Input) -> Result<OpenRecording<'a>> {
        let mut recording = OpenRecording::open_file(input)?;
        input.later().iter().try_for_each(|later| recording.append(OpenRecording::open_file(later)?))?;
        Ok(recording)
    }

    /// Opens an input without the files that follow it.
    ///
    /// # Errors
    /// Fails if the file is no recording.
    pub(crate) fn open_file(input: &'a Input) -> Result<OpenRecording<'a>> {
        let failed = |source| Error::format(input.path(), source);
        let mut problems = Vec::new();
        let stream = |bytes, offset| RecordBytes { file: 0, bytes, offset };
        let (mut metadata, mut streams, mut cut_off);
        match Container::detect(input.bytes()).map_err(failed)? {
            Container::File(_) => {
                let file = File::parse(input.bytes()).map_err(failed)?;
                problems.extend(file.problems().iter().map(ToString::to_string));
                metadata = Metadata::of_file(&file);
                streams = vec![stream(file.records().rest(), file.data().offset)];
                streams.extend(input.parts().iter().map(|part| stream(part.bytes(), 0)));
                cut_off = CutOff::of_file(&file, input.journal(), &mut metadata);
            }
            Container::Pipe(endian) => {
                metadata = Metadata::of_stream(endian);
                let records = input.bytes().get(PIPE_HEADER_BYTES..).unwrap_or_default();
                streams = vec![stream(records, PIPE_HEADER_BYTES as u64)];
                cut_off = None;
            }
        }
        let endian = metadata.endian();
        let is_stream = metadata.attrs().is_empty();
        let is_unfinished = cut_off.as_ref().is_some_and(CutOff::is_unfinished);
        let mut compressed = metadata.sections().iter().any(|section| section.feature == Feature::COMPRESSED);
        if is_stream || is_unfinished {
            // The records themselves are read in two cases. The description of a stream is in its records. A file that was cut off lacks the section
            // about compression, and only its records show if any is compressed.
            let mut released = 0;
            for record in streams.iter().flat_map(|it| Records::new(it.bytes, it.offset, endian)) {
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
        problems.extend(journal_error.map(|error| format!("the journal beside the recording: {error}")));
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
        let mut recording = OpenRecording {
            input,
            files: Vec::new(),
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
        };
        let span: Option<SampleTime> = recording.feature(Feature::SAMPLE_TIME);
        let span = span.map(|it| (it.first_ns, it.last_ns)).filter(|(first, last)| first <= last && *last > 0);
        let clock: Option<ClockData> = recording.feature(Feature::CLOCK_DATA);
        let clock = clock.map(|clock| (clock.wall_clock_ns, clock.clockid_ns));
        recording.files.push(RecordedFile { path: input.path(), span, clock });
        Ok(recording)
    }

    /// Appends the next file. An event of the next file is merged into an event of this recording if their attrs are equal, and if they have the same
    /// name or an id in common. Event ids are unique until the machine reboots.
    fn append(&mut self, next: OpenRecording<'a>) -> Result<()> {
        let failed = |problem: String| Error::Files {
            first: self.files[0].path.to_owned(),
            second: next.input.path().to_owned(),
            problem,
        };
        if self.endian != next.endian {
            return Err(failed("recorded in different byte orders".to_owned()));
        }
        let own = self.events.all().iter().map(|event| FileAttr { attr: event.attr.clone(), ids: event.ids.clone() });
        let (mut attrs, mut names) = (own.collect::<Vec<_>>(), self.names.clone());
        let mut is_taken = vec![false; attrs.len()];
        for (event, name) in next.events.all().iter().zip(&next.names) {
            let same = (0..is_taken.len()).find(|at| {
                // A file that was cut off has no event names, so the ids are compared as well.
                let is_same = || names[*at] == *name || attrs[*at].ids.iter().any(|id| event.ids.contains(id));
                !is_taken[*at] && attrs[*at].attr == event.attr && is_same()
            });
            match same {
                Some(same) => {
                    is_taken[same] = true;
                    attrs[same].ids.extend(&event.ids);
                    attrs[same].ids.sort_unstable();
                    attrs[same].ids.dedup();
                }
                None => {
                    attrs.push(FileAttr { attr: event.attr.clone(), ids: event.ids.clone() });
                    names.push(name.clone());
                }
            }
        }
        let events = Events::new(&attrs, self.endian).map_err(|error| failed(error.to_string()))?;
        let is_own = |(at, attr): (usize, &FileAttr)| attr.ids.iter().all(|id| events.index_of_id(*id) == Some(at));
        if !attrs.iter().enumerate().all(is_own) {
            return Err(failed(
                "an event id belongs to different events in the two files, so the files are from different boots"
                    .to_owned(),
            ));
        }
        let file = self.files.len();
        let of_next = next.problems.iter().map(|problem| format!("{}: {problem}", next.input.path().display()));
        self.problems.extend(of_next);
        self.sections.extend(next.sections);
        self.streams.extend(next.streams.into_iter().map(|stream| RecordBytes { file, ..stream }));
        let limits: Vec<_> =
            [&self.unpacked, &next.unpacked].into_iter().flatten().map(Unpacked::limit_bytes).collect();
        let limit_bytes = limits.iter().try_fold(0, |most, limit| limit.map(|limit| limit.max(most)));
        self.unpacked =
            (!limits.is_empty()).then(|| Unpacked::new(self.input, self.streams.clone(), self.endian, limit_bytes));
        self.cut_off = self.cut_off.take().or(next.cut_off);
        self.kinds = EventKind::of_all(&events, &names);
        self.id_at = events.all().first().and_then(|it| it.layout.id_offset()).map(|at| RECORD_HEADER_BYTES + at);
        (self.events, self.names) = (events, names);
        self.files.extend(next.files);
        Ok(())
    }

    /// Files in the order of time.
    pub(crate) fn files(&self) -> &[RecordedFile<'a>] {
        &self.files
    }

    /// Prefixes a problem with the path of its file if the recording has several files.
    pub(crate) fn problem_of(&self, file: usize, problem: String) -> String {
        match self.files.get(file).filter(|_| self.files.len() > 1) {
            Some(file) => format!("{}: {problem}", file.path.display()),
            None => problem,
        }
    }

    /// Opens a recording that must have an event: the layout of kernel records is known only from an event.
    pub(crate) fn open_with_events(input: &'a Input) -> Result<OpenRecording<'a>> {
        let recording = OpenRecording::open(input)?;
        if recording.events.all().is_empty() {
            let source = bprec_format::Error::other(0, "attrs", "no event");
            return Err(Error::Format { path: input.path().to_owned(), source });
        }
        Ok(recording)
    }

    /// Returns `found` if all of the input could be read; see [`Input::checked`].
    pub(crate) fn checked<T>(&self, found: Result<T>) -> Result<T> {
        self.input.checked(found)
    }

    pub(crate) fn endian(&self) -> Endian {
        self.endian
    }

    /// Place and reason of the cut, if the recording was cut off.
    pub(crate) fn cut_off(&self) -> Option<&CutOff> {
        self.cut_off.as_ref()
    }

    /// Problems of the container, in words.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    pub(crate) fn event(&self, index: usize) -> &Event {
        &self.events.all()[index]
    }

    /// All feature sections, of all files.
    pub(crate) fn sections(&self) -> &[FeatureSection<'a>] {
        &self.sections
    }

    /// Sections of a feature: a stream may have several.
    pub(crate) fn sections_of(&self, feature: Feature) -> impl Iterator<Item = &FeatureSection<'a>> {
        self.sections.iter().filter(move |section| section.feature == feature)
    }

    /// Returns the readable part of the first section of a feature; `None` without such a section, or if no part of it can be read.
    pub(crate) fn feature<'s, T: SectionContent<'s>>(&'s self, feature: Feature) -> Option<T> {
        let section = self.sections_of(feature).next()?;
        T::parse(&section.bytes, section.offset, self.endian).ok().map(|partial| partial.value)
    }

    /// Returns a feature with a single text; `None` if the section is missing, damaged or empty.
    pub(crate) fn text(&self, feature: Feature) -> Option<String> {
        let Text(text) = self.feature(feature)?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Time of the first and last sample, ns; `None` if a file has no usable `SAMPLE_TIME` section.
    pub(crate) fn stated_span(&self) -> Option<(u64, u64)> {
        let spans = self.files.iter().map(|file| file.span);
        spans.reduce(|all, next| all.zip(next).map(|((a, b), (c, d))| (a.min(c), b.max(d))))?
    }

    /// Time of the first and last sample, ns. Reads all samples once if a file does not record these times.
    pub(crate) fn sampled_span(&self) -> Option<(u64, u64)> {
        self.stated_span().or_else(|| *self.sampled.get_or_init(|| self.walk_for_span()))
    }

    fn walk_for_span(&self) -> Option<(u64, u64)> {
        let mut span: Option<(u64, u64)> = None;
        self.for_each_slice(|records| {
            let records = records.records.into_iter().flatten().map_while(std::result::Result::ok);
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

    /// Counts a part of the input as read, and releases its memory if the input is a temporary copy ([`Input::is_spooled`]). Does nothing if records
    /// are compressed, as [`Unpacked`] does both.
    pub(crate) fn finish_part(&self, part: std::ops::Range<u64>) {
        if self.unpacked.is_none() {
            self.input.progress().add_read(part.end.saturating_sub(part.start));
            self.input.release(part);
        }
    }

    /// Returns true if a sample may carry a state of the recorder. False only if the sample's id is known to be of another event. `record` includes
    /// the header.
    #[inline]
    pub(crate) fn may_hold_state(&self, record: &[u8]) -> bool {
        match self.id_at.and_then(|at| self.endian.u64_at(record, at)) {
            Some(id) => self.events.index_of_id(id).is_none_or(|event| self.kinds[event] == EventKind::State),
            None => true,
        }
    }

    /// Returns the state of the recorder that a sample carries; `None` for a sample of an event without states.
    pub(crate) fn state(&self, record: &Record<'_>) -> Option<bprec_format::Result<State>> {
        let event = self.events.index_of(record).filter(|event| self.kinds[*event] == EventKind::State)?;
        let fields = self.event(event).layout.sample(record.body(), record.offset + RECORD_HEADER_BYTES as u64);
        let raw = fields.and_then(|fields| fields.raw());
        Some(raw.and_then(|raw| State::decode(raw.unwrap_or_default(), record.offset, self.endian)))
    }

    /// Calls `visit` with the records in the order of the input: with whole files or, if records are compressed, with blocks. A damaged part is
    /// passed as an error; later records follow if they can be found.
    pub(crate) fn for_each_slice(&self, mut visit: impl FnMut(RecordSlice<'_>)) {
        self.for_each_run(&mut |slices| slices.iter().cloned().for_each(&mut visit));
    }

    /// Calls `visit` with successive groups of slices, in the order of the input. A group has all slices that are ready.
    pub(crate) fn for_each_run(&self, visit: &mut dyn FnMut(&[RecordSlice<'_>])) {
        self.input.progress().begin_pass(self.streams.iter().map(|stream| stream.bytes.len() as u64).sum());
        match &self.unpacked {
            Some(unpacked) => unpacked.for_each(visit),
            None => {
                let slice = |stream: &RecordBytes<'a>| RecordSlice {
                    file: stream.file,
                    records: Ok(Records::new(stream.bytes, stream.offset, self.endian)),
                };
                self.streams.iter().for_each(|stream| visit(&[slice(stream)]));
            }
        }
    }
}
