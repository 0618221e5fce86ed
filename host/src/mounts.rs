//! Mount points of file systems, and private mounts.

use std::ffi::{CStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::{Error, Result};

/// Mount points of the file systems of type `wanted` in this mount namespace, one per file system. Mounts of a subdirectory are left out.
///
/// # Errors
/// Fails if the list of mounts cannot be read.
pub fn mounts_of_type(wanted: &[u8]) -> Result<Vec<PathBuf>> {
    let path = "/proc/self/mountinfo";
    let text = fs::read(path).map_err(|source| Error::new(path, source))?;
    let mut found: Vec<(&[u8], PathBuf)> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        if let Some((device, mount_point)) = parse(line, wanted)
            && found.iter().all(|(known, _)| *known != device)
        {
            found.push((device, mount_point));
        }
    }
    Ok(found.into_iter().map(|(_, mount_point)| mount_point).collect())
}

/// Mounts a file system of this type read-only and detached from the directory tree. Other processes do not see the mount. It ends when the
/// descriptor is closed; its root is `/proc/self/fd/<descriptor>`.
///
/// # Errors
/// Fails with ENOSYS before Linux 5.2, with EPERM without CAP_SYS_ADMIN, and with ENODEV if the kernel lacks the file
/// system.
pub fn private_mount(kind: &CStr) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Device and mount point in a line of mountinfo; `None` if the file system is not of type `wanted`, or only a subdirectory is mounted.
fn parse<'a>(line: &'a [u8], wanted: &[u8]) -> Option<(&'a [u8], PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let root = fields.next()?;
    let mount_point = fields.next()?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    (kind == wanted && root == b"/").then(|| (device, PathBuf::from(OsString::from_vec(unescape(mount_point)))))
}

/// Decodes the octal escapes of mountinfo (`\040` for a space).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, tail)) = rest.split_first() {
        let octal = tail.first_chunk::<3>().and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if *byte == b'\\' => {
                out.push(value);
                rest = &tail[3..];
            }
            _ => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_type() {
        let bpf = b"31 23 0:28 / /run/my\\040bpf rw,nosuid - bpf bpffs rw,mode=700";
        assert_eq!(parse(bpf, b"bpf"), Some((&b"0:28"[..], PathBuf::from("/run/my bpf"))));
        let optional = b"31 23 0:28 / /sys/fs/bpf rw shared:9 master:1 - bpf none rw";
        assert_eq!(parse(optional, b"bpf"), Some((&b"0:28"[..], PathBuf::from("/sys/fs/bpf"))));
        assert_eq!(parse(b"31 23 0:29 / /bpf rw - tmpfs bpf rw", b"bpf"), None);
        assert_eq!(parse(b"31 23 0:28 /sub /bpf rw - bpf bpf rw", b"bpf"), None);
        assert_eq!(parse(b"", b"bpf"), None);
    }

    #[test]
    fn escapes_are_undone_and_lone_backslashes_kept() {
        assert_eq!(unescape(b"a\\040b\\134c"), b"a b\\c");
        assert_eq!(unescape(b"a\\04"), b"a\\04");
        assert_eq!(unescape(b"a\\9999"), b"a\\9999");
    }
}
