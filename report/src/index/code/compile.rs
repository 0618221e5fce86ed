//! Rules for announced, reused and overlapping code: they decide which code an address has at a time.
//!
//! Programs come and go, and the kernel reuses their addresses: a range has a lifetime. Images (trampolines, dispatchers, struct_ops stubs) claim a
//! whole page although other code lives in it. So a claim ends at the next start: among the ranges alive at the time, an address belongs to the range
//! with the nearest start before it.

use super::Code;
use super::cells::{Cells, Moments};

/// Range of code with its lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// First address.
    pub(crate) start: u64,
    /// Address after the last address of the range.
    pub(crate) end: u64,
    /// Load time, ns; 0 if loaded before the recording.
    pub(crate) from_ns: u64,
    /// Unload time, ns; `u64::MAX` if not unloaded.
    pub(crate) to_ns: u64,
    pub(crate) code: Code,
    /// True if the recording announced the load. If false, the load time is uncertain, and a range that is announced as loaded takes precedence.
    pub(crate) announced: bool,
}

impl Range {
    /// Makes a range that is loaded at all times.
    pub(crate) fn always(start: u64, end: u64, code: Code) -> Range {
        Range { start, end, from_ns: 0, to_ns: u64::MAX, code, announced: true }
    }

    /// Returns false if the range is empty, or if its load time is after its unload time.
    pub(super) fn is_any(&self) -> bool {
        self.start < self.end && self.from_ns <= self.to_ns
    }

    /// Returns the times at which a search at the range's start may find another result because of this range.
    fn changes(&self) -> [u64; 4] {
        let freed = self.to_ns.saturating_add(FREE_DELAY_NS).saturating_add(1);
        [self.from_ns.saturating_sub(CLOCK_SKEW_NS), self.from_ns, self.to_ns, freed]
    }
}

/// Time for which code may still run after its unload is announced: the kernel frees the memory only after a grace period.
const FREE_DELAY_NS: u64 = 10_000_000_000;
/// Limit on the difference of the clocks of two CPUs.
const CLOCK_SKEW_NS: u64 = 1_000_000;
/// Limit on the range starts that a lookup of an address searches, for hostile files. Real files need fewer: an image claims a page, and at most 64
/// programs fit into a page.
const MAX_STEPS: usize = 256;
/// Limit on the ranges that are searched per start and time, for hostile files. The search takes the last 64 ranges loaded before the time, the next
/// 64 ranges loaded after it, and the 64 oldest. Ranges without an announced load time are among the oldest.
const MAX_VERSIONS: usize = 64;
/// Limit on search steps while the ranges are compiled: this many per range, and [`SPARE`] more. Beyond it, the remaining addresses get no cell and
/// are searched at each lookup. Most recordings need about four steps per range. Six thousand programs on a few pages (a hundred loads per second for
/// a minute) would need 1,700.
const SEARCHED_PER_RANGE: usize = 256;
/// Limit on segments while the ranges are compiled: this many per range, and [`SPARE`] more. Beyond it, the remaining addresses get no cell. Most
/// recordings need about four segments per range. Six thousand programs on a few pages would need 23.
const SEGMENTS_PER_RANGE: usize = 16;
/// Number of search steps, and of segments, that is allowed in addition to the number per range.
const SPARE: usize = 1 << 16;

/// Approximate length of an interpreter entry: the kernel has one per stack size, side by side.
const INTERPRETER_BYTES: u64 = 256;

/// Returns the ranges of the interpreter's entries, which are loaded at all times.
pub(crate) fn interpreter_ranges(mut entries: Vec<u64>) -> impl Iterator<Item = Range> {
    entries.sort_unstable();
    entries.dedup();
    let range = |start: u64| Range::always(start, start.saturating_add(INTERPRETER_BYTES), Code::INTERPRETER);
    entries.into_iter().map(range)
}

/// Compiled ranges: the code at each address by time. Cells would take too much memory if many programs are loaded one after another on the same few
/// pages. Addresses above the last cell are searched instead.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    cells: Cells<Option<Code>>,
    /// First address without a cell, and all ranges; `None` if all addresses have cells.
    rest: Option<(u64, Overlaps)>,
}

