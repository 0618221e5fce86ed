//! Programs: found by id, held by descriptor, fetched in full.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bprec_format::bpf::names::ProgType;
use bprec_format::bpf::prog_info::{Array, ProgInfoBuf};

use crate::error::Result;
use crate::inspect::btf::BtfCache;
use crate::inspect::visibility;
use crate::sys::{self, Kind};

/// The ids of the programs alive now, ascending. Ends after the first error.
///
/// Programs loaded or freed meanwhile may or may not be among them.
pub fn prog_ids() -> impl Iterator<Item = Result<u32>> {
    sys::ids(Kind::Prog)
}

/// A BPF program, held: while this lives, its id and the addresses of its code are not given to another program.
#[derive(Debug)]
pub struct Program {
    id: u32,
    fd: OwnedFd,
}

impl Program {
    /// Takes hold of the program with this id: one system call, no allocation.
    ///
    /// # Errors
    /// ENOENT ([`Error::is_gone`](crate::Error::is_gone)) when it was freed already, EPERM without CAP_SYS_ADMIN, EMFILE.
    pub fn take(id: u32) -> Result<Program> {
        sys::fd_by_id(Kind::Prog, id).map(|fd| Program { id, fd })
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// When it was loaded, ns of CLOCK_BOOTTIME: with its id, what tells it from all others. One system call, no allocation.
    ///
    /// # Errors
    /// Only if the kernel refuses the call, which it does not for a descriptor of a program.
    pub fn load_time_ns(&self) -> Result<u64> {
        sys::prog_summary(self.fd(), self.id).map(|(info, _)| info.load_time)
    }

    /// Its type: one system call, no allocation.
    pub(crate) fn prog_type(&self) -> Result<ProgType> {
        sys::prog_summary(self.fd(), self.id).map(|(info, _)| ProgType(info.type_))
    }

    /// Its name as the kernel has it, at most 15 bytes: one system call.
    pub(crate) fn short_name(&self) -> Result<Vec<u8>> {
        sys::prog_summary(self.fd(), self.id).map(|(info, _)| sys::c_chars(&info.name))
    }

    /// Everything the kernel tells about it. What it will not show is left out and listed with the reason.
    ///
    /// # Errors
    /// Only when there is nothing to tell at all: the kernel refused the call, or its answer changed each time.
    pub fn fetch(&self, btfs: &BtfCache) -> Result<ProgSnapshot> {
        let raw = sys::prog_info(self.fd(), self.id)?;
        let mut withheld: Vec<String> = Vec::new();
        let arrays = Array::ALL.into_iter().zip(raw.withheld).filter(|(_, is_withheld)| *is_withheld);
        let (xlated, others): (Vec<_>, Vec<_>) =
            arrays.map(|(array, _)| array).partition(|array| *array == Array::XlatedInsns);
        for (arrays, is_xlated) in [(xlated, true), (others, false)] {
            if !arrays.is_empty() {
                let names: Vec<&str> = arrays.into_iter().map(Array::name).collect();
                withheld.push(format!("{}: {}", names.join(", "), visibility::withheld_reason(is_xlated)));
            }
        }
        let btf = match raw.btf_id() {
            0 => None,
            id => btfs.get(id).inspect_err(|error| withheld.push(error.to_string())).ok(),
        };
        Ok(ProgSnapshot { info: ProgInfoBuf::new(raw.info, raw.arrays), btf, withheld: withheld.join(". ") })
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// All that the kernel tells about a program.
#[derive(Debug, Clone)]
pub struct ProgSnapshot {
    /// `struct bpf_prog_info` and its arrays.
    pub info: ProgInfoBuf,
    /// Its BTF, if it has any.
    pub btf: Option<Arc<[u8]>>,
    /// Parts of it that the kernel does not show, why not, and what would show them; may be empty.
    pub withheld: String,
}
