//! Controls the disk access of a program call by call. Each call that concerns a file below one directory is a step; the test can allow a step,
//! refuse it, do half of it, or kill the program before it. The kernel reports the calls before they happen (`SECCOMP_RET_USER_NOTIF`), so the test
//! uses the unchanged program with all of its threads.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Descriptor in the child that reports its calls.
const LISTENER: i32 = 200;
/// Calls that change files or names, put them on the disk, or open them.
const CALLS: [libc::c_long; 26] = [
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_creat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_fallocate,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_msync,
];

pub(crate) type Inode = u64;

/// A call that changes the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Opens an existing file, or a file without a name.
    Open,
    /// Creates a file under a new name.
    Create {
        name: String,
        inode: Option<Inode>,
    },
    Write {
        inode: Inode,
        offset: u64,
        len: usize,
        data: Option<Vec<u8>>,
    },
    Truncate {
        inode: Inode,
        len: u64,
    },
    Sync {
        inode: Inode,
    },
    SyncNames,
    Link {
        inode: Inode,
        name: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Unlink {
        name: String,
    },
    /// The kernel refuses the step itself.
    Refused,
}

/// Answer to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Go,
    Fail(i32),
    /// Half of the data is written.
    Half,
    Kill,
}

/// Outcome of a program's run.
pub(crate) struct Run {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
    /// Steps that were allowed.
    pub(crate) steps: Vec<Step>,
    /// Number of all steps.
    pub(crate) count: usize,
}

/// Runs a program to its end; `answer` decides about each of its steps below `directory`.
pub(crate) fn run(directory: &Path, mut command: Command, answer: &mut dyn FnMut(usize, &Step) -> Answer) -> Run {
    let said = tempfile::NamedTempFile::new().unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.reopen().unwrap()).process_group(0);
    let filter = filter();
    // SAFETY: the closure makes only system calls, and the filter outlives it.
    unsafe {
        command.pre_exec(move || listen(&filter));
    }
    let mut child = command.spawn().unwrap();
    let listener = take_listener(&child);
    let mut watch = Watch {
        directory: directory.to_owned(),
        child: child.id(),
        threads: HashMap::new(),
        files: HashMap::new(),
        steps: Vec::new(),
        unread: Vec::new(),
        count: 0,
    };
    while let Some(call) = next(&listener) {
        let taken = watch.see(&call, answer);
        if taken == Answer::Kill {
            // Also kills the program's children: a child before its exec waits for an answer, too.
            // SAFETY: a signal to the group of a child that has not been waited for.
            unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
            break;
        }
        watch.reply(&listener, &call, taken);
    }
    let status = child.wait().unwrap();
    watch.settle(None);
    Run { status, said: fs::read_to_string(said.path()).unwrap(), steps: watch.steps, count: watch.count }
}

struct Watch {
    directory: PathBuf,
    child: u32,
    /// Threads that made a system call, by id; true if the thread belongs to the process under test.
    threads: HashMap<u32, bool>,
    /// Files that were seen, kept open to read them after their names are removed.
    files: HashMap<Inode, File>,
    steps: Vec<Step>,
    /// Steps with unread outcomes, by index in `steps`, each with its thread.
    unread: Vec<(u32, usize)>,
    count: usize,
}

impl Watch {
    fn see(&mut self, call: &libc::seccomp_notif, answer: &mut dyn FnMut(usize, &Step) -> Answer) -> Answer {
        let child = self.child;
        let is_own = *self.threads.entry(call.pid).or_insert_with(|| {
            fs::read_to_string(format!("/proc/{}/status", call.pid))
                .is_ok_and(|text| text.lines().any(|line| line == format!("Tgid:\t{child}")))
        });
        if !is_own {
            return Answer::Go;
        }
        self.settle(Some(call.pid));
        let Some(step) = self.step(call) else { return Answer::Go };
        let number = self.count;
        self.count += 1;
        let taken = answer(number, &step);
        if taken == Answer::Go {
            if matches!(step, Step::Create { .. } | Step::Write { data: None, .. }) {
                self.unread.push((call.pid, self.steps.len()));
            }
            self.steps.push(step);
        }
        taken
    }

    /// Reads the outcome of the steps of one thread, or of all threads.
    fn settle(&mut self, thread: Option<u32>) {
        for (_, at) in self.unread.extract_if(.., |(of, _)| thread.is_none_or(|thread| thread == *of)) {
            match &mut self.steps[at] {
                Step::Create { name, inode } => {
                    *inode = fs::symlink_metadata(self.directory.join(name)).ok().map(|about| about.ino());
                }
                Step::Write { inode, offset, len, data } => {
                    let mut bytes = vec![0; *len];
                    let read = self.files[inode].read_at(&mut bytes, *offset).unwrap();
                    bytes.truncate(read);
                    *data = Some(bytes);
                }
                _ => {}
            }
        }
    }

