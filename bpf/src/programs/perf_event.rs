//! Programs of type perf_event on perf events.
//!
//! An event takes exactly one such program, and drops the samples that it answers 0 to. Children that a task has after
//! the attachment inherit the program with the event (`attr.inherit`), and keep it until their events end, which is at the
//! latest when the descriptor of the event they come from is closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Object, Result};
use crate::privilege;
use crate::sys;
use crate::sys::FdInfo;

/// A program on a perf event. Dropping it takes the program off again if it is there [by a link](AttachMethod::Link); one that is
/// there [by ioctl](AttachMethod::Ioctl) goes with the event, when the last descriptor of that is closed. Hence it is kept beside
/// the event's descriptor and goes before it.
#[derive(Debug)]
#[must_use = "dropping it detaches the program"]
pub struct Attached {
    link: Option<OwnedFd>,
}

/// Method by which a program was attached to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMethod {
    /// A link (Linux 5.15): it has a cookie, others see it, and it can be taken off.
    Link,
    /// `PERF_EVENT_IOC_SET_BPF` (Linux 4.9): no cookie, and it stays as long as the event.
    Ioctl,
}

impl Attached {
    /// Puts `program` on `event`: by a link with `cookie`, or by ioctl on a kernel that has no such links, where the cookie
    /// is lost. [`method`](Attached::method) tells which it was.
    ///
    /// # Errors
    /// Fails if the kernel refuses: EEXIST when the event has a program already, EPROTO when the program takes call stacks
    /// that the event does not have, EINVAL when program and event do not fit.
    pub fn new(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> Result<Attached> {
        match Attached::by_link(program, event, cookie) {
            // A kernel that has no links on perf events answers EINVAL, as it does to much else; the ioctl then says which.
            Err(error) if error.errno() == Some(libc::EINVAL) => Attached::by_ioctl(program, event),
            other => other,
        }
    }

    /// Puts `program` on `event` by a link.
    pub fn by_link(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> Result<Attached> {
        let refused = |errno| refused("bpf(BPF_LINK_CREATE)", program, errno);
        let link = sys::link_to_event(program, event, cookie).map_err(refused)?;
        Ok(Attached { link: Some(link) })
    }

    /// Puts `program` on `event` by ioctl.
    pub fn by_ioctl(program: BorrowedFd<'_>, event: BorrowedFd<'_>) -> Result<Attached> {
        let refused = |errno| refused("ioctl(PERF_EVENT_IOC_SET_BPF)", program, errno);
        sys::set_program(event, program).map_err(refused)?;
        Ok(Attached { link: None })
    }

    /// Method of its attachment.
    pub fn method(&self) -> AttachMethod {
        if self.link.is_some() { AttachMethod::Link } else { AttachMethod::Ioctl }
    }

    /// The id of the link, if it is one.
    pub fn link_id(&self) -> Option<u32> {
        FdInfo::of_own(self.link.as_ref()?.as_fd()).ok()?.link_id
    }
}

fn refused(call: &'static str, program: BorrowedFd<'_>, errno: i32) -> Error {
    let id = FdInfo::of_own(program).ok().and_then(|info| info.prog_id).unwrap_or(0);
    let remedy = match errno {
        libc::EEXIST => Some("the perf event has a program already, and an event takes exactly one"),
        libc::EPROTO => Some(
            "the program takes call stacks: that needs an event with kernel and user call chains (-g), or one that is not \
             precise (no :p)",
        ),
        libc::EPERM | libc::EACCES => Some(privilege::permission_remedy()),
        libc::EINVAL => Some("the event takes no program of this type"),
        _ => None,
    };
    Error::Syscall { call, object: Object::Prog(id), errno, remedy }
}
