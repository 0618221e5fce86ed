//! Journal next to a recording: keeps the data of the feature sections, in case the recording is cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bprec_format::Endian;
use bprec_host::{directory_of, journal_of};
use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;

use super::closed_files::ClosedFiles;
use super::sink::with_room;
use crate::{Error, Result};

/// Bytes to read for the first frame. The frame itself is shorter.
const BEGIN_BYTES: u64 = 64;

/// Limit on the size of a journal, so that it can be read back. A journal holds the programs and types of a machine,
/// including all that were loaded during the recording.
const JOURNAL_MAX_BYTES: u64 = 1 << 30;

/// Device and inode of a file.
pub(super) type Inode = (u64, u64);

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    /// File of the journal; `None` if it could not be created, or a write has failed.
    file: Option<File>,
    path: PathBuf,
    inode: Inode,
    /// Bytes left until the size limit.
    left_bytes: u64,
    is_full: bool,
}

impl Journal {
    /// Creates the journal. If that fails, a recording that is cut off still keeps its records.
    pub(super) fn create(path: &Path) -> Journal {
        drop(fs::remove_file(path));
        let file = create_new(path).ok();
        let inode = file.as_ref().and_then(|file| inode(file).ok()).unwrap_or_default();
        Journal { file, path: path.to_owned(), inode, left_bytes: JOURNAL_MAX_BYTES, is_full: false }
    }

    /// Records the new path after the journal was renamed together with its recording.
    pub(super) fn moved_to(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// Appends whole frames. Frames beyond the size limit are left out, and so are all frames after them.
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

    /// Returns true once frames were left out.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Duplicates the descriptor of the journal; `None` if the journal could not be created or written.
    ///
    /// # Errors
    /// Fails if the limit of open files is reached.
    pub(super) fn duplicate(&self) -> io::Result<Option<File>> {
        self.file.as_ref().map(File::try_clone).transpose()
    }

    /// Feature sections made from the journal; `None` if the journal could not be created, written or read.
    pub(super) fn features(&self) -> Option<Vec<(u8, Vec<u8>)>> {
        let file = self.file.as_ref()?;
        let mut bytes = vec![0; usize::try_from(file.metadata().ok()?.len()).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        bprec_format::bprec::journal::Journal::parse(&bytes, Endian::NATIVE).ok().map(|journal| journal.features)
    }

    /// Handle to remove the journal once the recording does not need it.
    pub(super) fn leftover(&self) -> Leftover {
        Leftover { path: self.path.clone(), inode: self.inode }
    }
}

/// Creates a file with these contents, readable by its owner only. Fails if the path exists. The name appears only when the
/// contents are on the disk, so a killed recorder or a power failure never leaves a file that is not a recording. On file
/// systems without O_TMPFILE the file is empty for a short time.
pub(super) fn create_with(path: &Path, contents: &[u8]) -> io::Result<File> {
    let nameless =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(directory_of(path));
    if let Ok(mut file) = nameless {
        // The contents are synced first, because the name may reach the disk before them.
        file.write_all(contents)?;
        file.sync_data()?;
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        match linkat(CWD, itself, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => return Ok(file),
            Err(answer @ Errno::EXIST) => return Err(answer.into()),
            // There is no /proc, or the file system cannot link a file that was created without a name.
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

/// Creates an empty file, readable by its owner only. Fails if the path exists.
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Returns true if the path of a journal has a file that no recorder wrote, and that must not be deleted.
pub(super) fn is_foreign(path: &Path) -> bool {
    let Ok(about) = fs::symlink_metadata(path) else { return false };
    // An empty file is a journal whose recorder was killed at its start.
    !about.is_file() || about.len() > 0 && !begins_as_journal(path).unwrap_or(false)
}

/// Reads the bytes of a journal.
///
/// # Errors
/// Fails if the journal cannot be read, is a link or a pipe, or exceeds the size limit of journals.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if file.metadata()?.len() > JOURNAL_MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    file.take(JOURNAL_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a journal without following a link and without waiting for the writer of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is not a regular file")),
    }
}

fn begins_as_journal(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    open(path)?.take(BEGIN_BYTES).read_to_end(&mut begin)?;
    Ok(bprec_format::bprec::journal::Journal::parse(&begin, Endian::NATIVE).is_ok())
}

/// A journal that its recording does not need any more.
#[derive(Debug, Clone)]
pub(crate) struct Leftover {
    path: PathBuf,
    inode: Inode,
}

impl Leftover {
    /// Removes the journal, even if another recorder has renamed it. A missing journal is no error.
    ///
    /// # Errors
    /// Fails if the journal exists and cannot be deleted.
    pub(crate) fn remove(&self) -> Result<()> {
        let recording = self.path.with_extension("");
        for name in
            [recording.clone(), recording.with_added_extension("old"), recording.with_added_extension("cut-off")]
        {
            if is_still(&journal_of(&name), self.inode) {
                remove(&journal_of(&name))?;
            }
        }
        Ok(())
    }
}

/// Removes the journal of a complete recording.
///
/// # Errors
/// Fails if the journal cannot be deleted.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let problem = format!(
                "the journal cannot be deleted: {error}. The recording is complete and no longer needs it: delete it by hand"
            );
            Err(Error::file(path, io::Error::new(error.kind(), problem)))
        }
        _ => Ok(()),
    }
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
