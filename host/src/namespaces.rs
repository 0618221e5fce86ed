//! Namespaces: the pid and user namespace of this process, and the network namespaces of the machine.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::{comm, process_ids};

/// Link text of the initial pid namespace; the kernel fixes the inode number (`PROC_PID_INIT_INO`).
const INITIAL_PIDS: &str = "pid:[4026531836]";
/// Link text of the initial user namespace; the kernel fixes the inode number (`PROC_USER_INIT_INO`).
const INITIAL_USERS: &str = "user:[4026531837]";
/// Directories in which `ip netns` and container runtimes keep named namespaces.
const NAMED: [&str; 2] = ["/run/netns", "/run/docker/netns"];

/// Returns true if this process is in the initial pid namespace: there, task ids are the kernel's own. `None` if the link in /proc cannot be read.
pub fn is_initial_pid_namespace() -> Option<bool> {
    fs::read_link("/proc/self/ns/pid").ok().map(|namespace| namespace.as_os_str() == INITIAL_PIDS)
}

/// Returns true if this process is in the initial user namespace: in other user namespaces, capabilities are valid for that namespace only. `None` if
/// the link in /proc cannot be read.
pub fn is_initial_user_namespace() -> Option<bool> {
    fs::read_link("/proc/self/ns/user").ok().map(|namespace| namespace.as_os_str() == INITIAL_USERS)
}

/// A network namespace, kept alive by a descriptor.
#[derive(Debug)]
pub struct NetworkNamespace {
    file: File,
    name: NetworkName,
}

/// Name of a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NetworkName {
    /// Name that `ip netns` shows.
    Named(String),
    /// Inode number of a namespace without a name, and a process in it.
    OfProcess {
        /// Inode number of the namespace.
        inode: u64,
        /// Process id.
        pid: u32,
        /// Name of the process.
        comm: Vec<u8>,
    },
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkName::Named(name) => write!(f, "netns {name}"),
            NetworkName::OfProcess { inode, pid, comm } => {
                write!(f, "net:[{inode}] of process {pid} ({})", String::from_utf8_lossy(comm))
            }
        }
    }
}

/// Network namespaces other than that of this thread.
#[derive(Debug, Default)]
pub struct NetworkNamespaces {
    /// Namespaces that could be opened.
    pub others: Vec<NetworkNamespace>,
    /// Count of namespaces that were found but not opened, because of the limit or an error.
    pub not_opened: usize,
}

impl NetworkNamespaces {
    /// Finds the named network namespaces, then those of processes, without duplicates, and opens up to `count_max`. A namespace is not found if only
    /// descriptors, sockets, or threads other than the first of a process keep it alive.
    pub fn find(count_max: usize) -> NetworkNamespaces {
        let number = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        let mut found = NetworkNamespaces::default();
        // Without this number, the namespace of this thread could not be left out of the result.
        let Some(own) = number(Path::new("/proc/thread-self/ns/net")) else { return found };
        let mut seen = HashSet::from([own]);
        let mut add = |path: &Path, name: &dyn Fn(u64) -> NetworkName| {
            // All namespaces are on one file system (nsfs). Files of other file systems, such as one mounted over `/run/netns`, are left out.
            let Some(number) = number(path).filter(|number| number.0 == own.0) else { return };
            if !seen.insert(number) {
                return;
            }
            match File::open(path) {
                Ok(file) if found.others.len() < count_max => {
                    found.others.push(NetworkNamespace { file, name: name(number.1) });
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
                add(&path, &|_| NetworkName::Named(name.clone()));
            }
        }
        for pid in process_ids() {
            add(Path::new(&format!("/proc/{pid}/ns/net")), &|inode| NetworkName::OfProcess {
                inode,
                pid,
                comm: comm(pid).unwrap_or_default(),
            });
        }
        found
    }
}

impl NetworkNamespace {
    /// Name of the namespace.
    pub fn name(&self) -> &NetworkName {
        &self.name
    }

    /// Moves the calling thread permanently into the namespace. Call this on a thread that ends after its queries in the namespace.
    ///
    /// # Errors
    /// Fails with EPERM without CAP_SYS_ADMIN.
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
        let mut names = HashMap::new();
        all.others.iter().for_each(|it| *names.entry(it.name()).or_insert(0) += 1);
        assert!(names.values().all(|count| *count == 1), "{names:?}");
        let none = NetworkNamespaces::find(0);
        assert!(none.others.is_empty());
    }
}
