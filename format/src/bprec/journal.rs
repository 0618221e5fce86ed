//! Journal: the content of a recording's feature sections, kept in a file beside the recording until the sections are
//! written.
//!
//! A recording that was cut off has records but no features. The recorder therefore appends each new fact to
//! `<recording>.journal` at once, and removes the journal at a clean end. Layout, in the byte order of the recording:
//! frames of `kind u32, length u32` and `length` bytes.
//!
//! | kind | payload |
//! |--|--|
//! | 0 | first frame: `BPRECJ1\0`, u64 id of the recording's first event (0 without events), 16 bytes id of the recording (not in older journals) |
//! | 25 | one program: its blob in `BPF_PROG_INFO` |
//! | 26 | one BTF: its entry in `BPF_BTF`, `id u32, data_size u32, data` |
//! | other below 256 | a feature section, unchanged; of several frames of a kind, the last one counts |
//!
//! The reader stops at an incomplete frame: the recorder ended while it wrote this frame. The reader also stops at zeros: a file has zeros where its
//! bytes did not reach the disk.

use crate::bpf::btf;
use crate::bpf::prog_info::{DEFAULT_INFO_LEN, ProgInfo, ProgInfoBuf, SectionOrder, write_encoded};
use crate::bprec::state::{RecordingId, State};
use crate::feature::{Feature, SectionCheck, SectionWriter};
use crate::layout::{Bytes, Codec, Pair, Plain};
use crate::{Endian, Error, Events, FeatureSection, File, FileAttr, Metadata, Reader, RecordType, Result, Writer};
use std::borrow::Cow;

/// First bytes of the first frame's payload.
const MAGIC: [u8; 8] = *b"BPRECJ1\0";
/// Kind of the first frame.
const BEGIN: u32 = 0;

/// Frame that is appended to a journal.
#[derive(Debug, Clone, Copy)]
pub enum Frame<'a> {
    /// First frame: identifies the recording of the journal.
    Begin {
        /// Id of the recording's first event. Ids are not reused while a kernel runs.
        first_event_id: u64,
        /// Id of the recording, also in the first record of the recording.
        recording_id: Option<RecordingId>,
    },
    /// Info of a program, with its arrays.
    Program(&'a ProgInfoBuf),
    /// BTF object.
    Btf {
        /// Id of the BTF object.
        id: u32,
        /// Blob of the BTF object.
        data: &'a [u8],
    },
    /// A feature section.
    Feature {
        /// Number of the feature.
        bit: u8,
        /// Bytes of the section.
        payload: &'a [u8],
    },
}

impl Frame<'_> {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>, endian: Endian) {
        let start = out.len();
        let mut w = Writer::new(out, endian);
        w.u32(0).u32(0);
        let kind = match self {
            Frame::Begin { first_event_id, recording_id } => {
                w.bytes(&MAGIC).u64(*first_event_id);
                recording_id.iter().for_each(|id| Plain::put(id, &mut w));
                BEGIN
            }
            Frame::Program(program) => {
                program.encode(out, DEFAULT_INFO_LEN);
                Feature::BPF_PROG_INFO.0.into()
            }
            Frame::Btf { id, data } => {
                w.u32(*id).u32(data.len() as u32).bytes(data);
                Feature::BPF_BTF.0.into()
            }
            Frame::Feature { bit, payload } => {
                w.bytes(payload);
                u32::from(*bit)
            }
        };
        let len = (out.len() - start - 8) as u32;
        let mut w = Writer::new(out, endian);
        w.patch_u32(start, kind);
        w.patch_u32(start + 4, len);
    }
}

/// Decoded journal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Journal {
    /// Id of the recording's first event; 0 without events.
    pub first_event_id: u64,
    /// Id of the recording; `None` from older recorders.
    pub recording_id: Option<RecordingId>,
    /// Intact feature sections built from the frames, in ascending order of their bits.
    pub features: Vec<(u8, Vec<u8>)>,
    /// Features with a damaged section, and the damage.
    pub damaged: Vec<(Feature, Error)>,
}

