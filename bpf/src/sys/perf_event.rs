//! Putting a program on a perf event, by the two calls there are for it; and what libbpf-rs does not wrap.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{AsRawLibbpf, OpenMapMut};

use super::{Attr, bpf_fd};

/// Command `BPF_LINK_CREATE` of `bpf(2)`.
const LINK_CREATE: i32 = 28;
/// `BPF_PERF_EVENT` of `enum bpf_attach_type`.
const BPF_PERF_EVENT: u32 = 41;

/// Makes a link from a program to a perf event; the cookie is what `bpf_get_attach_cookie()` answers. Err is the errno.
pub(crate) fn link_to_event(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> Result<OwnedFd, i32> {
    let mut attr = Attr::new();
    attr.put_fd(0, program);
    attr.put_fd(4, event);
    attr.put_u32(8, BPF_PERF_EVENT);
    attr.put_u64(16, cookie);
    // SAFETY: the command takes no pointers for this attach type and returns a descriptor.
    unsafe { bpf_fd(LINK_CREATE, &mut attr, 24) }
}

/// Puts a program on a perf event for as long as the event lives. Err is the errno.
pub(crate) fn set_program(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), i32> {
    /// `PERF_EVENT_IOC_SET_BPF`
    const SET_BPF: libc::Ioctl = libc::_IOW::<u32>(b'$' as u32, 8);
    // SAFETY: the request takes a descriptor as a number.
    match unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// Takes from a map of an object that is not loaded yet the path to be pinned at; whether it had one.
pub(crate) fn forget_pin(map: &mut OpenMapMut<'_>) -> bool {
    let map = map.as_libbpf_object();
    // SAFETY: the map is open and borrowed exclusively; libbpf answers with a pointer or null, and takes null for no path.
    unsafe {
        let had_one = !libbpf_rs::libbpf_sys::bpf_map__pin_path(map.as_ptr()).is_null();
        libbpf_rs::libbpf_sys::bpf_map__set_pin_path(map.as_ptr(), std::ptr::null());
        had_one
    }
}
