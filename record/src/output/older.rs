//! Older files of the same name: kept under another name, without replacing a more valuable file.
//!
//! An existing recording NAME is treated by its state and by the state of NAME.old:
//! - A complete recording, or a file that bprec did not write, becomes NAME.old, as with perf.
//! - A recording that was cut off becomes NAME.old if there is no NAME.old.
//! - A recording that was cut off and has samples becomes NAME.cut-off if NAME.old is complete; otherwise it replaces NAME.old.
//! - A recording that was cut off and has no samples is deleted if there is a NAME.old.
//!
//! So the last complete recording and the last cut-off recording survive any number of killed recorders. The file that is
//! replaced is kept as NAME.older until sampling begins: a start that fails leaves everything as it was, except a deleted
//! recording.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bprec_format::bprec::journal::{Journal, recording_id};
use bprec_format::{Endian, Events, bprec};
use bprec_host::{journal_of, refuse_planted, rename_with_journal};

use super::journal::{is_foreign, read};
use super::recover::read_head;
use super::tally::Tally;
use crate::events::SampleRole;
use crate::{Error, Result};

/// Bytes that the search for samples reads at a time.
const PART_BYTES: u64 = 1 << 20;
/// Size after which the search for samples ends. A larger recording counts as one with samples.
const LOOK_BYTES: u64 = 1 << 30;

/// A recording that was renamed, together with its journal.
#[derive(Debug, Clone)]
pub struct Moved {
    from: PathBuf,
    to: PathBuf,
    /// Spare name of the file that was called `to` before; `None` if there was no such file, or it could not be kept.
    spare: Option<PathBuf>,
}

/// State of an older file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// A complete recording, or a file that is not a recording of bprec.
    Whole,
    CutOff,
    /// A recording that was cut off and has no samples.
    Empty,
}

impl Moved {
    /// Undoes the rename if the old name is free, and restores the file that was replaced.
    pub fn put_back(&self) {
        if fs::symlink_metadata(&self.from).is_err() && fs::rename(&self.to, &self.from).is_ok() {
            drop(fs::rename(journal_of(&self.to), journal_of(&self.from)));
            self.spare.iter().for_each(|spare| rename_both(spare, &self.to));
        }
    }

    /// Removes the file that was replaced, because the new recording has begun.
    pub fn settle(&self) {
        self.spare.iter().for_each(|spare| remove_both(spare));
    }
}

fn rename_both(from: &Path, to: &Path) {
    drop(fs::rename(from, to));
    drop(fs::rename(journal_of(from), journal_of(to)));
}

fn remove_both(path: &Path) {
    drop(fs::remove_file(path));
    drop(fs::remove_file(journal_of(path)));
}

/// Keeps the file `path` and its journal under the name `spare` as well. On file systems with hard links `path` never
/// disappears. Returns `None` if there is nothing to keep, or the file cannot be kept.
fn spare(path: &Path, spare: PathBuf) -> Option<PathBuf> {
    if is_there(&spare) || is_there(&journal_of(&spare)) || !is_there(path) {
        return None;
    }
    let keep = |path: &Path, spare: &Path| fs::hard_link(path, spare).or_else(|_| fs::rename(path, spare));
    keep(path, &spare).ok()?;
    drop(keep(&journal_of(path), &journal_of(&spare)));
    Some(spare)
}

/// Removes or restores the spare file of a recorder that was killed at its start.
fn clear_spare(spare: &Path, old: &Path) {
    if !is_there(old) {
        rename_both(spare, old);
    } else if is_same(spare, old) || head(spare).is_ok_and(|(_, head)| bprec_format::File::parse(&head).is_ok()) {
        remove_both(spare);
    }
}

