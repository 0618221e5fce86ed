//! Paths under which programs and links are pinned.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::sys;
use crate::sys::FdInfo;

/// Limit on the pins that are opened.
const MAX_PINS: usize = 50_000;

/// Pins in all bpf file systems of this mount namespace.
#[derive(Debug, Default)]
pub struct Pins {
    /// Paths where each program or its links are pinned, by program id.
    pub by_prog: HashMap<u32, Vec<PathBuf>>,
    /// Objects that could not be read, each with the reason.
    pub problems: Vec<String>,
}

/// Walks every bpf file system of this mount namespace and opens each pin.
///
/// # Errors
/// Fails only if the list of mounts cannot be read.
pub fn pins() -> Result<Pins> {
    let mut pins = Pins::default();
    let mut left = MAX_PINS;
    for mount_point in bprec_host::mounts_of_type(b"bpf")? {
        walk(mount_point, &mut pins, &mut left);
    }
    for paths in pins.by_prog.values_mut() {
        paths.sort_unstable();
    }
    Ok(pins)
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
                    pins.problems.push(format!(
                        "the BPF file systems have more than {MAX_PINS} pins: bprec read only the first {MAX_PINS}"
                    ));
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

/// Program pinned at `path`, or program of a link pinned there; `None` for a map.
fn pinned_prog(path: PathBuf) -> Result<Option<(u32, PathBuf)>> {
    let fd = sys::obj_get(&path)?;
    let info = FdInfo::of_own(fd.as_fd())?;
    // The fdinfo of a map of type prog_array can have a program id, but the pin of the map is not a pin of that program.
    Ok(info.prog_id.filter(|_| info.map_id.is_none()).map(|prog_id| (prog_id, path)))
}
