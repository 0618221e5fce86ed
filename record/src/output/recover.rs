//! Recovery: completes a recording of bprec that was cut off, in place.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bprec_format::bprec::journal::{Journal, recording_id};
use bprec_format::feature::{Feature, SectionCheck, SectionWriter};
use bprec_format::{Endian, Events, FILE_HEADER_BYTES, File, FileLayout, Resync, bprec};
use bprec_host::{journal_of, sync_directory};

use super::journal::{read, remove};
use super::sections;
use super::summary::bytes;
use super::tally::Tally;
use crate::events::SampleRole;
use crate::{Error, Result};

/// Limit on the bytes before the records, including the event ids of thousands of CPUs.
const HEAD_MAX_BYTES: u64 = 64 << 20;

/// Bytes to read for the first record, which itself is shorter. The record has the id of the recording; so does the journal.
const FIRST_RECORD_BYTES: u64 = 4096;
/// Limit on the bytes of a last record that is cut off.
const TAIL_MAX_BYTES: u64 = 1 << 16;

/// Result of recovering a recording that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// Nothing was changed. Either the file is complete, or was not written by this recorder, or lacks more than its
    /// end (such as the feature section that its COMPRESSED records need), or its records or its journal are damaged.
    Unproven,
    /// The recording is complete now.
    Mended {
        /// Bytes of whole records.
        data_bytes: u64,
        /// Bytes after the last whole record, which were dropped.
        dropped_bytes: u64,
        /// BPF programs that were restored from the journal; `None` if there is no journal of this recording.
        programs: Option<u32>,
    },
}

/// Text about a completed recording, to be printed after its name; empty if nothing was changed.
impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recovered::Mended { data_bytes, dropped_bytes, programs } = self else { return Ok(()) };
        let records = bytes(*data_bytes);
        write!(f, "complete again: {records} of records, {dropped_bytes} bytes of an incomplete record dropped; ")?;
        match programs {
            Some(programs) => write!(f, "{programs} BPF programs from its journal"),
            None => f.write_str("its journal is missing, so it has only the BPF programs that its records name"),
        }
    }
}

