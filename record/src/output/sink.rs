//! Destination of the records: a seekable file with checkpoints and a journal, or a stream.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use bprec_format::bprec::journal::Frame;
use bprec_format::{Endian, FileAttr, FileLayout, pipe_header};
use bprec_host::{directory_of, journal_of, refuse_planted_target, sync_directory};
use rustix::io::Errno;

use super::closed_files::ClosedFiles;
use super::compression::{PackedBytes, Packer};
use super::journal::{Inode, Journal, Leftover, create_with, inode, is_still};
use super::older::{self, Moved};
use super::pipe;
use super::sections::Section;
use super::state_writer::{id_record, random_id};
use super::syncer::Written;
use crate::events::OpenEvent;
use crate::{Error, Level, Output, Result};

/// Size to which a pipe is enlarged, in bytes: the default limit for unprivileged users.
const PIPE_BYTES: usize = 1 << 20;

/// The output that is being written.
#[derive(Debug)]
pub(crate) struct Sink {
    out: File,
    name: String,
    /// Bytes of whole records written.
    data_bytes: u64,
    /// Bytes before the records.
    head_bytes: u64,
    /// Bytes of the feature sections; 0 before [`Sink::finish`].
    tail_bytes: u64,
    seekable: Option<Seekable>,
    /// Compressor, if records are compressed.
    packer: Option<Packer>,
    packed: Vec<u8>,
}

/// Properties of a file that a stream does not have.
#[derive(Debug)]
struct Seekable {
    path: PathBuf,
    layout: FileLayout,
    journal: Journal,
    origin: Origin,
    /// Closed files that may be deleted if the disk is full.
    closed: Option<ClosedFiles>,
}

/// State of the file names before a file was created, to restore if nothing is recorded.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    path: PathBuf,
    inode: Inode,
    journal: Leftover,
    /// Older recording of this name, which was renamed.
    moved: Option<Moved>,
}

impl Origin {
    /// Deletes the file that the renamed older recording replaced, because the new recording has begun.
    pub(crate) fn settle(&self) {
        self.moved.iter().for_each(Moved::settle);
    }

    /// Removes the file, and gives its name back to the previous file, which [`Sink::vacate`] renamed to `closed`.
    pub(crate) fn give_way(&self, closed: &Path, notify: fn(Level, &str)) {
        self.discard();
        if let Err(error) = Sink::vacate(closed, &self.path) {
            notify(
                Level::Warning,
                &format!(
                    "cannot rename {closed} back to {}: {error}; the last file of the recording stays at {closed}",
                    self.path.display(),
                    closed = closed.display()
                ),
            );
        }
    }

    /// Removes the file, and restores the older recording of this name.
    pub(crate) fn discard(&self) {
        // The caller reports the error that led here. A journal that cannot be removed does no harm: no recording
        // belongs to it.
        drop(self.journal.remove());
        if is_still(&self.path, self.inode) {
            drop(fs::remove_file(&self.path));
            self.moved.iter().for_each(Moved::put_back);
        }
    }
}

/// Current path of the file with this inode, which differs from `path` if the file was being renamed. `None` if the
/// directory does not contain the file.
fn current_name(path: &Path, inode: Inode) -> Option<PathBuf> {
    let others = || fs::read_dir(directory_of(path)).into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(path.to_owned()).chain(std::iter::once_with(others).flatten()).find(|path| is_still(path, inode))
}

/// Returns true if bprec was started with this descriptor closed. The Rust runtime then opens /dev/null for reading and
/// writing in its place, so that no other file gets the descriptor.
fn is_closed(descriptor: &impl AsFd) -> bool {
    let Ok(file) = descriptor.as_fd().try_clone_to_owned().map(File::from) else { return true };
    let device = |about: fs::Metadata| about.file_type().is_char_device().then(|| about.rdev());
    let is_null = file.metadata().ok().and_then(device) == fs::metadata("/dev/null").ok().and_then(device);
    is_null && rustix::fs::fcntl_getfl(&file).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::RDWR))
}

/// Metadata of the file under a name; `None` if there is no file. Follows links, but fails for a link or a target that another
/// user placed in a directory that anyone may write to.
fn existing(path: &Path) -> Result<Option<fs::Metadata>> {
    refuse_planted_target(path).map_err(|answer| Error::file(path, answer))?;
    Ok(fs::metadata(path).ok())
}

/// Runs a write to the disk. While the disk is full, the oldest files of `closed` are deleted.
pub(super) fn with_room<T>(closed: Option<&ClosedFiles>, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match closed {
        Some(closed) => closed.with_room(write),
        None => write(),
    }
}

