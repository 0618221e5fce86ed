//! The system calls: raw `bpf(2)`, and a netlink socket. The only room of this crate with `unsafe` in it.
//!
//! Every attribute block is zeroed and handed over with the size of the fields that are used, so that any kernel that
//! knows those fields accepts it. Layouts are those of `include/uapi/linux/bpf.h`.
#![allow(unsafe_code)]

mod batch;
mod entries;
mod fdinfo;
mod info;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod netlink;
mod perf_event;
mod pin;

pub(crate) use batch::take_batch;
pub(crate) use entries::{Cursor, Entries, value_at};
pub(crate) use fdinfo::FdInfo;
pub(crate) use info::{
    LINK_INFO_BYTES, LinkArrays, PROG_INFO_BYTES, btf_info, link_info, map_info, prog_block, prog_info,
};

pub(crate) use perf_event::{forget_pin, link_to_event, set_program};
pub(crate) use pin::{create_hash, obj_pin, try_lock, unlock};

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Object, Result};

/// Commands of `bpf(2)`, by the kernel's numbers.
mod cmd {
    pub(super) const MAP_CREATE: i32 = 0;
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const MAP_UPDATE_ELEM: i32 = 2;
    pub(super) const MAP_DELETE_ELEM: i32 = 3;
    pub(super) const MAP_GET_NEXT_KEY: i32 = 4;
    pub(super) const PROG_LOAD: i32 = 5;
    pub(super) const OBJ_PIN: i32 = 6;
    pub(super) const OBJ_GET: i32 = 7;
    pub(super) const PROG_TEST_RUN: i32 = 10;
    pub(super) const PROG_GET_NEXT_ID: i32 = 11;
    pub(super) const MAP_GET_NEXT_ID: i32 = 12;
    pub(super) const PROG_GET_FD_BY_ID: i32 = 13;
    pub(super) const MAP_GET_FD_BY_ID: i32 = 14;
    pub(super) const OBJ_GET_INFO_BY_FD: i32 = 15;
    pub(super) const PROG_QUERY: i32 = 16;
    pub(super) const RAW_TRACEPOINT_OPEN: i32 = 17;
    pub(super) const BTF_GET_FD_BY_ID: i32 = 19;
    pub(super) const TASK_FD_QUERY: i32 = 20;
    pub(super) const BTF_GET_NEXT_ID: i32 = 23;
    pub(super) const MAP_LOOKUP_BATCH: i32 = 24;
    pub(super) const MAP_LOOKUP_AND_DELETE_BATCH: i32 = 25;
    pub(super) const LINK_GET_FD_BY_ID: i32 = 30;
    pub(super) const LINK_GET_NEXT_ID: i32 = 31;
    pub(super) const ENABLE_STATS: i32 = 32;
}

/// `BPF_F_RDONLY`: a map or pin is opened for reading only.
const BPF_F_RDONLY: u32 = 1 << 3;
/// `BPF_STATS_RUN_TIME`.
const BPF_STATS_RUN_TIME: u32 = 0;

const NEEDS_ADMIN: &str = "needs CAP_SYS_ADMIN (run as root)";
const NEEDS_FILES: &str = "raise the limit of open files (ulimit -n)";

/// Bytes of every attribute block in memory: more than any command used here reads or writes, so that a kernel that
/// writes back a field beyond the announced size stays inside.
const ATTR_BYTES: usize = 128;

/// One zeroed `union bpf_attr`.
#[repr(C, align(8))]
struct Attr([u8; ATTR_BYTES]);

impl Attr {
    fn new() -> Attr {
        Attr([0; ATTR_BYTES])
    }

    fn put_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn put_u64(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// Puts a file descriptor of ours.
    fn put_fd(&mut self, at: usize, fd: BorrowedFd<'_>) {
        self.put_u32(at, fd.as_raw_fd().cast_unsigned());
    }

    /// Puts the name of an object, of which the kernel keeps 15 bytes.
    fn put_name(&mut self, at: usize, name: &str) {
        let bytes = &name.as_bytes()[..name.len().min(15)];
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn u32(&self, at: usize) -> u32 {
        get_u32(&self.0, at)
    }

    fn u64(&self, at: usize) -> u64 {
        get_u64(&self.0, at)
    }
}

/// The `u32` at `at` of a block of ours; zero beyond its end.
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

/// The `u64` at `at` of a block of ours; zero beyond its end.
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b))
}

/// Calls `bpf(2)`. Err is the errno.
///
/// # Safety
///
/// Every pointer that `command` reads from `attr` must be valid for what the kernel reads from or writes to it under
/// the lengths that stand in `attr` beside it.
unsafe fn bpf(command: i32, attr: &mut Attr, size: usize) -> Result<i32, i32> {
    debug_assert!(size <= ATTR_BYTES);
    // SAFETY: `attr` is ATTR_BYTES of initialised memory, borrowed exclusively for the call, and `size` is not more;
    // the caller answers for the pointers inside it.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attr.0.as_mut_ptr(), size) };
    // The kernel answers with an int: a descriptor, zero, or -1 with errno set.
    if answer < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(answer as i32) }
}

