//! Root file systems as archives in the format of `cpio`, which the kernel unpacks at boot. One file can hold several archives.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Unavailable;

/// Appends everything below `directory` to `file` as one archive, owned by root; paths are those below `directory`.
///
/// # Errors
/// Fails with an [`Unavailable`] inside if `cpio` is missing.
pub(crate) fn append(directory: &Path, file: &Path) -> Result<()> {
    let mut names = Vec::new();
    below(directory, Path::new(""), &mut names)?;
    let list = file.with_extension("list");
    fs::write(&list, names.join("\0")).with_context(|| format!("write {}", list.display()))?;
    let status = Command::new("cpio")
        .args(["--create", "--format=newc", "--null", "--owner=0:0", "--reproducible", "--quiet", "--directory"])
        .arg(directory)
        .stdin(File::open(&list)?)
        .stdout(Stdio::from(File::options().create(true).append(true).open(file)?))
        .status()
        .map_err(|why| Unavailable(format!("cpio: {why}")))?;
    ensure!(status.success(), "cpio of {}: {status}", directory.display());
    Ok(fs::remove_file(list)?)
}

/// Appends the paths below `name` in an order in which they can be created.
fn below(directory: &Path, name: &Path, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(directory.join(name)).with_context(|| format!("read {}", directory.display()))? {
        let entry = entry?;
        let name = name.join(entry.file_name());
        names.push(name.to_str().with_context(|| format!("{} is not UTF-8", name.display()))?.to_owned());
        if entry.file_type()?.is_dir() {
            below(directory, &name, names)?;
        }
    }
    Ok(())
}
