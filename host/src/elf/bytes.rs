//! Reading of files that other users may change, replace or craft.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Longest read, in bytes, that allocates its memory without first checking the file's length.
const SHORT_BYTES: usize = 4096;

/// Source of bytes that are read at offsets.
pub trait ReadAt {
    /// Reads `len` bytes at an offset; `None` if the source ends earlier or cannot be read. A read beyond the end allocates a few KiB at most.
    fn read_at(&self, offset: u64, len: usize) -> Option<Vec<u8>>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(len as u64)?;
        // Short reads skip this check: a short read beyond the end of the file fails as fast as the check.
        if len > SHORT_BYTES && end > self.metadata().ok()?.len() {
            return None;
        }
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        self.get(start..start.checked_add(len)?).map(<[u8]>::to_vec)
    }
}

impl ReadAt for &File {
    fn read_at(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        ReadAt::read_at(*self, offset, len)
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        self.as_slice().read_at(offset, len)
    }
}

/// Opens a regular file for reading. Other file types are refused: opening a device can have effects, and opening a FIFO blocks.
///
/// # Errors
/// Fails if the path is not a regular file, or cannot be opened.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let held = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !held.metadata()?.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // The file is opened through the descriptor that was checked, because the path may lead to another file by now.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    Ok(File::from(open(format!("/proc/self/fd/{}", held.as_raw_fd()), flags, Mode::empty())?))
}

/// ELF image of the `[vdso]`, which the kernel maps into this process.
pub fn vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}
