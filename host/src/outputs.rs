//! Output files: names, renaming of existing files, and refusal of files that another user placed in a shared directory such as /tmp.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

const STICKY: u32 = 0o1000;
const WRITABLE_BY_ALL: u32 = 0o002;

/// Refuses a file that another user placed in a sticky directory that anyone may write to, such as /tmp. The kernel's
/// protected_regular and protected_fifos do the same. The file itself is checked; links are not followed.
///
/// # Errors
/// Fails if the directory is sticky and writable by all, and the file belongs neither to this user nor to the owner of the directory.
pub fn refuse_planted(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) => refuse_owner(path, about.uid()),
        Err(_) => Ok(()),
    }
}

/// Applies [`refuse_planted`] to a file and to the file that its links lead to, for outputs that are written through a link.
pub fn refuse_planted_target(path: &Path) -> io::Result<()> {
    refuse_planted(path)?;
    match fs::canonicalize(path) {
        Ok(path) => refuse_planted(&path),
        Err(_) => Ok(()),
    }
}

/// Opens a file to be written from its beginning. A new file is readable by its owner only, because recordings are
/// private.
///
/// # Errors
/// Fails if the file cannot be opened, or another user placed it (see [`refuse_planted`]).
pub fn create_output(path: &Path) -> io::Result<File> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    refuse_planted_target(path)?;
    let path = match fs::canonicalize(path) {
        // The link points to a missing file. The file is created, as perf does.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let target = fs::read_link(path)?;
            return create_output(&path.parent().unwrap_or(Path::new("")).join(target));
        }
        found => found?,
    };
    let no_links = OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new().write(true).custom_flags(no_links).open(&path)?;
    // The file may have been replaced since the check.
    let about = file.metadata()?;
    refuse_owner(&path, about.uid())?;
    if about.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Path of the journal that a recorder keeps beside a recording: `perf.data` → `perf.data.journal`.
pub fn journal_of(recording: &Path) -> PathBuf {
    recording.with_added_extension("journal")
}

/// Renames a recording and its journal, for example `perf.data` to `perf.data.old`. If `from` has no journal, deletes the journal of the recording
/// that was at `to`.
///
/// # Errors
/// Fails if the recording cannot be renamed. A missing journal is no error.
pub fn rename_with_journal(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    if fs::rename(journal_of(from), journal_of(to)).is_err() {
        drop(fs::remove_file(journal_of(to)));
    }
    Ok(())
}

/// Directory of a file; `.` if the path is a plain file name.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs the directory of a file, so that the name of the file is on the disk.
///
/// # Errors
/// Fails if the directory cannot be opened or synced. `InvalidInput` and `PermissionDenied` are no errors.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(directory_of(path)).and_then(|directory| directory.sync_all()) {
        // Some file systems cannot sync a directory, and a directory that may be written to is not always readable.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(()),
        synced => synced,
    }
}

/// Fails if the file is in a sticky directory that anyone may write to, and belongs neither to this user nor to the owner of the directory.
fn refuse_owner(path: &Path, uid: u32) -> io::Result<()> {
    let Ok(place) = fs::metadata(directory_of(path)) else { return Ok(()) };
    let is_shared = place.mode() & STICKY != 0 && place.mode() & WRITABLE_BY_ALL != 0;
    if is_shared && uid != rustix::process::geteuid().as_raw() && uid != place.uid() {
        return Err(io::Error::other(format!(
            "the existing file belongs to user {uid}, in a directory that anyone may write to: give another name with -o"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_link_to_a_file_that_is_not_there_has_the_file_created() {
        let directory = std::env::temp_dir().join(format!("bprec-outputs-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let link = directory.join("link");
        symlink("file", &link).unwrap();
        create_output(&link).unwrap();
        let about = fs::metadata(directory.join("file")).unwrap();
        assert_eq!((about.is_file(), about.permissions().mode() & 0o777), (true, 0o600));
        let circle = directory.join("circle");
        symlink("circle", &circle).unwrap();
        assert!(create_output(&circle).is_err());
        symlink("nowhere/file", directory.join("deep")).unwrap();
        assert_eq!(create_output(&directory.join("deep")).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&directory).unwrap();
    }
}