/// Completes a recording that lacks only its end, in place: its records are intact, and only the last one may be cut off. The new header covers the
/// whole records, which are not rewritten. The data of the journal becomes feature sections; the journal is removed when these sections are on the
/// disk. The records are read through a buffer, because the file may be larger than the memory.
///
/// # Errors
/// Fails if the file or its journal cannot be read or written, or if the bytes before the records cannot be parsed.
pub fn recover(path: &Path) -> Result<Recovered> {
    let failed = |error| Error::file(path, error);
    let format = |error: bprec_format::Error| Error::Other(format!("{}: {error}", path.display()));
    let out = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let about = out.metadata().map_err(failed)?;
    if !about.is_file() {
        return Ok(Recovered::Unproven);
    }
    let Some((layout, head)) = read_head(&out).map_err(failed)? else { return Ok(Recovered::Unproven) };
    let (offset, file_bytes) = (layout.data_offset(), about.len());
    let file = File::parse(&head).map_err(format)?;
    let endian = file.endian();
    // A file of another recorder may lack more than its end, which cannot be checked here.
    if !bprec::is_unfinished(&file) || !bprec::is_recording(&file) || endian != Endian::NATIVE {
        return Ok(Recovered::Unproven);
    }
    let events = Events::new(file.attrs(), endian).map_err(format)?;
    let mut tally = Tally::new(events.clone(), vec![SampleRole::Main; file.attrs().len()]).with_check();
    let size = file_bytes - offset;
    let data_bytes = tally.add_file(&out, offset, size).map_err(failed)?;
    // To readers, a header with 0 bytes of records means that the recording was cut off, so a new header would change
    // nothing.
    if !tally.is_intact() || data_bytes == 0 {
        return Ok(Recovered::Unproven);
    }
    let dropped_bytes = size - data_bytes;
    let journal_path = journal_of(path);
    let bytes = match read(&journal_path) {
        Ok(bytes) => Some(bytes),
        // If a journal exists and cannot be read, completing the recording would lose the programs in the journal.
        Err(error) if is_unreadable(&error) => return Err(Error::file(&journal_path, error)),
        Err(_) => None,
    };
    let journal = bytes
        .and_then(|bytes| Journal::parse(&bytes, endian).ok())
        .filter(|journal| journal.belongs_to(file.attrs(), recording_id(&file)));
    if let Some(journal) = &journal {
        let features = journal.features.iter().map(|(bit, bytes)| (Feature(*bit), bytes.as_slice()));
        let check = SectionCheck::new(features.clone(), endian, SectionWriter::Ours);
        let check = check.with_highest_cpu(tally.highest_cpu);
        if !journal.damaged.is_empty() || features.clone().any(|(bit, bytes)| check.check(bit, bytes).is_err()) {
            return Ok(Recovered::Unproven);
        }
    }
    let programs = journal.as_ref().map(|journal| {
        let section = journal.features.iter().find(|(bit, _)| *bit == Feature::BPF_PROG_INFO.0);
        section.and_then(|(_, bytes)| endian.u32_at(bytes, 0)).unwrap_or(0)
    });
    let has_journal = journal.is_some();
    let mut sections = journal.map(|journal| journal.features).unwrap_or_default();
    // perf unpacks nothing without the COMPRESSED feature section, and nothing after a record that cannot be unpacked.
    let has_feature = sections.iter().any(|(bit, _)| *bit == Feature::COMPRESSED.0);
    if tally.compressed > 0 && !(has_feature && tally.is_unpacked()) {
        return Ok(Recovered::Unproven);
    }
    // Readers take a header without feature sections as that of a recording that was cut off, so at least SAMPLE_TIME
    // is written.
    let times = tally.times.or_else(|| sections.is_empty().then_some((0, 0)));
    sections.extend(times.map(|(first, last)| sections::sample_time(first, last)));
    sections.sort_by_key(|(bit, _)| *bit);

    let mut tail = Vec::new();
    layout.features(data_bytes, &sections, &mut tail);
    if dropped_bytes > 0 && !is_begun(&out, offset + data_bytes, dropped_bytes, &tail).map_err(failed)? {
        let mut rest = vec![0; dropped_bytes.min(TAIL_MAX_BYTES) as usize];
        out.read_exact_at(&mut rest, offset + data_bytes).map_err(failed)?;
        if dropped_bytes > TAIL_MAX_BYTES || !Resync::new(&events, false).is_cut_off(&rest, 0) {
            return Ok(Recovered::Unproven);
        }
    }
    let bits: Vec<u8> = sections.iter().map(|(bit, _)| *bit).collect();
    // The feature sections are synced before the header names them: until then the file counts as cut off.
    out.set_len(offset + data_bytes)
        .and_then(|()| out.write_all_at(&tail, offset + data_bytes))
        .and_then(|()| out.sync_all())
        .and_then(|()| out.write_all_at(&layout.header(data_bytes, &bits), 0))
        .and_then(|()| out.sync_all())
        .and_then(|()| sync_directory(path))
        .map_err(failed)?;
    if has_journal {
        remove(&journal_path)?;
    }
    Ok(Recovered::Mended { data_bytes, dropped_bytes, programs })
}

/// Reads the bytes before the records, and the first record; `None` if the file is not laid out as a recording of bprec.
pub(super) fn read_head(file: &fs::File) -> io::Result<Option<(FileLayout, Vec<u8>)>> {
    let file_bytes = file.metadata()?.len();
    if file_bytes < FILE_HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut head = vec![0; FILE_HEADER_BYTES];
    file.read_exact_at(&mut head, 0)?;
    let layout = FileLayout::of_header(&head).ok();
    let Some(layout) = layout.filter(|layout| layout.data_offset() <= file_bytes.min(HEAD_MAX_BYTES)) else {
        return Ok(None);
    };
    head.resize((layout.data_offset() + FIRST_RECORD_BYTES).min(file_bytes) as usize, 0);
    file.read_exact_at(&mut head, 0)?;
    Ok(Some((layout, head)))
}

/// Returns true if the bytes after the records are the start of the feature sections to be written: an earlier recovery
/// was interrupted.
fn is_begun(file: &fs::File, at: u64, bytes: u64, features: &[u8]) -> io::Result<bool> {
    let Some(features) = usize::try_from(bytes).ok().and_then(|bytes| features.get(..bytes)) else { return Ok(false) };
    let mut there = vec![0; features.len()];
    file.read_exact_at(&mut there, at)?;
    Ok(there == features)
}

/// Returns true if a journal exists and cannot be read. A link or a pipe does not count as a journal.
fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|errno| ![libc::ENOENT, libc::ELOOP, libc::ENXIO].contains(&errno))
}
