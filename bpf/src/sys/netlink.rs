//! Netlink sockets: the one system call of theirs that the standard library has no name for.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Opens a socket of the network namespace this thread is in, to ask for interfaces, queueing disciplines and filters.
pub(crate) fn route_socket() -> io::Result<OwnedFd> {
    // `NETLINK_ROUTE` is protocol 0.
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}
