//! Cgroups by id, and programs attached to them without a link.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use bprec_format::bpf::names::{AttachType, ProgType};
use bprec_format::state::Attachment;

use crate::mounts;
use crate::sys::{self, HookOf};

/// The most cgroups that are walked: a limit for machines with very many, where a walk would delay the recording.
const MAX_CGROUPS: usize = 50_000;

/// `BPF_CGROUP_MAX_PROGS`: the kernel allows no more at one hook of one cgroup.
const MAX_PROGS: usize = 64;

/// The cgroups of the unified hierarchy.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    /// Where the hierarchy is mounted.
    root: PathBuf,
    /// Path below the root, with a leading slash, by cgroup id.
    by_id: HashMap<u64, PathBuf>,
}

impl Cgroups {
    /// Walks the unified hierarchy where it is mounted; empty where it is not.
    pub(crate) fn read() -> Cgroups {
        let mount_points = mounts::mounts_of_type(b"cgroup2").unwrap_or_default();
        let Some(root) = mount_points.into_iter().next() else { return Cgroups::default() };
        let mut by_id = HashMap::new();
        // A cgroup's id is the inode number of its directory.
        if let Ok(metadata) = fs::metadata(&root) {
            by_id.insert(metadata.ino(), PathBuf::from("/"));
        }
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                if by_id.len() >= MAX_CGROUPS {
                    return Cgroups { root, by_id };
                }
                let path = entry.path();
                if let Ok(below) = path.strip_prefix(&root) {
                    by_id.insert(entry.ino(), Path::new("/").join(below));
                }
                directories.push(path);
            }
        }
        Cgroups { root, by_id }
    }

    /// Path of the cgroup with this id below the mount point, with a leading slash.
    pub(crate) fn path(&self, id: u64) -> Option<&Path> {
        self.by_id.get(&id).map(PathBuf::as_path)
    }

    /// Programs attached to any cgroup at these hooks (`BPF_CGROUP_*`).
    pub(crate) fn attachments(&self, hooks: &[u32]) -> Vec<Attachment> {
        let mut found = Vec::new();
        let mut ids = [0u32; MAX_PROGS];
        for path in self.by_id.values() {
            let below = path.strip_prefix("/").unwrap_or(path);
            let Ok(directory) = File::open(self.root.join(below)) else { continue };
            for hook in hooks {
                // A hook that this kernel does not have is refused, a cgroup that was removed is empty.
                let count = sys::attached_progs(HookOf::Cgroup(directory.as_fd()), *hook, &mut ids).unwrap_or(0);
                found.extend(ids.iter().take(count).map(|prog_id| Attachment {
                    prog_id: *prog_id,
                    link_id: None,
                    kind: AttachType(*hook).to_string(),
                    target: path.as_os_str().as_encoded_bytes().to_vec(),
                }));
            }
        }
        found
    }
}

/// Attach types of the cgroup hooks of a program type.
pub(crate) fn hooks(kind: ProgType) -> &'static [u32] {
    match kind {
        ProgType::CGROUP_SKB => &[0, 1],
        ProgType::CGROUP_SOCK => &[2, 12, 13, 34],
        ProgType::SOCK_OPS => &[3],
        ProgType::CGROUP_DEVICE => &[6],
        ProgType::CGROUP_SOCK_ADDR => &[8, 9, 10, 11, 14, 15, 19, 20, 29, 30, 31, 32, 49, 50, 51, 52, 53],
        ProgType::CGROUP_SYSCTL => &[18],
        ProgType::CGROUP_SOCKOPT => &[21, 22],
        _ => &[],
    }
}
