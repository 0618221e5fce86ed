//! Options of counting without recording.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{Budget, Level};

/// Everything that [`stat`](crate::stat) needs to know.
#[derive(Debug, Clone)]
pub struct StatOptions {
    /// Target of the count.
    pub target: StatTarget,
    /// Events as the user wrote them: lists with groups in braces. Empty means the usual ones.
    pub events: Vec<String>,
    /// Command to run; counting ends with it.
    pub command: Option<Vec<OsString>>,
    /// Longest time to count.
    pub duration: Option<Duration>,
    /// Time between two readings that are of interest by themselves.
    pub interval: Option<Duration>,
    /// Counts of each CPU, too.
    pub per_cpu: bool,
    /// Count programs exactly, where that is possible; else by run statistics alone.
    pub exact: bool,
    /// Limit on counting programs.
    pub budget: Budget,
    /// Map by which sessions that count targets find each other; `None` is perf's.
    pub attr_map: Option<PathBuf>,
    /// Takes messages as they arise.
    pub notify: fn(Level, &str),
}

/// Target of a count: programs, or events at context switches, shared with other sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatTarget {
    /// BPF programs and their functions, by patterns as in [`Exact::pattern`](crate::Exact::pattern); `None` is all of them.
    Programs(Option<String>),
    /// Events of the whole machine.
    System,
    /// Events on each of these CPUs.
    Cpus(Vec<u32>),
    /// Events of each of these processes, with all threads and their children to come.
    Processes(Vec<u32>),
    /// Events of each of these threads.
    Threads(Vec<u32>),
    /// Events of each of these cgroups, with those below.
    Cgroups(Vec<PathBuf>),
    /// Events of the command and its children.
    Command,
}

impl fmt::Display for StatTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        match self {
            StatTarget::Programs(None) => f.write_str("BPF programs"),
            StatTarget::Programs(Some(pattern)) => write!(f, "BPF programs {pattern}"),
            StatTarget::System => f.write_str("system wide"),
            StatTarget::Cpus(cpus) => write!(f, "cpu {}", list(cpus)),
            StatTarget::Processes(pids) => write!(f, "pid {}", list(pids)),
            StatTarget::Threads(tids) => write!(f, "tid {}", list(tids)),
            StatTarget::Cgroups(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
                write!(f, "cgroup {}", paths.join(","))
            }
            StatTarget::Command => f.write_str("command"),
        }
    }
}
