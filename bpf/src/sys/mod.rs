//! System calls, one family per file: `bpf(2)`, attachment to perf events, files of pins and locks, memory that is shared with programs. The
//! only module of this crate with `unsafe` code.
#![allow(unsafe_code)]

mod attach;
mod batch;
mod bytes;
mod entries;
mod fdinfo;
mod info;
pub(crate) mod load;
pub(crate) mod memory;
mod objects;
mod pin;
mod query;
pub(crate) mod run;
mod syscall;

pub(crate) use attach::{attach_raw_tracepoint, attach_tracing, forget_pin, link_to_event, set_program};
pub(crate) use batch::take_batch;
pub(crate) use bytes::{c_chars, get_u16, get_u32, get_u64, up_to_nul};
pub(crate) use entries::{Cursor, Entries, value_at};
pub(crate) use fdinfo::FdInfo;
pub(crate) use info::{
    LinkArrays, LinkInfo, TracingMulti, btf_info, knows_misses, knows_target, link_field, link_info, map_info,
    prog_info, prog_summary,
};
pub(crate) use load::create_hash;
pub(crate) use objects::{Kind, fd_by_id, ids};
pub(crate) use pin::{obj_get, obj_get_writable, obj_pin, try_lock, unlock};
pub(crate) use query::{HookOf, TaskFd, attached_progs, enable_run_time_stats, task_fd_query, try_run_time_stats};

const NEEDS_ADMIN: &str = "needs CAP_SYS_ADMIN (run as root)";
const NEEDS_FILES: &str = "raise the limit of open files (ulimit -n)";
