//! A route netlink socket: the one system call that the standard library has no name for.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Opens a `NETLINK_ROUTE` socket of the network namespace this thread is in.
pub(crate) fn route_socket() -> io::Result<OwnedFd> {
    // `NETLINK_ROUTE` is protocol 0, which is no number that could be named.
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}
