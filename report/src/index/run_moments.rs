//! The moments that a recording is cut at: when run statistics were read.

/// At most so many moments are kept; of more every other one is, and so on.
const MOST_MOMENTS: usize = 256;

/// Times of snapshots, ascending, ns of the recording's clock. Between two of them it is known how much programs ran.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct RunMoments {
    times_ns: Vec<u64>,
}

impl RunMoments {
    /// Of snapshots in the order of the recording: those that are earlier than one before them do not count.
    pub(crate) fn new(read_at_ns: impl IntoIterator<Item = u64>) -> RunMoments {
        let mut times_ns: Vec<u64> = Vec::new();
        for time_ns in read_at_ns {
            if times_ns.last().is_none_or(|last_ns| *last_ns < time_ns) {
                times_ns.push(time_ns);
            }
        }
        let every = times_ns.len().div_ceil(MOST_MOMENTS).max(1).next_power_of_two();
        RunMoments { times_ns: times_ns.into_iter().step_by(every).collect() }
    }

    pub(crate) fn times_ns(&self) -> &[u64] {
        &self.times_ns
    }

    /// Number of the interval from one moment to the next that a time is in; `None` before the first and behind the last.
    pub(crate) fn interval(&self, time_ns: u64) -> Option<u32> {
        let begun = self.times_ns.partition_point(|moment_ns| *moment_ns <= time_ns);
        (begun < self.times_ns.len()).then(|| begun.checked_sub(1).map(|interval| interval as u32)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_interval_that_has_begun() {
        let moments = RunMoments::new([10, 20, 20, 30, 25, 40]);
        assert_eq!(moments.times_ns(), [10, 20, 30, 40]);
        let intervals = [9, 10, 19, 20, 39, 40, u64::MAX].map(|time_ns| moments.interval(time_ns));
        assert_eq!(intervals, [None, Some(0), Some(0), Some(1), Some(2), None, None]);
        assert_eq!(RunMoments::default().interval(5), None);
    }

    #[test]
    fn long_recordings_have_longer_intervals() {
        for (snapshots, kept, second) in [(256, 256, 1_000), (257, 129, 2_000), (5_000, 157, 32_000)] {
            let moments = RunMoments::new((0..snapshots).map(|at| at * 1_000));
            assert_eq!((moments.times_ns().len(), moments.times_ns()[1]), (kept, second), "{snapshots}");
        }
    }
}
