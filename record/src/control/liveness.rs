//! Finds out when the recorded or counted tasks have ended.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::sys;

/// Watched tasks. The recording ends when all of them have ended.
#[derive(Debug)]
pub(crate) struct Liveness {
    tasks: Vec<Task>,
}

#[derive(Debug)]
enum Task {
    /// A process; its descriptor is readable when the process has ended, even before its parent has waited for it.
    Process(OwnedFd),
    /// Id of a task that has no pidfd: a thread, or any task before Linux 5.3, which has no `pidfd_open`. The kernel
    /// may reuse the id.
    Number(u32),
    Gone,
}

impl Liveness {
    /// Watches these processes or threads.
    pub(crate) fn watch(ids: &[u32]) -> Liveness {
        let watch = |id: &u32| {
            let pid = i32::try_from(*id).ok().and_then(Pid::from_raw);
            match pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                Some(Ok(process)) => Task::Process(process),
                Some(Err(rustix::io::Errno::SRCH)) | None => Task::Gone,
                Some(Err(_)) => Task::Number(*id),
            }
        };
        Liveness { tasks: ids.iter().map(watch).collect() }
    }

    /// Descriptors of the processes, readable when they end. The other tasks have nothing to poll: the caller has to
    /// call `are_gone` from time to time.
    pub(crate) fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.tasks.iter().filter_map(|task| match task {
            Task::Process(process) => Some(process),
            _ => None,
        })
    }

    /// Returns true if all tasks have ended.
    pub(crate) fn are_gone(&mut self) -> bool {
        for task in &mut self.tasks {
            let has_ended = match task {
                Task::Process(process) => is_readable(process),
                Task::Number(id) => !bprec_host::is_alive(*id),
                Task::Gone => true,
            };
            if has_ended {
                *task = Task::Gone;
            }
        }
        self.tasks.iter().all(|task| matches!(task, Task::Gone))
    }
}

/// Returns true if a descriptor is readable now.
pub(super) fn is_readable(fd: &impl AsFd) -> bool {
    let mut fds = [sys::poll_in(fd)];
    sys::poll(&mut fds, Some(Duration::ZERO)).is_ok() && !fds[0].revents().is_empty()
}
