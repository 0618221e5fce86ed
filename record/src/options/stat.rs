//! Options of counting without recording.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::{Budget, Level, Target, listed};
use bprec_filter::FunctionFilter;

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

/// Target of a count. Events of [`StatTarget::Events`] and [`StatTarget::Cgroups`] are read at context switches, from counters that other sessions
/// can share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatTarget {
    /// BPF programs and their functions, as in [`Exact::functions`](crate::Exact::functions).
    Programs(Vec<FunctionFilter>),
    /// Events of these tasks or CPUs. Each task or CPU is counted separately.
    Events(Target),
    /// Events of each of these cgroups and their descendants.
    Cgroups(Vec<PathBuf>),
}

impl StatTarget {
    /// Describes the target in words.
    pub(crate) fn in_words(&self, command: Option<&[OsString]>) -> String {
        match self {
            StatTarget::Programs(filters) if filters.is_empty() => "BPF programs".to_owned(),
            StatTarget::Programs(filters) => format!("BPF programs {}", listed(filters)),
            StatTarget::Events(target) => target.in_words(command),
            StatTarget::Cgroups(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
                format!("cgroup {}", paths.join(","))
            }
        }
    }
}
