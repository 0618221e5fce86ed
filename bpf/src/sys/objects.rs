//! Access to BPF objects by id.

use std::os::fd::OwnedFd;

use libbpf_rs::libbpf_sys as cmd;

use super::syscall::{Attr, attr_end, bpf, bpf_fd};
use super::{NEEDS_ADMIN, NEEDS_FILES};
use crate::error::{Error, Object, Result};

/// Kinds of objects that have ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Programs.
    Prog,
    /// Maps.
    Map,
    /// BTF blobs.
    Btf,
    /// Links.
    Link,
}

impl Kind {
    pub(crate) fn object(self, id: u32) -> Object {
        match self {
            Kind::Prog => Object::Prog(id),
            Kind::Map => Object::Map(id),
            Kind::Btf => Object::Btf(id),
            Kind::Link => Object::Link(id),
        }
    }
}

/// Returns the smallest id above `after`; `None` if there is no higher id.
///
/// Needs CAP_SYS_ADMIN.
pub(crate) fn next_id(kind: Kind, after: u32) -> Result<Option<u32>> {
    let (command, call) = match kind {
        Kind::Prog => (cmd::BPF_PROG_GET_NEXT_ID, "bpf(BPF_PROG_GET_NEXT_ID)"),
        Kind::Map => (cmd::BPF_MAP_GET_NEXT_ID, "bpf(BPF_MAP_GET_NEXT_ID)"),
        Kind::Btf => (cmd::BPF_BTF_GET_NEXT_ID, "bpf(BPF_BTF_GET_NEXT_ID)"),
        Kind::Link => (cmd::BPF_LINK_GET_NEXT_ID, "bpf(BPF_LINK_GET_NEXT_ID)"),
    };
    let mut attr = Attr::default();
    attr.__bindgen_anon_6.__bindgen_anon_1.start_id = after;
    // SAFETY: the command takes no pointers.
    match unsafe { bpf(command, &mut attr, attr_end!(__bindgen_anon_6.next_id)) } {
        // SAFETY: the kernel wrote the id to this field.
        Ok(_) => Ok(Some(unsafe { attr.__bindgen_anon_6.next_id })),
        Err(libc::ENOENT) => Ok(None),
        Err(errno) => {
            let remedy = match errno {
                libc::EPERM => Some(NEEDS_ADMIN),
                libc::EINVAL => Some("this kernel is too old to list objects of this kind"),
                libc::ENOSYS => Some("this kernel is built without CONFIG_BPF_SYSCALL"),
                _ => None,
            };
            Err(Error::Syscall { call, object: Object::Named("of all"), errno, remedy })
        }
    }
}

/// Iterates over the ids of all existing objects of a kind, in ascending order. Ends after the first error.
pub(crate) fn ids(kind: Kind) -> impl Iterator<Item = Result<u32>> {
    let mut after = Some(0);
    std::iter::from_fn(move || match next_id(kind, after?) {
        Ok(next) => {
            after = next;
            next.map(Ok)
        }
        Err(error) => {
            after = None;
            Some(Err(error))
        }
    })
}

/// Opens the object with this id. Descriptors of maps are read-only.
///
/// Needs CAP_SYS_ADMIN. Fails with ENOENT (see [`Error::is_gone`]) if the kernel has freed the object.
pub(crate) fn fd_by_id(kind: Kind, id: u32) -> Result<OwnedFd> {
    let (command, call) = match kind {
        Kind::Prog => (cmd::BPF_PROG_GET_FD_BY_ID, "bpf(BPF_PROG_GET_FD_BY_ID)"),
        Kind::Map => (cmd::BPF_MAP_GET_FD_BY_ID, "bpf(BPF_MAP_GET_FD_BY_ID)"),
        Kind::Btf => (cmd::BPF_BTF_GET_FD_BY_ID, "bpf(BPF_BTF_GET_FD_BY_ID)"),
        Kind::Link => (cmd::BPF_LINK_GET_FD_BY_ID, "bpf(BPF_LINK_GET_FD_BY_ID)"),
    };
    let mut attr = Attr::default();
    attr.__bindgen_anon_6.__bindgen_anon_1.start_id = id;
    let mut size = attr_end!(__bindgen_anon_6.__bindgen_anon_1.start_id);
    if kind == Kind::Map {
        attr.__bindgen_anon_6.open_flags = cmd::BPF_F_RDONLY;
        size = attr_end!(__bindgen_anon_6.open_flags);
    }
    // SAFETY: the command takes no pointers and returns a descriptor.
    unsafe { bpf_fd(command, &mut attr, size) }.map_err(|errno| {
        let remedy = match errno {
            libc::EPERM => Some(NEEDS_ADMIN),
            libc::EMFILE | libc::ENFILE => Some(NEEDS_FILES),
            _ => None,
        };
        Error::Syscall { call, object: kind.object(id), errno, remedy }
    })
}
