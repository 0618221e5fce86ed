//! Counts of stacks by interval, so that the reader of the page can select a part of the time.

use crate::model::{StackTree, Stacks, TimedCount};
use serde::Serialize;

/// Limit on counts in a page, about 350 kB. If there are more counts, neighbouring intervals are merged.
const MAX_CELLS: usize = 250_000;
/// Numbers of intervals that may be merged into one. With these, the lengths of merged intervals stay round numbers.
const STEPS: [u32; 6] = [1, 2, 5, 10, 20, 50];

/// Counts of stack nodes by interval. The arrays have a value for each count, sorted by node and then by interval.
#[derive(Serialize)]
pub(super) struct PageTimes {
    /// Number of the page's intervals that one interval here stands for.
    step: u32,
    /// Count of intervals after merging.
    intervals: u64,
    /// Position of each count, `node * intervals + interval`, stored as the distance from the previous position.
    at: Vec<u64>,
    samples: Vec<u64>,
    /// Weights of the counts; empty if each sample has the weight `each`.
    weight: Vec<u64>,
    each: u64,
}

/// Makes the tree of the stacks, and its counts by interval. The page has `intervals` intervals; later counts are added to the last interval.
pub(super) fn tree(
    stacks: &Stacks,
    max_nodes: usize,
    by_interval: &[TimedCount],
    intervals: u32,
) -> (StackTree, PageTimes) {
    let (tree, mut cells) = stacks.timed_tree(max_nodes, by_interval);
    let last = intervals.saturating_sub(1);
    cells.iter_mut().for_each(|cell| cell.interval = cell.interval.min(last));
    TimedCount::merge_all(&mut cells);
    (tree, times(cells, intervals.max(1), MAX_CELLS))
}

fn times(mut cells: Vec<TimedCount>, intervals: u32, max_cells: usize) -> PageTimes {
    let distinct = |step: u32| 1 + cells.windows(2).filter(|two| at(two[0], step) != at(two[1], step)).count();
    let step = STEPS.into_iter().find(|step| distinct(*step) <= max_cells).unwrap_or(intervals.max(1));
    cells.iter_mut().for_each(|cell| cell.interval /= step);
    TimedCount::merge_all(&mut cells);
    let intervals = u64::from(intervals.div_ceil(step));
    let positions = cells.iter().map(|cell| u64::from(cell.number) * intervals + u64::from(cell.interval));
    let distances = positions.scan(0, |before, at| Some(at - std::mem::replace(before, at)));
    let each = cells.first().map_or(1, |cell| cell.count.weight / cell.count.samples.max(1));
    let is_even = cells.iter().all(|cell| cell.count.samples.checked_mul(each) == Some(cell.count.weight));
    let weights = cells.iter().filter(|_| !is_even).map(|cell| cell.count.weight);
    PageTimes {
        step,
        intervals,
        at: distances.collect(),
        samples: cells.iter().map(|cell| cell.count.samples).collect(),
        weight: weights.collect(),
        each,
    }
}

fn at(cell: TimedCount, step: u32) -> (u32, u32) {
    (cell.number, cell.interval / step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Count;

    fn cells(cells: &[(u32, u32, u64, u64)]) -> Vec<TimedCount> {
        let cell = |&(number, interval, samples, weight): &(u32, u32, u64, u64)| TimedCount {
            number,
            interval,
            count: Count { samples, weight },
        };
        cells.iter().map(cell).collect()
    }

    #[test]
    fn too_many_counts_merge_intervals() {
        let of = [(1, 0, 1, 10), (1, 1, 2, 20), (1, 4, 1, 10), (3, 2, 5, 50), (3, 3, 1, 10)];
        let all = times(cells(&of), 5, 5);
        assert_eq!((all.step, all.intervals, all.each, all.at.len(), all.weight.len()), (1, 5, 10, 5, 0));
        assert_eq!((all.at, all.samples), (vec![5, 1, 3, 8, 1], vec![1, 2, 1, 5, 1]));
        // Intervals are merged in pairs: node 1 has counts in 0 and 1, node 3 in 2 and 3.
        let pairs = times(cells(&of), 5, 4);
        assert_eq!((pairs.step, pairs.intervals), (2, 3));
        assert_eq!((pairs.at, pairs.samples), (vec![3, 2, 5], vec![3, 1, 6]));
    }

    #[test]
    fn weights_are_kept_if_samples_differ_in_weight() {
        let uneven = times(cells(&[(0, 0, 1, 10), (0, 1, 1, 11)]), 2, 9);
        assert_eq!(uneven.weight, [10, 11]);
        assert_eq!(times(Vec::new(), 0, 9).at, [0; 0]);
    }
}
