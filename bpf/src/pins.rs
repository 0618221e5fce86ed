//! Paths under which programs and links are pinned.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::fdinfo::FdInfo;
use crate::sys;

/// The most pins that are opened: a limit for machines where something pins without end.
const MAX_PINS: usize = 50_000;

/// What is pinned in the bpf file systems mounted where this process can see them.
#[derive(Debug, Default)]
pub struct Pins {
    /// Paths of each program: its own and those of its links.
    pub by_prog: HashMap<u32, Vec<PathBuf>>,
    /// What could not be looked at, and why.
    pub problems: Vec<String>,
}

/// Walks every mounted bpf file system and asks what each pin is. Pins in other mount namespaces are not seen.
///
/// # Errors
/// Only when the list of mounts cannot be read.
pub fn pins() -> Result<Pins> {
    let path = "/proc/self/mountinfo";
    let mounts = fs::read(path).map_err(|source| Error::file(path, source))?;
    let mut pins = Pins::default();
    let mut left = MAX_PINS;
    // One file system mounted twice is walked once.
    let mut seen = Vec::new();
    for line in mounts.split(|byte| *byte == b'\n') {
        let Some((device, mount_point)) = bpf_mount(line) else { continue };
        if !seen.contains(&device) {
            seen.push(device);
            walk(mount_point, &mut pins, &mut left);
        }
    }
    for paths in pins.by_prog.values_mut() {
        paths.sort_unstable();
    }
    Ok(pins)
}

/// Device and mount point of a line of mountinfo that is about a bpf file system mounted by its root.
fn bpf_mount(line: &[u8]) -> Option<(Vec<u8>, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?.to_vec();
    let root = fields.next()?;
    let mount_point = fields.next()?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    (kind == b"bpf" && root == b"/")
        .then(|| (device, PathBuf::from(std::ffi::OsString::from_vec(unescape(mount_point)))))
}

/// Undoes mountinfo's octal escapes (`\040` for a space).
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

fn walk(root: PathBuf, pins: &mut Pins, left: &mut usize) {
    let mut directories = vec![root];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(source) => {
                pins.problems.push(Error::file(directory, source).to_string());
                continue;
            }
        };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                if *left == 0 {
                    pins.problems.push(format!("more than {MAX_PINS} pins: the others were not looked at"));
                    return;
                }
                *left -= 1;
                match pinned_prog(entry.path()) {
                    Ok(Some((prog_id, path))) => pins.by_prog.entry(prog_id).or_default().push(path),
                    Ok(None) => {}
                    Err(error) if error.is_gone() => {}
                    Err(error) => pins.problems.push(error.to_string()),
                }
            }
        }
    }
}

/// The program that is pinned at `path`, itself or by its link; None for maps.
fn pinned_prog(path: PathBuf) -> Result<Option<(u32, PathBuf)>> {
    let fd = sys::obj_get(&path)?;
    let info = FdInfo::of_own(fd.as_fd())?;
    // The fdinfo of a map of the kind prog_array names the type of its owner, never an id of a program.
    Ok(info.prog_id.filter(|_| info.map_id.is_none()).map(|prog_id| (prog_id, path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_bpf_file_systems_are_found_by_type() {
        let bpf = b"31 23 0:28 / /run/my\\040bpf rw,nosuid - bpf bpffs rw,mode=700";
        assert_eq!(bpf_mount(bpf), Some((b"0:28".to_vec(), PathBuf::from("/run/my bpf"))));
        let optional = b"31 23 0:28 / /sys/fs/bpf rw shared:9 master:1 - bpf none rw";
        assert_eq!(bpf_mount(optional), Some((b"0:28".to_vec(), PathBuf::from("/sys/fs/bpf"))));
        assert_eq!(bpf_mount(b"31 23 0:29 / /bpf rw - tmpfs bpf rw"), None);
        assert_eq!(bpf_mount(b"31 23 0:28 /sub /bpf rw - bpf bpf rw"), None);
        assert_eq!(bpf_mount(b""), None);
    }

    #[test]
    fn escapes_are_undone_and_lone_backslashes_kept() {
        assert_eq!(unescape(b"a\\040b\\134c"), b"a b\\c");
        assert_eq!(unescape(b"a\\04"), b"a\\04");
        assert_eq!(unescape(b"a\\9999"), b"a\\9999");
    }
}
