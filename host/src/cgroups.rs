//! Cgroups of the unified hierarchy (cgroup v2): the whole tree, and the lookup of one cgroup by path.
//!
//! The id of a cgroup is the inode number of its kernfs directory (on 64-bit machines, since Linux 5.5).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::Answer;
use crate::error::Error;
use crate::mounts::mounts_of_type;

/// Limit on the cgroups in a walk, so that a walk is short on every machine. Further cgroups are left out.
const CGROUPS_MAX: usize = 50_000;
/// Inode number of the root of the hierarchy. The root that a cgroup namespace shows has another number.
const WHOLE_ROOT: u64 = 1;
/// Count of levels, from the root down, that have a bit of their own in [`Cgroup::levels`].
const LEVELS_MAX: u32 = 32;

/// Cgroups of the machine, read in one walk.
#[derive(Debug, Default)]
pub struct Cgroups {
    root: PathBuf,
    /// Id and path below the root with a leading slash, parents before their children.
    all: Vec<(u64, PathBuf)>,
}

impl Cgroups {
    /// Walks the unified hierarchy; empty if it is not mounted.
    pub fn read() -> Cgroups {
        let mount_points = mounts_of_type(b"cgroup2").unwrap_or_default();
        let Some(root) = mount_points.into_iter().next() else {
            return Cgroups::default();
        };
        let mut all = Vec::new();
        if let Ok(metadata) = fs::metadata(&root) {
            all.push((metadata.ino(), PathBuf::from("/")));
        }
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            // A directory that was removed or is not readable is skipped with its children.
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
                if all.len() >= CGROUPS_MAX {
                    return Cgroups { root, all };
                }
                let path = entry.path();
                if let Ok(below) = path.strip_prefix(&root) {
                    all.push((entry.ino(), Path::new("/").join(below)));
                }
                directories.push(path);
            }
        }
        Cgroups { root, all }
    }

    /// Id and path (below the mount point, with a leading slash) of each cgroup, parents before their children.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Path)> {
        self.all.iter().map(|(id, path)| (*id, path.as_path()))
    }

    /// Directory of a cgroup by its path from [`Cgroups::iter`].
    pub fn directory(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// A cgroup that was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Id of the cgroup: the inode number of its directory.
    pub id: u64,
    /// Path below the mount point, with a leading slash.
    pub name: Vec<u8>,
    /// Path of the directory, including the mount point.
    pub directory: PathBuf,
    /// Bit mask of the levels at which the cgroup may be; bit 0 is the root. All bits are set if the level is unknown or above 31.
    pub levels: u32,
}

/// Reason why a cgroup was not found.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No unified hierarchy is mounted.
    #[error("no unified hierarchy (cgroup2) is mounted; `mount -t cgroup2 none DIRECTORY` mounts it")]
    NotMounted,
    /// The path does not exist, is not accessible, or is not a directory.
    #[error("{}: {}", directory.display(), Answer(source))]
    Directory {
        /// Path of the directory that was looked up.
        directory: PathBuf,
        /// Answer of the kernel, or `NotADirectory`.
        source: io::Error,
    },
    /// The list of mounts cannot be read.
    #[error(transparent)]
    Mounts(#[from] Error),
}

impl Cgroup {
    /// Looks up a cgroup by its directory, or by its path below the mount point.
    ///
    /// # Errors
    /// Fails if the list of mounts cannot be read, no unified hierarchy is mounted, or the path leads to no directory.
    pub fn find(asked: &Path) -> Result<Cgroup, CgroupError> {
        let mounts = mounts_of_type(b"cgroup2")?;
        let root = mounts.iter().find(|root| asked.starts_with(root)).or(mounts.first());
        let root = root.ok_or(CgroupError::NotMounted)?;
        let below = match asked.strip_prefix(root) {
            Ok(below) => below,
            Err(_) => asked.strip_prefix("/").unwrap_or(asked),
        };
        let directory = root.join(below);
        let metadata = fs::metadata(&directory).and_then(|metadata| {
            if metadata.is_dir() { Ok(metadata) } else { Err(io::ErrorKind::NotADirectory.into()) }
        });
        let metadata = metadata.map_err(|source| CgroupError::Directory { directory: directory.clone(), source })?;
        let level = below.components().count() as u32;
        // In a cgroup namespace the mount point is not the root of the hierarchy, and its depth is not visible.
        let is_whole = fs::metadata(root).is_ok_and(|metadata| metadata.ino() == WHOLE_ROOT);
        let levels = if is_whole && level < LEVELS_MAX { 1 << level } else { u32::MAX };
        let name = Path::new("/").join(below).as_os_str().as_bytes().to_vec();
        Ok(Cgroup { id: metadata.ino(), name, directory, levels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_walked_is_what_is_found_by_path() {
        let cgroups = Cgroups::read();
        if cgroups.iter().next().is_none() {
            println!("SKIP what_is_walked_is_what_is_found_by_path: no cgroup2 is mounted");
            return;
        }
        for (id, path) in cgroups.iter().take(20) {
            // A cgroup that was removed meanwhile is not found.
            if let Ok(found) = Cgroup::find(path) {
                assert_eq!((found.id, found.name), (id, path.as_os_str().as_bytes().to_vec()));
            }
        }
        assert!(matches!(Cgroup::find(Path::new("/no/such/cgroup")), Err(CgroupError::Directory { .. })));
    }
}
