//! BTF blobs by id.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::sys::{self, Kind};

/// Raw BTF by id, each fetched once and shared by the programs and maps that use it.
///
/// The kernel hands out BTF ids in a circle of 2³¹, so that an id means the same blob for the length of any recording.
#[derive(Debug, Default)]
pub struct BtfCache {
    blobs: Mutex<HashMap<u32, Arc<[u8]>>>,
}

impl BtfCache {
    /// Starts empty.
    pub fn new() -> BtfCache {
        BtfCache::default()
    }

    /// The blob with this id.
    ///
    /// # Errors
    /// ENOENT when it is gone (it is not while a program or map that uses it is held), EPERM without CAP_SYS_ADMIN.
    pub fn get(&self, id: u32) -> Result<Arc<[u8]>> {
        if let Some(blob) = self.blobs.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(Arc::clone(blob));
        }
        let fd = sys::fd_by_id(Kind::Btf, id)?;
        let blob: Arc<[u8]> = sys::btf_info(fd.as_fd(), id, true)?.blob.into();
        let mut blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(blobs.entry(id).or_insert(blob)))
    }

    /// Forgets the blobs that nobody else has.
    pub fn drop_unused(&self) {
        let mut blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.retain(|_, blob| Arc::strong_count(blob) > 1);
    }

    /// All blobs fetched so far that were not forgotten, by ascending id.
    pub fn all(&self) -> Vec<(u32, Arc<[u8]>)> {
        let blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = blobs.iter().map(|(id, blob)| (*id, Arc::clone(blob))).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }
}
