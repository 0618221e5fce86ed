//! The system calls that the standard library has no name for. With `ring` the only room of this crate with `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use bprec_format::state::Reading;
use bprec_format::{ATTR_SIZE_MAX, Endian, EventAttr};
use perf_event_open_sys as perf;

pub(crate) use bprec_bpf::private_mount;

/// `CLOCK_MONOTONIC`, which also is what BPF programs read.
pub(crate) const CLOCK_MONOTONIC: i32 = libc::CLOCK_MONOTONIC;
/// `CLOCK_BOOTTIME`, the clock of `bpf_prog_info.load_time`.
pub(crate) const CLOCK_BOOTTIME: i32 = libc::CLOCK_BOOTTIME;
/// `CLOCK_REALTIME`.
pub(crate) const CLOCK_REALTIME: i32 = libc::CLOCK_REALTIME;

/// `struct perf_event_attr`, aligned as the kernel's headers have it.
#[repr(C, align(8))]
struct AttrBytes([u8; ATTR_SIZE_MAX]);

/// Opens an event for a task (`pid`, −1 for all) on a CPU (−1 for any).
///
/// The attr is handed over in the smallest size that holds it, so that kernels which know less accept it too.
pub(crate) fn perf_event_open(attr: &EventAttr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    open_counter_at(attr, pid, cpu, None, false)
}

/// Opens an event that counts all tasks on a CPU, on the hardware together with its leader.
pub(crate) fn open_counter(attr: &EventAttr, cpu: i32, leader: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    open_counter_at(attr, -1, cpu, leader, false)
}

