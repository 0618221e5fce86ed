//! Waits for input on descriptors, and wakes another thread that waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::Errno;

/// Entry for [`poll`] that waits for input on `fd`.
pub(crate) fn poll_in<'fd>(fd: &'fd impl AsFd) -> PollFd<'fd> {
    PollFd::new(fd, PollFlags::IN)
}

/// Waits until a descriptor is ready or the timeout expires; an interruption counts as a timeout.
///
/// # Errors
/// Fails if the kernel has no memory for the wait.
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

/// Returns true if the other end of a descriptor is closed or in error: [`poll`] would return at once forever.
pub(crate) fn is_hung_up(fd: &PollFd<'_>) -> bool {
    fd.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Descriptor that wakes a thread that polls it.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Creates a waker.
    ///
    /// # Errors
    /// Fails if the process has no free descriptors.
    pub(crate) fn new() -> crate::Result<Waker> {
        match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(fd) => Ok(Waker(Arc::new(fd))),
            Err(error) => Err(crate::Error::Syscall {
                call: "eventfd",
                object: "for wake-ups between bprec's threads".to_owned(),
                answer: error.into(),
                remedy: "raise the limit of open files (ulimit -n)".to_owned(),
            }),
        }
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        // The write fails only if 2⁶⁴ − 1 wakes are pending, and the descriptor is readable then.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Returns true if the descriptor was readable, and clears it.
    pub(crate) fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
