//! Root file systems as archives in the format of `cpio`, which the kernel unpacks at boot. One file can hold several archives.

use std::path::{Path, absolute};
use std::process::Command;

use anyhow::Result;

use super::Unavailable;
use crate::command;

/// Script that appends everything below the current directory to a file as one archive, owned by root.
const APPEND: &str =
    r#"find . -mindepth 1 -print0 | cpio --create --format=newc --null --owner=0:0 --reproducible --quiet >>"$1""#;

/// Appends everything below `directory` to `file` as one archive, owned by root; paths are those below `directory`.
///
/// # Errors
/// Fails with an [`Unavailable`] inside if `cpio` is missing.
pub(crate) fn append(directory: &Path, file: &Path) -> Result<()> {
    Command::new("cpio").arg("--version").output().map_err(|why| Unavailable(format!("cpio: {why}")))?;
    let mut append = Command::new("bash");
    append.args(["-o", "pipefail", "-c", APPEND, "bash"]).arg(absolute(file)?).current_dir(directory);
    command::run(&mut append)
}