impl Sink {
    /// Creates the output and writes the bytes before the records.
    ///
    /// # Errors
    /// Fails if the output cannot be created or written.
    pub(crate) fn create(output: &Output, events: &[OpenEvent], closed: Option<&ClosedFiles>) -> Result<Sink> {
        let files: Vec<FileAttr> = events.iter().map(|event| event.file.clone()).collect();
        match output {
            Output::Stdout if is_closed(&io::stdout()) => Err(Error::file("standard output", Errno::BADF.into())),
            Output::Stdout => {
                let out = io::stdout().as_fd().try_clone_to_owned().map_err(|e| Error::file("standard output", e))?;
                Sink::stream(out, "standard output".to_owned(), &files)
            }
            Output::File(path) => match existing(path)? {
                // A device or a pipe can neither be renamed nor have its header rewritten.
                Some(about) if about.file_type().is_char_device() || about.file_type().is_fifo() => {
                    let out = OpenOptions::new().write(true).open(path).map_err(|e| Error::file(path, e))?;
                    Sink::stream(out.into(), path.display().to_string(), &files)
                }
                Some(about) if !about.is_file() => {
                    Err(Error::file(path, io::Error::other("exists and is not a file: give the name of a file")))
                }
                _ => Sink::file(path, events, closed),
            },
        }
    }

    fn file(path: &Path, events: &[OpenEvent], closed: Option<&ClosedFiles>) -> Result<Sink> {
        let moved = older::make_way(path)?;
        let begun = Sink::begin(path, events, moved.clone(), closed);
        begun.inspect_err(|_| moved.iter().for_each(Moved::put_back))
    }

    fn begin(path: &Path, events: &[OpenEvent], moved: Option<Moved>, closed: Option<&ClosedFiles>) -> Result<Sink> {
        let failed = |error| Error::file(path, error);
        let files: Vec<FileAttr> = events.iter().map(|event| event.file.clone()).collect();
        let mut head = Vec::new();
        let layout = FileLayout::begin(&files, Endian::NATIVE, &mut head);
        let head_bytes = head.len() as u64;
        let id = random_id();
        id_record(events, id, &mut head)?;
        // The header covers the first record, so perf can open the file from the first moment on: perf reports an error
        // for a file without records.
        let header = layout.header(head.len() as u64 - head_bytes, &[]);
        head[..header.len()].copy_from_slice(&header);
        let out = with_room(closed, || create_with(path, &head)).map_err(failed)?;
        // The lock tells `recover` that the recording is still running. Some file systems have no locks.
        let _ = out.try_lock();
        let inode = inode(&out).map_err(failed)?;
        let journal = Journal::create(&journal_of(path));
        let origin = Origin { path: path.to_owned(), inode, journal: journal.leftover(), moved };
        let mut sink = Sink {
            out,
            name: path.display().to_string(),
            data_bytes: head.len() as u64 - head_bytes,
            head_bytes,
            tail_bytes: 0,
            seekable: Some(Seekable { path: path.to_owned(), layout, journal, origin, closed: closed.cloned() }),
            packer: None,
            packed: Vec::new(),
        };
        let first_event_id = files.first().and_then(|event| event.ids.first()).copied().unwrap_or(0);
        let mut begin = Vec::new();
        Frame::Begin { first_event_id, recording_id: Some(id) }.encode(&mut begin, Endian::NATIVE);
        sink.journal(&begin);
        Ok(sink)
    }

    /// Creates the next file of a recording, under the name that [`Sink::vacate`] has freed.
    pub(crate) fn next(path: &Path, events: &[OpenEvent], closed: &ClosedFiles) -> Result<Sink> {
        Sink::begin(path, events, None, Some(closed))
    }

