//! A recording being written that takes its name only when it is whole.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};

/// A file beside the one that it is to become. It is removed unless it becomes that.
pub(crate) struct Draft {
    pub(crate) file: File,
    path: PathBuf,
    target: PathBuf,
}

impl Draft {
    /// Creates the file that is to become `target`.
    pub(crate) fn create(target: &Path) -> Result<Draft> {
        if target == Path::new("-") {
            bail!("-o -: the header of a file is written last, which standard output may not allow; give a file");
        }
        if fs::metadata(target).is_ok_and(|about| !about.is_file()) {
            bail!("{} exists and is not a file to write a recording to", target.display());
        }
        // In the same directory, so that it can be renamed.
        let path = with_suffix(target, ".part");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        // Recordings tell what a machine does: only their owner may read them.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => anyhow!(
                "{} exists: another run writes it, or one was interrupted; remove it when none does",
                path.display()
            ),
            _ => Error::new(error).context(format!("create {}", path.display())),
        })?;
        Ok(Draft { file, path, target: target.to_owned() })
    }

    /// Gives it its name; a file that had the name before is gone.
    pub(crate) fn replace(self) -> Result<()> {
        let renamed = fs::rename(&self.path, &self.target);
        renamed.with_context(|| format!("rename {} to {}", self.path.display(), self.target.display()))
    }

    /// Gives it its name; a file that had the name before is kept as `<name>.old`, with its journal, as the recorder does it.
    pub(crate) fn take_over(self) -> Result<()> {
        let old = with_suffix(&self.target, ".old");
        let failed = || format!("rename {} to {}", self.target.display(), old.display());
        if is_renamed(&self.target, &old).with_context(failed)? {
            let (journal, old_journal) = (with_suffix(&self.target, ".journal"), with_suffix(&old, ".journal"));
            if !is_renamed(&journal, &old_journal).unwrap_or(false) {
                drop(fs::remove_file(old_journal));
            }
        }
        self.replace()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // When it has its name, there is nothing left under this one.
        drop(fs::remove_file(&self.path));
    }
}

/// Renames a file if it is there.
fn is_renamed(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::rename(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
