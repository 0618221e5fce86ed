//! Threads.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle};

use crate::{Error, Result};

/// Starts a thread of this name, of at most 15 bytes.
///
/// # Errors
/// When there can be no more threads.
pub(crate) fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|answer| Error::Other(format!("cannot start a thread: {answer}")))
}

/// Does the work in so many threads, one of them the caller's, or as many as can be had.
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

/// The next piece of work, for whoever comes first.
pub(crate) fn next_of<I: Iterator>(pieces: &Mutex<I>) -> Option<I::Item> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner).next()
}
