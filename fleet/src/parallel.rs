//! Work on many files by several threads.

use anyhow::{Context, Result, anyhow};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::io;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};

/// Returns the threads that run queries and wait for object stores. They start at the first call.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| Builder::new_multi_thread().enable_all().build());
    RUNTIME.as_ref().map_err(|error| anyhow!("start threads: {error}"))
}

/// Applies a function to each item. Returns the results in the order of the items. If `threads` is `None`, there is one thread per CPU.
///
/// # Errors
/// Fails if the threads cannot be started.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: Option<u32>,
    work: impl Fn(&T) -> R + Sync,
) -> Result<Vec<R>> {
    let pool = ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0) as usize).build().context("start threads")?;
    Ok(pool.install(|| items.par_iter().with_max_len(1).map(&work).collect()))
}
