//! How many threads look at a recording.

/// More threads than this gain nothing, and each holds a sink.
pub(crate) const MAX_THREADS: usize = 16;

/// As many as can run side by side.
pub(crate) fn threads_there_are() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}
