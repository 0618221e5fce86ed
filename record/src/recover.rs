//! Makes a recording that was cut off whole again.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bprec_format::feature::Feature;
use bprec_format::journal::Journal;
use bprec_format::{Endian, Events, File, Section, Writer};

use crate::output::journal_of;
use crate::tally::{Counted, Tally};
use crate::{Error, Result, features};

/// Where the header has the data section: `offset u64, size u64`.
const DATA_AT: u64 = 40;
/// Where the header has its feature bits.
const FEATURES_AT: u64 = 72;

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

/// Makes the recording at `path` whole: its header covers the records up to the last one that is there whole, and what
/// its journal holds becomes its feature sections. The journal is removed then.
///
/// # Errors
/// When the file cannot be read or written, or is not a recording.
pub fn recover(path: &Path) -> Result<Recovered> {
    let failed = |error| Error::file(path, error);
    let mut out = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).map_err(failed)?;
    let format = |error: bprec_format::Error| Error::Other(format!("{}: {error}", path.display()));
    let file = File::parse(&bytes).map_err(format)?;
    if !file.is_unfinished() {
        return Ok(Recovered::Whole);
    }
    let endian = file.endian();
    let mut records = file.records();
    while let Some(Ok(_)) = records.next() {}
    let Section { offset, size } = file.data();
    let data_bytes = records.offset() - offset;

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
    if endian == Endian::NATIVE && !sections.is_empty() {
        let sampling = file.attrs().len();
        let events = Events::new(file.attrs(), endian).map_err(format)?;
        let mut tally = Tally::new(events, vec![Counted::Sample; sampling]);
        tally.add(bytes.get(offset as usize..(offset + data_bytes) as usize).unwrap_or_default());
        sections.extend(tally.times.map(|(first, last)| features::sample_time(first, last)));
    }
    sections.sort_by_key(|(bit, _)| *bit);

    let mut tail = Vec::new();
    let mut at = offset + data_bytes + sections.len() as u64 * 16;
    let mut bits = [0u64; 4];
    for (bit, payload) in &sections {
        Writer::new(&mut tail, endian).u64(at).u64(payload.len() as u64);
        at += payload.len() as u64;
        bits[usize::from(*bit) / 64] |= 1 << (bit % 64);
    }
    sections.iter().for_each(|(_, payload)| tail.extend_from_slice(payload));
    // The features first: until the header says so, the file is still one that was cut off.
    let mut data = Vec::new();
    Writer::new(&mut data, endian).u64(offset).u64(data_bytes);
    let mut feature_bits = Vec::new();
    bits.iter().for_each(|word| {
        Writer::new(&mut feature_bits, endian).u64(*word);
    });
    out.set_len(offset + data_bytes)
        .and_then(|()| out.write_all_at(&tail, offset + data_bytes))
        .and_then(|()| out.write_all_at(&data, DATA_AT))
        .and_then(|()| out.write_all_at(&feature_bits, FEATURES_AT))
        .and_then(|()| out.sync_all())
        .map_err(failed)?;
    if has_journal {
        drop(fs::remove_file(&journal_path));
    }
    Ok(Recovered::Mended { data_bytes, dropped_bytes: size - data_bytes, programs })
}
