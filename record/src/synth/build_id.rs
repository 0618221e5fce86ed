//! Build ids of mapped files.

use std::collections::HashMap;
use std::path::Path;

use bprec_format::records::BuildId;
use bprec_host::elf::{build_id, open_regular};

/// Build ids of files by device and inode, each file read once.
#[derive(Debug, Default)]
pub(super) struct BuildIds {
    known: HashMap<(u32, u32, u64), Option<BuildId>>,
}

impl BuildIds {
    /// Returns the build id of the file with this device and inode. The file is opened through the first of `paths` that is a
    /// regular file with this inode.
    pub(super) fn get<P: AsRef<Path>>(
        &mut self,
        device: (u32, u32),
        inode: u64,
        paths: impl IntoIterator<Item = P>,
    ) -> Option<BuildId> {
        *self.known.entry((device.0, device.1, inode)).or_insert_with(|| {
            // Device nodes must not be opened, because the open itself can change the device. `metadata` reads type and inode without opening.
            let path = paths.into_iter().find(|path| is_file(path.as_ref(), inode))?;
            build_id(&open_regular(path.as_ref()).ok()?).map(|id| BuildId::new(&id))
        })
    }
}

fn is_file(path: &Path, inode: u64) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.ino() == inode)
}
