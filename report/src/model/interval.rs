//! Activity of programs per interval, for a recording in progress.

use super::{JSON_VERSION, Note, Overview, Program, Report};
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
    pub(crate) fn new(mut report: Report, from_ns: u64, to_ns: u64) -> Interval {
        // A recording that is under way has no end yet, but it is not cut off.
        report.notes.retain(|note| *note != Note::CutOff);
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

/// Earlier intervals of a program.
#[derive(Debug, Clone, Default, PartialEq)]
struct ProgramHistory {
    /// Shares of the machine's time, %, oldest first; `None` where a share is unknown.
    machine_percents: VecDeque<Option<f64>>,
    /// Load and unload, ns of the recording's clock; kept here, because a file does not have the loads in the file before it.
    loads_ns: [Option<u64>; 2],
}

/// Share of the machine's time that each program took in each of the newest intervals, by run statistics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Start of each interval, then the end of the newest interval, ns of the recording's clock.
    bounds_ns: VecDeque<u64>,
    /// Shares by id and load time of the program. All lists end with the newest interval.
    programs: BTreeMap<(Option<u32>, Option<u64>), ProgramHistory>,
}

impl History {
    /// Number of intervals that a column of bars shows.
    pub const LENGTH: usize = 20;
    /// Time for which an interval is kept after its end, ns.
    pub const KEPT_NS: u64 = 60_000_000_000;
    /// Limit on the steps of [`History::over_time`].
    const MOST_STEPS: usize = 300;

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
            let mut of = before.remove(&key).unwrap_or_default();
            of.machine_percents.push_back(program.runs.value().and_then(|runs| runs.machine_percent));
            while of.machine_percents.len() > self.intervals() {
                of.machine_percents.pop_front();
            }
            for (known_ns, bound) in of.loads_ns.iter_mut().zip([program.loaded, program.unloaded]) {
                let at_ns = bound.and_then(|it| interval.report.recording.start_ns.checked_add_signed(it.before_ns));
                *known_ns = known_ns.or(at_ns);
            }
            self.programs.insert(key, of);
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
        let of = self.programs.get(&(program.id, program.load_time_ns));
        of.map(|of| of.machine_percents.iter()).unwrap_or_default().copied()
    }

    /// Load and unload of a program, ns since the start of the oldest interval; `None` if unknown or earlier.
    pub fn loads(&self, program: &Program) -> impl Iterator<Item = Option<u64>> + use<> {
        let of = self.programs.get(&(program.id, program.load_time_ns));
        let begun_ns = self.bounds_ns.front().copied().unwrap_or(0);
        of.map(|of| of.loads_ns).unwrap_or_default().into_iter().map(move |at_ns| at_ns?.checked_sub(begun_ns))
    }

    /// Resamples values of the intervals to steps of equal length. Intervals differ in length after a pause, and after a change of the length.
    pub fn over_time(&self, values: &[f64]) -> Vec<f64> {
        let bounds = || self.bounds_ns.iter().copied();
        let begun_ns = bounds().next().unwrap_or(0);
        let shortest_ns = bounds().zip(bounds().skip(1)).map(|(from_ns, to_ns)| to_ns.saturating_sub(from_ns)).min();
        let steps = (self.length_ns() as f64 / shortest_ns.unwrap_or(0).max(1) as f64).round() as usize;
        let steps = steps.clamp(values.len().min(History::MOST_STEPS), History::MOST_STEPS);
        let step_ns = self.length_ns() as f64 / steps as f64;
        let middles = (0..steps).map(|step| begun_ns + ((step as f64 + 0.5) * step_ns) as u64);
        middles
            .filter_map(|at_ns| values.get(self.bounds_ns.partition_point(|bound| *bound <= at_ns).saturating_sub(1)))
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pause of 2 s is as wide as ten intervals of 0.2 s.
    #[test]
    fn steps_have_equal_lengths() {
        let bounds_ns = [100, 300, 2300, 2500].map(|ms| ms * 1_000_000).into();
        let history = History { bounds_ns, ..History::default() };
        let steps = history.over_time(&[1.0, 2.0, 3.0]);
        assert_eq!(steps, [&[1.0][..], &[2.0; 10], &[3.0]].concat());
        assert!(History::default().over_time(&[]).is_empty());
    }
}
