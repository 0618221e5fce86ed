//! Output files that get their name only when they are complete and synced.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempPath;

/// An unnamed file (`O_TMPFILE`) in the directory of its target. On file systems without unnamed files: a temporary file, deleted if it does not
/// become the target.
pub(crate) struct Draft {
    pub(crate) file: File,
    named: Option<TempPath>,
    target: PathBuf,
}

/// Treatment of an existing `<name>.old` when the target is renamed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Older {
    /// Replaces the file; a recording that was cut off does not replace a complete one.
    Replaced,
    /// Fails if the file exists.
    Refused,
}

impl Draft {
    /// Creates the file that will become `target`.
    pub(crate) fn create(target: &Path) -> Result<Draft> {
        if target == Path::new("-") {
            bail!("-o -: bprec writes the file header last, which standard output does not allow; give -o FILE");
        }
        refuse_planted(target)?;
        if fs::metadata(target).is_ok_and(|about| !about.is_file()) {
            bail!("{} exists and is not a file: give the name of a file", target.display());
        }
        // Checks the directory first: an error of the temporary file would name a path that the user does not know.
        fs::metadata(directory(target)).with_context(|| creating(target))?;
        #[cfg(all(feature = "record", target_os = "linux"))]
        bprec_record::survive_file_size_limit();
        let (file, named) = match unnamed(directory(target)) {
            Some(file) => (file, None),
            None => {
                let (file, path) =
                    builder().tempfile_in(directory(target)).with_context(|| creating(target))?.into_parts();
                (file, Some(path))
            }
        };
        Ok(Draft { file, named, target: target.to_owned() })
    }

    /// Returns true if the target exists with the same contents.
    pub(crate) fn equals_target(&mut self) -> io::Result<bool> {
        let Ok(mut there) = File::open(&self.target) else { return Ok(false) };
        self.file.rewind()?;
        if there.metadata()?.len() != self.file.metadata()?.len() {
            return Ok(false);
        }
        let (mut ours, mut theirs) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
        loop {
            let len = self.file.read(&mut ours)?;
            if len == 0 {
                return Ok(true);
            }
            if there.read_exact(&mut theirs[..len]).is_err() || ours[..len] != theirs[..len] {
                return Ok(false);
            }
        }
    }

    /// Syncs the file and gives it its name. Before that, an existing target and its journal are renamed: by the rules of the recorder (`make_way`)
    /// if this build includes the recorder, otherwise to `<name>.old`.
    pub(crate) fn persist(mut self, older: Older) -> Result<()> {
        self.file.sync_all().with_context(|| format!("sync {}", self.target.display()))?;
        let path = match self.named.take() {
            Some(path) => path,
            None => name(&self.file, &self.target).with_context(|| creating(&self.target))?,
        };
        if older == Older::Refused {
            refuse_older(&self.target)?;
        }
        #[cfg(all(feature = "record", target_os = "linux"))]
        {
            let moved = bprec_record::make_way(&self.target)?;
            let named = path.persist(&self.target).with_context(|| creating(&self.target));
            moved.iter().for_each(|moved| if named.is_ok() { moved.settle() } else { moved.put_back() });
            named?;
        }
        #[cfg(not(all(feature = "record", target_os = "linux")))]
        {
            keep(&self.target)?;
            path.persist(&self.target).with_context(|| creating(&self.target))?;
        }
        sync_directory(&self.target)
    }
}

/// Size of the buffers that compare two files.
const COMPARED_BYTES: usize = 256 << 10;

/// Fails if another user has created the target, its `.old` file or one of their journals in a directory that everyone can write to, such as /tmp.
fn refuse_planted(target: &Path) -> Result<()> {
    #[cfg(target_os = "linux")]
    for name in [target.to_owned(), target.with_added_extension("old")] {
        for name in [bprec_host::journal_of(&name), name] {
            bprec_host::refuse_planted(&name).with_context(|| name.display().to_string())?;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = target;
    Ok(())
}

/// Fails if `<name>.old` or its journal exists.
fn refuse_older(target: &Path) -> Result<()> {
    let old = target.with_added_extension("old");
    let names = [old.clone(), old.with_added_extension("journal")];
    match names.iter().find(|path| fs::symlink_metadata(path).is_ok()) {
        Some(there) => bail!(
            "{} exists, so --in-place cannot keep the original of {} there. Move this file, or give -o FILE in place of --in-place",
            there.display(),
            target.display()
        ),
        None => Ok(()),
    }
}

/// Renames an existing target to `<name>.old`, and its journal to the journal of that name.
#[cfg(not(all(feature = "record", target_os = "linux")))]
fn keep(target: &Path) -> Result<()> {
    refuse_planted(target)?;
    let old = target.with_added_extension("old");
    #[cfg(target_os = "linux")]
    let renamed = bprec_host::rename_with_journal(target, &old);
    #[cfg(not(target_os = "linux"))]
    let renamed = fs::rename(target, &old);
    match renamed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed.with_context(|| format!("rename {} to {}", target.display(), old.display())),
    }
}

fn creating(target: &Path) -> String {
    format!("create {}", target.display())
}

/// Directory of a file; `.` for a name without a directory.
pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".bprec-").suffix(".part");
    builder
}

/// Opens an unnamed file with mode 0600, as recordings are confidential.
#[cfg(target_os = "linux")]
fn unnamed(directory: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(open(directory, flags, Mode::RUSR | Mode::WUSR).ok()?);
    // `None` without /proc, which `linkat` needs to name the file later.
    itself(&file).exists().then_some(file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_directory: &Path) -> Option<File> {
    None
}

/// Links an unnamed file to a new, unique name.
#[cfg(target_os = "linux")]
fn name(file: &File, target: &Path) -> io::Result<TempPath> {
    use rustix::fs::{AtFlags, CWD, linkat};
    let link = |path: &Path| Ok(linkat(CWD, itself(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?);
    builder().make_in(directory(target), link).map(tempfile::NamedTempFile::into_temp_path)
}

#[cfg(not(target_os = "linux"))]
fn name(_file: &File, _target: &Path) -> io::Result<TempPath> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
fn itself(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Syncs the directory of a file, so that its name survives a power failure.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    #[cfg(target_os = "linux")]
    bprec_host::sync_directory(path).with_context(|| format!("sync {}", directory(path).display()))?;
    // Elsewhere the system decides when the name reaches the disk.
    #[cfg(not(target_os = "linux"))]
    let _ = path;
    Ok(())
}
