//! Makes a recording of ours that was cut off whole again, in its place.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bprec_format::feature::Feature;
use bprec_format::journal::Journal;
use bprec_format::{Endian, Events, FILE_HEADER_BYTES, File, FileLayout};

use super::journal::journal_of;
use super::sections;
use super::tally::Tally;
use crate::events::SampleRole;
use crate::{Error, Result};

/// What stands in front of the records of a file of ours, ids of thousands of CPUs included, has less.
const HEAD_MAX_BYTES: u64 = 64 << 20;

/// What became of a recording that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// It was whole already; nothing was changed.
    Whole,
    /// It is whole now.
    Mended {
        /// Bytes of records that it has.
        data_bytes: u64,
        /// Bytes behind the last whole record that were dropped.
        dropped_bytes: u64,
        /// BPF programs that came back from the journal; `None` when there is no journal of this recording.
        programs: Option<u32>,
    },
}

/// Makes the recording at `path` whole, in its place: its header covers the records up to the last one that is there whole,
/// and what its journal holds becomes its feature sections. The journal is removed then. Records are read through a buffer,
/// and nothing but the end of the file and its header is written: it may be large, and the disk full.
///
/// # Errors
/// When the file cannot be read or written, or is not a recording of this recorder on a machine like this.
pub fn recover(path: &Path) -> Result<Recovered> {
    let failed = |error| Error::file(path, error);
    let other = |problem: &str| Error::Other(format!("{}: {problem}", path.display()));
    let format = |error: bprec_format::Error| other(&error.to_string());
    let out = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let file_bytes = out.metadata().map_err(failed)?.len();
    let mut head = vec![0; FILE_HEADER_BYTES.min(usize::try_from(file_bytes).unwrap_or(FILE_HEADER_BYTES))];
    out.read_exact_at(&mut head, 0).map_err(failed)?;
    let layout = FileLayout::of_header(&head).map_err(format)?;
    let offset = layout.data_offset();
    if offset > file_bytes.min(HEAD_MAX_BYTES) {
        return Err(other(
            "its records do not begin where a recording of bprec has them; -o FILE writes what can be read",
        ));
    }
    head.resize(offset as usize, 0);
    out.read_exact_at(&mut head, 0).map_err(failed)?;
    let file = File::parse(&head).map_err(format)?;
    if !file.is_unfinished() {
        return Ok(Recovered::Whole);
    }
    let endian = file.endian();
    if endian != Endian::NATIVE {
        return Err(other("it is of a machine of the other byte order; -o FILE writes what can be read"));
    }
    let events = Events::new(file.attrs(), endian).map_err(format)?;
    let mut tally = Tally::new(events, vec![SampleRole::Main; file.attrs().len()]);
    let size = file_bytes - offset;
    let data_bytes = tally.add_file(&out, offset, size).map_err(failed)?;

    let journal_path = journal_of(path);
    let first_event_id = file.attrs().iter().find_map(|event| event.ids.first()).copied().unwrap_or(0);
    let journal = fs::read(&journal_path)
        .ok()
        .and_then(|bytes| Journal::parse(&bytes, endian).ok())
        .filter(|journal| journal.first_event_id == first_event_id);
    let programs = journal.as_ref().map(|journal| {
        let section = journal.features.iter().find(|(bit, _)| *bit == Feature::BPF_PROG_INFO.0);
        section.and_then(|(_, bytes)| endian.u32_at(bytes, 0)).unwrap_or(0)
    });
    let has_journal = journal.is_some();
    let mut sections = journal.map(|journal| journal.features).unwrap_or_default();
    if !sections.is_empty() {
        sections.extend(tally.times.map(|(first, last)| sections::sample_time(first, last)));
    }
    sections.sort_by_key(|(bit, _)| *bit);

    let mut tail = Vec::new();
    layout.features(data_bytes, &sections, &mut tail);
    let bits: Vec<u8> = sections.iter().map(|(bit, _)| *bit).collect();
    // The features first: until the header says so, the file is still one that was cut off.
    out.set_len(offset + data_bytes)
        .and_then(|()| out.write_all_at(&tail, offset + data_bytes))
        .and_then(|()| out.write_all_at(&layout.header(data_bytes, &bits), 0))
        .and_then(|()| out.sync_all())
        .map_err(failed)?;
    if has_journal {
        drop(fs::remove_file(&journal_path));
    }
    Ok(Recovered::Mended { data_bytes, dropped_bytes: size - data_bytes, programs })
}
