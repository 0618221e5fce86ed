//! Socket options that are larger than a number: what the firewalls answer by.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads an option of a socket into `buffer`, of which some options read a request first. Answers how many bytes it has; Err is the errno.
pub(crate) fn socket_option(socket: BorrowedFd<'_>, level: i32, option: i32, buffer: &mut [u8]) -> Result<usize, i32> {
    let mut len = libc::socklen_t::try_from(buffer.len()).map_err(|_| libc::EINVAL)?;
    // SAFETY: the kernel reads and writes at most `len` bytes of `buffer`, which is initialised, that long and borrowed exclusively for the
    // call, and writes `len`.
    let answer =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, buffer.as_mut_ptr().cast(), &raw mut len) };
    if answer < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    }
    Ok((len as usize).min(buffer.len()))
}
