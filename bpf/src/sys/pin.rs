//! Maps that sessions find each other by: made, pinned, and held by one at a time.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Attr, bpf, bpf_fd, cmd};

/// `BPF_MAP_TYPE_HASH`
const HASH: u32 = 1;

/// Makes a hash table. Err is the errno.
pub(crate) fn create_hash(name: &str, key_bytes: u32, value_bytes: u32, entries: u32) -> Result<OwnedFd, i32> {
    let mut attr = Attr::new();
    for (at, value) in [(0, HASH), (4, key_bytes), (8, value_bytes), (12, entries)] {
        attr.put_u32(at, value);
    }
    attr.put_name(28, name);
    // SAFETY: the command takes no pointers and returns a descriptor.
    unsafe { bpf_fd(cmd::MAP_CREATE, &mut attr, 44) }
}

/// Pins an object at a path in a bpf file system, where nothing is yet. Err is the errno.
pub(crate) fn obj_pin(path: &Path, object: BorrowedFd<'_>) -> Result<(), i32> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| libc::EINVAL)?;
    let mut attr = Attr::new();
    attr.put_u64(0, path.as_ptr() as u64);
    attr.put_fd(8, object);
    // SAFETY: the one pointer is `path`, NUL-terminated and alive until after the call.
    unsafe { bpf(cmd::OBJ_PIN, &mut attr, 16) }.map(drop)
}

/// Takes the lock of an open file (`flock`) if nobody has it. Err is the errno, EWOULDBLOCK when somebody has.
pub(crate) fn try_lock(file: BorrowedFd<'_>) -> Result<(), i32> {
    flock(file, libc::LOCK_EX | libc::LOCK_NB)
}

/// Gives the lock of an open file back.
pub(crate) fn unlock(file: BorrowedFd<'_>) {
    // It cannot fail for a descriptor that is open, and the lock goes with the descriptor anyway.
    let _ = flock(file, libc::LOCK_UN);
}

fn flock(file: BorrowedFd<'_>, operation: i32) -> Result<(), i32> {
    // SAFETY: takes numbers only.
    match unsafe { libc::flock(file.as_raw_fd(), operation) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}
