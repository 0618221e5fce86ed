//! Answers of the kernel, as all messages show them: `Permission denied (EACCES)`.

use std::fmt;
use std::io;

use nix::errno::Errno as Known;

/// The kernel's internal errno ENOTSUPP, which the headers for user space lack. BPF system calls return it.
pub const ENOTSUPP: i32 = 524;

/// An errno. [`Display`](fmt::Display) shows the text and the name of manual pages: `Permission denied (EACCES)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, Known::from_raw(self.0)) {
            (ENOTSUPP, _) => f.write_str("Operation is not supported (ENOTSUPP)"),
            (number, Known::UnknownErrno) => write!(f, "errno {number}"),
            (_, known) => write!(f, "{} ({known:?})", known.desc()),
        }
    }
}

/// Shows an I/O error: as [`Errno`] does if the error has an errno, else by the error's own text.
pub struct Answer<'a>(pub &'a io::Error);

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.raw_os_error() {
            Some(errno) => Errno(errno).fmt(f),
            None => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_text_and_name() {
        assert_eq!(Errno(rustix::io::Errno::ACCESS.raw_os_error()).to_string(), "Permission denied (EACCES)");
        assert_eq!(Answer(&io::Error::from_raw_os_error(2)).to_string(), "No such file or directory (ENOENT)");
        assert_eq!(Errno(ENOTSUPP).to_string(), "Operation is not supported (ENOTSUPP)");
        assert_eq!(Errno(9999).to_string(), "errno 9999");
        assert_eq!(Answer(&io::Error::other("a short file")).to_string(), "a short file");
    }
}
