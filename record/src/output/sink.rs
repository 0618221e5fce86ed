//! Where the bytes go: a seekable file with checkpoints and a journal beside it, or a stream.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use bprec_format::journal::Frame;
use bprec_format::{Endian, FileAttr, FileLayout, pipe_header};

use super::compression::{PackedBytes, Packer};
use super::journal::{Inode, Journal, create_with, inode, is_foreign, is_still, journal_of, old};
use super::pipe;
use super::sections::Section;
use super::tally::{Follower, Tally};
use crate::events::OpenEvent;
use crate::{Error, Output, Result};

/// What is asked for as the size of a pipe: the most that the kernel gives to ordinary users.
const PIPE_BYTES: usize = 1 << 20;

/// The recording being written.
#[derive(Debug)]
pub(crate) struct Sink {
    out: File,
    name: String,
    /// Bytes of records written whole.
    data_bytes: u64,
    /// Bytes in front of them.
    head_bytes: u64,
    seekable: Option<Seekable>,
    /// Where records are compressed.
    packer: Option<Packer>,
    packed: Vec<u8>,
}

/// What only a file has.
#[derive(Debug)]
struct Seekable {
    path: PathBuf,
    layout: FileLayout,
    inode: Inode,
    journal: Journal,
    /// An older recording of this name was moved out of the way.
    rotated: bool,
}

impl Sink {
    /// Creates the output and writes what stands in front of the records.
    ///
    /// # Errors
    /// When it cannot be created or written.
    pub(crate) fn create(output: &Output, events: &[OpenEvent]) -> Result<Sink> {
        let files: Vec<FileAttr> = events.iter().map(|event| event.file.clone()).collect();
        match output {
            Output::Stdout => {
                let out = io::stdout().as_fd().try_clone_to_owned().map_err(|e| Error::file("standard output", e))?;
                Sink::stream(out, "standard output".to_owned(), &files)
            }
            Output::File(path) => match fs::metadata(path) {
                // A device or a pipe can neither be moved out of the way nor have its header rewritten.
                Ok(about) if about.file_type().is_char_device() || about.file_type().is_fifo() => {
                    let out = OpenOptions::new().write(true).open(path).map_err(|e| Error::file(path, e))?;
                    Sink::stream(out.into(), path.display().to_string(), &files)
                }
                Ok(about) if !about.is_file() => {
                    Err(Error::file(path, io::Error::other("exists and is not a file to write a recording to")))
                }
                _ => Sink::file(path, &files),
            },
        }
    }

