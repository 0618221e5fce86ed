//! Sources of recordings: files, directories, pipes, compressed records.

pub(crate) mod cache;
pub(crate) mod cut_off;
pub(crate) mod event_kind;
mod joined;
mod mapping;
mod progress;
pub(crate) mod recording;
pub(crate) mod scan;
pub(crate) mod source;
pub(crate) mod spool;
pub(crate) mod unpacked;
pub(crate) mod window;

use crate::{Error, Result};
use bprec_format::{Container, PIPE_HEADER_BYTES};
pub use joined::recordings_of;
use mapping::FileMapping;
pub use progress::Progress;
use spool::{Spool, spool};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First bytes of files that gzip wrote.
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Limit on threads that read a recording: more threads gain nothing, and each thread needs memory for its own results.
pub(crate) const MAX_THREADS: usize = 16;

/// Returns the number of threads that can run at the same time.
pub(crate) fn threads_there_are() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// An opened input: a mapped file, with its journal and the files of its directory. An input that cannot be mapped (a pipe, a gzip file) is first
/// copied into an unlinked temporary file.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    content: Content,
    parts: Vec<Input>,
    /// Files of the same recording that follow this one.
    later: Vec<Input>,
    journal: Option<FileMapping>,
    /// True if the mapped file is a temporary copy of a pipe, or a redacted copy.
    spooled: bool,
    progress: Arc<Progress>,
}

/// Storage of the bytes.
#[derive(Debug)]
enum Content {
    /// A mapped file; `None` if the file is empty, which cannot be mapped.
    Mapped(Option<FileMapping>),
    /// Bytes in memory.
    Owned(Vec<u8>),
}

impl Input {
    /// Opens `path`: a file, a directory as `perf record --threads` writes it, or `-` for standard input.
    ///
    /// The first call installs a handler for SIGBUS, because access to a mapped file that became shorter raises this signal. The handler acts only on
    /// the files of inputs; the earlier handler still handles all other addresses.
    ///
    /// # Errors
    /// Fails if the input cannot be read or the temporary file cannot be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Input> {
        Input::open_with(path, &Arc::default())
    }

    /// Opens `path` and reports the progress of copying and reading to `progress`.
    ///
    /// # Errors
    /// Fails as [`Input::open`] does.
    pub fn open_with(path: impl AsRef<Path>, progress: &Arc<Progress>) -> Result<Input> {
        let path = path.as_ref();
        let failed = |call| move |source| Error::Io { call, path: path.to_owned(), source };
        if path == Path::new("-") {
            return match Input::of_redirected_stdin(path, progress)? {
                Some(input) => Ok(input),
                None => Input::spooled(path, &mut io::stdin().lock(), progress),
            };
        }
        // Opening a FIFO waits for its writer, as a user who names a FIFO expects.
        let file = File::open(path).map_err(failed("open"))?;
        let metadata = file.metadata().map_err(failed("stat"))?;
        if metadata.is_dir() {
            let part = |path: &Path| Input::of_file(path, &ordinary(path).map_err(io_error("open", path))?, progress);
            if path.join("data").symlink_metadata().is_err() {
                let first = recordings_of(path)?.swap_remove(0);
                let problem = format!("a directory of recordings; name one of them, such as {}", first.display());
                return Err(Error::NotRecording { path: path.to_owned(), problem });
            }
            let mut input = part(&path.join("data"))?;
            for path in parts(path).map_err(failed("read directory"))? {
                input.parts.push(part(&path)?);
            }
            return Ok(input);
        }
        if !metadata.is_file() {
            return Input::spooled(path, &mut &file, progress);
        }
        let mut input = Input::of_file(path, &file, progress)?;
        input.journal = journal(path)?;
        Ok(input)
    }

    /// Makes an input of a recording in memory, called `name` in messages.
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Input {
        Input {
            path: name.into(),
            content: Content::Owned(bytes),
            parts: Vec::new(),
            later: Vec::new(),
            journal: None,
            spooled: false,
            progress: Arc::default(),
        }
    }

    /// Copies all of `from` into a temporary file and maps the file. Messages call the input `path`.
    pub(crate) fn spooled(path: &Path, from: &mut dyn Read, progress: &Arc<Progress>) -> Result<Input> {
        let file = copy("spool", path, &mut progress.of_copy(from, 0), &[&GZIP_MAGIC], u64::MAX)?;
        Ok(Input { spooled: true, ..Input::of_file(path, &file, progress)? })
    }

    /// Makes an input of a temporary file, called `path` in messages.
    pub(crate) fn of_spool(path: &Path, spool: &Spool) -> Result<Input> {
        Ok(Input { spooled: true, ..Input::of_file(path, spool.file(), &Arc::default())? })
    }

    /// Returns `found`, a result computed from the input, if all of the input could be read.
    ///
    /// # Errors
    /// Fails if a part of the input could not be read: zeros in its place may have changed the result. Also fails with the error of `found`.
    pub(crate) fn checked<T>(&self, found: Result<T>) -> Result<T> {
        self.check_whole()?;
        found
    }

    fn check_whole(&self) -> Result<()> {
        let lost_from = |map: &FileMapping| map.lost_from();
        let content = match &self.content {
            Content::Mapped(map) => map.as_ref().and_then(lost_from),
            Content::Owned(_) => None,
        };
        if let Some(offset) = content.or_else(|| self.journal.as_ref().and_then(lost_from)) {
            return Err(Error::Truncated { path: self.path.clone(), offset });
        }
        self.parts.iter().chain(&self.later).try_for_each(Input::check_whole)
    }

    /// Maps standard input if it is a file at offset 0: a mapped file needs no copy. A terminal is an error; any other input is `None`.
    #[cfg(unix)]
    pub(crate) fn of_redirected_stdin(path: &Path, progress: &Arc<Progress>) -> Result<Option<Input>> {
        use std::io::{IsTerminal, Seek};
        use std::os::fd::AsFd;
        let Ok(descriptor) = io::stdin().as_fd().try_clone_to_owned() else { return Ok(None) };
        let mut file = File::from(descriptor);
        if file.is_terminal() {
            let source = io::Error::other("is a terminal, not a recording");
            return Err(io_error("read", path)(source));
        }
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file && file.stream_position().is_ok_and(|position| position == 0) {
            return Input::of_file(path, &file, progress).map(Some);
        }
        Ok(None)
    }

    #[cfg(not(unix))]
    pub(crate) fn of_redirected_stdin(_path: &Path, _progress: &Arc<Progress>) -> Result<Option<Input>> {
        Ok(None)
    }

    fn of_file(path: &Path, file: &File, progress: &Arc<Progress>) -> Result<Input> {
        let mut map = FileMapping::new(file).map_err(io_error("map", path))?;
        if let Some(packed) = &map
            && packed.starts_with(&GZIP_MAGIC)
        {
            let limit_bytes = spool::inflated_limit_bytes(packed.len() as u64);
            let mut inflated = flate2::read::MultiGzDecoder::new(progress.of_copy(&packed[..], packed.len() as u64));
            let inflated = copy("gunzip", path, &mut inflated, &[], limit_bytes);
            if let Some(offset) = packed.lost_from() {
                return Err(Error::Truncated { path: path.to_owned(), offset });
            }
            map = FileMapping::new(&inflated?).map_err(io_error("map", path))?;
        }
        let (content, progress) = (Content::Mapped(map), Arc::clone(progress));
        Ok(Input { content, progress, ..Input::from_bytes(path, Vec::new()) })
    }

    /// Path of the input, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Progress of reading the input.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Bytes of the input, decompressed; for a directory, the bytes of the file with the header.
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Mapped(map) => map.as_deref().unwrap_or_default(),
            Content::Owned(bytes) => bytes,
        }
    }

    /// Returns true for the temporary copy of a pipe, and for a redacted copy. The copy may be larger than the memory, so readers release the parts
    /// that they have read.
    pub(crate) fn is_spooled(&self) -> bool {
        self.spooled
    }

    /// Releases the memory of a part that was read, if the input is one temporary copy ([`Input::is_spooled`]). The part can be read again.
    pub(crate) fn release(&self, part: Range<u64>) {
        if let Content::Mapped(Some(map)) = &self.content
            && self.spooled
            && self.later.is_empty()
        {
            map.release(part);
        }
    }

    /// Files of a directory that hold only records.
    pub(crate) fn parts(&self) -> &[Input] {
        &self.parts
    }

    /// Files of the same recording that follow this one, in the order of time.
    pub(crate) fn later(&self) -> &[Input] {
        &self.later
    }

    /// Journal beside the file: feature data of a recorder that did not finish.
    pub(crate) fn journal(&self) -> Option<&[u8]> {
        self.journal.as_deref()
    }
}

