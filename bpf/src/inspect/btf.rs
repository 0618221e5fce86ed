//! BTF blobs by id.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Result;
use crate::sys::{self, Kind};

/// Raw BTF by id. Each blob is fetched once and shared by the programs and maps that use it.
///
/// The kernel reuses a BTF id only after 2³¹ other ids, so an id means the same blob for a whole recording.
#[derive(Debug, Default)]
pub struct BtfCache {
    blobs: Mutex<HashMap<u32, Arc<[u8]>>>,
}

impl BtfCache {
    /// Creates an empty cache.
    pub fn new() -> BtfCache {
        BtfCache::default()
    }

    /// The blob with this id.
    ///
    /// # Errors
    /// Fails with ENOENT if the blob was freed (a held program or map keeps its blob), with EPERM without CAP_SYS_ADMIN.
    pub fn get(&self, id: u32) -> Result<Arc<[u8]>> {
        if let Some(blob) = self.blobs.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Ok(Arc::clone(blob));
        }
        let fd = sys::fd_by_id(Kind::Btf, id)?;
        let blob: Arc<[u8]> = sys::btf_info(fd.as_fd(), id, true)?.blob.into();
        let mut blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(blobs.entry(id).or_insert(blob)))
    }

    /// Drops the blobs that only the cache holds.
    pub fn drop_unused(&self) {
        let mut blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.retain(|_, blob| Arc::strong_count(blob) > 1);
    }

    /// All blobs in the cache, by ascending id.
    pub fn all(&self) -> Vec<(u32, Arc<[u8]>)> {
        let blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = blobs.iter().map(|(id, blob)| (*id, Arc::clone(blob))).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }
}
