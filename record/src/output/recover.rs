//! Makes a recording of ours that was cut off whole again, in its place.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bprec_format::bprec::journal::{Journal, recording_id};
use bprec_format::feature::{Feature, SectionCheck, SectionWriter};
use bprec_format::{Endian, Events, FILE_HEADER_BYTES, File, FileLayout, Resync, bprec};

use super::journal::{journal_of, read, remove};
use super::sections;
use super::syncer::sync_directory;
use super::tally::Tally;
use crate::events::SampleRole;
use crate::{Error, Result};

/// Limit on the bytes in front of the records of a file of ours, ids of thousands of CPUs included.
const HEAD_MAX_BYTES: u64 = 64 << 20;

/// The first record, which tells whose the journal is, is shorter.
const FIRST_RECORD_BYTES: u64 = 4096;
/// A last record that lacks its end is shorter.
const TAIL_MAX_BYTES: u64 = 1 << 16;

/// Result of recovering a recording that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// It lacks nothing, or more than its end (the feature that its COMPRESSED records need, too), or is not of this recorder, or there is damage in
    /// its records or in its journal; nothing was changed.
    Unproven,
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

/// Makes a recording whole that lacks nothing but its end, in its place: its records are intact and follow each other up to the last one, of
/// which a part may be missing. The header then covers the whole ones, and what the journal holds becomes feature sections. No byte of a
/// whole record is written; the journal is removed when what it held is on the disk. Records are read through a buffer: the file may
/// be large, and the disk full.
///
/// # Errors
/// When the file cannot be read or written, or is no recording.
pub fn recover(path: &Path) -> Result<Recovered> {
    let failed = |error| Error::file(path, error);
    let format = |error: bprec_format::Error| Error::Other(format!("{}: {error}", path.display()));
    let out = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let about = out.metadata().map_err(failed)?;
    if !about.is_file() {
        return Ok(Recovered::Unproven);
    }
    let file_bytes = about.len();
    let mut head = vec![0; FILE_HEADER_BYTES.min(usize::try_from(file_bytes).unwrap_or(FILE_HEADER_BYTES))];
    out.read_exact_at(&mut head, 0).map_err(failed)?;
    let Ok(layout) = FileLayout::of_header(&head) else { return Ok(Recovered::Unproven) };
    let offset = layout.data_offset();
    if offset > file_bytes.min(HEAD_MAX_BYTES) {
        return Ok(Recovered::Unproven);
    }
    head.resize((offset + FIRST_RECORD_BYTES).min(file_bytes) as usize, 0);
    out.read_exact_at(&mut head, 0).map_err(failed)?;
    let file = File::parse(&head).map_err(format)?;
    let endian = file.endian();
    // True if another recorder's lacks its end only cannot be told so quickly.
    if !bprec::is_unfinished(&file) || !bprec::is_recording(&file) || endian != Endian::NATIVE {
        return Ok(Recovered::Unproven);
    }
    let events = Events::new(file.attrs(), endian).map_err(format)?;
    let mut tally = Tally::new(events.clone(), vec![SampleRole::Main; file.attrs().len()]).with_check();
    let size = file_bytes - offset;
    let data_bytes = tally.add_file(&out, offset, size).map_err(failed)?;
    // A header with 0 bytes of records means a recording that was cut off.
    if !tally.is_intact() || data_bytes == 0 {
        return Ok(Recovered::Unproven);
    }
    let dropped_bytes = size - data_bytes;
    let journal_path = journal_of(path);
    let bytes = match read(&journal_path) {
        Ok(bytes) => Some(bytes),
        // Without what a journal has that is there, the recording would be whole and lack its programs.
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
    // perf unpacks nothing without the feature, nor behind a record that cannot be unpacked.
    let has_feature = sections.iter().any(|(bit, _)| *bit == Feature::COMPRESSED.0);
    if tally.compressed > 0 && !(has_feature && tally.is_unpacked()) {
        return Ok(Recovered::Unproven);
    }
    // Without any section it would be one that was cut off.
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
    // The features are on the disk before the header says so: until then the file is one that was cut off.
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

/// True if what stands behind the records is the begin of the features that we are about to write: mending was begun once, and cut off.
fn is_begun(file: &fs::File, at: u64, bytes: u64, features: &[u8]) -> io::Result<bool> {
    let Some(features) = usize::try_from(bytes).ok().and_then(|bytes| features.get(..bytes)) else { return Ok(false) };
    let mut there = vec![0; features.len()];
    file.read_exact_at(&mut there, at)?;
    Ok(there == features)
}

/// True if there is a journal, and the system cannot give it to us. What is no file, but a link or a pipe, is none.
fn is_unreadable(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|errno| ![libc::ENOENT, libc::ELOOP, libc::ENXIO].contains(&errno))
}
