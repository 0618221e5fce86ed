//! A temporary copy of what cannot be mapped: a pipe, and what a gzip file unpacks to.
//!
//! Recordings tell what a machine does. The copy has no name that others could open or put something in place of, is its owner's alone,
//! and goes when it is closed, however the process ends. It lies in the directory that `TMPDIR` names, else in `/tmp`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Bytes that are read and written at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes between two looks at the free space. They bound by how much a copy goes beyond its limit.
const CHECK_BYTES: u64 = 16 << 20;
/// The space that a copy leaves to others, or a tenth of a file system that is smaller than ten times this.
#[cfg(any(unix, test))]
const LEFT_FREE_BYTES: u64 = 1 << 30;
/// By how much gzip may have made a recording smaller. Recordings get ten or twenty times smaller; nothing but repetition gets near 1000
/// times, which is what gzip can do.
const INFLATE_TIMES: u64 = 200;
/// Bytes that may be unpacked from the smallest of files.
const INFLATE_MIN_BYTES: u64 = 64 << 20;

/// Limit on the size that a gzip file unpacks to.
pub(super) fn inflated_limit_bytes(packed_bytes: u64) -> u64 {
    packed_bytes.saturating_mul(INFLATE_TIMES).max(INFLATE_MIN_BYTES)
}

/// Copies everything into a file without a name; at most `limit_bytes`, and only as long as the file system has space left.
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

/// A file without a name that is being written.
pub(crate) struct Spool {
    file: File,
    limit_bytes: u64,
    written_bytes: u64,
    check_at_bytes: u64,
}

impl Spool {
    /// Begins one that may get `limit_bytes` long.
    pub(crate) fn create(limit_bytes: u64) -> io::Result<Spool> {
        Ok(Spool { file: unnamed()?, limit_bytes, written_bytes: 0, check_at_bytes: 0 })
    }

    /// Bytes that were written.
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
                "unpacks to more than {limit_bytes} bytes, {INFLATE_TIMES} times its size; if it is a recording, unpack it first"
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
    // It never had a name; where a file system cannot do that, a random one that had to be new, for a moment.
    let file = tempfile::tempfile()?;
    file.set_permissions(PermissionsExt::from_mode(0o600))?;
    Ok(file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed() -> io::Result<File> {
    // Made with a random name that had to be new, readable by its owner alone, and unlinked at once.
    tempfile::tempfile()
}

#[cfg(unix)]
fn check_free_space(file: &File, copied_bytes: u64) -> io::Result<()> {
    // A file system that does not tell ends the copy when it is full.
    let Ok(space) = rustix::fs::fstatvfs(file) else { return Ok(()) };
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    let left_bytes = LEFT_FREE_BYTES.min(bytes(space.f_blocks) / 10);
    if has_space(bytes(space.f_bavail), left_bytes) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::StorageFull,
        format!(
            "after {copied_bytes} bytes, less than {left_bytes} bytes are free in {}; set TMPDIR to another directory",
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
        assert!(error.starts_with(&format!("unpacks to more than {limit} bytes")), "{error}");
        assert!(spool(&mut io::repeat(0).take(limit), limit).is_ok());
        assert!(!has_space(LEFT_FREE_BYTES, LEFT_FREE_BYTES) && has_space(2 * LEFT_FREE_BYTES, LEFT_FREE_BYTES));
    }
}
