//! Removes many elements from a map with one call.

use std::os::fd::BorrowedFd;

use libbpf_rs::libbpf_sys as cmd;

use super::info::map_info;
use super::syscall::{Attr, attr_end, bpf, number};

/// Reads and removes elements of a hash map, as many as fit into both buffers. Keys have `key_bytes` bytes, values `value_bytes` bytes. Returns the
/// count of elements and the kernel's result: ENOENT if the map is empty now. The count is valid with any errno.
///
/// libbpf-rs's iterator over batches ends at any errno, and at a batch that is not full, even if the map has more elements.
pub(crate) fn take_batch(
    fd: BorrowedFd<'_>,
    keys: &mut [u8],
    values: &mut [u8],
    key_bytes: usize,
    value_bytes: usize,
) -> (usize, Result<(), i32>) {
    let is_as_told = map_info(fd, 0).is_ok_and(|info| {
        (info.key_size, info.value_size) == (key_bytes as u32, value_bytes as u32)
            && info.type_ == cmd::BPF_MAP_TYPE_HASH
    });
    if !is_as_told || key_bytes == 0 || value_bytes == 0 {
        return (0, Err(libc::EINVAL));
    }
    let room = (keys.len() / key_bytes).min(values.len() / value_bytes);
    let mut position = 0u64;
    let mut attr = Attr::default();
    attr.batch.out_batch = (&raw mut position) as u64;
    attr.batch.keys = keys.as_mut_ptr() as u64;
    attr.batch.values = values.as_mut_ptr() as u64;
    attr.batch.count = u32::try_from(room).unwrap_or(u32::MAX);
    attr.batch.map_fd = number(fd);
    // SAFETY: the map is a hash map whose keys and values have the sizes given (checked above, and they never change). The kernel therefore writes at
    // most `room` keys and values, for which `keys` and `values` have room. It writes its position, a u32, to `position`. All buffers outlive the
    // call, and nothing else refers to them.
    let answer = unsafe { bpf(cmd::BPF_MAP_LOOKUP_AND_DELETE_BATCH, &mut attr, attr_end!(batch.flags)) };
    let taken = match answer {
        // The kernel does not write the count with these errnos.
        Err(libc::EFAULT | libc::EPERM | libc::ENOSYS | libc::EINVAL) => 0,
        // SAFETY: the kernel wrote the count.
        _ => (unsafe { attr.batch.count } as usize).min(room),
    };
    (taken, answer.map(drop))
}
