//! Counts by interval of time.

use crate::model::{Count, TimedCount};
use std::sync::Arc;

/// Intervals of equal length over parts of the time. The time between two parts does not count: an interval that has begun in one part continues in
/// the next. Times before the first part belong to the first interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EqualIntervals {
    /// Parts in order: start, end, and the length of all parts before, ns.
    parts: Arc<[(u64, u64, u64)]>,
    /// Length of an interval, ns.
    length_ns: u64,
}

impl EqualIntervals {
    /// Makes intervals of `length_ns` over parts in order: start and end, ns of the recording's clock.
    pub(crate) fn new(parts: impl Iterator<Item = (u64, u64)>, length_ns: u64) -> EqualIntervals {
        let parts = parts.scan(0_u64, |before_ns, (from, to)| {
            let part = (from, to, *before_ns);
            *before_ns = before_ns.saturating_add(to.saturating_sub(from));
            Some(part)
        });
        EqualIntervals { parts: parts.collect(), length_ns: length_ns.max(1) }
    }

    /// Returns the number of the interval of a time.
    #[inline]
    pub(crate) fn at(&self, time_ns: u64) -> u64 {
        let part = self.parts.partition_point(|(from, ..)| *from <= time_ns).saturating_sub(1);
        let elapsed_ns = self
            .parts
            .get(part)
            .map_or(0, |(from, to, before_ns)| before_ns.saturating_add(time_ns.min(*to).saturating_sub(*from)));
        elapsed_ns / self.length_ns
    }
}

/// Number of cells from which [`TimedCounts`] merges cells of the same number and interval.
const MERGED_FROM: usize = 1 << 16;

/// Counts of numbered stacks or nodes by interval.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimedCounts {
    /// Cells in the order of samples. Several cells may have the same number and interval, because samples of different CPUs are not in the order of
    /// time.
    cells: Vec<TimedCount>,
    /// Position in `cells` of the latest cell of each number.
    latest: Vec<u32>,
    /// Number of cells that the last merge left.
    distinct: usize,
}

impl TimedCounts {
    /// Adds a count.
    pub(crate) fn add(&mut self, number: u32, interval: u64, count: Count) {
        let interval = u32::try_from(interval).unwrap_or(u32::MAX);
        if self.latest.len() <= number as usize {
            self.latest.resize(number as usize + 1, u32::MAX);
        }
        let latest = self.cells.get_mut(self.latest[number as usize] as usize);
        if let Some(latest) = latest.filter(|latest| (latest.number, latest.interval) == (number, interval)) {
            return latest.count.merge(count);
        }
        if self.cells.len() >= MERGED_FROM.max(2 * self.distinct) {
            self.merge_cells();
        }
        self.latest[number as usize] = self.cells.len() as u32;
        self.cells.push(TimedCount { number, interval, count });
    }

    /// Adds the counts of another thread. `renumber` returns this thread's number for a number of the other thread.
    pub(crate) fn merge(&mut self, other: TimedCounts, renumber: impl Fn(u32) -> u32) {
        for cell in other.cells {
            self.add(renumber(cell.number), cell.interval.into(), cell.count);
        }
    }

    /// Returns the counts by number and interval, in this order.
    pub(crate) fn finish(mut self) -> Vec<TimedCount> {
        self.merge_cells();
        self.cells
    }

    /// Merges the cells with the same number and interval, so that memory does not grow with the number of samples.
    fn merge_cells(&mut self) {
        TimedCount::merge_all(&mut self.cells);
        for (position, cell) in (0..).zip(&self.cells) {
            self.latest[cell.number as usize] = position;
        }
        self.distinct = self.cells.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_between_parts_is_in_no_interval() {
        let intervals = EqualIntervals::new([(100, 149), (300, u64::MAX)].into_iter(), 20);
        let at = |time_ns| intervals.at(time_ns);
        // The first part is 49 ns long: two intervals, and 9 ns of the third. The second part continues the third interval for 11 ns.
        assert_eq!(
            [at(0), at(100), at(119), at(120), at(149), at(200), at(300), at(310), at(311)],
            [0, 0, 0, 1, 2, 2, 2, 2, 3]
        );
    }

    fn one(number: u32, interval: u32, samples: u64) -> TimedCount {
        TimedCount { number, interval, count: Count { samples, weight: 10 * samples } }
    }

    #[test]
    fn cells_of_a_number_and_interval_are_merged() {
        let mut counts = TimedCounts::default();
        // Samples of two CPUs come one after the other, so the intervals go back from 1 to 0. There are enough cells for merges in between.
        for _ in 0..2 * MERGED_FROM {
            for (number, interval) in [(7, 0), (3, 1), (7, 1), (7, 0)] {
                counts.add(number, interval, Count { samples: 1, weight: 10 });
            }
        }
        assert!(counts.cells.len() <= MERGED_FROM + 3, "{}", counts.cells.len());
        let mut other = TimedCounts::default();
        other.add(0, 1, Count { samples: 5, weight: 50 });
        counts.merge(other, |number| number + 3);
        let each = 2 * MERGED_FROM as u64;
        assert_eq!(counts.finish(), [one(3, 1, each + 5), one(7, 0, 2 * each), one(7, 1, each)]);
    }

    #[test]
    fn times_before_the_start_belong_to_the_first_interval() {
        let intervals = EqualIntervals::new([(100, u64::MAX)].into_iter(), 10);
        assert_eq!([0, 100, 109, 110, 200].map(|time_ns| intervals.at(time_ns)), [0, 0, 0, 1, 10]);
    }
}
