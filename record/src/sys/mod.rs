//! System calls, one family per file. Only the files with `allow(unsafe_code)` and `drain::ring` contain `unsafe`.

mod clock;
mod perf_event;
mod process;
mod signals;
mod thread;
mod wait;

pub(crate) use bprec_host::private_mount;
pub(crate) use clock::{
    CLOCK_MONOTONIC, file_timestamp, monotonic_ns, monotonic_resolution_ns, process_time_ns, realtime_unix_ns,
    thread_time, to_boottime_ns,
};
pub(crate) use perf_event::{
    disable, enable, event_id, kernel_attr_bytes, open_counter, open_counter_at, pause_output, perf_event_open,
    read_counter, set_output,
};
pub(crate) use process::{
    Inherited, Usage, become_favoured, become_urgent, children_usage, has_more_rights_than_caller, hold_before_exec,
    memory_bytes, open_files_max, raise_open_files, release_free_memory, return_large_blocks, usage,
};
pub(crate) use rustix::param::page_size as page_bytes;
pub use signals::survive_file_size_limit;
pub(crate) use signals::{Asked, Signals};
pub(crate) use thread::{in_parallel, next_of, spawn};
pub(crate) use wait::{Waker, is_hung_up, poll, poll_in};
