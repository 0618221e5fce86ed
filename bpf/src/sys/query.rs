//! Queries the programs at an attach point and the program behind a descriptor of another process, and switches run statistics on.

use std::os::fd::{BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as cmd;

use super::NEEDS_ADMIN;
use super::bytes::up_to_nul;
use super::syscall::{Attr, attr_end, bpf, bpf_fd, number};
use crate::error::{Error, Object, Result};

/// Size of the attributes of `BPF_PROG_QUERY` up to the count and its padding. Kernels that lack the fields after the count accept this size.
const QUERY_BYTES: usize = attr_end!(query.__bindgen_anon_2.prog_cnt).next_multiple_of(8);

/// Switches run statistics on until the returned descriptor is closed.
pub(crate) fn enable_run_time_stats() -> Result<OwnedFd> {
    enable_stats(cmd::BPF_STATS_RUN_TIME).map_err(stats_refused)
}

/// Returns `Ok` if [`enable_run_time_stats`] would be allowed; switches nothing on. The kernel checks the privilege before the kind of statistics, so
/// a request with an unknown kind fails with EINVAL only if the caller is privileged.
pub(crate) fn try_run_time_stats() -> Result<()> {
    match enable_stats(u32::MAX) {
        Err(libc::EINVAL) if bprec_host::kernel_version() >= (5, 8) => Ok(()),
        other => other.map(drop).map_err(stats_refused),
    }
}

fn enable_stats(kind: u32) -> std::result::Result<OwnedFd, i32> {
    let mut attr = Attr::default();
    attr.enable_stats.type_ = kind;
    // SAFETY: the command takes no pointers and returns a descriptor.
    unsafe { bpf_fd(cmd::BPF_ENABLE_STATS, &mut attr, attr_end!(enable_stats.type_)) }
}

fn stats_refused(errno: i32) -> Error {
    let remedy = match errno {
        libc::EPERM => Some(NEEDS_ADMIN),
        libc::EINVAL => {
            Some("needs Linux 5.8; on older kernels, switch run statistics on with sysctl kernel.bpf_stats_enabled=1")
        }
        _ => None,
    };
    Error::Syscall { call: "bpf(BPF_ENABLE_STATS)", object: Object::Named("run time"), errno, remedy }
}

/// Program that is attached by a perf event or raw tracepoint descriptor of a process: the answer of `BPF_TASK_FD_QUERY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskFd {
    /// Id of the attached program.
    pub(crate) prog_id: u32,
    /// `enum bpf_task_fd_type`: 0 raw tracepoint, 1 tracepoint, 2 kprobe, 3 kretprobe, 4 uprobe, 5 uretprobe.
    pub(crate) fd_type: u32,
    /// Name of the tracepoint, function or file.
    pub(crate) name: Vec<u8>,
    /// Offset in the function or file.
    pub(crate) probe_offset: u64,
    /// Address of a probe that has no name.
    pub(crate) probe_addr: u64,
}

/// Queries the attachment of descriptor `fd` in process `pid`. Needs CAP_SYS_ADMIN.
///
/// Errno: ENOENT if nothing is attached, EOPNOTSUPP for programs of type perf_event and for descriptors of other kinds.
pub(crate) fn task_fd_query(pid: u32, fd: u32) -> Result<TaskFd> {
    let mut name = [0u8; 512];
    let mut attr = Attr::default();
    attr.task_fd_query.pid = pid;
    attr.task_fd_query.fd = fd;
    attr.task_fd_query.buf_len = name.len() as u32;
    attr.task_fd_query.buf = name.as_mut_ptr() as u64;
    // SAFETY: the one pointer is `name`, writable for the length given beside it, and alive until after the call.
    let answer = unsafe { bpf(cmd::BPF_TASK_FD_QUERY, &mut attr, attr_end!(task_fd_query.probe_addr)) };
    // SAFETY: this member was set above, and the kernel writes to no other member.
    let found = unsafe { attr.task_fd_query };
    match answer {
        // ENOSPC: the name is longer than the buffer and was cut; the other fields are valid.
        Ok(_) | Err(libc::ENOSPC) => Ok(TaskFd {
            prog_id: found.prog_id,
            fd_type: found.fd_type,
            name: up_to_nul(&name).to_vec(),
            probe_offset: found.probe_offset,
            probe_addr: found.probe_addr,
        }),
        Err(errno) => {
            let remedy = (errno == libc::EPERM).then_some(NEEDS_ADMIN);
            Err(Error::Syscall { call: "bpf(BPF_TASK_FD_QUERY)", object: Object::TaskFd { pid, fd }, errno, remedy })
        }
    }
}

/// Object with hooks to which programs are attached.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HookOf<'a> {
    /// Descriptor of a cgroup directory, of a network namespace or of a map.
    Descriptor(BorrowedFd<'a>),
    /// Index of an interface in this network namespace.
    Interface(u32),
}

/// Writes the ids of the programs at one hook to `ids` and returns their count. Programs that a cgroup inherits from its ancestors are not included.
/// `Err` holds the errno.
pub(crate) fn attached_progs(hook: HookOf<'_>, attach_type: u32, ids: &mut [u32]) -> Result<usize, i32> {
    let mut attr = Attr::default();
    match hook {
        HookOf::Descriptor(fd) => attr.query.__bindgen_anon_1.target_fd = number(fd),
        HookOf::Interface(index) => attr.query.__bindgen_anon_1.target_ifindex = index,
    }
    attr.query.attach_type = attach_type;
    attr.query.prog_ids = ids.as_mut_ptr() as u64;
    attr.query.__bindgen_anon_2.prog_cnt = ids.len() as u32;
    // SAFETY: the one pointer is `ids`, writable for the count given beside it, and alive until after the call.
    unsafe { bpf(cmd::BPF_PROG_QUERY, &mut attr, QUERY_BYTES) }?;
    // SAFETY: the kernel wrote the count to this field.
    let count = unsafe { attr.query.__bindgen_anon_2.prog_cnt };
    Ok((count as usize).min(ids.len()))
}
