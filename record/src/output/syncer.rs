//! Puts on the disk what has been written, from time to time and from a thread of its own: the drain never waits for a disk.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{Error, Result, sys};

/// The thread, and what it works on. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Syncer {
    shared: Arc<SharedSyncState>,
    thread: Option<JoinHandle<()>>,
}

/// A file that is being written, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Written {
    recording: File,
    journal: Option<File>,
    path: PathBuf,
    /// Bytes that the recording had when it was synced last.
    synced_bytes: AtomicU64,
    has_synced_names: AtomicBool,
}

#[derive(Debug, Default)]
struct SharedSyncState {
    state: Mutex<SyncState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    written: Option<Arc<Written>>,
    is_over: bool,
    /// First error. The kernel tells it once only: whoever syncs later is told that all is well.
    error: Option<Error>,
}

impl Syncer {
    /// Syncs `written` every so often.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(crate) fn start(every: Duration, written: Written) -> Result<Syncer> {
        let shared = Arc::new(SharedSyncState::default());
        shared.state().written = Some(Arc::new(written));
        let worker = Arc::clone(&shared);
        let thread = sys::spawn("bprec-sync", move || worker.run(every))?;
        Ok(Syncer { shared, thread: Some(thread) })
    }

    /// Goes on with another file. The one before is synced by whoever completes it.
    pub(crate) fn follow(&self, written: Written) {
        self.shared.state().written = Some(Arc::new(written));
    }

    /// Error; told once.
    ///
    /// # Errors
    /// When the disk did not take what was written.
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.state().error.take().map_or(Ok(()), Err)
    }

    /// Ends it.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.end();
        self.check()
    }

    fn end(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It cannot panic.
            drop(thread.join());
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.end();
    }
}

impl SharedSyncState {
    fn state(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, every: Duration) {
        loop {
            let waited = self.changed.wait_timeout_while(self.state(), every, |state| !state.is_over);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            let written = state.written.clone();
            drop(state);
            if let Some(written) = written
                && let Err(answer) = written.sync()
            {
                self.state().error.get_or_insert(Error::file(&written.path, answer));
            }
        }
    }
}

impl Written {
    /// Works on descriptors that are its own.
    pub(super) fn new(recording: File, journal: Option<File>, path: &Path) -> Written {
        Written {
            recording,
            journal,
            path: path.to_owned(),
            synced_bytes: AtomicU64::new(0),
            has_synced_names: AtomicBool::new(false),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let bytes = self.recording.metadata()?.len();
        if bytes != self.synced_bytes.swap(bytes, Ordering::Relaxed) {
            self.recording.sync_data()?;
        }
        // Without a journal a recording that is cut off has its records all the same.
        let _ = self.journal.as_ref().map(File::sync_data);
        if !self.has_synced_names.swap(true, Ordering::Relaxed) {
            sync_directory(&self.path)?;
        }
        Ok(())
    }
}

/// The directory that a file is in.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts the names in a file's directory on the disk.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(directory_of(path)).and_then(|directory| directory.sync_all()) {
        // Some file systems have nothing to sync there; who may not read a directory may still write into it.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(()),
        synced => synced,
    }
}