    fn step(&mut self, call: &libc::seccomp_notif) -> Option<Step> {
        let args = call.data.args;
        // A thread that has ended with its process has no memory, and waits for no answer.
        let memory = File::open(format!("/proc/{}/mem", call.pid)).ok()?;
        Some(match libc::c_long::from(call.data.nr) {
            libc::SYS_write | libc::SYS_pwrite64 => {
                let inode = self.inode(call, args[0])?;
                let offset =
                    if call.data.nr == libc::SYS_pwrite64 as i32 { args[3] } else { position(call.pid, args[0])? };
                let mut data = vec![0; args[2] as usize];
                let data = memory.read_exact_at(&mut data, args[1]).is_ok().then_some(data);
                Step::Write { inode, offset, len: args[2] as usize, data }
            }
            libc::SYS_writev => {
                let inode = self.inode(call, args[0])?;
                let mut vectors = vec![0; args[2] as usize * 16];
                memory.read_exact_at(&mut vectors, args[1]).ok()?;
                let len = vectors.chunks_exact(16).map(|it| u64::from_ne_bytes(it[8..].try_into().unwrap()) as usize);
                Step::Write { inode, offset: position(call.pid, args[0])?, len: len.sum(), data: None }
            }
            libc::SYS_fsync | libc::SYS_fdatasync => match self.is_directory(call, args[0]) {
                true => Step::SyncNames,
                false => Step::Sync { inode: self.inode(call, args[0])? },
            },
            libc::SYS_ftruncate => Step::Truncate { inode: self.inode(call, args[0])?, len: args[1] },
            libc::SYS_openat => self.open(&text(&memory, args[1]), args[2] as i32)?,
            libc::SYS_open => self.open(&text(&memory, args[0]), args[1] as i32)?,
            libc::SYS_rename => self.rename(&text(&memory, args[0]), &text(&memory, args[1]), 0)?,
            libc::SYS_renameat => self.rename(&text(&memory, args[1]), &text(&memory, args[3]), 0)?,
            libc::SYS_renameat2 => self.rename(&text(&memory, args[1]), &text(&memory, args[3]), args[4])?,
            libc::SYS_link => self.link(call.pid, &text(&memory, args[0]), &text(&memory, args[1]))?,
            libc::SYS_linkat => self.link(call.pid, &text(&memory, args[1]), &text(&memory, args[3]))?,
            libc::SYS_unlink => self.unlink(&text(&memory, args[0]))?,
            libc::SYS_unlinkat => self.unlink(&text(&memory, args[1]))?,
            // Asserts that no other call changes a file below the directory, because the test would miss it.
            other => {
                let is_ours = self.inode(call, args[0]).is_some() || self.name(&text(&memory, args[0])).is_some();
                assert!(!is_ours, "unexpected call {other} on one of the files");
                return None;
            }
        })
    }

    /// Returns the name of a file relative to the directory; `None` for a file elsewhere.
    fn name(&self, path: &Path) -> Option<String> {
        path.strip_prefix(&self.directory).ok()?.to_str().map(str::to_owned)
    }

    fn there(&self, name: &str) -> Option<Inode> {
        fs::symlink_metadata(self.directory.join(name)).ok().map(|about| about.ino())
    }

    /// Returns the inode of a descriptor if it is a file below the directory. Also opens the file, to read it later.
    fn inode(&mut self, call: &libc::seccomp_notif, fd: u64) -> Option<Inode> {
        let path = format!("/proc/{}/fd/{}", call.pid, fd as i32);
        let place = fs::read_link(&path).ok()?;
        let about = fs::metadata(&path).ok()?;
        if !place.starts_with(&self.directory) || !about.is_file() {
            return None;
        }
        if let Entry::Vacant(entry) = self.files.entry(about.ino()) {
            entry.insert(File::open(&path).ok()?);
        }
        Some(about.ino())
    }

    fn is_directory(&self, call: &libc::seccomp_notif, fd: u64) -> bool {
        fs::read_link(format!("/proc/{}/fd/{}", call.pid, fd as i32)).is_ok_and(|place| place == self.directory)
    }

