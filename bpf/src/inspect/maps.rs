//! Maps: what they are, and the values of those that hold a program's constants.

use std::os::fd::{AsFd, OwnedFd};

use bprec_format::bprec::state;

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
        let fdinfo = FdInfo::of_own(fd.as_fd())?;
        let about = state::Map {
            id,
            map_type: info.type_,
            key_bytes: info.key_size,
            value_bytes: info.value_size,
            max_entries: info.max_entries,
            flags: info.map_flags,
            name: sys::c_chars(&info.name),
            btf_id: info.btf_id,
            btf_key_type_id: info.btf_key_type_id,
            btf_value_type_id: info.btf_value_type_id,
            memlock_bytes: fdinfo.memlock_bytes,
            frozen: fdinfo.frozen,
        };
        Ok(Map { fd, about })
    }

    /// Facts about the map.
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
