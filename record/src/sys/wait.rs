//! Waiting for descriptors, and waking another thread that does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::Errno;

/// A descriptor to wait for input on.
pub(crate) fn poll_in<'fd>(fd: &'fd impl AsFd) -> PollFd<'fd> {
    PollFd::new(fd, PollFlags::IN)
}

/// Waits until one of the descriptors is ready or the time is over; an interruption counts as a timeout.
///
/// # Errors
/// When the kernel has no memory for it.
pub(crate) fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => {
            fds.iter_mut().for_each(PollFd::clear_revents);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// True if the other side of a descriptor is gone or in error: it would never let [`poll`] wait again.
pub(crate) fn is_hung_up(fd: &PollFd<'_>) -> bool {
    fd.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Wakes a thread that polls for it.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// # Errors
    /// When there are no more descriptors.
    pub(crate) fn new() -> crate::Result<Waker> {
        match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(fd) => Ok(Waker(Arc::new(fd))),
            Err(error) => Err(crate::Error::Syscall {
                call: "eventfd",
                object: "between the recorder's threads".to_owned(),
                answer: error.into(),
                remedy: "raise the limit of open files (ulimit -n)".to_owned(),
            }),
        }
    }

    /// Makes it readable.
    pub(crate) fn wake(&self) {
        // It fails only when 2⁶⁴ − 1 wakes were not taken, and then it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// True if it was readable; it is not any more.
    pub(crate) fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
