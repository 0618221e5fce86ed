//! Namespaces: which pid namespace this process is in, and the network namespaces of the machine.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::{comm, process_ids};

/// The initial pid namespace, by its number, which no other ever gets (`PROC_PID_INIT_INO`).
const INITIAL_PIDS: &str = "pid:[4026531836]";
const INITIAL_USERS: &str = "user:[4026531837]";
/// Directory in which `ip netns` and container runtimes keep namespaces by name.
const NAMED: [&str; 2] = ["/run/netns", "/run/docker/netns"];

/// Returns true if task numbers of this process are those that the kernel itself uses; `None` when that is not told.
pub fn is_initial_pid_namespace() -> Option<bool> {
    fs::read_link("/proc/self/ns/pid").ok().map(|namespace| namespace.as_os_str() == INITIAL_PIDS)
}

/// Returns true if capabilities of this process are those that the kernel asks for; in a user namespace of its own they count for that alone. `None`
/// when that is not told.
pub fn is_initial_user_namespace() -> Option<bool> {
    fs::read_link("/proc/self/ns/user").ok().map(|namespace| namespace.as_os_str() == INITIAL_USERS)
}

/// A network namespace, held.
#[derive(Debug)]
pub struct NetworkNamespace {
    file: File,
    label: String,
}

/// The network namespaces that this thread is not in.
#[derive(Debug, Default)]
pub struct NetworkNamespaces {
    /// Namespaces that could be opened.
    pub others: Vec<NetworkNamespace>,
    /// Number of others: too many, or not for us.
    pub not_opened: usize,
}

impl NetworkNamespaces {
    /// Network namespaces that have a name, then those of processes, each once; at most `count_max`. A namespace that
    /// only threads which are not the first of their process, sockets or descriptors keep alive is not found.
    pub fn find(count_max: usize) -> NetworkNamespaces {
        let number = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        let mut found = NetworkNamespaces::default();
        // Without it, this thread's own cannot be told from the others.
        let Some(own) = number(Path::new("/proc/thread-self/ns/net")) else { return found };
        let mut seen = HashSet::from([own]);
        let mut add = |path: &Path, label: &dyn Fn(u64) -> String| {
            // Other file systems may be mounted over files in `/run/netns`, and have any number.
            let Some(number) = number(path).filter(|number| number.0 == own.0) else { return };
            if !seen.insert(number) {
                return;
            }
            match File::open(path) {
                Ok(file) if found.others.len() < count_max => {
                    found.others.push(NetworkNamespace { file, label: label(number.1) });
                }
                _ => found.not_opened += 1,
            }
        };
        for directory in NAMED {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort_unstable();
            for path in paths {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                add(&path, &|_| format!("netns {name}"));
            }
        }
        for pid in process_ids() {
            add(Path::new(&format!("/proc/{pid}/ns/net")), &|inode| {
                let comm = comm(pid).unwrap_or_default();
                format!("net:[{inode}] of process {pid} ({})", String::from_utf8_lossy(&comm))
            });
        }
        found
    }
}

impl NetworkNamespace {
    /// Its description: a name, or its number and a process that is in it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Moves the calling thread into it, for good: to be called on a thread that ends with what it has to ask there.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn namespaces_are_found_once_and_no_more_than_asked_for() {
        let all = NetworkNamespaces::find(1000);
        let mut labels = HashMap::new();
        all.others.iter().for_each(|it| *labels.entry(it.label().to_owned()).or_insert(0) += 1);
        assert!(labels.values().all(|count| *count == 1), "{labels:?}");
        let none = NetworkNamespaces::find(0);
        assert!(none.others.is_empty());
    }
}
