//! Closed files of a recording with rotation. The oldest files are deleted when there are too many, or when the disk is full.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bprec_host::{Answer, directory_of, journal_of};

use super::older;
use crate::Level;

/// Digits of the timestamp in the name of a closed file.
const TIMESTAMP_DIGITS: usize = 16;

/// Closed files that still exist, shared by the threads that write files and complete files.
#[derive(Debug, Clone)]
pub(crate) struct ClosedFiles {
    state: Arc<Mutex<FileList>>,
    /// Number of files to keep; `None` for all.
    max: Option<NonZeroUsize>,
    notify: fn(Level, &str),
}

#[derive(Debug, Default)]
struct FileList {
    /// Complete files, oldest first.
    files: VecDeque<PathBuf>,
    /// Count of files that [`ClosedFiles::make_way`] announced and that are not complete yet.
    closing: usize,
    /// Descriptors of deleted files. Their disk space is free once the descriptors are closed, which can take long.
    nameless: Vec<File>,
}

impl ClosedFiles {
    /// Closed files of the output `path`. With a limit `max`, closed files of earlier recordings count too, and the
    /// newest are kept.
    pub(crate) fn of(path: &Path, max: Option<NonZeroUsize>, notify: fn(Level, &str)) -> ClosedFiles {
        let files = if max.is_some() { closed_before(path) } else { VecDeque::new() };
        let state = FileList { files, ..FileList::default() };
        ClosedFiles { state: Arc::new(Mutex::new(state)), max, notify }
    }

    /// Announces that another file is about to be closed, and deletes the oldest files if there would be too many. The disk
    /// space is freed later, by [`ClosedFiles::free`].
    pub(crate) fn make_way(&self) {
        let mut state = self.state();
        state.closing += 1;
        let Some(max) = self.max else { return };
        while state.files.len() + state.closing > max.get() {
            let Some(oldest) = state.files.pop_front() else { return };
            state.nameless.extend(hold(&oldest));
            if let Err(error) = delete(&oldest) {
                (self.notify)(Level::Warning, &format!("{} cannot be deleted: {}", oldest.display(), Answer(&error)));
            }
        }
    }

    /// Withdraws the announcement of [`ClosedFiles::make_way`]: the file stays open.
    pub(crate) fn stays_open(&self) {
        self.state().closing -= 1;
    }

    /// Frees the disk space of deleted files. Returns false if there were none. Closing a descriptor may wait for the disk, so the list is not locked
    /// meanwhile: the control thread must not wait for it.
    pub(crate) fn free(&self) -> bool {
        let nameless = std::mem::take(&mut self.state().nameless);
        !nameless.is_empty()
    }

    /// Adds a complete file.
    pub(crate) fn push(&self, path: PathBuf) {
        (self.notify)(Level::Detail, &format!("{} is complete", path.display()));
        let mut state = self.state();
        state.closing -= 1;
        state.files.push_back(path);
    }

    /// Runs a write that needs disk space. While the disk is full and the number of files is limited, deletes the
    /// oldest file and tries again.
    pub(super) fn with_room<T>(&self, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match write() {
                Err(error) if is_full(&error) && self.make_room() => (),
                done => return done,
            }
        }
    }

    /// Frees the disk space of files that are deleted already, or else of the oldest file. Returns false if the number of
    /// files is not limited, or no file can be deleted.
    fn make_room(&self) -> bool {
        if self.max.is_none() {
            return false;
        }
        if self.free() {
            return true;
        }
        // Deleting a large file may wait for the disk, too.
        while let Some(oldest) = self.pop_oldest() {
            match delete(&oldest) {
                Ok(()) => {
                    (self.notify)(
                        Level::Warning,
                        &format!(
                            "the disk is full: bprec deleted {}, the oldest file of the recording",
                            oldest.display()
                        ),
                    );
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => {
                    (self.notify)(
                        Level::Warning,
                        &format!("{} cannot be deleted: {}", oldest.display(), Answer(&error)),
                    );
                }
            }
        }
        false
    }

    fn pop_oldest(&self) -> Option<PathBuf> {
        self.state().files.pop_front()
    }

    fn state(&self) -> MutexGuard<'_, FileList> {
        // A panic leaves the list consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if the file system is full or the user's disk quota is used up.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Opens a descriptor without access to the contents. The descriptor keeps the disk space of a deleted file.
fn hold(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)
}

/// Deletes a recording, and its journal if the recording was cut off.
fn delete(path: &Path) -> io::Result<()> {
    drop(fs::remove_file(journal_of(path)));
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Files that earlier recordings of this user closed under this name, oldest first.
fn closed_before(path: &Path) -> VecDeque<PathBuf> {
    let Some(name) = path.file_name() else { return VecDeque::new() };
    let entries = fs::read_dir(directory_of(path)).into_iter().flatten().flatten();
    let closed = entries.map(|entry| entry.file_name()).filter(|closed| is_name_of_closed(closed, name));
    let mut paths: Vec<PathBuf> =
        closed.map(|closed| path.with_file_name(closed)).filter(|path| older::is_own_recording(path)).collect();
    paths.sort();
    paths.into()
}

/// Returns true if `closed` is the name of a file closed under `name`: the name, a dot and a timestamp.
fn is_name_of_closed(closed: &OsStr, name: &OsStr) -> bool {
    let time = closed.as_bytes().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
    time.is_some_and(|time| time.len() == TIMESTAMP_DIGITS && time.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn the_list_is_not_locked_while_a_full_disk_is_freed() {
        static FILES: OnceLock<ClosedFiles> = OnceLock::new();
        static WAS_FREE: AtomicBool = AtomicBool::new(false);
        let directory = tempfile::tempdir().unwrap();
        let oldest = directory.path().join("perf.data.2026010100000000");
        fs::write(&oldest, b"x").unwrap();
        let state = Arc::new(Mutex::new(FileList { files: [oldest.clone()].into(), ..FileList::default() }));
        // The message follows the deletion; the lock that would cover the deletion would cover the message.
        let notify =
            |_: Level, _: &str| WAS_FREE.store(FILES.get().unwrap().state.try_lock().is_ok(), Ordering::Relaxed);
        let files = FILES.get_or_init(|| ClosedFiles { state, max: NonZeroUsize::new(1), notify });
        let mut attempts = 0;
        let full = || {
            attempts += 1;
            if attempts == 1 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        };
        files.with_room(full).unwrap();
        assert!(!oldest.exists() && WAS_FREE.load(Ordering::Relaxed));
    }
}
