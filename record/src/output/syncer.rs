//! Syncs the output to the disk from time to time, in a thread of its own, so that the drain never waits for a disk.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bprec_host::sync_directory;

use crate::{Error, Result, sys};

/// Handle of the sync thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Syncer {
    shared: Arc<SharedSyncState>,
    thread: Option<JoinHandle<()>>,
}

/// Descriptors of a file that is being written, and of its journal.
#[derive(Debug)]
pub(crate) struct Written {
    recording: File,
    journal: Option<File>,
    path: PathBuf,
    /// Size of the recording at its last sync, in bytes.
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
    /// First error of a sync. The kernel reports an error only once: later syncs succeed.
    error: Option<Error>,
}

impl Syncer {
    /// Starts the thread, which syncs `written` at the interval `every`.
    ///
    /// # Errors
    /// Fails if no thread can be created.
    pub(crate) fn start(every: Duration, written: Written) -> Result<Syncer> {
        let shared = Arc::new(SharedSyncState::default());
        shared.state().written = Some(Arc::new(written));
        let worker = Arc::clone(&shared);
        let thread = sys::spawn("bprec-sync", move || worker.run(every))?;
        Ok(Syncer { shared, thread: Some(thread) })
    }

    /// Continues with another file. The completion of the previous file syncs that file.
    pub(crate) fn follow(&self, written: Written) {
        self.shared.state().written = Some(Arc::new(written));
    }

    /// Returns the error of a sync, once.
    ///
    /// # Errors
    /// Fails if a sync has failed since the last call.
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.state().error.take().map_or(Ok(()), Err)
    }

    /// Ends the thread and returns its error, if there was one.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.end();
        self.check()
    }

    fn end(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread cannot panic.
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
    /// Takes descriptors that belong to the syncer alone.
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
        // An error is ignored: a recording that is cut off keeps its records even without a journal.
        let _ = self.journal.as_ref().map(File::sync_data);
        if !self.has_synced_names.swap(true, Ordering::Relaxed) {
            sync_directory(&self.path)?;
        }
        Ok(())
    }
}