/// Opens an event that counts a task, all of them (`pid` −1) or a cgroup (`pid` is a descriptor of its directory), on a CPU or on
/// any (−1), on the hardware together with its leader.
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
    // SAFETY: the kernel reads `size` bytes of the attr (in its second word, at most ATTR_SIZE_MAX) and, on E2BIG, writes
    // its own size into that word; the block is initialised, of that length, and borrowed exclusively for the call.
    let fd = unsafe { perf::perf_event_open((&raw mut block).cast(), pid, cpu, group, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Bytes of `struct perf_event_attr` as this kernel knows it.
pub(crate) fn kernel_attr_bytes() -> Option<usize> {
    let mut block = AttrBytes([0; ATTR_SIZE_MAX]);
    // More than any page: the kernel reads nothing of it, and answers with the size that it would take.
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

/// Sends what `event` writes into the ring of `owner`, which must be on the same CPU.
pub(crate) fn set_output(event: BorrowedFd<'_>, owner: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes a descriptor as a number, and `owner` is open.
    answer(unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) }).map(drop)
}

/// The id that the event's records carry.
pub(crate) fn event_id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0u64;
    // SAFETY: the request writes one u64 to the pointer, which is exclusively borrowed for the call.
    answer(unsafe { perf::ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Reads the counter of an event that was opened with `PERF_FORMAT_LOST` alone: its value, and how much it lost.
pub(crate) fn read_counter(event: BorrowedFd<'_>) -> io::Result<[u64; 2]> {
    let mut values = [0u64; 2];
    // SAFETY: `values` is writable for the length given.
    let read = unsafe { libc::read(event.as_raw_fd(), values.as_mut_ptr().cast(), size_of_val(&values)) };
    match usize::try_from(read) {
        Ok(bytes) if bytes == size_of_val(&values) => Ok(values),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Reads the counter of an event that was opened with `PERF_FORMAT_LOST` at most: its value.
pub(crate) fn read_value(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut values = [0u64; 2];
    // SAFETY: `values` is writable for the length given.
    let read = unsafe { libc::read(event.as_raw_fd(), values.as_mut_ptr().cast(), size_of_val(&values)) };
    match usize::try_from(read) {
        Ok(bytes) if bytes >= size_of::<u64>() => Ok(values[0]),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Reads the counter of an event that was opened with both `PERF_FORMAT_TOTAL_TIME_*` alone.
pub(crate) fn read_reading(event: BorrowedFd<'_>) -> io::Result<Reading> {
    let mut values = [0u64; 3];
    // SAFETY: `values` is writable for the length given.
    let read = unsafe { libc::read(event.as_raw_fd(), values.as_mut_ptr().cast(), size_of_val(&values)) };
    match usize::try_from(read) {
        Ok(bytes) if bytes == size_of_val(&values) => {
            let [value, enabled_ns, running_ns] = values;
            Ok(Reading { value, enabled_ns, running_ns })
        }
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// What [`poll`] found of one descriptor.
pub(crate) type PollFd = libc::pollfd;

/// A descriptor to wait for input on.
pub(crate) fn poll_in(fd: BorrowedFd<'_>) -> PollFd {
    PollFd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Stops waiting for descriptors whose other side is gone or in error, as they would never let [`poll`] wait again.
pub(crate) fn drop_hung_up(fds: &mut [PollFd]) {
    for fd in fds.iter_mut().filter(|fd| fd.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0) {
        fd.fd = -1;
    }
}

/// Waits until one of the descriptors is ready or the time is over; an interruption counts as a timeout.
pub(crate) fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<()> {
    // Rounded up: a rest below a millisecond must not become a busy loop.
    let ms = timeout.map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: `fds` is a slice of pollfd, exclusively borrowed, of the length given.
    match answer(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            fds.iter_mut().for_each(|fd| fd.revents = 0);
            Ok(())
        }
        other => other.map(drop),
    }
}

/// SIGINT, SIGTERM, SIGHUP and SIGCHLD as input on a descriptor rather than interruptions, as long as this lives.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

/// A signal that asks for the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// Its number.
    pub(crate) signal: i32,
    /// The terminal sent it, to everything in the foreground, and no process.
    pub(crate) by_kernel: bool,
}

/// What [`Signals`] blocks.
const BLOCKED: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD];

impl Signals {
    /// Blocks the signals in this thread and those it starts from now on.
    ///
    /// # Errors
    /// When the kernel has no descriptor to tell of them.
    pub(crate) fn block() -> crate::Result<Signals> {
        Signals::try_block().map_err(|answer| crate::Error::Syscall {
            call: "signalfd",
            object: "SIGINT, SIGTERM".to_owned(),
            answer,
            remedy: String::new(),
        })
    }

    fn try_block() -> io::Result<Signals> {
        // SAFETY: sigset_t is plain data for which all zeros is a value; the calls get pointers to locals.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in BLOCKED {
                libc::sigaddset(&raw mut set, signal);
            }
            let fd = answer(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
            let fd = OwnedFd::from_raw_fd(fd);
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) {
                0 => Ok(Signals { fd, before }),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// To poll for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.fd.as_fd()
    }

    /// Takes what has arrived; whether one asks for the end.
    pub(crate) fn take(&self) -> bool {
        self.take_asked().is_some()
    }

    /// Takes what has arrived; the last one that asks for the end.
    pub(crate) fn take_asked(&self) -> Option<Asked> {
        let mut asked = None;
        loop {
            // SAFETY: signalfd_siginfo is plain data for which all zeros is a value.
            let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
            let bytes = size_of::<libc::signalfd_siginfo>();
            // SAFETY: `info` is writable for the length given.
            let read = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), bytes) };
            if read != bytes as isize {
                return asked;
            }
            if info.ssi_signo != libc::SIGCHLD as u32 {
                asked = Some(Asked { signal: info.ssi_signo as i32, by_kernel: info.ssi_code == libc::SI_KERNEL });
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.take();
        // SAFETY: `before` is the mask that block() got from the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// A counter to wake another thread with: writing one makes it readable.
pub(crate) fn eventfd() -> io::Result<File> {
    // SAFETY: takes no pointers.
    let fd = answer(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the kernel just made this descriptor for us; nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A pipe, reading end first.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the kernel writes two descriptors to the array and hands them to us alone.
    unsafe {
        answer(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// Makes room in a pipe, so that a reader who pauses does not stop us at once. Not every output is a pipe.
pub(crate) fn widen_pipe(fd: BorrowedFd<'_>, bytes: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) };
}

/// Lets the command's process, once forked, tell its pid on `tell` and wait on `wait` before it execs. When `go`, the
/// other end of `wait`, closes without a byte it gives up instead.
pub(crate) fn hold_before_exec(command: &mut Command, tell: OwnedFd, wait: OwnedFd, go: BorrowedFd<'_>) {
    let go_in_child = go.as_raw_fd();
    let hook = move || {
        // SAFETY: getpid, close, write, read and what handles signal sets are async-signal-safe, as the time between fork
        // and exec demands; sigset_t is plain data for which all zeros is a value. The two descriptors used are owned by this closure and the buffers are locals. The one closed is this process's
        // own copy of `go`, open when it was forked; nothing uses it here.
        unsafe {
            // Its own copy would keep the pipe open after the recorder has ended.
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
            // A shell that is blind to SIGCHLD waits for its children for ever.
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in BLOCKED {
                libc::sigaddset(&raw mut set, signal);
            }
            answer(libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut())).map(drop)
        }
    };
    // SAFETY: the hook makes async-signal-safe calls only and allocates nothing.
    unsafe { command.pre_exec(hook) };
}

/// Sends SIGTERM to a child that has not been waited for.
pub(crate) fn terminate(pid: i32) {
    send(pid, libc::SIGTERM);
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn send(pid: i32, signal: i32) {
    // SAFETY: takes no pointers; the caller has not waited for the child, so the pid is still its own.
    unsafe { libc::kill(pid, signal) };
}

/// Raises the limit of open files as far as it goes; the limit that holds now.
pub(crate) fn raise_open_files() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls get a pointer to a local.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return 0;
        }
        let before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0 {
            return before;
        }
    }
    limit.rlim_cur
}

/// Asks that this thread runs before ordinary ones; whether that was granted.
pub(crate) fn become_urgent() -> bool {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the first call gets a pointer to a local; 0 means the calling thread in both. gettid takes nothing.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const param) == 0
            || libc::setpriority(libc::PRIO_PROCESS, libc::gettid().cast_unsigned(), -20) == 0
    }
}

/// The time of a clock, ns.
pub(crate) fn clock_ns(clock: i32) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to the local.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The resolution of a clock, ns.
pub(crate) fn clock_resolution_ns(clock: i32) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to the local.
    unsafe { libc::clock_getres(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// What this process has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// CPU time in user mode.
    pub(crate) user_ns: u64,
    /// CPU time in the kernel.
    pub(crate) system_ns: u64,
    /// Largest resident set.
    pub(crate) max_rss_bytes: u64,
}

/// What this process, without its children, has used so far.
pub(crate) fn usage() -> Usage {
    // SAFETY: rusage is plain data for which all zeros is a value, and the kernel writes one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_usec.cast_unsigned() * 1000;
    Usage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        max_rss_bytes: usage.ru_maxrss.cast_unsigned() * 1024,
    }
}

/// CPU time in user mode and in the kernel of the children that were waited for.
pub(crate) fn children_usage() -> (Duration, Duration) {
    // SAFETY: rusage is plain data for which all zeros is a value, and the kernel writes one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.cast_unsigned()) + Duration::from_micros(time.tv_usec.cast_unsigned())
    };
    (time(usage.ru_utime), time(usage.ru_stime))
}

/// Bytes of a page.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: takes no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn answer(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
