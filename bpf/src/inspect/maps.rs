//! Maps: their properties, and single values.

use std::os::fd::{AsFd, OwnedFd};

use bprec_format::bprec::state;

use crate::error::Result;
use crate::sys::FdInfo;
use crate::sys::{self, Kind};

/// A BPF map, held by a descriptor.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    about: state::Map,
}

impl Map {
    /// Opens the map with this id and reads its properties.
    ///
    /// # Errors
    /// Fails with ENOENT ([`Error::is_gone`](crate::Error::is_gone)) if the map was freed, with EPERM without CAP_SYS_ADMIN.
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

    /// Value of the entry `key`; in a program array, the id of the program.
    ///
    /// # Errors
    /// Fails if the keys of the map are not 4 bytes, the kernel refuses the lookup, or the entry is empty.
    pub(crate) fn value(&self, key: u32) -> Result<Vec<u8>> {
        sys::value_at(&self.fd, self.about.id, key)
    }
}

/// Ids of all maps, ascending. Ends after the first error.
pub fn map_ids() -> impl Iterator<Item = Result<u32>> {
    sys::ids(Kind::Map)
}
