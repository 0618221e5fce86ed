//! CGROUP records of the cgroups that exist: in the unified hierarchy (cgroup v2), which samples' cgroup ids refer to.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

use bprec_format::records::Cgroup;
use bprec_format::{RecordType, SampleLayout};

use super::append;

/// Appends a CGROUP for each cgroup, parents first. None where no unified hierarchy is mounted.
///
/// A cgroup's id is that of its directory in kernfs, which is its inode number (64-bit machines, since Linux 5.5).
pub(crate) fn cgroups(layout: &SampleLayout, out: &mut Vec<u8>) {
    let Some(root) = bprec_host::mounts_of_type(b"cgroup2").ok().and_then(|mounts| mounts.into_iter().next()) else {
        return;
    };
    let Ok(meta) = fs::metadata(&root) else { return };
    let mut left = vec![(root.clone(), meta.ino())];
    while let Some((directory, id)) = left.pop() {
        let below = directory.strip_prefix(&root).unwrap_or(Path::new(""));
        let path = Path::new("/").join(below);
        let cgroup = Cgroup { id, path: path.as_os_str().as_bytes() };
        append(layout, out, RecordType::CGROUP, 0, |w| cgroup.encode(w));
        // Removed meanwhile, or not for us: then its children are not known.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(directories.map(|entry| (entry.path(), entry.ino())));
    }
}
