//! CGROUP records of the cgroups that exist: in the unified hierarchy (cgroup v2), which samples' cgroup ids refer to.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use bprec_format::records::Cgroup;
use bprec_format::{RecordType, SampleLayout};

use super::append;

/// Appends a CGROUP for each cgroup, parents first. None where no unified hierarchy is mounted.
///
/// A cgroup's id is that of its directory in kernfs, which is its inode number (64-bit machines, since Linux 5.5).
pub(crate) fn cgroups(layout: &SampleLayout, out: &mut Vec<u8>) {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let Some(root) = unified_mount(&mounts) else { return };
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

/// The first mount point of a cgroup2 file system in `/proc/PID/mountinfo`.
fn unified_mount(mountinfo: &[u8]) -> Option<PathBuf> {
    mountinfo.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let mount_point = fields.nth(4)?;
        // Optional fields end at a dash, then comes the file system's type.
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        (kind == b"cgroup2").then(|| PathBuf::from(std::ffi::OsStr::from_bytes(&unescape(mount_point))))
    })
}

/// Blanks and backslashes are written as three octal digits behind a backslash.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let octal = |digit: &u8| (b'0'..=b'7').contains(digit);
        match after {
            [a, b, c, after @ ..] if *first == b'\\' && [a, b, c].into_iter().all(octal) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_is_found_among_others() {
        let mounts = b"30 23 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n\
            31 23 0:27 / /sys/fs/cgroup/uni\\040fied rw,nosuid shared:10 master:3 - cgroup2 cgroup2 rw\n";
        assert_eq!(unified_mount(mounts), Some(PathBuf::from("/sys/fs/cgroup/uni fied")));
        assert_eq!(unified_mount(b"30 23 0:26 / /x rw - tmpfs cgroup2 rw\n"), None);
    }
}
