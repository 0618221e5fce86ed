//! Programs of type perf_event on perf events.
//!
//! A perf event takes exactly one program of this type. If the program returns 0, the kernel drops the sample. Tasks that are created
//! after the attachment inherit the program together with the event (`attr.inherit`). They keep the program until their events end, at
//! the latest when the descriptor of the parent event is closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Object, Result};
use crate::privilege;
use crate::sys;
use crate::sys::FdInfo;

/// Attachment of a program to a perf event. Dropping it detaches a program that was attached [by a link](AttachMethod::Link). A program
/// that was attached [by ioctl](AttachMethod::Ioctl) stays until the last descriptor of the event is closed. Keep this value beside the
/// event's descriptor and drop it first.
#[derive(Debug)]
#[must_use = "dropping it detaches the program"]
pub struct Attached {
    link: Option<OwnedFd>,
}

/// Method by which a program was attached to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMethod {
    /// A link (Linux 5.15): has a cookie, is visible to other tools, and can be detached.
    Link,
    /// `PERF_EVENT_IOC_SET_BPF` (Linux 4.9): has no cookie and lasts as long as the event.
    Ioctl,
}

impl Attached {
    /// Attaches `program` to `event` by a link with `cookie`. On a kernel without links on perf events, attaches it by ioctl and ignores the
    /// cookie. [`method`](Attached::method) returns the method that was used.
    ///
    /// # Errors
    /// Fails if the kernel refuses: EEXIST if the event already has a program, EPROTO if the program takes call stacks that the event does
    /// not record, EINVAL if the program does not fit the event.
    pub fn new(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> Result<Attached> {
        match Attached::by_link(program, event, cookie) {
            // EINVAL has many causes; one is a kernel without links on perf events. On that kernel the ioctl succeeds.
            Err(error) if error.errno() == Some(libc::EINVAL) => Attached::by_ioctl(program, event),
            other => other,
        }
    }

    /// Attaches `program` to `event` by a link.
    pub fn by_link(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> Result<Attached> {
        let refused = |errno| refused("bpf(BPF_LINK_CREATE)", program, errno);
        let link = sys::link_to_event(program, event, cookie).map_err(refused)?;
        Ok(Attached { link: Some(link) })
    }

    /// Attaches `program` to `event` by ioctl.
    pub fn by_ioctl(program: BorrowedFd<'_>, event: BorrowedFd<'_>) -> Result<Attached> {
        let refused = |errno| refused("ioctl(PERF_EVENT_IOC_SET_BPF)", program, errno);
        sys::set_program(event, program).map_err(refused)?;
        Ok(Attached { link: None })
    }

    /// Method by which the program is attached.
    pub fn method(&self) -> AttachMethod {
        if self.link.is_some() { AttachMethod::Link } else { AttachMethod::Ioctl }
    }

    /// Id of the link; `None` if the program is attached by ioctl, or if fdinfo cannot be read.
    pub fn link_id(&self) -> Option<u32> {
        FdInfo::of_own(self.link.as_ref()?.as_fd()).ok()?.link_id
    }
}

fn refused(call: &'static str, program: BorrowedFd<'_>, errno: i32) -> Error {
    let id = FdInfo::of_own(program).ok().and_then(|info| info.prog_id).unwrap_or(0);
    let remedy = match errno {
        libc::EEXIST => Some("the perf event already has a BPF program, and an event can have only one"),
        libc::EPROTO => Some(
            "the program reads call stacks: it needs an event that records kernel and user call chains (-g), or an event \
             without the modifier p",
        ),
        libc::EPERM | libc::EACCES => Some(privilege::permission_remedy()),
        libc::EINVAL => Some("the kernel does not attach a program of this type to this event"),
        _ => None,
    };
    Error::Syscall { call, object: Object::Prog(id), errno, remedy }
}
