//! Netlink sockets: the one system call of theirs that the standard library has no name for.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// What a netlink socket talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Interfaces, queueing disciplines and filters (`NETLINK_ROUTE`).
    Route,
    /// Firewall rules and the like (`NETLINK_NETFILTER`).
    Netfilter,
}

/// Opens a netlink socket of the network namespace this thread is in.
pub(crate) fn netlink_socket(family: Family) -> io::Result<OwnedFd> {
    let protocol = match family {
        // `NETLINK_ROUTE` is protocol 0, which is no number that could be named.
        Family::Route => None,
        Family::Netfilter => Some(rustix::net::netlink::NETFILTER),
    };
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?)
}
