//! Recordings that lack their end: detects the cut, and formats the message about it.

use std::fmt;

use bprec_format::bprec::journal::{self, recording_id};
use bprec_format::feature::Feature;
use bprec_format::{Error, File, Metadata, Problem, bprec};

/// End of a recording that was cut off, and the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CutOff {
    /// End of the records, as an offset in the input.
    pub(crate) offset: u64,
    pub(crate) cause: Cause,
}

/// Cause that cut a recording off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The recorder ended before it wrote the feature sections. Its journal may have some of the sections.
    Recorder(Journal),
    /// The file is shorter than its header's sizes: its end is lost.
    File,
    /// The stream ended within a record, or within the data that follows a record.
    Stream(Error),
}

/// State of the journal of a recorder that did not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Journal {
    /// No journal exists.
    None,
    /// The journal was read. Lists the features with damaged sections.
    Read(Vec<(Feature, Error)>),
    /// The journal cannot be read.
    Unusable(Error),
}

impl CutOff {
    /// Returns the position and cause of the cut; `None` for a complete file. If the recorder did not finish, completes `metadata` from the journal.
    pub(crate) fn of_file(file: &File<'_>, journal: Option<&[u8]>, metadata: &mut Metadata<'_>) -> Option<CutOff> {
        let (data, there) = (file.data(), file.records().rest().len() as u64);
        let cause = if bprec::is_unfinished(file) {
            Cause::Recorder(match journal.map(|bytes| journal::add_to(metadata, bytes, recording_id(file))) {
                None => Journal::None,
                Some(Ok(damaged)) => Journal::Read(damaged),
                Some(Err(error)) => Journal::Unusable(error),
            })
        } else if there < data.size {
            Cause::File
        } else {
            return None;
        };
        Some(CutOff { offset: data.offset.saturating_add(there), cause })
    }

    /// Returns the cut of a stream that ended early; `None` if `error` is not [`Problem::Truncated`].
    pub(crate) fn of_stream(error: &Error) -> Option<CutOff> {
        let is_short = matches!(error.problem, Problem::Truncated { .. });
        is_short.then(|| CutOff { offset: error.offset, cause: Cause::Stream(error.clone()) })
    }

    /// Returns true if the recorder did not finish.
    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.cause, Cause::Recorder(_))
    }

    /// Returns the error that made the journal unusable; `None` if the journal was read or does not exist, or if the recorder finished.
    pub(crate) fn journal_error(&self) -> Option<&Error> {
        match &self.cause {
            Cause::Recorder(Journal::Unusable(error)) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.offset;
        match &self.cause {
            Cause::Recorder(journal) => {
                write!(f, "cut off while it was written, at offset {at:#x}: ")?;
                match journal {
                    Journal::None => f.write_str("it has no feature sections, and the last records may be missing"),
                    Journal::Read(damaged) => {
                        f.write_str("its feature sections are from its journal, and the last records may be missing")?;
                        if !damaged.is_empty() {
                            f.write_str("; its journal is damaged; sections left out: ")?;
                        }
                        write_features(f, damaged)
                    }
                    Journal::Unusable(error) => write!(f, "its journal cannot be used: {error}"),
                }
            }
            Cause::File => write!(f, "cut off at offset {at:#x}: the file is shorter than its header says"),
            Cause::Stream(error) => write!(f, "cut off: {error}"),
        }
    }
}

/// Writes each damaged feature once, with its first error.
fn write_features(f: &mut fmt::Formatter<'_>, damaged: &[(Feature, Error)]) -> fmt::Result {
    let mut named = Vec::new();
    for (feature, error) in damaged {
        if !named.contains(feature) {
            let separator = if named.is_empty() { "" } else { ", " };
            write!(f, "{separator}{feature} ({error})")?;
            named.push(*feature);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::Input;
    use crate::input::recording::OpenRecording;
    use bprec_format::{ATTR_SIZES, FILE_HEADER_BYTES, PIPE_HEADER_BYTES};

    /// Builds a stream with one event and two COMM records of 32 bytes.
    fn stream() -> Vec<u8> {
        let attr_bytes = ATTR_SIZES[0];
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend((PIPE_HEADER_BYTES as u64).to_le_bytes());
        // HEADER_ATTR: the attr with its size, and no id.
        bytes.extend(64u32.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend((8 + attr_bytes as u16).to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(attr_bytes.to_le_bytes());
        bytes.resize(bytes.len() + attr_bytes as usize - 8, 0);
        comms(&mut bytes);
        bytes
    }

    fn comms(bytes: &mut Vec<u8>) {
        for _ in 0..2 {
            bytes.extend(3u32.to_le_bytes());
            bytes.extend([0, 0, 32, 0]);
            bytes.extend(1u32.to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
            bytes.extend(b"task\0\0\0\0\0\0\0\0\0\0\0\0");
        }
    }

    /// Builds a file with one event and two COMM records; its header has the data size `data_bytes`.
    fn file(data_bytes: u64) -> Vec<u8> {
        let entry_bytes = u64::from(ATTR_SIZES[0]) + 16;
        let header = FILE_HEADER_BYTES as u64;
        let mut bytes = b"PERFILE2".to_vec();
        let data = header + entry_bytes;
        for word in [header, entry_bytes, header, entry_bytes, data, data_bytes, 0, 0, 0, 0, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        let attr = bytes.len();
        bytes.resize(attr + entry_bytes as usize, 0);
        bytes[attr..attr + 8].copy_from_slice(&[1, 0, 0, 0, ATTR_SIZES[0] as u8, 0, 0, 0]);
        comms(&mut bytes);
        bytes
    }

    fn cut_off(bytes: Vec<u8>) -> Option<(u64, Cause)> {
        let input = Input::from_bytes("test", bytes);
        let recording = OpenRecording::open(&input).unwrap();
        recording.cut_off().map(|cut_off| (cut_off.offset, cut_off.cause.clone()))
    }

    #[test]
    fn what_is_whole_was_not_cut_off() {
        assert_eq!(cut_off(stream()), None);
        assert_eq!(cut_off(file(64)), None);
    }

    /// If the header has no data size, the records extend to the end of the file.
    #[test]
    fn a_recorder_that_was_killed_is_told_from_a_file_that_lost_its_end() {
        let len = file(0).len() as u64;
        assert_eq!(cut_off(file(0)), Some((len, Cause::Recorder(Journal::None))));
        let mut short = file(64);
        // The header announces a section for HOSTNAME, which the file lacks.
        short[72] = 1 << 3;
        short.truncate(len as usize - 10);
        assert_eq!(cut_off(short), Some((len - 10, Cause::File)));
    }

    #[test]
    fn a_stream_ends_at_the_record_that_is_not_whole() {
        let mut short = stream();
        let last = short.len() as u64 - 32;
        short.truncate(short.len() - 5);
        let (offset, cause) = cut_off(short).unwrap();
        assert_eq!(offset, last);
        assert!(matches!(cause, Cause::Stream(_)));
    }
}
