//! File that had a recording's name: it is kept, and takes the place of nothing that is worth more.
//!
//! A recording that is whole becomes NAME.old, as perf has it. One that was cut off does so too, but where a whole one is called
//! NAME.old already it becomes NAME.cut-off; without samples it is removed then. So however often a recorder is killed and started again,
//! the last whole recording stays, and the last that was cut off. What had the name NAME.old until then is called NAME.older until something
//! is recorded: a start that comes to nothing leaves everything as it was.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bprec_format::bprec::journal::{Journal, recording_id};
use bprec_format::{Endian, Events, FileLayout, bprec};
use bprec_host::refuse_planted;

use super::journal::{is_foreign, journal_of, read, with_suffix};
use super::tally::Tally;
use crate::events::SampleRole;
use crate::{Error, Result};

/// Limit on the bytes in front of the records, ids of thousands of CPUs included.
const HEAD_MAX_BYTES: u64 = 64 << 20;
/// The first record is shorter.
const FIRST_RECORD_BYTES: u64 = 4096;
/// Records are looked at for samples in parts of this many bytes, and no longer than this: then there are some.
const PART_BYTES: u64 = 1 << 20;
const LOOK_BYTES: u64 = 1 << 30;

/// A recording that was moved out of the way, with its journal.
#[derive(Debug, Clone)]
pub(super) struct Moved {
    from: PathBuf,
    to: PathBuf,
    /// File that was called `to` before.
    spare: Option<PathBuf>,
}

/// Condition of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// Whole, or anything but a recording of ours.
    Whole,
    CutOff,
    /// Cut off, without samples.
    Empty,
}

impl Moved {
    /// Gives it its name back, if that is free, and the one that it replaced, too.
    pub(super) fn put_back(&self) {
        if fs::symlink_metadata(&self.from).is_err() && fs::rename(&self.to, &self.from).is_ok() {
            drop(fs::rename(journal_of(&self.to), journal_of(&self.from)));
            self.spare.iter().for_each(|spare| rename_both(spare, &self.to));
        }
    }

    /// Removes the one that it replaced: something is recorded that takes the name of this one.
    pub(super) fn settle(&self) {
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

/// Keeps what is called `path`, and its journal, under another name as well; the first name is there at every moment where the file system has
/// links. `None` when there is nothing to keep, or no way.
fn spare(path: &Path, spare: PathBuf) -> Option<PathBuf> {
    if is_there(&spare) || is_there(&journal_of(&spare)) || !is_there(path) {
        return None;
    }
    let keep = |path: &Path, spare: &Path| fs::hard_link(path, spare).or_else(|_| fs::rename(path, spare));
    keep(path, &spare).ok()?;
    drop(keep(&journal_of(path), &journal_of(&spare)));
    Some(spare)
}

/// Clears away what a start that was killed has kept: a recording that another one replaced, or was about to.
fn clear_spare(spare: &Path, old: &Path) {
    if !is_there(old) {
        rename_both(spare, old);
    } else if is_same(spare, old) || head(spare).is_ok_and(|(_, head)| bprec_format::File::parse(&head).is_ok()) {
        remove_both(spare);
    }
}

/// True if two names are of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::symlink_metadata(path).map(|about| (about.dev(), about.ino())).ok();
    inode(one).is_some_and(|one| inode(other) == Some(one))
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Makes sure that nothing is called `path`; what was moved.
///
/// # Errors
/// When something is in the way that is nobody's to move, or cannot be moved.
pub(super) fn make_way(path: &Path) -> Result<Option<Moved>> {
    let [old, cut_off, older] = [".old", ".cut-off", ".older"].map(|suffix| with_suffix(path, suffix));
    for name in [path, &old, &cut_off, &older] {
        for path in [name, &journal_of(name)] {
            refuse_planted(path).map_err(|answer| Error::file(path, answer))?;
        }
        // A journal takes the place of an older one, which is all that may stand there.
        if is_foreign(&journal_of(name)) {
            let problem = "is not a recording's journal, but would be overwritten by one: give another name with -o";
            return Err(Error::file(journal_of(name), io::Error::other(problem)));
        }
    }
    clear_spare(&older, &old);
    if !is_there(path) {
        // A recorder was killed between renaming the recording to NAME.old and renaming its journal: finishes the move.
        // A journal of another recording stays.
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
    if let Err(error) = fs::rename(path, &to) {
        // A file with both names keeps both through a rename.
        spare.iter().for_each(|spare| rename_both(spare, &to));
        spare.iter().filter(|spare| is_same(spare, &to)).for_each(|spare| remove_both(spare));
        return Err(Error::file(path, error));
    }
    if fs::rename(journal_of(path), journal_of(&to)).is_err() {
        // The one of the recording that was called so before.
        drop(fs::remove_file(journal_of(&to)));
    }
    Ok(Some(Moved { from: path.to_owned(), to, spare }))
}

/// A file, and its first bytes: all in front of its records, and the first of them.
fn head(path: &Path) -> io::Result<(File, Vec<u8>)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("is no file"));
    }
    let mut bytes = vec![0; bprec_format::FILE_HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let layout = FileLayout::of_header(&bytes).map_err(io::Error::other)?;
    if layout.data_offset() > about.len().min(HEAD_MAX_BYTES) {
        return Err(io::Error::other("is no recording of bprec"));
    }
    bytes.resize((layout.data_offset() + FIRST_RECORD_BYTES).min(about.len()) as usize, 0);
    file.read_exact_at(&mut bytes, 0)?;
    Ok((file, bytes))
}

/// Returns true if a file is a recording that a recorder of this user has written; links are not followed.
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

/// True if there are samples of anything but the recorder's states; `None` when that cannot be told.
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
            // Behind a damaged record there may be some.
            return (end - at < PART_BYTES.min(1 << 16)).then_some(false);
        }
        at += used;
    }
    (at >= end).then_some(false)
}

/// True if a journal is that of a recording.
fn belongs(journal: &Path, recording: &Path) -> bool {
    let Ok((_, head)) = head(recording) else { return false };
    let (Ok(file), Ok(journal)) = (bprec_format::File::parse(&head), read(journal)) else { return false };
    let journal = Journal::parse(&journal, file.endian());
    journal.is_ok_and(|journal| journal.belongs_to(file.attrs(), recording_id(&file)))
}
