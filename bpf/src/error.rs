//! Errors of requests to the kernel: the call, its object, the errno and the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use bprec_host::{Answer, Errno};

use crate::privilege;

/// Result of a request to the kernel.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure of a system call, a kernel file, or a BPF program that bprec loads.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call was refused.
    #[error("{call} {object}: {}{}", Errno(*errno), Remedy(*remedy))]
    Syscall {
        /// The call and its command, in the kernel's words ("bpf(BPF_PROG_GET_FD_BY_ID)").
        call: &'static str,
        /// Program, map or other object that the call was for.
        object: Object,
        /// Errno of the kernel's answer.
        errno: i32,
        /// Remedy, where one is known.
        remedy: Option<&'static str>,
    },
    /// A file could not be read.
    #[error("{}: {}", path.display(), Answer(source))]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the read.
        source: io::Error,
    },
    /// The arrays in the info of an object kept growing: in each attempt they were larger than the kernel had announced a moment before.
    #[error("bpf(BPF_OBJ_GET_INFO_BY_FD) {object}: the arrays in its info kept growing while bprec read them")]
    Grew {
        /// Program or BTF blob that the info is about.
        object: Object,
    },
    /// The answer of the kernel differs from what its interface promises.
    #[error("{call} {object}: {problem}")]
    Answer {
        /// System call with its command, or the name of the interface.
        call: &'static str,
        /// Object that the call was for.
        object: Object,
        /// Difference between the answer and the interface, as text for the user.
        problem: String,
    },
    /// A program of bprec could not be loaded or attached.
    #[error("bprec's BPF program {program}: {source}{}", LoadHint(source, log))]
    Load {
        /// Name of the program.
        program: &'static str,
        /// libbpf's error.
        source: libbpf_rs::Error,
        /// Output of libbpf and the verifier, possibly empty.
        log: String,
    },
    /// A BPF object file of the user cannot be used.
    #[error("{}: {problem}", path.display())]
    UserObject {
        /// Path of the object file.
        path: PathBuf,
        /// Explanation for the user. If the verifier rejects a program: the program's name and the end of the verifier's log.
        problem: String,
    },
    /// The kernel refused to let bprec trace a program.
    #[error("cannot trace program {id}: {}{}", Errno(*errno), Words(words))]
    Attach {
        /// Id of the program.
        id: u32,
        /// Errno of the kernel's answer.
        errno: i32,
        /// Last line of the verifier's log, or the meaning of the errno; may be empty.
        words: String,
    },
}

impl From<bprec_host::Error> for Error {
    fn from(error: bprec_host::Error) -> Error {
        Error::File { path: error.path, source: error.source }
    }
}

impl Error {
    /// Errno with which the kernel refused a call, an attachment or a file; EPERM if libbpf reports a missing permission; otherwise `None`.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Syscall { errno, .. } | Error::Attach { errno, .. } => Some(*errno),
            Error::File { source, .. } => source.raw_os_error(),
            Error::Load { source, .. } if source.kind() == libbpf_rs::ErrorKind::PermissionDenied => Some(libc::EPERM),
            _ => None,
        }
    }

    /// Returns true if the object was freed before or during the call, which is normal on a machine that loads programs.
    pub fn is_gone(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ESRCH | libc::EBADF))
    }

    /// Returns true for EPERM and EACCES: more privilege may help.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Error {
        Error::File { path: path.into(), source }
    }

    /// Turns the errno of `call` on `object` into an error without a remedy.
    pub(crate) fn refused(call: &'static str, object: Object) -> impl FnOnce(i32) -> Error {
        move |errno| Error::Syscall { call, object, errno, remedy: None }
    }

    /// Turns libbpf's error and log into an error about our program `program`.
    pub(crate) fn not_loaded(program: &'static str) -> impl FnOnce((libbpf_rs::Error, String)) -> Error {
        move |(source, log)| Error::Load { program, source, log }
    }

    /// Turns libbpf's error into an error about our program `program`, for a call without a log.
    pub(crate) fn libbpf(program: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
        move |source| Error::Load { program, source, log: String::new() }
    }

    /// Error about bprec's own program `program`, which cannot be used.
    pub(crate) fn own_program(program: &'static str, problem: impl Into<String>) -> Error {
        Error::Answer { call: "bprec's BPF program", object: Object::Named(program), problem: problem.into() }
    }
}

/// Object of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Object {
    /// A BPF program by id.
    Prog(u32),
    /// A BPF map by id.
    Map(u32),
    /// A BTF blob by id.
    Btf(u32),
    /// A BPF link by id.
    Link(u32),
    /// A file descriptor of another process.
    TaskFd {
        /// The process.
        pid: u32,
        /// Its file descriptor.
        fd: u32,
    },
    /// A path in a file system.
    Path(PathBuf),
    /// Object with a fixed name.
    Named(&'static str),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Prog(id) => write!(f, "program {id}"),
            Object::Map(id) => write!(f, "map {id}"),
            Object::Btf(id) => write!(f, "btf {id}"),
            Object::Link(id) => write!(f, "link {id}"),
            Object::TaskFd { pid, fd } => write!(f, "process {pid} fd {fd}"),
            Object::Path(path) => write!(f, "{}", path.display()),
            Object::Named(name) => f.write_str(name),
        }
    }
}

/// Shows a remedy at the end of a message.
struct Remedy(Option<&'static str>);

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// Shows an explanation at the end of a message.
struct Words<'a>(&'a str);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

/// Explanation of a refused load: the missing privilege, else the last lines of the log. Verifier logs run to megabytes; the verdict is at their end.
struct LoadHint<'a>(&'a libbpf_rs::Error, &'a str);

impl fmt::Display for LoadHint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LINES: usize = 12;
        // EACCES can also be the verifier's verdict; then the log has the cause.
        if self.0.kind() == libbpf_rs::ErrorKind::PermissionDenied && !self.1.contains("BEGIN PROG LOAD LOG") {
            return write!(f, "; {}", privilege::permission_remedy());
        }
        let lines: Vec<&str> = self.1.lines().filter(|line| !line.trim().is_empty()).collect();
        lines.iter().skip(lines.len().saturating_sub(LINES)).try_for_each(|line| write!(f, "\n  {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_names_call_object_answer_and_remedy() {
        let refused = Error::Syscall {
            call: "bpf(BPF_PROG_GET_FD_BY_ID)",
            object: Object::Prog(7),
            errno: libc::EPERM,
            remedy: Some("needs CAP_SYS_ADMIN"),
        };
        assert_eq!(
            refused.to_string(),
            "bpf(BPF_PROG_GET_FD_BY_ID) program 7: Operation not permitted (EPERM); needs CAP_SYS_ADMIN"
        );
        assert!(refused.is_permission() && !refused.is_gone());
    }
}