/// Calls `bpf(2)` for a command that answers with a new file descriptor.
///
/// # Safety
///
/// As [`bpf`]; and `command` must be one that returns a descriptor.
unsafe fn bpf_fd(command: i32, attr: &mut Attr, size: usize) -> Result<OwnedFd, i32> {
    // SAFETY: passed on to the caller.
    let fd = unsafe { bpf(command, attr, size) }?;
    // SAFETY: the kernel just made this descriptor for us (close-on-exec, as all of bpf(2)'s are); nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kinds of objects that have ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Programs.
    Prog,
    /// Maps.
    Map,
    /// BTF blobs.
    Btf,
    /// Links.
    Link,
}

impl Kind {
    pub(crate) fn object(self, id: u32) -> Object {
        match self {
            Kind::Prog => Object::Prog(id),
            Kind::Map => Object::Map(id),
            Kind::Btf => Object::Btf(id),
            Kind::Link => Object::Link(id),
        }
    }
}

/// The smallest id above `after`, or None when there is none.
///
/// Needs CAP_SYS_ADMIN.
pub(crate) fn next_id(kind: Kind, after: u32) -> Result<Option<u32>> {
    let (command, call) = match kind {
        Kind::Prog => (cmd::PROG_GET_NEXT_ID, "bpf(BPF_PROG_GET_NEXT_ID)"),
        Kind::Map => (cmd::MAP_GET_NEXT_ID, "bpf(BPF_MAP_GET_NEXT_ID)"),
        Kind::Btf => (cmd::BTF_GET_NEXT_ID, "bpf(BPF_BTF_GET_NEXT_ID)"),
        Kind::Link => (cmd::LINK_GET_NEXT_ID, "bpf(BPF_LINK_GET_NEXT_ID)"),
    };
    let mut attr = Attr::new();
    attr.put_u32(0, after);
    // SAFETY: the command takes no pointers.
    match unsafe { bpf(command, &mut attr, 8) } {
        Ok(_) => Ok(Some(attr.u32(4))),
        Err(libc::ENOENT) => Ok(None),
        Err(errno) => {
            let remedy = match errno {
                libc::EPERM => Some(NEEDS_ADMIN),
                libc::EINVAL => Some("this kernel cannot list them"),
                libc::ENOSYS => Some("this kernel is built without CONFIG_BPF_SYSCALL"),
                _ => None,
            };
            Err(Error::Syscall { call, object: Object::Named("of all"), errno, remedy })
        }
    }
}

/// The ids of all objects of this kind alive now, ascending. Ends after the first error.
pub(crate) fn ids(kind: Kind) -> impl Iterator<Item = Result<u32>> {
    let mut after = Some(0);
    std::iter::from_fn(move || match next_id(kind, after?) {
        Ok(next) => {
            after = next;
            next.map(Ok)
        }
        Err(error) => {
            after = None;
            Some(Err(error))
        }
    })
}

/// A descriptor of the object with this id. Maps come read-only.
///
/// Needs CAP_SYS_ADMIN; ENOENT (see [`Error::is_gone`]) when it was freed.
pub(crate) fn fd_by_id(kind: Kind, id: u32) -> Result<OwnedFd> {
    let (command, call, size) = match kind {
        Kind::Prog => (cmd::PROG_GET_FD_BY_ID, "bpf(BPF_PROG_GET_FD_BY_ID)", 4),
        Kind::Map => (cmd::MAP_GET_FD_BY_ID, "bpf(BPF_MAP_GET_FD_BY_ID)", 12),
        Kind::Btf => (cmd::BTF_GET_FD_BY_ID, "bpf(BPF_BTF_GET_FD_BY_ID)", 4),
        Kind::Link => (cmd::LINK_GET_FD_BY_ID, "bpf(BPF_LINK_GET_FD_BY_ID)", 4),
    };
    let mut attr = Attr::new();
    attr.put_u32(0, id);
    if kind == Kind::Map {
        attr.put_u32(8, BPF_F_RDONLY);
    }
    // SAFETY: the command takes no pointers and returns a descriptor.
    unsafe { bpf_fd(command, &mut attr, size) }.map_err(|errno| {
        let remedy = match errno {
            libc::EPERM => Some(NEEDS_ADMIN),
            libc::EMFILE | libc::ENFILE => Some(NEEDS_FILES),
            _ => None,
        };
        Error::Syscall { call, object: kind.object(id), errno, remedy }
    })
}

/// A descriptor of what is pinned at `path` in a bpf file system. Maps come read-only.
pub(crate) fn obj_get(path: &Path) -> Result<OwnedFd> {
    // Links are refused with EINVAL unless opened for reading and writing.
    match obj_get_for(path, BPF_F_RDONLY) {
        Err(error) if error.errno() == Some(libc::EINVAL) => obj_get_for(path, 0),
        other => other,
    }
}

/// A descriptor of what is pinned at `path`, to be written to.
pub(crate) fn obj_get_writable(path: &Path) -> Result<OwnedFd> {
    obj_get_for(path, 0)
}

