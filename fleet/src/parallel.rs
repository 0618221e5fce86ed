//! Work on many files by several threads.

use anyhow::{Result, anyhow};
use std::io;
use std::num::NonZero;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use tokio::runtime::{Builder, Runtime};

/// Returns the threads that run queries and wait for object stores. They start at the first call.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| Builder::new_multi_thread().enable_all().build());
    RUNTIME.as_ref().map_err(|error| anyhow!("start threads: {error}"))
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
    let done = std::thread::scope(|scope| {
        let all = || std::iter::from_fn(take).collect::<Vec<_>>();
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(all)).collect();
        threads.into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let done: Result<Vec<_>, _> = done.into_iter().collect();
    let done = done.map_err(|_| anyhow!("a thread that reads files ended with a panic"))?;
    let mut done: Vec<(usize, R)> = done.into_iter().flatten().collect();
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
