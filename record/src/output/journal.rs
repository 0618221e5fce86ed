//! The journal beside a recording: what becomes feature sections, in case the end is not reached.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bprec_format::Endian;
use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;

use super::closed_files::ClosedFiles;
use super::sink::with_room;
use super::syncer::directory_of;
use crate::{Error, Result};

/// The first frame is shorter.
const BEGIN_BYTES: u64 = 64;

/// No journal is longer, so that it can be read again: it has the programs and types of a machine, and each that came and went.
const JOURNAL_MAX_BYTES: u64 = 1 << 30;

/// Device and inode of a file.
pub(super) type Inode = (u64, u64);

/// The journal; without a file once writing it failed.
#[derive(Debug)]
pub(super) struct Journal {
    file: Option<File>,
    path: PathBuf,
    inode: Inode,
    /// Room that is left in it.
    left_bytes: u64,
    is_full: bool,
}

impl Journal {
    /// Creates it. Without one a recording that is cut off has its records all the same.
    pub(super) fn create(path: &Path) -> Journal {
        drop(fs::remove_file(path));
        let file = create_new(path).ok();
        let inode = file.as_ref().and_then(|file| inode(file).ok()).unwrap_or_default();
        Journal { file, path: path.to_owned(), inode, left_bytes: JOURNAL_MAX_BYTES, is_full: false }
    }

    /// It has been moved beside its recording.
    pub(super) fn moved_to(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// Appends whole frames. Those for which there is no room are left out, and with them all that follow.
    pub(super) fn append(&mut self, mut frames: &[u8], closed: Option<&ClosedFiles>) {
        let Some(mut file) = self.file.as_ref() else { return };
        self.is_full |= frames.len() as u64 > self.left_bytes;
        if self.is_full {
            return;
        }
        self.left_bytes -= frames.len() as u64;
        while !frames.is_empty() {
            match with_room(closed, || file.write(frames)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Ok(written) if written > 0 => frames = &frames[written..],
                _ => {
                    self.file = None;
                    return;
                }
            }
        }
    }

    /// True once frames were left out.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Another descriptor of it; `None` when it could not be kept.
    ///
    /// # Errors
    /// When there can be no more of them.
    pub(super) fn duplicate(&self) -> io::Result<Option<File>> {
        self.file.as_ref().map(File::try_clone).transpose()
    }

    /// The feature sections that it makes; `None` when it could not be kept.
    pub(super) fn features(&self) -> Option<Vec<(u8, Vec<u8>)>> {
        let file = self.file.as_ref()?;
        let mut bytes = vec![0; usize::try_from(file.metadata().ok()?.len()).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        bprec_format::bprec::journal::Journal::parse(&bytes, Endian::NATIVE).ok().map(|journal| journal.features)
    }

    /// Removes the file when the recording does not need it any more.
    pub(super) fn leftover(&self) -> Leftover {
        Leftover { path: self.path.clone(), inode: self.inode }
    }
}

/// Creates a file that was not there, for its owner alone, and that has these contents from the moment it has its name: killed at any
/// time, or without power, we leave none that is not a recording. Where a file system knows no files without a name, the moment between is short.
pub(super) fn create_with(path: &Path, contents: &[u8]) -> io::Result<File> {
    let nameless =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(directory_of(path));
    if let Ok(mut file) = nameless {
        // A name may be on the disk before what it is of.
        file.write_all(contents)?;
        file.sync_data()?;
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        match linkat(CWD, itself, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => return Ok(file),
            Err(answer @ Errno::EXIST) => return Err(answer.into()),
            // No /proc, or a file system that gives a name only to what was made with one.
            Err(_) => (),
        }
    }
    let mut file = create_new(path)?;
    if let Err(error) = file.write_all(contents).and_then(|()| file.sync_data()) {
        drop(fs::remove_file(path));
        return Err(error);
    }
    Ok(file)
}

/// Creates a file that was not there, for its owner alone.
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// True if something stands at a journal's path that no recorder has written, and that is nobody's to delete.
pub(super) fn is_foreign(path: &Path) -> bool {
    let Ok(about) = fs::symlink_metadata(path) else { return false };
    // One that is empty was being begun.
    !about.is_file() || about.len() > 0 && !begins_as_journal(path).unwrap_or(false)
}

/// The bytes of a journal.
///
/// # Errors
/// When it cannot be read, is no file but a link to one or a pipe, or has more bytes than any journal.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if file.metadata()?.len() > JOURNAL_MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    file.take(JOURNAL_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a journal; without waiting for anybody, and nowhere else than where its name says.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is no file")),
    }
}

