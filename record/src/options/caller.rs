//! Options allowed to a caller who has fewer rights than the recorder (file capabilities, set-user-ID): with the others
//! the recorder would lend its rights, to run programs in the kernel, to read the maps of others, or to put a map where
//! others look for one.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::{Error, Result, sys};

/// File in which root allows such options, one in each line.
const ALLOWED: &str = "/etc/bprec/allowed";
/// No list is longer.
const ALLOWED_MAX_BYTES: u64 = 1 << 16;

/// Refuses the options among these that were given and would lend rights, unless root has allowed them.
///
/// # Errors
/// When one of them is refused.
pub(crate) fn check(options: &[(&str, bool)]) -> Result<()> {
    if !sys::has_more_rights_than_caller() {
        return Ok(());
    }
    let allowed = allowed(Path::new(ALLOWED));
    let given = options.iter().filter(|(_, is_given)| *is_given).map(|(option, _)| *option);
    let refused = given.into_iter().find(|option| !allowed.iter().any(|line| line == option));
    refused.map_or(Ok(()), |option| {
        Err(Error::Other(format!(
            "{option} is refused: this bprec has file capabilities that its caller lacks, and would lend them; \
             root can allow it to everyone by a line {option} in {ALLOWED}"
        )))
    })
}

/// Entry of the same list for names in user space: reading what processes of others have mapped, and those files.
const USER_SYMBOLS: &str = "--user-symbols";

/// True if names in user space may be had with the rights of this process: they lend none, or root has allowed it.
pub(crate) fn allows_user_symbols() -> bool {
    !sys::has_more_rights_than_caller() || allowed(Path::new(ALLOWED)).iter().any(|line| line == USER_SYMBOLS)
}

/// Gives up for good to look into processes of others (their descriptors and namespaces), where the caller could not and root has not
/// allowed it. Before other threads are started, as they have the rights of the one that starts them.
pub(crate) fn respect_processes() -> Result<()> {
    let look_into = CapabilitySet::SYS_PTRACE;
    let Ok(sets) = capabilities(None) else { return Ok(()) };
    if allows_user_symbols() || !(sets.effective | sets.permitted).contains(look_into) {
        return Ok(());
    }
    let without =
        CapabilitySets { effective: sets.effective - look_into, permitted: sets.permitted - look_into, ..sets };
    set_capabilities(None, without)
        .map_err(|answer| Error::Other(format!("cannot drop capabilities that the caller lacks: {answer}")))
}

/// While it lives, this thread reads about processes what the kernel lets its caller read, and no more: their mappings and what is mapped.
#[derive(Debug)]
pub(crate) struct AsCaller {
    before: Option<CapabilitySets>,
}

impl AsCaller {
    /// Lays down capabilities that the caller lacks, unless root has allowed their use.
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
        // Permitted capabilities can be taken up again.
        if let Some(sets) = self.before {
            let _ = set_capabilities(None, sets);
        }
    }
}

/// The lines of a list that nobody but root can have written.
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
        assert!(allowed(&path).is_empty(), "its group may write it");
        if is_root {
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            chown(&path, Some(65534), None).unwrap();
            assert!(allowed(&path).is_empty(), "its owner may write it");
        }
    }
}
