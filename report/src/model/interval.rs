//! Activity of programs in a short time, for a recording that is under way.

use super::{JSON_VERSION, Program, Report};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Activity of each program between two readings of its statistics: a line of `bprec top --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    /// `bprec top`.
    pub format: &'static str,
    /// [`JSON_VERSION`].
    pub version: u32,
    /// Start of the interval, ns of the recording's clock.
    pub from_ns: u64,
    /// End of the interval, ns of the recording's clock.
    pub to_ns: u64,
    /// End of the interval, ns since 1970; `null` when the start of the recording is unknown.
    pub to_unix_ns: Option<u64>,
    /// CPU time of `bprec top` since the last interval, % of one CPU: recording, attribution and display; `null` when unknown.
    pub own_cpu_percent: Option<f64>,
    /// Cost of counting runs since the last interval, % of the machine; `null` when unknown.
    pub counting_percent: Option<f64>,
    /// Time over which samples were taken, ns, if longer than the interval.
    #[serde(skip)]
    pub sampled_ns: Option<u64>,
    /// The programs, and the samples charged to them.
    pub report: Report,
}

impl Interval {
    pub(crate) fn new(report: Report, from_ns: u64, to_ns: u64) -> Interval {
        let recording = &report.recording;
        let since_start_ns = to_ns.saturating_sub(recording.start_ns);
        let to_unix_ns = recording.start_unix_ns.and_then(|start| start.checked_add(since_start_ns));
        Interval {
            format: "bprec top",
            version: JSON_VERSION,
            from_ns,
            to_ns,
            to_unix_ns,
            own_cpu_percent: None,
            counting_percent: None,
            sampled_ns: None,
            report,
        }
    }
}

/// Shares of one CPU's time, %, oldest first; `None` where a share is unknown.
type CpuPercents = VecDeque<Option<f64>>;

/// Time in programs in earlier intervals, by run statistics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Shares by id and load time of the program.
    programs: BTreeMap<(Option<u32>, Option<u64>), CpuPercents>,
}

impl History {
    /// Number of intervals kept.
    pub const LENGTH: usize = 20;

    /// Adds an interval, and removes programs that are no longer in the report.
    pub fn push(&mut self, report: &Report) {
        let mut before = std::mem::take(&mut self.programs);
        for program in report.programs.iter() {
            let key = (program.id, program.load_time_ns);
            let mut values = before.remove(&key).unwrap_or_default();
            values.push_back(program.runs.value().and_then(|runs| runs.cpu_percent));
            if values.len() > History::LENGTH {
                values.pop_front();
            }
            self.programs.insert(key, values);
        }
    }

    /// Shares of a program in earlier intervals, oldest first.
    pub fn of(&self, program: &Program) -> impl Iterator<Item = Option<f64>> + Clone + '_ {
        self.programs.get(&(program.id, program.load_time_ns)).into_iter().flatten().copied()
    }
}
