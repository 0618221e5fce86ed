//! Attaches programs by system calls, and clears the pin path of a map, which libbpf-rs does not wrap.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as cmd;
use libbpf_rs::{AsRawLibbpf, OpenMapMut};

use super::syscall::{Attr, attr_end, bpf_fd, number};

/// Attaches a tracing program to the target that it was loaded for. `Err` holds the errno.
pub(crate) fn attach_tracing(program: BorrowedFd<'_>) -> Result<OwnedFd, i32> {
    let mut attr = Attr::default();
    // This command is older than `BPF_LINK_CREATE`; every kernel with tracing programs accepts it.
    attr.raw_tracepoint.prog_fd = number(program);
    // SAFETY: the pointer to a name is null; the command returns a descriptor.
    unsafe { bpf_fd(cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr, attr_end!(raw_tracepoint.prog_fd)) }
}

/// Attaches a program to a raw tracepoint until the descriptor is closed. `Err` holds the errno.
pub(crate) fn attach_raw_tracepoint(program: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, i32> {
    let mut attr = Attr::default();
    attr.raw_tracepoint.name = name.as_ptr() as u64;
    attr.raw_tracepoint.prog_fd = number(program);
    // SAFETY: the name ends in a NUL and outlives the call; the command returns a descriptor.
    unsafe { bpf_fd(cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr, attr_end!(raw_tracepoint.prog_fd)) }
}

/// Creates a link from a program to a perf event; `bpf_get_attach_cookie()` returns `cookie`. `Err` holds the errno.
pub(crate) fn link_to_event(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> Result<OwnedFd, i32> {
    let mut attr = Attr::default();
    attr.link_create.__bindgen_anon_1.prog_fd = number(program);
    attr.link_create.__bindgen_anon_2.target_fd = number(event);
    attr.link_create.attach_type = cmd::BPF_PERF_EVENT;
    attr.link_create.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    // SAFETY: the command takes no pointers for this attach type and returns a descriptor.
    unsafe { bpf_fd(cmd::BPF_LINK_CREATE, &mut attr, attr_end!(link_create.__bindgen_anon_3.perf_event.bpf_cookie)) }
}

/// Attaches a program to a perf event for as long as the event lives. `Err` holds the errno.
pub(crate) fn set_program(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), i32> {
    /// `PERF_EVENT_IOC_SET_BPF`
    const SET_BPF: libc::Ioctl = libc::_IOW::<u32>(b'$' as u32, 8);
    // SAFETY: the request takes a descriptor as a number.
    match unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// Clears the pin path of a map in an object that is not loaded yet. Returns true if the map had a pin path.
pub(crate) fn forget_pin(map: &mut OpenMapMut<'_>) -> bool {
    let map = map.as_libbpf_object();
    // SAFETY: the map is open and borrowed exclusively; libbpf returns a pointer or null, and accepts null for "no path".
    unsafe {
        let had_one = !cmd::bpf_map__pin_path(map.as_ptr()).is_null();
        cmd::bpf_map__set_pin_path(map.as_ptr(), std::ptr::null());
        had_one
    }
}
