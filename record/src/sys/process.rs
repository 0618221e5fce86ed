//! The process of the command between fork and exec, and the resources and limits of the recorder's own process.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::signals::{BLOCKED, set_disposition};

/// Minimum size of a block that the C library maps separately.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK_BYTES: libc::c_int = 256 << 10;

/// Settings to restore for the command, because the recorder changed them for itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inherited {
    /// Limit of open files.
    pub(crate) open_files: Rlimit,
    /// True if SIGCHLD was ignored.
    pub(crate) ignores_children: bool,
}

/// Makes the forked process of the command write its pid to `tell` and wait on `wait` before the exec. The process
/// gives up if `go`, the other end of `wait`, closes without a byte.
pub(crate) fn hold_before_exec(
    command: &mut Command,
    tell: OwnedFd,
    wait: OwnedFd,
    go: BorrowedFd<'_>,
    inherited: Inherited,
) {
    let go_in_child = go.as_raw_fd();
    let hook = move || {
        // SAFETY: between fork and exec, only async-signal-safe functions are allowed. getpid, close, write, read and the functions for signal sets
        // are async-signal-safe. sigset_t is plain data, for which all zeros is a valid value. This closure owns `tell` and `wait`, and the buffers
        // are locals. The closed descriptor is this process's copy of `go`, which was open at the fork; no code here uses it.
        unsafe {
            // A copy of `go` in this process would keep the pipe open after the recorder has ended.
            libc::close(go_in_child);
            let pid = libc::getpid().to_ne_bytes();
            if libc::write(tell.as_raw_fd(), pid.as_ptr().cast(), pid.len()) != pid.len() as isize {
                return Err(io::Error::last_os_error());
            }
            let mut go = 0u8;
            loop {
                match libc::read(wait.as_raw_fd(), (&raw mut go).cast(), 1) {
                    1 => break,
                    0 => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => (),
                    _ => return Err(io::Error::last_os_error()),
                }
            }
            // Unblocks the signals that the recorder blocks: a shell with SIGCHLD blocked waits for its children
            // forever.
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in BLOCKED {
                libc::sigaddset(&raw mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if inherited.ignores_children {
            set_disposition(libc::SIGCHLD, libc::SIG_IGN);
        }
        // `setrlimit` is a plain system call, so it is allowed here. A failure must not prevent the command from
        // running.
        let _ = setrlimit(Resource::Nofile, inherited.open_files);
        Ok(())
    };
    // SAFETY: the hook makes async-signal-safe calls only and allocates nothing.
    unsafe { command.pre_exec(hook) };
}

/// Raises the limit of open files to its maximum and returns the previous limit.
pub(crate) fn raise_open_files() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    // If the kernel refuses, the limit is unchanged.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
    before
}

/// Limit of open files; `None` means unlimited.
pub(crate) fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Requests real-time priority for this thread, or else the largest CPU share of an ordinary thread. Returns true if the kernel
/// granted one of them.
pub(crate) fn become_urgent() -> bool {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call gets a pointer to a local; 0 means the calling thread.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const param) == 0
            || become_favoured()
    }
}

/// Requests the largest CPU share of an ordinary thread for this thread; returns true if the kernel granted it.
pub(crate) fn become_favoured() -> bool {
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), -20).is_ok()
}

/// Memory of the machine in bytes.
pub(crate) fn memory_bytes() -> Option<u64> {
    // SAFETY: takes no pointers.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).ok().map(|pages| pages.saturating_mul(rustix::param::page_size() as u64))
}

/// Resources that this process has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// CPU time in user mode.
    pub(crate) user_ns: u64,
    /// CPU time in the kernel.
    pub(crate) system_ns: u64,
    /// Largest resident set size.
    pub(crate) max_rss_bytes: u64,
}

/// Resources that this process, without its children, has used so far.
pub(crate) fn usage() -> Usage {
    let usage = rusage(libc::RUSAGE_SELF);
    let ns = |time| u64::try_from(duration(time).as_nanos()).unwrap_or(u64::MAX);
    Usage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        max_rss_bytes: usage.ru_maxrss.cast_unsigned() * 1024,
    }
}

/// User and kernel CPU time of the children that the process has waited for.
pub(crate) fn children_usage() -> (Duration, Duration) {
    let usage = rusage(libc::RUSAGE_CHILDREN);
    (duration(usage.ru_utime), duration(usage.ru_stime))
}

fn rusage(of: libc::c_int) -> libc::rusage {
    // SAFETY: rusage is plain data, so all zeros is a valid value; the kernel writes to a local.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(of, &raw mut usage);
        usage
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.cast_unsigned()) + Duration::from_micros(time.tv_usec.cast_unsigned())
}

/// Returns free memory of this process to the kernel. glibc would keep it; with other C libraries the function does nothing.
pub(crate) fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointers, and other threads may keep allocating.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes the allocator return large blocks to the kernel when they are freed. By default glibc raises its mmap threshold when large blocks
/// are freed, and then keeps such blocks in the heap.
pub(crate) fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointers. If it fails, memory is only returned later.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
    }
}

/// Returns true if the process got more rights than its caller at exec: by file capabilities or set-user-ID.
pub(crate) fn has_more_rights_than_caller() -> bool {
    // SAFETY: the call reads a value that the kernel put into this process's memory before the process started.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