impl Journal {
    /// Reads a journal up to the first incomplete frame.
    ///
    /// # Errors
    /// Fails if the bytes do not start with the first frame of a journal.
    pub fn parse(bytes: &[u8], endian: Endian) -> Result<Journal> {
        let mut r = Reader::new(bytes, 0, endian);
        let not_a_journal =
            || Error::other(0, "journal", "the file is not a journal: it does not start with a frame BPRECJ1");
        let Some((BEGIN, begin)) = frame(&mut r) else { return Err(not_a_journal()) };
        let mut begin = Reader::new(begin, 8, endian);
        if begin.array("journal magic")? != MAGIC {
            return Err(not_a_journal());
        }
        let first_event_id = begin.u64("journal event id")?;
        let recording_id = Plain::get(&mut begin, "recording id").ok();

        let mut features: Vec<(u8, Vec<u8>)> = Vec::new();
        let mut programs: Vec<(SectionOrder, &[u8])> = Vec::new();
        let mut btfs: Vec<(u32, &[u8])> = Vec::new();
        let mut damaged = Vec::new();
        while let Some((kind, payload)) = frame(&mut r) {
            // Only the first frame of a journal has kind 0. A later frame of kind 0 is zeros: bytes that did not reach the disk.
            if kind == BEGIN {
                break;
            }
            match u8::try_from(kind).map(Feature) {
                Ok(Feature::BPF_PROG_INFO) => match intact_program(payload, endian) {
                    Ok(order) => programs.push((order, payload)),
                    Err(error) => damaged.push((Feature::BPF_PROG_INFO, error)),
                },
                Ok(Feature::BPF_BTF) => match intact_btf(payload, endian) {
                    Some(btf) => btfs.push(btf),
                    None => damaged.push((
                        Feature::BPF_BTF,
                        Error::other(0, "journal frame", "the length of the frame differs from that of the BTF in it"),
                    )),
                },
                Ok(Feature(bit)) => {
                    features.retain(|(known, _)| *known != bit);
                    features.push((bit, payload.to_vec()));
                }
                Err(_) => (),
            }
        }
        let sections = features.iter().map(|(bit, bytes)| (Feature(*bit), bytes.as_slice()));
        let check = SectionCheck::new(sections, endian, SectionWriter::Ours);
        features.retain(|(bit, bytes)| {
            let checked = check.check(Feature(*bit), bytes);
            checked.map_err(|error| damaged.push((Feature(*bit), error))).is_ok()
        });
        let mut section = Vec::new();
        write_encoded(&mut section, endian, programs);
        features.push((Feature::BPF_PROG_INFO.0, section));
        btfs.sort_by_key(|(id, _)| *id);
        btfs.dedup_by_key(|(id, _)| *id);
        let mut section = Vec::new();
        btf::write_section(&mut section, endian, &btfs);
        features.push((Feature::BPF_BTF.0, section));
        features.sort_by_key(|(bit, _)| *bit);
        Ok(Journal { first_event_id, recording_id, features, damaged })
    }

    /// Returns true if the journal belongs to a recording with these events: both have the same recording id or, if the recording has no id, the same
    /// id of the first event.
    pub fn belongs_to(&self, attrs: &[FileAttr], recording_id: Option<RecordingId>) -> bool {
        let first_event_id = attrs.first().and_then(|event| event.ids.first()).copied().unwrap_or(0);
        match (self.recording_id, recording_id) {
            (Some(own), Some(id)) => own == id,
            (None, Some(_)) => false,
            // The recording has no id: it is older, or its first record is damaged.
            (_, None) => self.first_event_id == first_event_id,
        }
    }
}

/// Adds the features in `journal` to the `metadata` of an unfinished recording with the id `recording_id`.
///
/// Returns the damaged features; they are not added.
///
/// # Errors
/// Fails if `journal` is not a journal or belongs to another recording.
pub fn add_to(
    metadata: &mut Metadata<'_>,
    journal: &[u8],
    recording_id: Option<RecordingId>,
) -> Result<Vec<(Feature, Error)>> {
    let journal = Journal::parse(journal, metadata.endian())?;
    if !journal.belongs_to(metadata.attrs(), recording_id) {
        return Err(Error::other(0, "journal", "it belongs to another recording"));
    }
    for (bit, bytes) in journal.features {
        let (feature, bytes) = (Feature(bit), Cow::Owned(bytes));
        metadata.push_section(FeatureSection { feature, offset: 0, bytes, is_whole: true });
    }
    Ok(journal.damaged)
}

/// Id in the first record of a recording; `None` if that record is damaged or has no id, as in older recordings.
pub fn recording_id(file: &File<'_>) -> Option<RecordingId> {
    let record = file.records().next()?.ok()?;
    let events = Events::new(file.attrs(), file.endian()).ok()?;
    let index = events.index_of(&record).filter(|_| record.kind == RecordType::SAMPLE)?;
    if !super::carries_states(file.attrs().get(index)?) {
        return None;
    }
    let sample = events.all().get(index)?.layout.sample(record.body(), record.offset).ok()?;
    match State::decode(sample.raw().ok()??, record.offset, file.endian()) {
        Ok(State::Recording(id)) => Some(id),
        _ => None,
    }
}

/// Sort key in the section for a program with an intact blob. Fails if encoding the program again gives other bytes.
fn intact_program(blob: &[u8], endian: Endian) -> Result<SectionOrder> {
    let program = ProgInfoBuf::from_view(&ProgInfo::read(&mut Reader::new(blob, 0, endian))?);
    let mut again = Vec::new();
    program.encode(&mut again, DEFAULT_INFO_LEN);
    match again == blob {
        true => Ok(program.view().section_order()),
        false => Err(Error::other(0, "program in the journal", "the bytes differ from those that bprec writes")),
    }
}

/// Id and blob of a BTF frame; `None` if the length of the frame does not fit the size of the blob.
fn intact_btf(payload: &[u8], endian: Endian) -> Option<(u32, &[u8])> {
    let mut r = Reader::new(payload, 0, endian);
    let btf = <Pair<Plain, Bytes>>::get(&mut r, "BTF in the journal").ok()?;
    r.is_empty().then_some(btf)
}