fn begins_as_journal(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    open(path)?.take(BEGIN_BYTES).read_to_end(&mut begin)?;
    Ok(bprec_format::bprec::journal::Journal::parse(&begin, Endian::NATIVE).is_ok())
}

/// `perf.data` → `perf.data.journal`.
pub(crate) fn journal_of(path: &Path) -> PathBuf {
    with_suffix(path, ".journal")
}

/// A journal that its recording does not need any more.
#[derive(Debug, Clone)]
pub(crate) struct Leftover {
    path: PathBuf,
    inode: Inode,
}

impl Leftover {
    /// Removes it, wherever another recorder that took the name over has moved it; what is gone is removed.
    ///
    /// # Errors
    /// When it is there and stays.
    pub(crate) fn remove(&self) -> Result<()> {
        let recording = self.path.with_extension("");
        for name in [recording.clone(), with_suffix(&recording, ".old"), with_suffix(&recording, ".cut-off")] {
            if is_still(&journal_of(&name), self.inode) {
                remove(&journal_of(&name))?;
            }
        }
        Ok(())
    }
}

/// Removes the journal of a recording that is whole.
///
/// # Errors
/// When it stays.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let problem = format!("cannot be deleted: {error}; its recording is complete and no longer needs it");
            Err(Error::file(path, io::Error::new(error.kind(), problem)))
        }
        _ => Ok(()),
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn inode(file: &File) -> io::Result<Inode> {
    file.metadata().map(|about| (about.dev(), about.ino()))
}

pub(super) fn is_still(path: &Path, inode: Inode) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| (about.dev(), about.ino()) == inode)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_journal_that_is_full_has_what_was_written_before() {
        use bprec_format::bprec::journal::{Frame, Journal as Parsed};
        use bprec_format::feature::{SectionContent, Text};

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data.journal");
        let frame = |bit| {
            let mut bytes = Vec::new();
            let payload = Text(&[b'a'; 100]).to_bytes(Endian::NATIVE);
            Frame::Feature { bit, payload: &payload }.encode(&mut bytes, Endian::NATIVE);
            bytes
        };
        let begin = {
            let mut bytes = Vec::new();
            Frame::Begin { first_event_id: 7, recording_id: None }.encode(&mut bytes, Endian::NATIVE);
            bytes
        };
        let room = (begin.len() + 2 * frame(3).len()) as u64;
        let mut journal = Journal { left_bytes: room, ..Journal::create(&path) };
        for frames in [begin, frame(3), frame(4), frame(5), frame(6)] {
            journal.append(&frames, None);
        }
        assert!(journal.is_full());
        assert_eq!(fs::metadata(&path).unwrap().len(), room);
        let parsed = Parsed::parse(&read(&path).unwrap(), Endian::NATIVE).unwrap();
        let texts = parsed.features.iter().map(|(bit, _)| *bit).filter(|bit| (3..=6).contains(bit));
        assert_eq!(texts.collect::<Vec<u8>>(), [3, 4]);
    }

    #[test]
    fn a_file_that_has_a_name_has_contents() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data");
        let is_done = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut seen = std::collections::BTreeSet::new();
                while !is_done.load(Ordering::Relaxed) {
                    seen.extend(fs::metadata(&path).map(|about| about.len()));
                }
                seen
            });
            for _ in 0..500 {
                let mut file = create_with(&path, b"recording").unwrap();
                assert_eq!(create_with(&path, b"another").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
                file.write_all(b"s").unwrap();
                fs::remove_file(&path).unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
            watcher.join().unwrap()
        });
        assert!(seen.iter().all(|bytes| *bytes == 9 || *bytes == 10) && !seen.is_empty(), "{seen:?}");
    }
}