/// Returns true if two names belong to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::symlink_metadata(path).map(|about| (about.dev(), about.ino())).ok();
    inode(one).is_some_and(|one| inode(other) == Some(one))
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Frees the name `path` and returns the recording that was renamed for that; `None` if nothing was renamed.
///
/// # Errors
/// Fails if a file in the way does not belong to a recorder, or cannot be renamed.
pub fn make_way(path: &Path) -> Result<Option<Moved>> {
    let [old, cut_off, older] = ["old", "cut-off", "older"].map(|suffix| path.with_added_extension(suffix));
    for name in [path, &old, &cut_off, &older] {
        for path in [name, &journal_of(name)] {
            refuse_planted(path).map_err(|answer| Error::file(path, answer))?;
        }
        // A new journal replaces a file at its path, so only an older journal may be there.
        if is_foreign(&journal_of(name)) {
            let problem = "bprec would overwrite this file with its journal, but the file is not a journal: give another \
                           name with -o";
            return Err(Error::file(journal_of(name), io::Error::other(problem)));
        }
    }
    clear_spare(&older, &old);
    if !is_there(path) {
        // Finishes the rename of a recorder that was killed between renaming the recording to NAME.old and renaming its
        // journal. A journal of another recording stays where it is.
        if belongs(&journal_of(path), &old) && !belongs(&journal_of(&old), &old) {
            drop(fs::rename(journal_of(path), journal_of(&old)));
        }
        return Ok(None);
    }
    let to = match condition(path) {
        Condition::Whole => old,
        _ if !is_there(&old) => old,
        Condition::Empty => {
            fs::remove_file(path).map_err(|error| Error::file(path, error))?;
            drop(fs::remove_file(journal_of(path)));
            return Ok(None);
        }
        Condition::CutOff if condition(&old) == Condition::Whole => cut_off,
        Condition::CutOff => old,
    };
    let spare = spare(&to, older);
    if let Err(error) = rename_with_journal(path, &to) {
        // `rename` does nothing if both names belong to the same file, so the spare name is removed separately.
        spare.iter().for_each(|spare| rename_both(spare, &to));
        spare.iter().filter(|spare| is_same(spare, &to)).for_each(|spare| remove_both(spare));
        return Err(Error::file(path, error));
    }
    Ok(Some(Moved { from: path.to_owned(), to, spare }))
}

/// Opens a recording. Returns the file and its first bytes, up to and including the first record.
fn head(path: &Path) -> io::Result<(File, Vec<u8>)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let head = read_head(&file)?.ok_or_else(|| io::Error::other("the file is not a recording of bprec"))?;
    Ok((file, head.1))
}

/// Returns true if a file is a recording that belongs to this user; links are not followed.
pub(super) fn is_own_recording(path: &Path) -> bool {
    let Ok((file, head)) = head(path) else { return false };
    let is_own = file.metadata().is_ok_and(|about| about.uid() == rustix::process::geteuid().as_raw());
    is_own && bprec_format::File::parse(&head).is_ok_and(|recording| bprec::is_recording(&recording))
}

fn condition(path: &Path) -> Condition {
    let Ok((file, head)) = head(path) else { return Condition::Whole };
    let Ok(recording) = bprec_format::File::parse(&head) else { return Condition::Whole };
    if !bprec::is_unfinished(&recording) || !bprec::is_recording(&recording) || recording.endian() != Endian::NATIVE {
        return Condition::Whole;
    }
    match has_samples(&file, &recording) {
        Some(false) => Condition::Empty,
        Some(true) | None => Condition::CutOff,
    }
}

/// Returns true if the recording has samples other than the states of the recorder; `None` if that is unknown.
fn has_samples(file: &File, recording: &bprec_format::File<'_>) -> Option<bool> {
    let role = |carries_states| if carries_states { SampleRole::Other } else { SampleRole::Main };
    let roles = recording.attrs().iter().map(|event| role(bprec::carries_states(event))).collect();
    let mut tally = Tally::new(Events::new(recording.attrs(), Endian::NATIVE).ok()?, roles);
    let mut at = recording.data().offset;
    let end = file.metadata().ok()?.len();
    while at < end && at < LOOK_BYTES {
        let used = tally.add_file(file, at, (end - at).min(PART_BYTES)).ok()?;
        if tally.samples > 0 {
            return Some(true);
        }
        if used == 0 {
            // Reading ends at a record that is damaged or cut off. A short rest counts as the cut-off last record. A longer rest
            // may have samples.
            return (end - at < PART_BYTES.min(1 << 16)).then_some(false);
        }
        at += used;
    }
    (at >= end).then_some(false)
}

/// Returns true if a journal belongs to a recording.
fn belongs(journal: &Path, recording: &Path) -> bool {
    let Ok((_, head)) = head(recording) else { return false };
    let (Ok(file), Ok(journal)) = (bprec_format::File::parse(&head), read(journal)) else { return false };
    let journal = Journal::parse(&journal, file.endian());
    journal.is_ok_and(|journal| journal.belongs_to(file.attrs(), recording_id(&file)))
}
