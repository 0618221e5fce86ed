//! Taking many elements out of a map at once.

use std::os::fd::BorrowedFd;

use super::{Attr, bpf, cmd, get_u32, map_info};

/// Takes elements out of a hash map of `key_bytes` and `value_bytes`, from its first on: as many as there is room for in
/// both buffers. How many it were, and what the kernel said: ENOENT when the map is empty now, and also with another errno
/// that many elements were taken.
///
/// libbpf-rs's iterator over batches ends at any errno, and at a batch that is not full, as if the map were empty.
pub(crate) fn take_batch(
    fd: BorrowedFd<'_>,
    keys: &mut [u8],
    values: &mut [u8],
    key_bytes: usize,
    value_bytes: usize,
) -> (usize, Result<(), i32>) {
    let is_as_told = map_info(fd, 0).is_ok_and(|info| {
        (get_u32(&info, 8), get_u32(&info, 12)) == (key_bytes as u32, value_bytes as u32) && get_u32(&info, 0) == 1
    });
    if !is_as_told || key_bytes == 0 || value_bytes == 0 {
        return (0, Err(libc::EINVAL));
    }
    let room = (keys.len() / key_bytes).min(values.len() / value_bytes);
    let mut position = 0u64;
    let mut attr = Attr::new();
    attr.put_u64(8, (&raw mut position) as u64);
    attr.put_u64(16, keys.as_mut_ptr() as u64);
    attr.put_u64(24, values.as_mut_ptr() as u64);
    attr.put_u32(32, u32::try_from(room).unwrap_or(u32::MAX));
    attr.put_fd(36, fd);
    // SAFETY: the map is a hash map whose keys and values have the sizes given (checked above, and they never change), so
    // that the kernel writes at most `room` of each: `keys` and `values` have that room. It writes its position, a u32, to
    // `position`. All outlive the call, and nothing else refers to them.
    let answer = unsafe { bpf(cmd::MAP_LOOKUP_AND_DELETE_BATCH, &mut attr, 56) };
    let taken = match answer {
        // The count is not written then.
        Err(libc::EFAULT | libc::EPERM | libc::ENOSYS | libc::EINVAL) => 0,
        _ => (attr.u32(32) as usize).min(room),
    };
    (taken, answer.map(drop))
}
