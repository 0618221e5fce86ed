//! Options of counting without recording.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{Budget, Level, listed};
use bprec_format::bpf::FunctionFilter;

/// Complete settings for [`stat`](crate::stat).
#[derive(Debug, Clone)]
pub struct StatOptions {
    /// Target of the count.
    pub target: StatTarget,
    /// Events as the user wrote them: lists with groups in braces. Empty means the default events.
    pub events: Vec<String>,
    /// Command to run; counting ends with it.
    pub command: Option<Vec<OsString>>,
    /// Maximum duration of the count.
    pub duration: Option<Duration>,
    /// Time between two readings that are reported separately.
    pub interval: Option<Duration>,
    /// True to report counts of each CPU beside the totals.
    pub per_cpu: bool,
    /// True to count programs exactly where possible, false to use run statistics alone.
    pub exact: bool,
    /// Limit on the cost of counting programs.
    pub budget: Budget,
    /// BPF map through which sessions share counters of the same events; `None` for the map of perf.
    pub attr_map: Option<PathBuf>,
    /// Callback that receives messages as they arise.
    pub notify: fn(Level, &str),
}

/// Target of a count. Events of all targets but `Programs` are read at context switches, from counters that other sessions can share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatTarget {
    /// BPF programs and their functions, as in [`Exact::functions`](crate::Exact::functions).
    Programs(Vec<FunctionFilter>),
    /// Events of the whole machine.
    System,
    /// Events on each of these CPUs.
    Cpus(Vec<u32>),
    /// Events of each of these processes, with all their threads and future children.
    Processes(Vec<u32>),
    /// Events of each of these threads.
    Threads(Vec<u32>),
    /// Events of each of these cgroups and their descendants.
    Cgroups(Vec<PathBuf>),
    /// Events of the command and its children.
    Command,
}

impl fmt::Display for StatTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        match self {
            StatTarget::Programs(filters) if filters.is_empty() => f.write_str("BPF programs"),
            StatTarget::Programs(filters) => write!(f, "BPF programs {}", listed(filters)),
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
