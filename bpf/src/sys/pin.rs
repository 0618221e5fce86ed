//! Pins in a bpf file system, by which sessions find each other, and file locks, by which they take turns.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::libbpf_sys as cmd;
use rustix::fs::{FlockOperation, flock};

use super::NEEDS_FILES;
use super::syscall::{Attr, attr_end, bpf, bpf_fd, number};
use crate::error::{Error, Object, Result};

/// Opens the object that is pinned at `path` in a bpf file system. Descriptors of maps are read-only.
pub(crate) fn obj_get(path: &Path) -> Result<OwnedFd> {
    // The kernel refuses to open a link read-only, with EINVAL.
    match obj_get_for(path, cmd::BPF_F_RDONLY) {
        Err(error) if error.errno() == Some(libc::EINVAL) => obj_get_for(path, 0),
        other => other,
    }
}

/// Opens the object that is pinned at `path`, for reading and writing.
pub(crate) fn obj_get_writable(path: &Path) -> Result<OwnedFd> {
    obj_get_for(path, 0)
}

fn obj_get_for(path: &Path, flags: u32) -> Result<OwnedFd> {
    let call = "bpf(BPF_OBJ_GET)";
    let object = || Object::Path(path.to_owned());
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else {
        return Err(Error::Answer { call, object: object(), problem: "the path contains a NUL character".to_owned() });
    };
    let mut attr = Attr::default();
    attr.__bindgen_anon_4.pathname = c_path.as_ptr() as u64;
    attr.__bindgen_anon_4.file_flags = flags;
    // SAFETY: the one pointer is `c_path`, NUL-terminated and alive until after the call; the command returns a
    // descriptor.
    unsafe { bpf_fd(cmd::BPF_OBJ_GET, &mut attr, attr_end!(__bindgen_anon_4.file_flags)) }.map_err(|errno| {
        let remedy = match errno {
            libc::EPERM | libc::EACCES => Some("needs permission to open the pin (run as root)"),
            libc::EMFILE | libc::ENFILE => Some(NEEDS_FILES),
            _ => None,
        };
        Error::Syscall { call, object: object(), errno, remedy }
    })
}

/// Pins an object at a new path in a bpf file system. `Err` holds the errno.
pub(crate) fn obj_pin(path: &Path, object: BorrowedFd<'_>) -> Result<(), i32> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    let mut attr = Attr::default();
    attr.__bindgen_anon_4.pathname = path.as_ptr() as u64;
    attr.__bindgen_anon_4.bpf_fd = number(object);
    // SAFETY: the one pointer is `path`, NUL-terminated and alive until after the call.
    unsafe { bpf(cmd::BPF_OBJ_PIN, &mut attr, attr_end!(__bindgen_anon_4.bpf_fd)) }.map(drop)
}

/// Locks an open file (`flock`) if it is not locked. `Err` holds the errno: EWOULDBLOCK if another session holds the lock.
pub(crate) fn try_lock(file: BorrowedFd<'_>) -> Result<(), i32> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| error.raw_os_error())
}

/// Releases the lock of an open file.
pub(crate) fn unlock(file: BorrowedFd<'_>) {
    // Unlocking an open descriptor cannot fail, and closing the descriptor releases the lock anyway.
    let _ = flock(file, FlockOperation::Unlock);
}
