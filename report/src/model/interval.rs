//! Activity of programs per interval, for a recording in progress.

use super::{JSON_VERSION, Overview, Program, Report};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Activity of each program between two readings of its statistics: a line of `bprec top --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interval {
    /// Name of the document's format: `bprec top`.
    pub format: &'static str,
    /// Version of the document's format: [`JSON_VERSION`].
    pub version: u32,
    /// Start of the interval, ns of the recording's clock.
    pub from_ns: u64,
    /// End of the interval, ns of the recording's clock.
    pub to_ns: u64,
    /// End of the interval, ns since 1970; `null` when the start of the recording is unknown.
    pub to_unix_ns: Option<u64>,
    /// CPU time of `bprec top` since the previous interval, % of one CPU: recording, attribution and display; `null` when unknown.
    pub own_cpu_percent: Option<f64>,
    /// Cost of counting runs since the previous interval, % of the machine; `null` when unknown.
    pub counting_percent: Option<f64>,
    /// Time that the samples cover, ns. `None` if they cover just the interval, or if the time is unknown.
    #[serde(skip)]
    pub sampled_ns: Option<u64>,
    /// The programs, and the samples charged to them.
    pub report: Report,
    /// Summary of each event of the report, for a terminal screen; empty if only tables are printed.
    #[serde(skip)]
    pub overviews: Vec<Overview>,
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
            overviews: Vec::new(),
        }
    }
}

/// Shares of the machine's time, %, oldest first; `None` where a share is unknown.
type MachinePercents = VecDeque<Option<f64>>;

/// Share of the machine's time that each program took in each of the newest intervals, by run statistics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Start of each interval, then the end of the newest interval, ns of the recording's clock.
    bounds_ns: VecDeque<u64>,
    /// Shares by id and load time of the program. All lists end with the newest interval.
    programs: BTreeMap<(Option<u32>, Option<u64>), MachinePercents>,
}

impl History {
    /// Number of intervals that a column of bars shows.
    pub const LENGTH: usize = 20;
    /// Time for which an interval is kept after its end, ns.
    pub const KEPT_NS: u64 = 60_000_000_000;

    /// Adds an interval. Removes intervals older than [`History::KEPT_NS`], and programs that the report no longer has.
    pub fn push(&mut self, interval: &Interval) {
        if self.bounds_ns.is_empty() {
            self.bounds_ns.push_back(interval.from_ns);
        }
        self.bounds_ns.push_back(interval.to_ns);
        let oldest_ns = interval.to_ns.saturating_sub(History::KEPT_NS);
        while self.bounds_ns.len() > 2 && self.bounds_ns[1] <= oldest_ns {
            self.bounds_ns.pop_front();
        }
        let mut before = std::mem::take(&mut self.programs);
        for program in interval.report.programs.iter() {
            let key = (program.id, program.load_time_ns);
            let mut values = before.remove(&key).unwrap_or_default();
            values.push_back(program.runs.value().and_then(|runs| runs.machine_percent));
            while values.len() > self.intervals() {
                values.pop_front();
            }
            self.programs.insert(key, values);
        }
    }

    /// Number of intervals.
    pub fn intervals(&self) -> usize {
        self.bounds_ns.len().saturating_sub(1)
    }

    /// Returns the time from the start of the oldest interval to the end of the newest, ns.
    pub fn length_ns(&self) -> u64 {
        self.bounds_ns.front().zip(self.bounds_ns.back()).map_or(0, |(first, last)| last.saturating_sub(*first))
    }

    /// Shares of a program, oldest first; fewer than [`History::intervals`] if the program was loaded later.
    pub fn of(
        &self,
        program: &Program,
    ) -> impl DoubleEndedIterator<Item = Option<f64>> + ExactSizeIterator + Clone + '_ {
        let values = self.programs.get(&(program.id, program.load_time_ns));
        values.map(VecDeque::iter).unwrap_or_default().copied()
    }
}
