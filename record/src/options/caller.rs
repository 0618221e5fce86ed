//! Checks for a caller with fewer rights than the recorder (file capabilities, set-user-ID). Some options would lend the
//! recorder's rights to the caller: to run programs in the kernel, to read maps of other users, or to pin a map at a path
//! that other users open.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use bprec_host::Errno;

use crate::{Error, Result, sys};

/// File in which root lists the options to allow, one per line.
const ALLOWED: &str = "/etc/bprec/allowed";
/// Maximum size of the list.
const ALLOWED_MAX_BYTES: u64 = 1 << 16;

/// Refuses options that would lend the recorder's rights to its caller. `options` has the name of each such option, with true if the command line has
/// it.
///
/// # Errors
/// Fails if the caller has fewer rights, and the command line has an option that root does not list in [`ALLOWED`].
pub(crate) fn check(options: &[(&str, bool)]) -> Result<()> {
    if !sys::has_more_rights_than_caller() {
        return Ok(());
    }
    let allowed = allowed(Path::new(ALLOWED));
    let given = options.iter().filter(|(_, is_given)| *is_given).map(|(option, _)| *option);
    let refused = given.into_iter().find(|option| !allowed.iter().any(|line| line == option));
    refused.map_or(Ok(()), |option| {
        Err(Error::Other(format!(
            "{option} is refused: bprec has file capabilities that its caller lacks, and the option would lend them \
             to the caller; root can allow the option for everyone: add the line {option} to {ALLOWED}"
        )))
    })
}

/// Line in [`ALLOWED`] that allows names of user functions. For these names the recorder reads mappings of other users'
/// processes, and the mapped files.
const USER_SYMBOLS: &str = "--user-symbols";

/// Returns true if the recorder may read names of user functions with its own rights: the caller has the same rights,
/// or root has allowed it.
pub(crate) fn allows_user_symbols() -> bool {
    !sys::has_more_rights_than_caller() || allowed(Path::new(ALLOWED)).iter().any(|line| line == USER_SYMBOLS)
}

/// Permanently drops the right to inspect processes of other users (their descriptors and namespaces) if
/// [`allows_user_symbols`] returns false. Must be called before other threads are started, because a thread inherits the
/// rights of its creator.
pub(crate) fn respect_processes() -> Result<()> {
    let look_into = CapabilitySet::SYS_PTRACE;
    let Ok(sets) = capabilities(None) else { return Ok(()) };
    if allows_user_symbols() || !(sets.effective | sets.permitted).contains(look_into) {
        return Ok(());
    }
    let without =
        CapabilitySets { effective: sets.effective - look_into, permitted: sets.permitted - look_into, ..sets };
    set_capabilities(None, without).map_err(|answer| {
        Error::Other(format!(
            "cannot drop CAP_SYS_PTRACE, which the caller of bprec lacks: {}",
            Errno(answer.raw_os_error())
        ))
    })
}

/// Guard that limits this thread to the process information that the kernel lets the caller read: mappings and mapped
/// files.
#[derive(Debug)]
pub(crate) struct AsCaller {
    before: Option<CapabilitySets>,
}

impl AsCaller {
    /// Clears the effective capabilities of this thread until the guard is dropped. Does nothing if [`allows_user_symbols`]
    /// returns true.
    pub(crate) fn begin() -> AsCaller {
        let before = if allows_user_symbols() { None } else { capabilities(None).ok() };
        let laid_down = before.is_some_and(|sets| {
            set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..sets }).is_ok()
        });
        AsCaller { before: before.filter(|_| laid_down) }
    }
}

impl Drop for AsCaller {
    fn drop(&mut self) {
        // The capabilities are still permitted, so the thread can make them effective again.
        if let Some(sets) = self.before {
            let _ = set_capabilities(None, sets);
        }
    }
}

/// Returns the lines of the list; empty if the list cannot be read, or if anyone but root can have written it.
fn allowed(path: &Path) -> Vec<String> {
    let read = || {
        let file = File::open(path).ok()?;
        let about = file.metadata().ok()?;
        let is_roots = about.is_file() && about.uid() == 0 && about.mode() & 0o022 == 0;
        let mut text = String::new();
        file.take(ALLOWED_MAX_BYTES).read_to_string(&mut text).ok().filter(|_| is_roots)?;
        Some(text.lines().map(|line| line.trim().to_owned()).collect())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_list_counts_if_only_root_can_have_written_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("allowed");
        assert!(allowed(&path).is_empty());
        fs::write(&path, "--dump-map\n --bpf-object \n").unwrap();
        let is_root = rustix::process::getuid().is_root();
        let all = ["--dump-map", "--bpf-object"].map(str::to_owned);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(allowed(&path), if is_root { &all[..] } else { &[] });
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        assert!(allowed(&path).is_empty(), "the group may write the file");
        if is_root {
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            chown(&path, Some(65534), None).unwrap();
            assert!(allowed(&path).is_empty(), "the owner may write the file");
        }
    }
}
