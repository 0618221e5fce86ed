//! Where recordings come from: files, directories, pipes, compressed records. The bytes are here, in the only module of this crate with
//! `unsafe`: mapping a file.

pub(crate) mod cut_off;
pub(crate) mod event_kind;
pub(crate) mod recording;
pub(crate) mod scan;
pub(crate) mod source;
pub(crate) mod threads;
pub(crate) mod unpacked;
pub(crate) mod window;

use crate::{Error, Result};
use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What files that gzip wrote begin with.
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// An input that was opened: a file, mapped, with what belongs to it. What cannot be mapped (a pipe, a gzip file) is
/// spooled into an unlinked temporary file first.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    content: Content,
    parts: Vec<Input>,
    journal: Option<Mmap>,
    /// The map is of a temporary copy of ours.
    spooled: bool,
}

/// Where the bytes are.
#[derive(Debug)]
enum Content {
    /// In a file; `None` when it is empty, which cannot be mapped.
    Mapped(Option<Mmap>),
    /// In memory.
    Owned(Vec<u8>),
}

impl Input {
    /// Opens `path`: a file, a directory as `perf record --threads` writes it, or `-` for standard input.
    ///
    /// # Errors
    /// When it cannot be read, or the spool not be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Input> {
        let path = path.as_ref();
        let failed = |call| move |source| Error::Io { call, path: path.to_owned(), source };
        if path == Path::new("-") {
            return match Input::of_redirected_stdin(path)? {
                Some(input) => Ok(input),
                None => Input::spooled(path, &mut io::stdin().lock()),
            };
        }
        let file = File::open(path).map_err(failed("open"))?;
        let metadata = file.metadata().map_err(failed("stat"))?;
        if metadata.is_dir() {
            let mut input = Input::open(path.join("data"))?;
            for part in parts(path).map_err(failed("read directory"))? {
                input.parts.push(Input::open(part)?);
            }
            return Ok(input);
        }
        if !metadata.is_file() {
            return Input::spooled(path, &mut &file);
        }
        let mut input = Input::of_file(path, &file)?;
        input.journal = journal(path);
        Ok(input)
    }

    /// A recording that is in memory, called `name` in messages.
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Input {
        Input { path: name.into(), content: Content::Owned(bytes), parts: Vec::new(), journal: None, spooled: false }
    }

    /// Everything that `from` has, called `path` in messages.
    pub(crate) fn spooled(path: &Path, from: &mut dyn Read) -> Result<Input> {
        let failed = |source| Error::Io { call: "spool", path: path.to_owned(), source };
        let file = spool(from).map_err(failed)?;
        Ok(Input { spooled: true, ..Input::of_file(path, &file)? })
    }

    /// What standard input is, if it is a file from its start: that needs no copy.
    #[cfg(unix)]
    pub(crate) fn of_redirected_stdin(path: &Path) -> Result<Option<Input>> {
        use std::io::Seek;
        use std::os::fd::AsFd;
        let Ok(descriptor) = io::stdin().as_fd().try_clone_to_owned() else { return Ok(None) };
        let mut file = File::from(descriptor);
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file && file.stream_position().is_ok_and(|position| position == 0) {
            return Input::of_file(path, &file).map(Some);
        }
        Ok(None)
    }

    #[cfg(not(unix))]
    pub(crate) fn of_redirected_stdin(_path: &Path) -> Result<Option<Input>> {
        Ok(None)
    }

    fn of_file(path: &Path, file: &File) -> Result<Input> {
        let failed = |call| move |source| Error::Io { call, path: path.to_owned(), source };
        let mut map = map(file).map_err(failed("map"))?;
        if let Some(bytes) = &map
            && bytes.starts_with(&GZIP_MAGIC)
        {
            let inflated = spool(&mut flate2::read::MultiGzDecoder::new(&bytes[..])).map_err(failed("gunzip"))?;
            map = self::map(&inflated).map_err(failed("map"))?;
        }
        let content = Content::Mapped(map);
        Ok(Input { path: path.to_owned(), content, parts: Vec::new(), journal: None, spooled: false })
    }

    /// Where it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All of it, decompressed; of a directory, the file with the header.
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Mapped(map) => map.as_deref().unwrap_or_default(),
            Content::Owned(bytes) => bytes,
        }
    }

    /// Whether it came through a pipe, which may be longer than memory is large: whoever reads it lets go of what was read.
    pub(crate) fn is_spooled(&self) -> bool {
        self.spooled
    }

    /// Lets go of the memory of a part that was read. It can be read again.
    pub(crate) fn release(&self, part: Range<u64>) {
        #[cfg(unix)]
        if let Content::Mapped(Some(map)) = &self.content
            && self.spooled
        {
            // Whole pages, of any size that machines have.
            const PAGE_BYTES: u64 = 64 << 10;
            let from = part.start.next_multiple_of(PAGE_BYTES);
            let to = part.end.min(map.len() as u64) / PAGE_BYTES * PAGE_BYTES;
            if from < to {
                let (from, len) = (from as usize, (to - from) as usize);
                // SAFETY: the mapping is read-only, and of a file of our own that has no name and that nobody writes any
                // more: pages that are let go come back from it with the same bytes. The range lies within the mapping.
                let released = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, len) };
                // Memory that cannot be let go of is merely used.
                drop(released);
            }
        }
        #[cfg(not(unix))]
        drop(part);
    }

    /// The files of a directory that hold records only.
    pub(crate) fn parts(&self) -> &[Input] {
        &self.parts
    }

    /// The journal beside the file: what a recorder that did not come to its end had put aside for the features.
    pub(crate) fn journal(&self) -> Option<&[u8]> {
        self.journal.as_deref()
    }
}

/// The files `data.<number>` of a directory, in the order of their numbers.
fn parts(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(suffix) = name.to_str().and_then(|name| name.strip_prefix("data.")) else { continue };
        if entry.metadata()?.is_file() {
            parts.push((suffix.parse::<u64>().unwrap_or(u64::MAX), entry.path()));
        }
    }
    parts.sort();
    Ok(parts.into_iter().map(|(_, path)| path).collect())
}

/// A journal that cannot be read is as good as none: the recording is reported without.
fn journal(path: &Path) -> Option<Mmap> {
    let mut name = path.as_os_str().to_owned();
    name.push(".journal");
    map(&File::open(name).ok()?).ok()?
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

/// Copies everything into a temporary file without a name, which nobody else can open: recordings tell what a machine does.
fn spool(from: &mut dyn Read) -> io::Result<File> {
    const BUFFER_BYTES: usize = 1 << 20;
    let file = tempfile::tempfile()?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
    io::copy(from, &mut out)?;
    Ok(out.into_inner()?)
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_spool_has_no_name_and_is_its_owners_alone() {
        let file = spool(&mut &b"records"[..]).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.mode() & 0o777, metadata.len()), (0, 0o600, 7));
    }
}