    /// Renames a file that is being written, and its journal. The new name must be free.
    ///
    /// # Errors
    /// Fails if the file cannot be renamed; the file keeps its name then.
    pub(crate) fn vacate(path: &Path, closed: &Path) -> Result<()> {
        let rename = |from: &Path, to: &Path| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
                // Some file systems cannot guarantee that a rename replaces nothing.
                Err(Errno::INVAL) if !to.exists() => fs::rename(from, to),
                other => other.map_err(io::Error::from),
            }
        };
        rename(path, closed).map_err(|error| Error::file(closed, error))?;
        // The journal may be missing if it could not be written.
        drop(rename(&journal_of(path), &journal_of(closed)));
        Ok(())
    }

    /// Syncs the name that [`Sink::vacate`] gave to a complete file.
    ///
    /// # Errors
    /// Fails if the directory cannot be synced.
    pub(crate) fn sync_name(path: &Path) -> Result<()> {
        sync_directory(path).map_err(|error| Error::file(path, error))
    }

    /// Records the new path after [`Sink::vacate`] renamed the file.
    pub(crate) fn moved_to(&mut self, path: &Path) {
        self.name = path.display().to_string();
        if let Some(seekable) = &mut self.seekable {
            seekable.path = path.to_owned();
            seekable.journal.moved_to(journal_of(path));
        }
    }

    fn stream(out: OwnedFd, name: String, events: &[FileAttr]) -> Result<Sink> {
        // With a larger pipe, a reader that pauses does not stop the recorder at once. Not every stream is a pipe.
        let _ = rustix::pipe::fcntl_setpipe_size(&out, PIPE_BYTES);
        let mut sink = Sink {
            out: out.into(),
            name,
            data_bytes: 0,
            head_bytes: 16,
            tail_bytes: 0,
            seekable: None,
            packer: None,
            packed: Vec::new(),
        };
        let mut head = pipe_header(Endian::NATIVE).to_vec();
        let attr_size = events.iter().map(|event| event.attr.smallest_size()).max().unwrap_or(64);
        for event in events {
            pipe::attr(event, attr_size, &mut head)?;
        }
        sink.write(&head)?;
        Ok(sink)
    }

    /// Returns true for a file, false for a stream.
    pub(crate) fn is_file(&self) -> bool {
        self.seekable.is_some()
    }

    /// Path of the file; `None` for a stream.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.seekable.as_ref().map(|it| it.path.as_path())
    }

    /// Returns true for a file that still has a name.
    pub(crate) fn is_there(&self) -> bool {
        self.seekable.as_ref().is_some_and(|_| self.out.metadata().is_ok_and(|about| about.nlink() > 0))
    }

    /// Descriptors to sync while the file is written; `None` for a stream.
    ///
    /// # Errors
    /// Fails if the limit of open files is reached.
    pub(crate) fn written(&self) -> Result<Option<Written>> {
        let Some(seekable) = &self.seekable else { return Ok(None) };
        let duplicated = self.out.try_clone().and_then(|out| Ok((out, seekable.journal.duplicate()?)));
        let (out, journal) = duplicated.map_err(|error| self.failed(error))?;
        Ok(Some(Written::new(out, journal, &seekable.path)))
    }

    /// Bytes written, including the bytes before the records and, after [`Sink::finish`], the feature sections.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.head_bytes + self.data_bytes + self.tail_bytes
    }

    /// Appends whole records.
    ///
    /// # Errors
    /// Fails if the records cannot be written; records appended before stay whole.
    pub(crate) fn append(&mut self, records: &[u8]) -> Result<()> {
        self.write(records)?;
        self.data_bytes += records.len() as u64;
        Ok(())
    }

    /// Compresses records from here on. Readers need the COMPRESSED feature section to unpack them: a file has the section in
    /// the journal, a stream has it before the records.
    ///
    /// # Errors
    /// Fails if there is not enough memory, or as [`Sink::append`] does.
    pub(crate) fn compress(&mut self, level: u8) -> Result<()> {
        let packer = Packer::new(level).map_err(|error| self.failed(error))?;
        let (bit, payload) = packer.feature();
        if self.is_file() {
            let mut frame = Vec::new();
            Frame::Feature { bit, payload: &payload }.encode(&mut frame, Endian::NATIVE);
            self.journal(&frame);
        } else if let Some(record) = pipe::feature(bit, &payload)? {
            self.append(&record)?;
        }
        self.packer = Some(packer);
        Ok(())
    }

    /// Appends whole records that the kernel wrote or the recorder synthesized. Compresses the records if compression is on and `is_behind` is false.
    pub(crate) fn append_packed(&mut self, records: &[u8], is_behind: bool) -> Result<()> {
        let Some(packer) = self.packer.as_mut().filter(|_| !is_behind) else {
            self.packer.iter_mut().for_each(|packer| packer.skip(records.len()));
            return self.append(records);
        };
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        let done = packer.pack(records, &mut packed);
        let appended = done.map_err(|error| self.failed(error)).and_then(|()| self.append(&packed));
        self.packed = packed;
        appended
    }

    /// Returns true if records are compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.packer.is_some()
    }

    /// Byte counts of compression so far; `None` if records are not compressed.
    pub(crate) fn packed_bytes(&self) -> Option<PackedBytes> {
        self.packer.as_ref().map(Packer::counts)
    }

    /// The COMPRESSED feature section; `None` if records are not compressed.
    pub(crate) fn compression(&self) -> Option<Section> {
        self.packer.as_ref().map(Packer::feature)
    }

    /// Appends a FINISHED_ROUND record: all rings were read once.
    pub(crate) fn finished_round(&mut self) -> Result<()> {
        self.append(&pipe::finished_round())
    }

    /// Updates the header to cover all records written so far, so that a file that is cut off here can be opened.
    ///
    /// # Errors
    /// Fails if the header cannot be written, or the file was deleted.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        let Some(seekable) = &self.seekable else { return Ok(()) };
        let header = seekable.layout.header(self.data_bytes, &[]);
        self.out.write_all_at(&header, 0).map_err(|error| self.failed(error))?;
        let links = self.out.metadata().map_err(|error| self.failed(error))?.nlink();
        if links == 0 {
            return Err(self.failed(io::Error::new(
                io::ErrorKind::NotFound,
                "the recording or its directory was deleted while the recorder wrote to it",
            )));
        }
        Ok(())
    }

    /// Appends frames to the journal, in case the recording is cut off. A journal that cannot be written is given up:
    /// the recording does not depend on it.
    pub(crate) fn journal(&mut self, frames: &[u8]) {
        if let Some(seekable) = &mut self.seekable {
            seekable.journal.append(frames, seekable.closed.as_ref());
        }
    }

    /// Returns true once the journal has left out frames.
    pub(crate) fn has_full_journal(&self) -> bool {
        self.seekable.as_ref().is_some_and(|seekable| seekable.journal.is_full())
    }

    /// Feature sections made from the journal; `None` for a stream, or if the journal could not be written.
    pub(crate) fn journaled(&self) -> Option<Vec<(u8, Vec<u8>)>> {
        self.seekable.as_ref()?.journal.features()
    }

    /// Writes the feature sections (in ascending order) and the final header, and syncs the file. After that the
    /// journal is a [`Leftover`].
    ///
    /// # Errors
    /// Fails if the disk is full or fails: the file then ends at the last record, and its journal stays.
    pub(crate) fn finish(&mut self, features: &[(u8, Vec<u8>)]) -> Result<()> {
        let Some(seekable) = &self.seekable else { return self.finish_stream() };
        let bits: Vec<u8> = features.iter().map(|(bit, _)| *bit).collect();
        let mut tail = Vec::new();
        seekable.layout.features(self.data_bytes, features, &mut tail);
        let end = self.head_bytes + self.data_bytes;
        let header = seekable.layout.header(self.data_bytes, &bits);
        // The feature sections are synced before the header names them: until then the file counts as cut off.
        let written = with_room(seekable.closed.as_ref(), || {
            self.out.write_all_at(&tail, end)?;
            self.out.set_len(end + tail.len() as u64)?;
            self.out.sync_all()?;
            self.out.write_all_at(&header, 0)?;
            self.out.sync_all()?;
            sync_directory(&seekable.path)
        });
        written.map_err(|error| self.failed(error))?;
        self.tail_bytes = tail.len() as u64;
        Ok(())
    }

    /// Journal of a file that [`Sink::finish`] has completed; `None` for a stream.
    pub(crate) fn leftover(&self) -> Option<Leftover> {
        self.seekable.as_ref().map(|it| it.journal.leftover())
    }

    /// Syncs a stream that goes to a file, as standard output may.
    fn finish_stream(&self) -> Result<()> {
        match self.out.metadata() {
            Ok(about) if about.is_file() => self.out.sync_all().map_err(|error| self.failed(error)),
            _ => Ok(()),
        }
    }

    /// After an error, ends the file at its last whole record, so that it can be opened.
    pub(crate) fn cut(&mut self) {
        let Some(seekable) = &self.seekable else { return };
        let header = seekable.layout.header(self.data_bytes, &[]);
        drop(self.out.set_len(self.head_bytes + self.data_bytes));
        drop(self.out.write_all_at(&header, 0));
        drop(self.out.sync_all());
    }

    /// After an error, ends the file at its last whole record, and returns the error to report.
    pub(crate) fn give_up(&mut self, error: Error) -> Error {
        self.cut();
        match (error, &self.seekable) {
            (Error::File { answer, .. }, Some(Seekable { path, origin, .. })) if self.is_there() => {
                let path = current_name(path, origin.inode).unwrap_or_else(|| path.clone());
                Error::Incomplete { path, answer, kept_bytes: self.written_bytes() }
            }
            (error, _) => error,
        }
    }

    /// State of the file names before this file; `None` for a stream.
    pub(crate) fn origin(&self) -> Option<Origin> {
        self.seekable.as_ref().map(|it| it.origin.clone())
    }

    /// Removes the output, and restores the older recording of this name.
    pub(crate) fn discard(&mut self) {
        self.origin().iter().for_each(Origin::discard);
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let closed = self.seekable.as_ref().and_then(|seekable| seekable.closed.as_ref());
        while !bytes.is_empty() {
            match with_room(closed, || (&self.out).write(bytes)) {
                Ok(0) => return Err(self.failed(io::ErrorKind::WriteZero.into())),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::file(&self.name, error)
    }
}
