//! Maps: what they are, and the values of those that hold a program's constants.

use std::os::fd::{AsFd, OwnedFd};

use bprec_format::state;

use crate::error::Result;
use crate::sys::FdInfo;
use crate::sys::{self, Kind};

/// A BPF map, held.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    about: state::Map,
}

impl Map {
    /// Takes hold of the map with this id and asks what it is.
    ///
    /// # Errors
    /// ENOENT ([`Error::is_gone`](crate::Error::is_gone)) when it was freed, EPERM without CAP_SYS_ADMIN.
    pub fn take(id: u32) -> Result<Map> {
        let fd = sys::fd_by_id(Kind::Map, id)?;
        let info = sys::map_info(fd.as_fd(), id)?;
        let u32_at = |at| sys::get_u32(&info, at);
        let fdinfo = FdInfo::of_own(fd.as_fd())?;
        let about = state::Map {
            id,
            map_type: u32_at(0),
            key_bytes: u32_at(8),
            value_bytes: u32_at(12),
            max_entries: u32_at(16),
            flags: u32_at(20),
            name: sys::up_to_nul(&info[24..40]).to_vec(),
            btf_id: u32_at(64),
            btf_key_type_id: u32_at(68),
            btf_value_type_id: u32_at(72),
            memlock_bytes: fdinfo.memlock_bytes,
            frozen: fdinfo.frozen,
        };
        Ok(Map { fd, about })
    }

    /// What it is.
    pub fn about(&self) -> &state::Map {
        &self.about
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The value of entry `key`: of an array as it is, of a program array the id of the program.
    ///
    /// # Errors
    /// When the map's keys have another size, the kernel refuses to let it be read, or the entry is empty.
    pub(crate) fn value(&self, key: u32) -> Result<Vec<u8>> {
        sys::value_at(&self.fd, self.about.id, key)
    }
}

/// The ids of the maps alive now, ascending. Ends after the first error.
pub fn map_ids() -> impl Iterator<Item = Result<u32>> {
    sys::ids(Kind::Map)
}