impl Compiled {
    pub(super) fn new(ranges: Vec<Range>) -> Compiled {
        let mut bounds: Vec<u64> = ranges.iter().flat_map(|range| [range.start, range.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let max_searched = ranges.len().saturating_mul(SEARCHED_PER_RANGE).saturating_add(SPARE);
        let max_segments = ranges.len().saturating_mul(SEGMENTS_PER_RANGE).saturating_add(SPARE);
        let overlaps = Overlaps::new(ranges);
        let mut cells: Cells<Option<Code>> = Cells::default();
        let (mut below, mut searched) = (0, 0);
        for addr in bounds {
            while overlaps.starts.get(below).is_some_and(|start| *start <= addr) {
                below += 1;
            }
            cells.begin(addr);
            let (mut time_ns, mut before) = (0, None);
            loop {
                let answer = overlaps.search(addr, below, time_ns);
                if before != Some(answer.code) {
                    cells.push(time_ns, answer.code);
                }
                (before, time_ns) = (Some(answer.code), answer.until_ns);
                searched += answer.steps;
                if time_ns == u64::MAX {
                    break;
                }
                if searched > max_searched || cells.segments() > max_segments {
                    return Compiled { cells, rest: Some((addr, overlaps)) };
                }
            }
        }
        Compiled { cells, rest: None }
    }

    /// Returns the code at an address at a time, and the times for which it holds.
    #[inline]
    pub(super) fn at(&self, addr: u64, time_ns: u64) -> (Option<Code>, Moments) {
        match &self.rest {
            Some((from, overlaps)) if *from <= addr => {
                let answer = overlaps.search(addr, overlaps.starts.partition_point(|start| *start <= addr), time_ns);
                (answer.code, (time_ns, answer.until_ns.saturating_sub(1)))
            }
            _ => {
                let (code, moments) = self.cells.at(addr, time_ns);
                (code.flatten(), moments)
            }
        }
    }

    /// Approximate number of distinct stretches of code.
    pub(super) fn len(&self) -> usize {
        self.cells.len() + self.rest.as_ref().map_or(0, |(_, overlaps)| overlaps.starts.len())
    }
}

/// Ranges by start, for search.
#[derive(Debug, Default)]
struct Overlaps {
    /// Distinct starts, ascending.
    starts: Vec<u64>,
    /// Position in `ranges` of the first range of each start; at the end, the number of ranges.
    first: Vec<u32>,
    /// Ranges by start, then by load time.
    ranges: Vec<Range>,
    /// For each range, the latest unload time among this range and the ranges before it that have the same start.
    gone_by_ns: Vec<u64>,
    /// For each start, the highest end of the ranges with this start or a lower one.
    reach: Vec<u64>,
    /// For each start address, ascending times at which the result of a search there may change.
    changes: Vec<u64>,
    /// Position in `changes` of the first time of each start address; at the end, the number of times.
    first_change: Vec<u32>,
}

/// Result of a search.
struct SearchResult {
    code: Option<Code>,
    /// First time, ns, at which the result may change.
    until_ns: u64,
    /// Number of search steps: one for the search, and one for each start address that was searched.
    steps: usize,
}

impl Overlaps {
    fn new(mut ranges: Vec<Range>) -> Overlaps {
        // The sort is stable: ranges with the same start and load time keep their order in the recording.
        ranges.sort_by_key(|range| (range.start, range.from_ns));
        let mut overlaps = Overlaps::default();
        let (mut reach, mut first, mut changes) = (0, 0, Vec::new());
        for versions in ranges.chunk_by(|a, b| a.start == b.start) {
            reach = versions.iter().fold(reach, |reach, range| reach.max(range.end));
            changes.clear();
            changes.extend(versions.iter().flat_map(Range::changes));
            changes.sort_unstable();
            changes.dedup();
            overlaps.first_change.push(overlaps.changes.len() as u32);
            overlaps.changes.extend_from_slice(&changes);
            overlaps.starts.extend(versions.first().map(|range| range.start));
            overlaps.first.push(first);
            first += versions.len() as u32;
            overlaps.reach.push(reach);
            let mut gone_by_ns = 0;
            overlaps.gone_by_ns.extend(versions.iter().map(|range| {
                gone_by_ns = range.to_ns.max(gone_by_ns);
                gone_by_ns
            }));
        }
        overlaps.first.push(first);
        overlaps.first_change.push(overlaps.changes.len() as u32);
        overlaps.ranges = ranges;
        overlaps
    }

    /// Finds the code at an address at a time. `below` is the number of starts that are not above the address.
    fn search(&self, addr: u64, below: usize, time_ns: u64) -> SearchResult {
        let mut second_best: Option<((u8, u64), Code)> = None;
        let (mut until_ns, mut steps) = (u64::MAX, 1);
        for at in (0..below).rev().take(MAX_STEPS).take_while(|at| self.reach[*at] > addr) {
            steps += 1;
            until_ns = until_ns.min(self.next_change(at, time_ns));
            if let Some(here) = self.announced_at(at, time_ns) {
                if addr < here.end {
                    return SearchResult { code: Some(here.code), until_ns, steps };
                }
                break;
            }
            if let Some((rank, code)) = self.likeliest_at(at, addr, time_ns)
                && second_best.is_none_or(|(best, _)| rank < best)
            {
                second_best = Some((rank, code));
            }
        }
        SearchResult { code: second_best.map(|(_, code)| code), until_ns, steps }
    }

    /// Returns the next time at which the result for a start may change.
    fn next_change(&self, at: usize, time_ns: u64) -> u64 {
        let changes = &self.changes[self.first_change[at] as usize..self.first_change[at + 1] as usize];
        changes.get(changes.partition_point(|change| *change <= time_ns)).copied().unwrap_or(u64::MAX)
    }

    /// Returns ranges of a start, the newest first, that were loaded before `time_ns` or at most `early_ns` after it. The time with each range is the
    /// latest unload time of this range and all older ranges of the start. [`MAX_VERSIONS`] limits the number of ranges; beyond it, the ranges in the
    /// middle are skipped.
    fn newest_first(&self, at: usize, time_ns: u64, early_ns: u64) -> impl Iterator<Item = (&Range, u64)> {
        let of_start = self.first[at] as usize..self.first[at + 1] as usize;
        let (versions, gone_by_ns) = (&self.ranges[of_start.clone()], &self.gone_by_ns[of_start]);
        let come = versions.partition_point(|range| range.from_ns <= time_ns);
        let soon = come.saturating_add(MAX_VERSIONS).min(versions.len());
        let latest_ns = time_ns.saturating_add(early_ns);
        let early = versions[come..soon].partition_point(|range| range.from_ns <= latest_ns);
        let newest = come.saturating_sub(MAX_VERSIONS)..come + early;
        let oldest = 0..newest.start.min(MAX_VERSIONS);
        newest.rev().chain(oldest.rev()).map(|version| (&versions[version], gone_by_ns[version]))
    }

    /// Returns the newest range of a start that is announced as loaded at the time.
    fn announced_at(&self, at: usize, time_ns: u64) -> Option<&Range> {
        let mut there = self.newest_first(at, time_ns, 0).take_while(|(_, gone_by_ns)| time_ns < *gone_by_ns);
        there.find(|(range, _)| range.announced && time_ns < range.to_ns).map(|(range, _)| range)
    }

    /// Returns rank and code of the likeliest range with this start that contains an address. Called only if no range with this start is announced as
    /// loaded at the time. Of equal ranks, the oldest range wins.
    fn likeliest_at(&self, at: usize, addr: u64, time_ns: u64) -> Option<((u8, u64), Code)> {
        let mut best: Option<((u8, u64), Code)> = None;
        for (range, gone_by_ns) in self.newest_first(at, time_ns, CLOCK_SKEW_NS) {
            // This range and all older ranges had been unloaded by `gone_by_ns`. A longer time since the unload gives a worse rank, so the search can
            // end.
            let is_late = time_ns.checked_sub(gone_by_ns).is_some_and(|late| match best {
                Some(((1, best), _)) => late > best,
                Some(((0, _), _)) => true,
                _ => late > FREE_DELAY_NS,
            });
            if is_late {
                break;
            }
            if addr < range.end
                && let Some(rank) = rank_elsewhen(range, time_ns)
                && best.is_none_or(|(best, _)| rank <= best)
            {
                best = Some((rank, range.code));
            }
        }
        best
    }
}

/// Rank of a range that is not announced as loaded at a time; lower is likelier. The first number is 0 for a loaded range, 1 for an unloaded range
/// and 2 for a range that is loaded soon. The second number is the time since the unload or until the load, ns. `None` if this time is too long.
fn rank_elsewhen(range: &Range, time_ns: u64) -> Option<(u8, u64)> {
    if time_ns < range.from_ns {
        let early = range.from_ns - time_ns;
        return (early <= CLOCK_SKEW_NS).then_some((2, early));
    }
    if time_ns < range.to_ns {
        return Some((0, 0));
    }
    let late = time_ns - range.to_ns;
    (late <= FREE_DELAY_NS).then_some((1, late))
}

#[cfg(test)]
mod tests;