    fn file(path: &Path, events: &[FileAttr]) -> Result<Sink> {
        let failed = |error| Error::file(path, error);
        // A journal takes the place of an older one, which is all that may stand there.
        if let Some(foreign) = [journal_of(path), journal_of(&old(path))].into_iter().find(|it| is_foreign(it)) {
            let problem = "is no journal of a recording, and would be overwritten by one: give another name with -o";
            return Err(Error::file(&foreign, io::Error::other(problem)));
        }
        let rotated = match fs::rename(path, old(path)) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(failed(error)),
        };
        // The journal of a recording that was cut off moves with it; one without its recording is of no use.
        let journal_path = journal_of(path);
        if !rotated || fs::rename(&journal_path, journal_of(&old(path))).is_err() {
            drop(fs::remove_file(journal_of(&old(path))));
        }
        Sink::begin(path, events, rotated).inspect_err(|_| {
            if rotated {
                drop(fs::rename(old(path), path));
            }
        })
    }

    fn begin(path: &Path, events: &[FileAttr], rotated: bool) -> Result<Sink> {
        let failed = |error| Error::file(path, error);
        let mut head = Vec::new();
        let layout = FileLayout::begin(events, Endian::NATIVE, &mut head);
        let out = create_with(path, &head).map_err(failed)?;
        // Whoever mends a recording sees that it is not over. Not every file system has locks.
        let _ = out.try_lock();
        let inode = inode(&out).map_err(failed)?;
        let journal = Journal::create(&journal_of(path));
        let mut sink = Sink {
            out,
            name: path.display().to_string(),
            data_bytes: 0,
            head_bytes: head.len() as u64,
            seekable: Some(Seekable { path: path.to_owned(), layout, inode, journal, rotated }),
            packer: None,
            packed: Vec::new(),
        };
        let first_event_id = events.first().and_then(|event| event.ids.first()).copied().unwrap_or(0);
        let mut begin = Vec::new();
        Frame::Begin { first_event_id }.encode(&mut begin, Endian::NATIVE);
        sink.journal(&begin);
        Ok(sink)
    }

    /// Creates the file that follows this one under its name, which [`Sink::vacate`] has made free.
    ///
    /// # Errors
    /// As [`Sink::create`].
    pub(crate) fn next(path: &Path, events: &[OpenEvent]) -> Result<Sink> {
        let files: Vec<FileAttr> = events.iter().map(|event| event.file.clone()).collect();
        Sink::begin(path, &files, false)
    }

    /// Moves a file that is being written, and its journal, to another name, which must be free.
    ///
    /// # Errors
    /// When that cannot be done; the file stays where it was.
    pub(crate) fn vacate(path: &Path, closed: &Path) -> Result<()> {
        let rename = |from: &Path, to: &Path| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
                // Not every file system can promise that nothing is replaced.
                Err(rustix::io::Errno::INVAL) if !to.exists() => fs::rename(from, to),
                other => other.map_err(io::Error::from),
            }
        };
        rename(path, closed).map_err(|error| Error::file(closed, error))?;
        // A recording has no journal once it could not be written.
        drop(rename(&journal_of(path), &journal_of(closed)));
        Ok(())
    }

    /// It has been moved by [`Sink::vacate`].
    pub(crate) fn moved_to(&mut self, path: &Path) {
        self.name = path.display().to_string();
        if let Some(seekable) = &mut self.seekable {
            seekable.path = path.to_owned();
            seekable.journal.moved_to(journal_of(path));
        }
    }

    fn stream(out: OwnedFd, name: String, events: &[FileAttr]) -> Result<Sink> {
        // So that a reader who pauses does not stop us at once. Not every output is a pipe.
        let _ = rustix::pipe::fcntl_setpipe_size(&out, PIPE_BYTES);
        let mut sink = Sink {
            out: out.into(),
            name,
            data_bytes: 0,
            head_bytes: 16,
            seekable: None,
            packer: None,
            packed: Vec::new(),
        };
        let mut head = pipe_header(Endian::NATIVE).to_vec();
        let attr_size = events.iter().map(|event| event.attr.smallest_size()).max().unwrap_or(64);
        for event in events {
            pipe::attr(event, attr_size, &mut head)?;
        }
        sink.write(&[IoSlice::new(&head)])?;
        Ok(sink)
    }

    /// True for a file, false for a stream.
    pub(crate) fn is_file(&self) -> bool {
        self.seekable.is_some()
    }

    /// The file's path.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.seekable.as_ref().map(|it| it.path.as_path())
    }

    /// True for a file that still has its name.
    pub(crate) fn is_there(&self) -> bool {
        self.seekable
            .as_ref()
            .is_some_and(|it| self.out.metadata().is_ok_and(|about| about.nlink() > 0 && it.inode.1 != 0))
    }

    /// What reads the records of a file while they are written; `None` for a stream.
    ///
    /// # Errors
    /// When there can be no more descriptors.
    pub(crate) fn follower(&self, tally: Tally) -> Result<Option<Follower>> {
        if !self.is_file() {
            return Ok(None);
        }
        let file = self.out.try_clone().map_err(|error| self.failed(error))?;
        Ok(Some(Follower::new(file, self.head_bytes, tally)))
    }

    /// Bytes written, those in front of the records included.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.head_bytes + self.data_bytes
    }

    /// Appends whole records.
    ///
    /// # Errors
    /// When they cannot be written; what was appended before stays whole.
    pub(crate) fn append(&mut self, records: &[u8]) -> Result<()> {
        self.write(&[IoSlice::new(records)])?;
        self.data_bytes += records.len() as u64;
        Ok(())
    }

    /// Has records compressed from here on. What a reader needs for that is in the journal of a file, and in front of the records
    /// of a stream.
    ///
    /// # Errors
    /// When there is no memory for it, or as [`Sink::append`].
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

    /// Appends whole records that come from the kernel or stand for such, compressed where that was asked for.
    ///
    /// # Errors
    /// As [`Sink::append`].
    pub(crate) fn append_packed(&mut self, records: &[u8]) -> Result<()> {
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        let done = match &mut self.packer {
            Some(packer) => packer.pack(records, &mut packed),
            None => return self.append(records),
        };
        let appended = done.map_err(|error| self.failed(error)).and_then(|()| self.append(&packed));
        self.packed = packed;
        appended
    }

    /// Appends whole records as they are, because compressing them would take too long.
    ///
    /// # Errors
    /// As [`Sink::append`].
    pub(crate) fn append_skipped(&mut self, records: &[u8]) -> Result<()> {
        if let Some(packer) = &mut self.packer {
            packer.skip(records.len());
        }
        self.append(records)
    }

    /// True where records are compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.packer.is_some()
    }

    /// What compression has come to; `None` where records are not compressed.
    pub(crate) fn packed_bytes(&self) -> Option<PackedBytes> {
        self.packer.as_ref().map(Packer::counts)
    }

    /// The COMPRESSED feature, where records are compressed.
    pub(crate) fn compression(&self) -> Option<Section> {
        self.packer.as_ref().map(Packer::feature)
    }

    /// Appends whole records of which the last may be in two pieces, straight from where they are.
    ///
    /// # Errors
    /// As [`Sink::append`].
    pub(crate) fn append_pieces(&mut self, first: &[u8], second: &[u8]) -> Result<()> {
        self.write(&[IoSlice::new(first), IoSlice::new(second)])?;
        self.data_bytes += (first.len() + second.len()) as u64;
        Ok(())
    }

    /// Says that all rings were read once.
    ///
    /// # Errors
    /// As [`Sink::append`].
    pub(crate) fn finished_round(&mut self) -> Result<()> {
        self.append(&pipe::finished_round())
    }

    /// Moves the end of the data in the header behind what is written, so that a file that is cut off here can be
    /// opened.
    ///
    /// # Errors
    /// When the header cannot be written, or the file is no longer there.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        let Some(seekable) = &self.seekable else { return Ok(()) };
        let header = seekable.layout.header(self.data_bytes, &[]);
        self.out.write_all_at(&header, 0).map_err(|error| self.failed(error))?;
        let links = self.out.metadata().map_err(|error| self.failed(error))?.nlink();
        if links == 0 {
            return Err(self.failed(io::Error::new(
                io::ErrorKind::NotFound,
                "the recording was deleted, or its directory was, while it was written",
            )));
        }
        Ok(())
    }

    /// Keeps frames for the features in case the end is not reached. A journal that cannot be written is given up: the
    /// recording itself does not depend on it.
    pub(crate) fn journal(&mut self, frames: &[u8]) {
        if let Some(seekable) = &mut self.seekable {
            seekable.journal.append(frames);
        }
    }

    /// The feature sections that the journal makes; `None` when there is none, or when it could not be kept.
    pub(crate) fn journaled(&self) -> Option<Vec<(u8, Vec<u8>)>> {
        self.seekable.as_ref()?.journal.features()
    }

    /// Writes the feature sections (ascending) and the final header, and removes the journal. In a stream, writes one
    /// record per section.
    ///
    /// # Errors
    /// When there is no room: the file is then as it was at the last record, and its journal stays.
    pub(crate) fn finish(&mut self, features: &[(u8, Vec<u8>)]) -> Result<()> {
        let Some(seekable) = &self.seekable else { return Ok(()) };
        let bits: Vec<u8> = features.iter().map(|(bit, _)| *bit).collect();
        let mut tail = Vec::new();
        seekable.layout.features(self.data_bytes, features, &mut tail);
        let end = self.head_bytes + self.data_bytes;
        let header = seekable.layout.header(self.data_bytes, &bits);
        let written =
            self.out.write_all_at(&tail, end).and_then(|()| self.out.write_all_at(&header, 0)).and_then(|()| {
                // A deferred error (a quota, a file system over a network) shows here.
                self.out.set_len(end + tail.len() as u64)
            });
        match written {
            Ok(()) => {
                self.seekable.iter_mut().for_each(|seekable| seekable.journal.remove());
                Ok(())
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// After an error: makes the file end behind its last whole record, so that it can be opened.
    pub(crate) fn cut(&mut self) {
        let Some(seekable) = &self.seekable else { return };
        let header = seekable.layout.header(self.data_bytes, &[]);
        drop(self.out.set_len(self.head_bytes + self.data_bytes));
        drop(self.out.write_all_at(&header, 0));
    }

    /// Removes the output as if it had never been, and puts the older recording of this name back.
    pub(crate) fn discard(&mut self) {
        let Some(seekable) = &mut self.seekable else { return };
        seekable.journal.remove();
        if is_still(&seekable.path, seekable.inode) {
            drop(fs::remove_file(&seekable.path));
            if seekable.rotated {
                drop(fs::rename(old(&seekable.path), &seekable.path));
            }
        }
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> Result<()> {
        let mut pieces =
            [pieces.first().map_or(&[][..], |piece| &piece[..]), pieces.get(1).map_or(&[][..], |piece| &piece[..])];
        while !(pieces[0].is_empty() && pieces[1].is_empty()) {
            match self.out.write_vectored(&[IoSlice::new(pieces[0]), IoSlice::new(pieces[1])]) {
                Ok(0) => return Err(self.failed(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    let first = written.min(pieces[0].len());
                    pieces[0] = &pieces[0][first..];
                    pieces[1] = &pieces[1][written - first..];
                }
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
