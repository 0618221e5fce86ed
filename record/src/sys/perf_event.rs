//! `perf_event_open(2)` and the ioctls on its descriptors.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use bprec_format::{ATTR_SIZE_MAX, Endian, EventAttr};
use perf_event_open_sys as perf;

/// `struct perf_event_attr`, aligned as the kernel's headers have it.
#[repr(C, align(8))]
struct AttrBytes([u8; ATTR_SIZE_MAX]);

/// Opens an event for a task (`pid`, −1 for all) on a CPU (−1 for any).
///
/// The attr is passed in the smallest size that holds its fields, so that older kernels accept it too.
pub(crate) fn perf_event_open(attr: &EventAttr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    open_counter_at(attr, pid, cpu, None, false)
}

/// Opens an event that counts all tasks on a CPU, in the group of `leader`.
pub(crate) fn open_counter(attr: &EventAttr, cpu: i32, leader: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    open_counter_at(attr, -1, cpu, leader, false)
}

/// Opens an event that counts a task, all tasks (`pid` −1) or a cgroup (`pid` is a descriptor of its directory), on one CPU or on
/// any (`cpu` −1), in the group of `leader`.
pub(crate) fn open_counter_at(
    attr: &EventAttr,
    pid: i32,
    cpu: i32,
    leader: Option<BorrowedFd<'_>>,
    of_cgroup: bool,
) -> io::Result<OwnedFd> {
    let mut bytes = Vec::with_capacity(ATTR_SIZE_MAX);
    EventAttr { size: attr.smallest_size(), ..attr.clone() }.encode(&mut bytes, Endian::NATIVE);
    let mut block = AttrBytes([0; ATTR_SIZE_MAX]);
    block.0[..bytes.len()].copy_from_slice(&bytes);
    let cgroup = if of_cgroup { perf::bindings::PERF_FLAG_PID_CGROUP } else { 0 };
    let flags = libc::c_ulong::from(perf::bindings::PERF_FLAG_FD_CLOEXEC | cgroup);
    let group = leader.map_or(-1, |leader| leader.as_raw_fd());
    // SAFETY: the kernel reads as many bytes as the attr's second word says: at most ATTR_SIZE_MAX, the length of the block. On
    // E2BIG the kernel writes its own size into that word. The block is initialised and borrowed exclusively for the call.
    let fd = unsafe { perf::perf_event_open((&raw mut block).cast(), pid, cpu, group, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for this call; no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the size of `struct perf_event_attr` in this kernel, bytes; `None` if the kernel does not report it.
pub(crate) fn kernel_attr_bytes() -> Option<usize> {
    let mut block = AttrBytes([0; ATTR_SIZE_MAX]);
    // The size is larger than a page: the kernel refuses the attr with E2BIG and writes its own size into it.
    block.0[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    // SAFETY: the kernel reads the second word of the attr, refuses it, and writes its own size into that word; the block is
    // initialised and borrowed exclusively for the call.
    let fd = unsafe { perf::perf_event_open((&raw mut block).cast(), 0, -1, -1, 0) };
    let size = u32::from_ne_bytes([block.0[4], block.0[5], block.0[6], block.0[7]]);
    (fd < 0 && size != u32::MAX).then_some(size as usize)
}

/// Switches an event on.
pub(crate) fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes a number.
    answer(unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// Switches an event off.
pub(crate) fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes a number.
    answer(unsafe { perf::ioctls::DISABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// Pauses or resumes the writing of records into an event's ring.
pub(crate) fn pause_output(event: BorrowedFd<'_>, is_paused: bool) -> io::Result<()> {
    // SAFETY: the request takes a number.
    answer(unsafe { perf::ioctls::PAUSE_OUTPUT(event.as_raw_fd(), u32::from(is_paused)) }).map(drop)
}

/// Directs the records of `event` into the ring of `owner`, which must be on the same CPU.
pub(crate) fn set_output(event: BorrowedFd<'_>, owner: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes a descriptor as a number, and `owner` is open.
    answer(unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) }).map(drop)
}

/// Returns the id that the event's records carry.
pub(crate) fn event_id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0u64;
    // SAFETY: the request writes one u64 to the pointer, which is exclusively borrowed for the call.
    answer(unsafe { perf::ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Reads the value of an event's counter, and the number of its lost records if the event's read format is `PERF_FORMAT_LOST`. The event must
/// have no other read format.
pub(crate) fn read_counter(event: BorrowedFd<'_>) -> io::Result<(u64, Option<u64>)> {
    let mut values = [0u64; 2];
    // SAFETY: `values` is writable for the length given.
    let read = unsafe { libc::read(event.as_raw_fd(), values.as_mut_ptr().cast(), size_of_val(&values)) };
    match usize::try_from(read) {
        Ok(16) => Ok((values[0], Some(values[1]))),
        Ok(8) => Ok((values[0], None)),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn answer(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
