//! Lists of CPUs, and detection of CPUs that go offline.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use bprec_filter::parse_cpu_list;
use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::error::{Error, Result};

const DIRECTORY: &str = "/sys/devices/system/cpu";
/// Start of the kernel's message that a CPU went offline; the number of the CPU follows.
const WENT_OFFLINE: &str = "offline@/devices/system/cpu/cpu";
/// Multicast group of the kernel's own device messages.
const OF_KERNEL: u32 = 1;
/// The kernel's limit on the length of a device message.
const MESSAGE_BYTES: usize = 2048 + 512;

/// CPUs that run tasks now, ascending.
///
/// # Errors
/// Fails if the list in /sys cannot be read.
pub fn online_cpus() -> Result<Vec<u32>> {
    list_in("online")
}

/// CPUs that may ever come online, ascending. Per-CPU maps have a value for each of these CPUs.
///
/// # Errors
/// Fails if the list in /sys cannot be read.
pub fn possible_cpus() -> Result<Vec<u32>> {
    list_in("possible")
}

/// CPUs that are present, online or offline, ascending.
///
/// # Errors
/// Fails if the list in /sys cannot be read.
pub fn present_cpus() -> Result<Vec<u32>> {
    list_in("present")
}

/// Listener for CPUs that go offline, even for a time too short for the lists in /sys to show.
#[derive(Debug)]
pub struct OfflineCpus(OwnedFd);

impl OfflineCpus {
    /// Starts to listen.
    ///
    /// # Errors
    /// Fails if the kernel refuses the socket, as it does without CONFIG_NET.
    pub fn listen() -> io::Result<OfflineCpus> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, OF_KERNEL))?;
        Ok(OfflineCpus(socket))
    }

    /// CPUs that went offline since the last call. They may be online again.
    pub fn take(&self) -> BTreeSet<u32> {
        let mut cpus = BTreeSet::new();
        let mut message = [0; MESSAGE_BYTES];
        loop {
            match recv(&self.0, &mut message[..], RecvFlags::empty()) {
                Ok((0, _)) => return cpus,
                Ok((bytes, _)) => cpus.extend(message.get(..bytes).and_then(went_offline)),
                // Messages that did not fit into the socket buffer are lost; later messages follow.
                Err(Errno::INTR | Errno::NOBUFS) => (),
                Err(_) => return cpus,
            }
        }
    }
}

/// CPU that went offline, if the message reports this; `None` for other messages.
fn went_offline(message: &[u8]) -> Option<u32> {
    let text = message.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(text).ok()?.strip_prefix(WENT_OFFLINE)?.parse().ok()
}

fn list_in(name: &str) -> Result<Vec<u32>> {
    let path = format!("{DIRECTORY}/{name}");
    let text = fs::read_to_string(&path).map_err(|source| Error::new(&path, source))?;
    let wrong = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the kernel's list of CPUs is empty or malformed: {:?}", text.trim()),
        )
    };
    parse_cpu_list(&text).filter(|cpus| !cpus.is_empty()).ok_or_else(|| Error::new(&path, wrong()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_cpus_that_go_offline_are_told_from_others() {
        assert_eq!(went_offline(b"offline@/devices/system/cpu/cpu12\0ACTION=offline\0SUBSYSTEM=cpu\0"), Some(12));
        for other in [
            "online@/devices/system/cpu/cpu1\0ACTION=online\0",
            "offline@/devices/system/memory/memory1\0",
            "offline@/devices/system/cpu/cpu\0",
            "",
        ] {
            assert_eq!(went_offline(other.as_bytes()), None, "{other:?}");
        }
        assert!(OfflineCpus::listen().unwrap().take().is_empty());
    }

    #[test]
    fn online_cpus_are_present_and_present_ones_possible() {
        let (online, present, possible) = (online_cpus().unwrap(), present_cpus().unwrap(), possible_cpus().unwrap());
        assert!(online.iter().all(|cpu| present.contains(cpu)), "{online:?} {present:?}");
        assert!(present.iter().all(|cpu| possible.contains(cpu)), "{present:?} {possible:?}");
    }
}
