//! Closed files of a recording that goes on over several: the oldest go when there are too many, or when the disk is full.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::journal::journal_of;
use super::older;
use super::syncer::directory_of;
use crate::Level;

/// Digits of the time in the name of a closed file.
const TIMESTAMP_DIGITS: usize = 16;

/// The closed files that are there, for whoever writes and for whoever closes.
#[derive(Debug, Clone)]
pub(crate) struct ClosedFiles {
    state: Arc<Mutex<FileList>>,
    /// Files that stay; `None` for all.
    max: Option<NonZeroUsize>,
    notify: fn(Level, &str),
}

#[derive(Debug, Default)]
struct FileList {
    /// Files that are whole, the oldest first.
    files: VecDeque<PathBuf>,
    /// Files that have such a name and are not whole yet.
    closing: usize,
    /// Files that have no name any more. What they take is free once they are closed, and that may take its time.
    nameless: Vec<File>,
}

impl ClosedFiles {
    /// Files with the name `path` and a time. If `max` of them stay, these are the newest, also of recordings before this one.
    pub(crate) fn of(path: &Path, max: Option<NonZeroUsize>, notify: fn(Level, &str)) -> ClosedFiles {
        let files = if max.is_some() { closed_before(path) } else { VecDeque::new() };
        let state = FileList { files, ..FileList::default() };
        ClosedFiles { state: Arc::new(Mutex::new(state)), max, notify }
    }

    /// Another file is about to be closed: the oldest goes when there would be too many. What it takes is freed later.
    pub(crate) fn make_way(&self) {
        let mut state = self.state();
        state.closing += 1;
        let Some(max) = self.max else { return };
        while state.files.len() + state.closing > max.get() {
            let Some(oldest) = state.files.pop_front() else { return };
            state.nameless.extend(hold(&oldest));
            if let Err(error) = delete(&oldest) {
                (self.notify)(Level::Warning, &format!("{} cannot be deleted: {error}", oldest.display()));
            }
        }
    }

    /// The file that was about to be closed stays open.
    pub(crate) fn stays_open(&self) {
        self.state().closing -= 1;
    }

    /// Frees what files take that were deleted.
    pub(crate) fn free(&self) {
        let nameless = std::mem::take(&mut self.state().nameless);
        drop(nameless);
    }

    /// A file is complete.
    pub(crate) fn push(&self, path: PathBuf) {
        (self.notify)(Level::Detail, &format!("{} is complete", path.display()));
        let mut state = self.state();
        state.closing -= 1;
        state.files.push_back(path);
    }

    /// Does what needs room on the disk. While there is none, and only so many files are to stay, the oldest goes.
    pub(super) fn with_room<T>(&self, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match write() {
                Err(error) if is_full(&error) && self.make_room() => (),
                done => return done,
            }
        }
    }

    /// Deletes the oldest file; false when none is to go.
    fn make_room(&self) -> bool {
        if self.max.is_none() {
            return false;
        }
        let mut state = self.state();
        if !state.nameless.is_empty() {
            state.nameless.clear();
            return true;
        }
        while let Some(oldest) = state.files.pop_front() {
            match delete(&oldest) {
                Ok(()) => {
                    (self.notify)(
                        Level::Warning,
                        &format!("the disk is full: deleted {}, the oldest", oldest.display()),
                    );
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => {
                    (self.notify)(Level::Warning, &format!("{} cannot be deleted: {error}", oldest.display()));
                }
            }
        }
        false
    }

    fn state(&self) -> MutexGuard<'_, FileList> {
        // It is whole at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if an error is that of a file system, or of a user's part of one, without room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A descriptor that keeps what a file takes until it is closed, and opens nothing.
fn hold(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)
}

/// Deletes a recording, with its journal if it was cut off.
fn delete(path: &Path) -> io::Result<()> {
    drop(fs::remove_file(journal_of(path)));
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Files that recordings before this one closed under this name, the oldest first: recordings of ours alone.
fn closed_before(path: &Path) -> VecDeque<PathBuf> {
    let Some(name) = path.file_name() else { return VecDeque::new() };
    let entries = fs::read_dir(directory_of(path)).into_iter().flatten().flatten();
    let closed = entries.map(|entry| entry.file_name()).filter(|closed| is_name_of_closed(closed, name));
    let mut paths: Vec<PathBuf> =
        closed.map(|closed| path.with_file_name(closed)).filter(|path| older::is_own_recording(path)).collect();
    paths.sort();
    paths.into()
}

/// Returns true if a name is that of a file closed under `name`: with a point and a time behind it.
fn is_name_of_closed(closed: &OsStr, name: &OsStr) -> bool {
    let time = closed.as_bytes().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
    time.is_some_and(|time| time.len() == TIMESTAMP_DIGITS && time.iter().all(u8::is_ascii_digit))
}
