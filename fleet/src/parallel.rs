//! Work on many files by several threads.

use anyhow::{Context, Result, anyhow};
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Builder, Runtime};

/// Returns the threads that run queries and wait for object stores. They start at the first call.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if RUNTIME.get().is_none() {
        let started = Builder::new_multi_thread().enable_all().build().context("start threads")?;
        // Another thread may have been faster.
        drop(RUNTIME.set(started));
    }
    RUNTIME.get().context("no threads")
}

/// Applies a function to each item. Returns the results in the order of the items. If `threads` is `None`, there is one thread per CPU.
///
/// # Errors
/// Fails if the function panics.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: Option<u32>,
    work: impl Fn(&T) -> R + Sync,
) -> Result<Vec<R>> {
    let cpus = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.map_or_else(cpus, |threads| threads as usize).min(items.len());
    let next = AtomicUsize::new(0);
    let take = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        items.get(at).map(|item| (at, work(item)))
    };
    let mut done = Vec::with_capacity(items.len());
    std::thread::scope(|scope| {
        let all = || std::iter::from_fn(take).collect::<Vec<_>>();
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(all)).collect();
        for thread in threads {
            done.extend(thread.join().map_err(|_| anyhow!("a thread that reads files ended with a panic"))?);
        }
        Ok::<(), anyhow::Error>(())
    })?;
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