    fn open(&mut self, path: &Path, flags: i32) -> Option<Step> {
        let name = self.name(path)?;
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            return Some(Step::Open);
        }
        Some(match self.there(&name) {
            Some(inode) if flags & libc::O_TRUNC != 0 => Step::Truncate { inode, len: 0 },
            None if flags & libc::O_CREAT != 0 => Step::Create { name, inode: None },
            _ => Step::Open,
        })
    }

    fn rename(&self, from: &Path, to: &Path, flags: u64) -> Option<Step> {
        let (from, to) = (self.name(from)?, self.name(to)?);
        let is_free = flags & u64::from(libc::RENAME_NOREPLACE) == 0 || self.there(&to).is_none();
        let is_done = self.there(&from).is_some_and(|inode| self.there(&to) != Some(inode)) && is_free;
        Some(if is_done { Step::Rename { from, to } } else { Step::Refused })
    }

    fn link(&self, thread: u32, from: &Path, to: &Path) -> Option<Step> {
        let name = self.name(to)?;
        // In `/proc/self/fd/N`, `self` is the thread of the program, not of this test.
        let from = match from.strip_prefix("/proc/self") {
            Ok(rest) => Path::new("/proc").join(thread.to_string()).join(rest),
            Err(_) => from.to_owned(),
        };
        Some(match fs::metadata(from) {
            Ok(about) if self.there(&name).is_none() => Step::Link { inode: about.ino(), name },
            _ => Step::Refused,
        })
    }

    fn unlink(&self, path: &Path) -> Option<Step> {
        let name = self.name(path)?;
        Some(if self.there(&name).is_some() { Step::Unlink { name } } else { Step::Refused })
    }

    fn reply(&mut self, listener: &OwnedFd, call: &libc::seccomp_notif, answer: Answer) {
        // SAFETY: the struct has only numbers, for which zero is a valid value.
        let mut reply: libc::seccomp_notif_resp = unsafe { std::mem::zeroed() };
        reply.id = call.id;
        match answer {
            Answer::Fail(errno) => reply.error = -errno,
            Answer::Half => reply.val = self.write_half(call),
            Answer::Go | Answer::Kill => reply.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        }
        // SAFETY: the kernel reads the struct, which outlives the call. If the process was killed meanwhile, the kernel drops the answer.
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const reply) };
    }

    /// Does half of a write for the program; returns the number of bytes.
    fn write_half(&mut self, call: &libc::seccomp_notif) -> i64 {
        let args = call.data.args;
        let memory = File::open(format!("/proc/{}/mem", call.pid)).unwrap();
        let file = File::from(descriptor_of(self.child, args[0] as i32));
        let mut half = vec![0; (args[2] / 2) as usize];
        memory.read_exact_at(&mut half, args[1]).unwrap();
        match libc::c_long::from(call.data.nr) {
            libc::SYS_pwrite64 => file.write_all_at(&half, args[3]).unwrap(),
            _ => io::Write::write_all(&mut &file, &half).unwrap(),
        }
        half.len() as i64
    }
}

/// Reads the file position of a descriptor, as long as its thread exists.
fn position(thread: u32, fd: u64) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{thread}/fdinfo/{}", fd as i32)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok())
}

/// Reads a path from the program's memory.
fn text(memory: &File, at: u64) -> PathBuf {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while bytes.len() < 4096 && memory.read_exact_at(&mut byte, at + bytes.len() as u64).is_ok() && byte != [0] {
        bytes.extend(byte);
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

/// Filter that reports each of [`CALLS`] to the listener.
fn filter() -> Vec<libc::sock_filter> {
    let instruction = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (at, call) in CALLS.iter().enumerate() {
        let to_end = (CALLS.len() - at) as u8;
        filter.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call as u32, to_end, 0));
    }
    filter.push(instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    filter.push(instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF, 0, 0));
    filter
}

/// Puts the filter on this process.
fn listen(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the filter and its instructions outlive the calls; the other system calls take only numbers.
    unsafe {
        let fd = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program);
        if fd < 0 || libc::dup2(fd as i32, LISTENER) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn take_listener(child: &Child) -> OwnedFd {
    descriptor_of(child.id(), LISTENER)
}

/// Duplicates a descriptor of another process into this process.
fn descriptor_of(process: u32, fd: i32) -> OwnedFd {
    // SAFETY: plain system calls on numbers; only this process owns the new descriptor.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, process, 0) as i32;
        assert!(process >= 0, "pidfd_open: {}", io::Error::last_os_error());
        let process = OwnedFd::from_raw_fd(process);
        let fd = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) as i32;
        assert!(fd >= 0, "pidfd_getfd: {}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

/// The next call that waits for an answer; `None` once all processes have ended.
fn next(listener: &OwnedFd) -> Option<libc::seccomp_notif> {
    loop {
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the kernel writes to the two structs, which outlive the call.
        unsafe {
            libc::poll(&raw mut poll, 1, -1);
            if poll.revents & libc::POLLIN == 0 && poll.revents & libc::POLLHUP != 0 {
                return None;
            }
            let mut call: libc::seccomp_notif = std::mem::zeroed();
            if libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) == 0 {
                return Some(call);
            }
        }
    }
}