/// Copies an input into a temporary file if it begins like a recording, or with one of the magics `others`. Refuses any other input after its first
/// bytes, because it may be endless.
fn copy(call: &'static str, path: &Path, from: &mut dyn Read, others: &[&[u8]], limit_bytes: u64) -> Result<File> {
    let failed = io_error(call, path);
    let mut head = [0; PIPE_HEADER_BYTES];
    let mut len = 0;
    while len < head.len() {
        match from.read(&mut head[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let head = &head[..len];
    if !head.is_empty() && !others.iter().any(|magic| head.starts_with(magic)) {
        Container::detect(head).map_err(|source| Error::format(path, source))?;
    }
    spool(&mut head.chain(from), limit_bytes).map_err(failed)
}

/// Returns the files `data.<number>` of a directory, in the order of their numbers.
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

/// Limit on the size of a journal; a larger file counts as no journal. A journal holds all programs and types of a machine, also the ones that were
/// unloaded before the recording ended.
const JOURNAL_MAX_BYTES: u64 = 1 << 30;

/// Opens the journal beside the recording `path`; resolves a symbolic link first. `None` if no journal exists, or if it is no ordinary file, too
/// large or not readable by this user. The recording is then reported without it.
///
/// # Errors
/// Fails if an ordinary file cannot be opened for another reason, such as too many open files: without its journal, the recording would lack its
/// programs.
fn journal(path: &Path) -> Result<Option<FileMapping>> {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    let place = if is_link { std::fs::canonicalize(path) } else { Ok(path.to_owned()) };
    let Ok(mut name) = place.map(PathBuf::into_os_string) else { return Ok(None) };
    name.push(".journal");
    let name = Path::new(&name);
    let is_journal = |metadata: std::fs::Metadata| metadata.is_file() && metadata.len() <= JOURNAL_MAX_BYTES;
    if !std::fs::symlink_metadata(name).is_ok_and(is_journal) {
        return Ok(None);
    }
    match ordinary(name) {
        Ok(file) => Ok(FileMapping::new(&file).ok().flatten()),
        // The file was removed, is no longer a regular file, or may not be read by this user.
        Err(error) if error.raw_os_error().is_none() => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(None),
        Err(error) => Err(io_error("open", name)(error)),
    }
}

/// Opens a file that the user did not name; fails if it is no ordinary file. Opening a FIFO would wait for a writer, and reading a device might never
/// end.
fn ordinary(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let refused = || io::Error::other("not an ordinary file");
    // Opening a device may have side effects.
    if !std::fs::metadata(path)?.is_file() {
        return Err(refused());
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}

fn io_error(call: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { call, path: path.to_owned(), source }
}
