//! A route netlink socket: the one system call that the standard library has no name for.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Opens a `NETLINK_ROUTE` socket of the network namespace this thread is in.
pub(crate) fn route_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
