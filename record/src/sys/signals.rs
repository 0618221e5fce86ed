//! Signals as input on a descriptor.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Makes SIGINT, SIGTERM, SIGHUP and SIGCHLD, and SIGUSR2 if it is used, readable from a descriptor instead of
/// interrupting the process, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
    /// True if this process started with SIGCHLD ignored. The command, and this process after the drop, ignore it again.
    ignores_children: bool,
}

/// Signal that ends the recording.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// Signal number.
    pub(crate) signal: i32,
    /// True if the kernel sent the signal, as for Ctrl-C in a terminal: the whole foreground process group receives it.
    /// False if a process sent the signal.
    pub(crate) by_kernel: bool,
}

/// Signals that [`Signals`] can block.
pub(super) const BLOCKED: [libc::c_int; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD, libc::SIGUSR2];

/// Signals that have arrived.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrived {
    /// Last signal that ends the recording.
    pub(crate) end: Option<Asked>,
    /// True if SIGUSR2 has arrived.
    pub(crate) user: bool,
}

impl Signals {
    /// Blocks the signals in this thread and in the threads that it starts later.
    ///
    /// An ignored SIGHUP stays ignored, as under `nohup`; blocking would make it arrive. An ignored SIGINT does not
    /// stay ignored: shells without job control ignore it in background commands, and `kill -INT` is the usual way to
    /// end a recording there. SIGUSR2 is blocked only if `takes_user` is true.
    ///
    /// # Errors
    /// Fails if the kernel provides no descriptor for the signals.
    pub(crate) fn block(takes_user: bool) -> crate::Result<Signals> {
        Signals::try_block(takes_user).map_err(crate::Error::refused("signalfd", "SIGINT, SIGTERM"))
    }

    fn try_block(takes_user: bool) -> io::Result<Signals> {
        // The action of SIGCHLD is set before any child starts: while SIGCHLD is ignored, the kernel keeps no exit status of
        // children.
        let ignores_children = is_ignored(libc::SIGCHLD)?;
        if ignores_children {
            set_disposition(libc::SIGCHLD, libc::SIG_DFL);
        }
        let leaves_hangups = is_ignored(libc::SIGHUP)?;
        let wanted = BLOCKED.into_iter().filter(|signal| match *signal {
            libc::SIGHUP => !leaves_hangups,
            libc::SIGUSR2 => takes_user,
            _ => true,
        });
        // SAFETY: sigset_t is plain data for which all zeros is a value; the calls get pointers to locals.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in wanted {
                libc::sigaddset(&raw mut set, signal);
            }
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = OwnedFd::from_raw_fd(fd);
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) {
                0 => Ok(Signals { fd, before, ignores_children }),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// Returns true if this process started with SIGCHLD ignored; the command starts with the same setting.
    pub(crate) fn ignores_children(&self) -> bool {
        self.ignores_children
    }

    /// Reads the signals that have arrived.
    pub(crate) fn take(&self) -> Arrived {
        let mut arrived = Arrived::default();
        loop {
            // SAFETY: signalfd_siginfo is plain data for which all zeros is a value.
            let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
            let bytes = size_of::<libc::signalfd_siginfo>();
            // SAFETY: `info` is writable for the length given.
            let read = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), bytes) };
            if read != bytes as isize {
                return arrived;
            }
            match info.ssi_signo.cast_signed() {
                libc::SIGCHLD => (),
                libc::SIGUSR2 => arrived.user = true,
                signal => arrived.end = Some(Asked { signal, by_kernel: info.ssi_code == libc::SI_KERNEL }),
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.take();
        if self.ignores_children {
            set_disposition(libc::SIGCHLD, libc::SIG_IGN);
        }
        // SAFETY: `before` is the mask that block() got from the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the local is read only if the call succeeded: then the kernel has filled it in.
    unsafe {
        match libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) {
            0 => Ok(action.assume_init().sa_sigaction == libc::SIG_IGN),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Makes the kernel refuse a write beyond the file size limit (`ulimit -f`) instead of ending the process. A command
/// that the recorder starts gets the default action back, because exec resets handlers; it would keep an ignored
/// signal.
pub fn survive_file_size_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the function does nothing, which is async-signal-safe.
    unsafe { libc::signal(libc::SIGXFSZ, nothing as *const () as libc::sighandler_t) };
}

/// Makes the kernel ignore a signal, or take its default action. Async-signal-safe.
pub(super) fn set_disposition(signal: libc::c_int, disposition: libc::sighandler_t) {
    // SAFETY: all callers pass SIG_IGN or SIG_DFL, never a function.
    unsafe { libc::signal(signal, disposition) };
}
