//! Mounting for ourselves alone.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// From include/uapi/linux/mount.h; the C library's crate does not have them.
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const MOUNT_ATTR_RDONLY: libc::c_uint = 1;
const MOUNT_ATTR_NOSUID: libc::c_uint = 2;
const MOUNT_ATTR_NODEV: libc::c_uint = 4;
const MOUNT_ATTR_NOEXEC: libc::c_uint = 8;

/// Mounts a file system of this type, to be read, at no place in the tree: nobody else sees it, and it is gone with the
/// descriptor. Its root is `/proc/self/fd/<descriptor>`.
///
/// # Errors
/// ENOSYS before Linux 5.2, EPERM without CAP_SYS_ADMIN, ENODEV when the kernel has no such file system.
pub fn private_mount(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `kind` ends in a NUL and outlives the call.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    let nothing = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes neither key nor value; both may be null.
    let made = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, nothing, nothing, 0 as libc::c_int)
    };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    let attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    // SAFETY: takes no pointers.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes) })
}

/// The descriptor that a system call answered with.
fn owned(answer: libc::c_long) -> io::Result<OwnedFd> {
    match libc::c_int::try_from(answer) {
        // SAFETY: the kernel just made this descriptor for us; nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