/// Returns (kind, payload) of the next frame; `None` if the frame is incomplete.
fn frame<'a>(r: &mut Reader<'a>) -> Option<(u32, &'a [u8])> {
    let kind = r.u32("journal frame").ok()?;
    let len = r.u32("journal frame").ok()?;
    Some((kind, r.take(len as usize, "journal frame").ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::{SectionContent as _, Text};

    fn text(text: &str, endian: Endian) -> Vec<u8> {
        Text(text.as_bytes()).to_bytes(endian)
    }

    fn sample(endian: Endian) -> Vec<u8> {
        let mut bytes = Vec::new();
        Frame::Begin { first_event_id: 77, recording_id: None }.encode(&mut bytes, endian);
        Frame::Feature { bit: 3, payload: &text("first", endian) }.encode(&mut bytes, endian);
        Frame::Btf { id: 9, data: b"nine" }.encode(&mut bytes, endian);
        Frame::Btf { id: 2, data: b"two" }.encode(&mut bytes, endian);
        Frame::Btf { id: 9, data: b"nine" }.encode(&mut bytes, endian);
        Frame::Feature { bit: 3, payload: &text("second", endian) }.encode(&mut bytes, endian);
        bytes
    }

    #[test]
    fn features_come_together_from_frames() {
        for endian in [Endian::Little, Endian::Big] {
            let journal = Journal::parse(&sample(endian), endian).unwrap();
            assert_eq!(journal.first_event_id, 77);
            let bits: Vec<u8> = journal.features.iter().map(|(bit, _)| *bit).collect();
            assert_eq!(bits, [3, 25, 26]);
            assert_eq!(journal.features[0].1, text("second", endian));
            assert_eq!(journal.features[1].1, [0; 4]);
            let mut expected = Vec::new();
            Writer::new(&mut expected, endian).u32(2).u32(2).u32(3).bytes(b"two").u32(9).u32(4).bytes(b"nine");
            assert_eq!(journal.features[2].1, expected);
        }
    }

    #[test]
    fn a_journal_cut_anywhere_behind_its_start_is_read_as_far_as_it_is_whole() {
        let whole = sample(Endian::Little);
        for len in 0..whole.len() {
            let cut = Journal::parse(&whole[..len], Endian::Little);
            assert_eq!(cut.is_ok(), len >= 24, "cut at {len}");
        }
        let two = Journal::parse(&whole[..whole.len() - 1], Endian::Little).unwrap();
        assert_eq!(two.features[0].1, text("first", Endian::Little));
    }

    #[test]
    fn a_journal_is_of_the_recording_with_its_id() {
        let (own, other) = (RecordingId([1; 16]), RecordingId([2; 16]));
        let journal = |recording_id| {
            let mut bytes = Vec::new();
            Frame::Begin { first_event_id: 77, recording_id }.encode(&mut bytes, Endian::Little);
            Journal::parse(&bytes, Endian::Little).unwrap()
        };
        let events = |id| [FileAttr { attr: crate::EventAttr::default(), ids: vec![id] }];
        assert!(journal(Some(own)).belongs_to(&events(77), Some(own)));
        // After a reboot, the ids of events start at the beginning again.
        assert!(!journal(Some(own)).belongs_to(&events(77), Some(other)));
        assert!(!journal(None).belongs_to(&events(77), Some(own)), "an older recorder wrote the journal");
        assert!(journal(None).belongs_to(&events(77), None), "an older recorder wrote journal and recording");
        assert!(!journal(None).belongs_to(&events(78), None));
    }

    #[test]
    fn zeros_in_a_journal_are_its_end() {
        let mut bytes = sample(Endian::Little);
        let whole = Journal::parse(&bytes, Endian::Little).unwrap();
        bytes.resize(bytes.len() + 4096, 0);
        Frame::Feature { bit: 3, payload: &text("later", Endian::Little) }.encode(&mut bytes, Endian::Little);
        assert_eq!(Journal::parse(&bytes, Endian::Little).unwrap(), whole);
    }

    #[test]
    fn damaged_sections_are_left_out_and_told() {
        let mut bytes = sample(Endian::Little);
        Frame::Feature { bit: 4, payload: b"no text" }.encode(&mut bytes, Endian::Little);
        Frame::Btf { id: 12, data: b"twelve" }.encode(&mut bytes, Endian::Little);
        let size_at = bytes.len() - 6 - 4;
        bytes[size_at] = 200;
        let journal = Journal::parse(&bytes, Endian::Little).unwrap();
        assert_eq!(journal.features, Journal::parse(&sample(Endian::Little), Endian::Little).unwrap().features);
        let damaged: Vec<Feature> = journal.damaged.iter().map(|(feature, _)| *feature).collect();
        assert_eq!(damaged, [Feature::BPF_BTF, Feature::OSRELEASE]);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Journal::parse(b"", Endian::Little).is_err());
        assert!(Journal::parse(&[0; 64], Endian::Little).is_err());
        assert!(Journal::parse(&[0xff; 64], Endian::Little).is_err());
    }
}
