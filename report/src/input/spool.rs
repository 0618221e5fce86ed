//! Temporary copies of inputs that cannot be mapped: of a pipe, and of the contents of a gzip file.
//!
//! Recordings are sensitive. The copy has no name that others could open or replace, belongs to its owner alone, and disappears when it is closed,
//! however the process ends. It lies in the directory that `TMPDIR` names, or else in `/tmp`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Bytes per read and write.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes between two checks of the free space. Each check also requires free space for the bytes until the next check.
const CHECK_BYTES: u64 = 16 << 20;
/// Space that a copy leaves free on its file system. On a file system smaller than ten times this, a copy leaves a tenth free.
#[cfg(any(unix, test))]
const LEFT_FREE_BYTES: u64 = 1 << 30;
/// Limit on the compression ratio of a gzip file. Recordings compress 10 to 20 times; gzip reaches 1000 times, but only for repeated bytes.
const INFLATE_TIMES: u64 = 200;
/// Unpacked size that is allowed for every gzip file, even for a tiny one.
const INFLATE_MIN_BYTES: u64 = 64 << 20;

/// Returns the limit on the size that a gzip file unpacks to.
pub(super) fn inflated_limit_bytes(packed_bytes: u64) -> u64 {
    packed_bytes.saturating_mul(INFLATE_TIMES).max(INFLATE_MIN_BYTES)
}

/// Copies all of `from` into a file without a name. Fails beyond `limit_bytes`, or if too little space is free on the file system.
pub(super) fn spool(from: &mut dyn Read, limit_bytes: u64) -> io::Result<File> {
    let mut to = Spool::create(limit_bytes)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(to.file),
            Ok(len) => to.write_all(&buffer[..len])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file without a name, while it is written.
pub(crate) struct Spool {
    file: File,
    limit_bytes: u64,
    written_bytes: u64,
    check_at_bytes: u64,
}

impl Spool {
    /// Creates a file that may become `limit_bytes` long.
    pub(crate) fn create(limit_bytes: u64) -> io::Result<Spool> {
        Ok(Spool { file: unnamed()?, limit_bytes, written_bytes: 0, check_at_bytes: 0 })
    }

    /// File with the written bytes.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written_bytes = self.written_bytes.saturating_add(bytes.len() as u64);
        let Spool { limit_bytes, written_bytes, .. } = *self;
        if written_bytes > limit_bytes {
            return Err(io::Error::other(format!(
                "the input decompresses to more than {limit_bytes} bytes, the limit for a gzip file of its size; if it is a \
                 recording, decompress it first (gunzip)"
            )));
        }
        if written_bytes >= self.check_at_bytes {
            check_free_space(&self.file, written_bytes)?;
            self.check_at_bytes = written_bytes + CHECK_BYTES;
        }
        self.file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Spool {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(target_os = "linux")]
fn unnamed() -> io::Result<File> {
    use std::os::unix::fs::PermissionsExt;
    // The file has no name. On a file system without O_TMPFILE, it has a random new name for a moment.
    let file = tempfile::tempfile()?;
    file.set_permissions(PermissionsExt::from_mode(0o600))?;
    Ok(file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed() -> io::Result<File> {
    // The file has a random new name, is readable by its owner alone, and is unlinked at once.
    tempfile::tempfile()
}

#[cfg(unix)]
fn check_free_space(file: &File, copied_bytes: u64) -> io::Result<()> {
    // If the free space is unknown, the copy fails only when the file system is full.
    let Ok(space) = rustix::fs::fstatvfs(file) else { return Ok(()) };
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    let left_bytes = LEFT_FREE_BYTES.min(bytes(space.f_blocks) / 10);
    if has_space(bytes(space.f_bavail), left_bytes) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::StorageFull,
        format!(
            "bprec stopped copying the input after {copied_bytes} bytes, because less than {left_bytes} bytes are free in \
             {}; set TMPDIR to another directory",
            std::env::temp_dir().display()
        ),
    ))
}

#[cfg(unix)]
fn has_space(free_bytes: u64, left_bytes: u64) -> bool {
    free_bytes >= left_bytes.saturating_add(CHECK_BYTES)
}

#[cfg(not(unix))]
fn check_free_space(_file: &File, _copied_bytes: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_spool_has_no_name_and_is_its_owners_alone() {
        let file = spool(&mut &b"records"[..], u64::MAX).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.mode() & 0o777, metadata.len()), (0, 0o600, 7));
    }

    #[test]
    fn a_spool_ends_at_its_limit() {
        let limit = 3 * BUFFER_BYTES as u64;
        let error = spool(&mut io::repeat(0), limit).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the input decompresses to more than {limit} bytes")), "{error}");
        assert!(spool(&mut io::repeat(0).take(limit), limit).is_ok());
        assert!(!has_space(LEFT_FREE_BYTES, LEFT_FREE_BYTES) && has_space(2 * LEFT_FREE_BYTES, LEFT_FREE_BYTES));
    }
}
