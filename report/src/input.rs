//! The bytes of a recording. The only place of this crate with `unsafe`: mapping a file.

use crate::{Error, Result};
use memmap2::Mmap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An input that was opened: a file, mapped; what cannot be mapped (a pipe, a gzip file) is spooled into an unlinked
/// temporary file first.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    map: Option<Mmap>,
}

impl Input {
    /// Opens `path`; `-` is standard input.
    ///
    /// # Errors
    /// When it cannot be read, or the spool not be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Input> {
        let path = path.as_ref();
        let failed = |call| move |source| Error::Io { call, path: path.to_owned(), source };
        let file = if path == Path::new("-") {
            spool(&mut io::stdin().lock()).map_err(failed("spool"))?
        } else {
            let file = File::open(path).map_err(failed("open"))?;
            if file.metadata().map_err(failed("stat"))?.is_file() {
                file
            } else {
                spool(&mut &file).map_err(failed("spool"))?
            }
        };
        let mut map = map(&file).map_err(failed("map"))?;
        if let Some(bytes) = &map
            && bytes.starts_with(&[0x1f, 0x8b])
        {
            let inflated = spool(&mut flate2::read::MultiGzDecoder::new(&bytes[..])).map_err(failed("gunzip"))?;
            map = self::map(&inflated).map_err(failed("map"))?;
        }
        Ok(Input { path: path.to_owned(), map })
    }

    /// Where it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All of it, decompressed.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

/// The file's bytes; `None` when it is empty, which cannot be mapped.
fn map(file: &File) -> io::Result<Option<Mmap>> {
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: the mapping is private and read-only, and nothing here writes to the file. Another process could: then bytes
    // change under us, which all readers bear since they check every value they use and keep no assumption about bytes
    // read before. If it is truncated, touching the lost pages raises SIGBUS and ends the process; no memory of ours is
    // read or written in place of them.
    unsafe { Mmap::map(file) }.map(Some)
}

/// Copies everything into a temporary file that has no name any more.
fn spool(from: &mut dyn Read) -> io::Result<File> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let name = format!("bprec-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    io::copy(from, &mut file)?;
    Ok(file)
}