fn obj_get_for(path: &Path, flags: u32) -> Result<OwnedFd> {
    let call = "bpf(BPF_OBJ_GET)";
    let object = || Object::Path(path.to_owned());
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else {
        return Err(Error::Answer { call, object: object(), problem: "a NUL inside the path".to_owned() });
    };
    let mut attr = Attr::new();
    attr.put_u64(0, c_path.as_ptr() as u64);
    attr.put_u32(12, flags);
    // SAFETY: the one pointer is `c_path`, NUL-terminated and alive until after the call; the command returns a
    // descriptor.
    unsafe { bpf_fd(cmd::OBJ_GET, &mut attr, 16) }.map_err(|errno| {
        let remedy = match errno {
            libc::EPERM | libc::EACCES => Some("needs permission to open the pin (run as root)"),
            libc::EMFILE | libc::ENFILE => Some(NEEDS_FILES),
            _ => None,
        };
        Error::Syscall { call, object: object(), errno, remedy }
    })
}

/// Switches run statistics on for as long as the returned descriptor is open.
pub(crate) fn enable_run_time_stats() -> Result<OwnedFd> {
    let mut attr = Attr::new();
    attr.put_u32(0, BPF_STATS_RUN_TIME);
    // SAFETY: the command takes no pointers and returns a descriptor.
    unsafe { bpf_fd(cmd::ENABLE_STATS, &mut attr, 4) }.map_err(|errno| {
        let remedy = match errno {
            libc::EPERM => Some(NEEDS_ADMIN),
            libc::EINVAL => Some("needs Linux 5.8; before that, sysctl kernel.bpf_stats_enabled=1"),
            _ => None,
        };
        Error::Syscall { call: "bpf(BPF_ENABLE_STATS)", object: Object::Named("run time"), errno, remedy }
    })
}

/// What a tracing file descriptor of some process is attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskFd {
    /// Id of the attached program.
    pub(crate) prog_id: u32,
    /// `enum bpf_task_fd_type`: 0 raw tracepoint, 1 tracepoint, 2 kprobe, 3 kretprobe, 4 uprobe, 5 uretprobe.
    pub(crate) fd_type: u32,
    /// Tracepoint, function or file.
    pub(crate) name: Vec<u8>,
    /// Offset in the function or file.
    pub(crate) probe_offset: u64,
    /// Address of a probe that has no name.
    pub(crate) probe_addr: u64,
}

/// Asks what descriptor `fd` of process `pid` is attached to. Needs CAP_SYS_ADMIN.
///
/// Errno: ENOENT when nothing is attached, EOPNOTSUPP for programs of type perf_event and for descriptors of other kinds.
pub(crate) fn task_fd_query(pid: u32, fd: u32) -> Result<TaskFd> {
    let mut name = [0u8; 512];
    let mut attr = Attr::new();
    attr.put_u32(0, pid);
    attr.put_u32(4, fd);
    attr.put_u32(12, name.len() as u32);
    attr.put_u64(16, name.as_mut_ptr() as u64);
    // SAFETY: the one pointer is `name`, writable for the length given beside it, and alive until after the call.
    match unsafe { bpf(cmd::TASK_FD_QUERY, &mut attr, 48) } {
        // A name longer than the buffer is cut and the rest of the answer is there all the same.
        Ok(_) | Err(libc::ENOSPC) => Ok(TaskFd {
            prog_id: attr.u32(24),
            fd_type: attr.u32(28),
            name: up_to_nul(&name).to_vec(),
            probe_offset: attr.u64(32),
            probe_addr: attr.u64(40),
        }),
        Err(errno) => {
            let remedy = (errno == libc::EPERM).then_some(NEEDS_ADMIN);
            Err(Error::Syscall { call: "bpf(BPF_TASK_FD_QUERY)", object: Object::TaskFd { pid, fd }, errno, remedy })
        }
    }
}

/// What has hooks that programs are attached to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HookOf<'a> {
    /// A cgroup, by its directory.
    Cgroup(BorrowedFd<'a>),
    /// An interface of this network namespace, by its number.
    Interface(u32),
}

/// Puts the ids of the programs at one hook into `ids` and answers how many there are; those that a cgroup inherits
/// from its ancestors are not among them. Err is the errno.
pub(crate) fn attached_progs(hook: HookOf<'_>, attach_type: u32, ids: &mut [u32]) -> Result<usize, i32> {
    let mut attr = Attr::new();
    match hook {
        HookOf::Cgroup(directory) => attr.put_fd(0, directory),
        HookOf::Interface(index) => attr.put_u32(0, index),
    }
    attr.put_u32(4, attach_type);
    attr.put_u64(16, ids.as_mut_ptr() as u64);
    attr.put_u32(24, ids.len() as u32);
    // SAFETY: the one pointer is `ids`, writable for the count given beside it, and alive until after the call.
    unsafe { bpf(cmd::PROG_QUERY, &mut attr, 32) }?;
    Ok((attr.u32(24) as usize).min(ids.len()))
}

/// The bytes before the first NUL.
pub(crate) fn up_to_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}
