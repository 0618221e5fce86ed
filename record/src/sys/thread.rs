//! Threads.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle};

use bprec_host::Answer;

use crate::{Error, Result};

/// Starts a thread with this name (at most 15 bytes).
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|answer| Error::Other(format!("cannot start a thread: {}", Answer(&answer))))
}

/// Runs the work in this many threads, including the caller's, or in fewer if no more can be started.
pub(crate) fn in_parallel(threads: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 1..threads {
            let started = Builder::new().spawn_scoped(scope, &work);
            if started.is_err() {
                break;
            }
        }
        work();
    });
}

/// Takes the next piece of work; several threads may call this at once.
pub(crate) fn next_of<I: Iterator>(pieces: &Mutex<I>) -> Option<I::Item> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner).next()
}
