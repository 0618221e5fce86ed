//! Programs: found by id, held by descriptor, fetched in full.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bprec_format::bpf::names::ProgType;
use bprec_format::bpf::prog_info::{Array, ProgInfoBuf};

use crate::error::Result;
use crate::inspect::btf::BtfCache;
use crate::inspect::visibility;
use crate::sys::{self, Kind};

/// Ids of all programs, ascending. Ends after the first error.
///
/// Programs that are loaded or freed during the iteration may be missing.
pub fn prog_ids() -> impl Iterator<Item = Result<u32>> {
    sys::ids(Kind::Prog)
}

/// A BPF program, held by a descriptor: the kernel does not reuse its id and code addresses while this value lives.
#[derive(Debug)]
pub struct Program {
    id: u32,
    fd: OwnedFd,
}

impl Program {
    /// Opens the program with this id: one system call, no allocation.
    ///
    /// # Errors
    /// Fails with ENOENT ([`Error::is_gone`](crate::Error::is_gone)) if the program was freed, with EPERM without CAP_SYS_ADMIN, with EMFILE at the
    /// limit on open files.
    pub fn take(id: u32) -> Result<Program> {
        sys::fd_by_id(Kind::Prog, id).map(|fd| Program { id, fd })
    }

    /// Id of the program.
    pub fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Load time, ns of CLOCK_BOOTTIME. Id and load time together identify a program. One system call, no allocation.
    ///
    /// # Errors
    /// Fails only if the kernel refuses the call. The kernel allows it for every descriptor of a program.
    pub fn load_time_ns(&self) -> Result<u64> {
        sys::prog_summary(self.fd(), self.id).map(|(info, _)| info.load_time)
    }

    /// Type of the program: one system call, no allocation.
    pub(crate) fn prog_type(&self) -> Result<ProgType> {
        sys::prog_summary(self.fd(), self.id).map(|(info, _)| ProgType(info.type_))
    }

    /// Name in the kernel, at most 15 bytes: one system call.
    pub(crate) fn short_name(&self) -> Result<Vec<u8>> {
        sys::prog_summary(self.fd(), self.id).map(|(info, _)| sys::c_chars(&info.name))
    }

    /// Reads all that the kernel shows of the program. [`ProgSnapshot::withheld`] lists the parts that the kernel hides.
    ///
    /// # Errors
    /// Fails if the kernel refuses the call, or the arrays keep growing.
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

/// Info, arrays and BTF of a program.
#[derive(Debug, Clone)]
pub struct ProgSnapshot {
    /// `struct bpf_prog_info` and its arrays.
    pub info: ProgInfoBuf,
    /// BTF of the program, if the program has BTF.
    pub btf: Option<Arc<[u8]>>,
    /// Parts that the kernel hides, with reason and remedy; empty if nothing is hidden.
    pub withheld: String,
}
