//! Whose code is at an address, at a time.
//!
//! Programs come and go, and the kernel reuses their addresses: an entry is a range of addresses with the time it was
//! there. Images (trampolines, dispatchers, struct_ops stubs) claim a whole page although others live in it: an address
//! belongs to the nearest start before it among those that are there at the time, so that a claim ends at the next start.

use crate::index::cells::Cells;

/// What code belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A function of a program, by their indices.
    Function {
        /// Index of the program.
        program: u32,
        /// Index of the function in the program.
        function: u32,
    },
    /// A trampoline, dispatcher or struct_ops stub, by its index.
    Image(u32),
    /// Kernel code that exists to run BPF programs.
    Hook,
    /// Kernel code that exists for events, of which some run BPF programs.
    Event,
    /// The interpreter of programs that have no machine code: which one it runs cannot be told.
    Interpreter,
    /// Code that the kernel made for kprobes or ftrace.
    OutOfLine,
}

/// Code at an address for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// First address.
    pub(crate) start: u64,
    /// One past the last address it claims.
    pub(crate) end: u64,
    /// When it came; 0 when it was there before the recording.
    pub(crate) from_ns: u64,
    /// When it went; `u64::MAX` when it stayed.
    pub(crate) to_ns: u64,
    /// Whose it is.
    pub(crate) owner: Owner,
    /// The recording says when it came. Otherwise only that it was there at some time, and a range that is known to be
    /// there at the time goes before it.
    pub(crate) announced: bool,
}

impl Range {
    /// Whether there is any address, and any time, that it holds.
    fn is_any(&self) -> bool {
        self.start < self.end && self.from_ns <= self.to_ns
    }

    /// The times at which it becomes or stops being a candidate, or a better one.
    fn changes(&self) -> [u64; 4] {
        let freed = self.to_ns.saturating_add(FREE_DELAY_NS).saturating_add(1);
        [self.from_ns.saturating_sub(CLOCK_SKEW_NS), self.from_ns, self.to_ns, freed]
    }
}

/// A range is still executed for a while after its unload was announced: the memory is freed after a grace period.
const FREE_DELAY_NS: u64 = 10_000_000_000;
/// Clocks of two CPUs may differ by this much.
const CLOCK_SKEW_NS: u64 = 1_000_000;
/// Ranges that overlap without end are not from a kernel; a search gives up after so many starts. An image claims a page, in which there are
/// at most 64 programs.
const MAX_STEPS: usize = 256;
/// The kernel has one at a time at a start: of those that a recording has there at one time so many of the newest are looked at, and, since what
/// is only known to have been there at some time stands first, as many of the oldest.
const MAX_VERSIONS: usize = 64;

/// From the first address of ranges to the end of the last; `None` when there is nothing.
pub(crate) fn span(ranges: &[Range]) -> Option<(u64, u64)> {
    let spans = ranges.iter().filter(|range| range.is_any()).map(|range| (range.start, range.end));
    spans.reduce(|(low, high), (start, end)| (low.min(start), high.max(end)))
}

/// The ranges of a recording, for lookup.
#[derive(Debug, Default)]
pub(crate) struct AddressMap {
    /// Distinct starts, ascending.
    starts: Vec<u64>,
    /// Where the ranges of each start begin in `ranges`; one more at the end.
    first: Vec<u32>,
    /// By start, then by the time they came.
    ranges: Vec<Range>,
    /// For each of them the latest time at which it, or one before it of the same start, went.
    gone_by_ns: Vec<u64>,
    /// The highest end among all ranges up to each start.
    reach: Vec<u64>,
    /// When what is known of the ranges of each start changes, ascending, and where those of each start begin.
    changes: Vec<u64>,
    first_change: Vec<u32>,
    pages: PageFilter,
    cells: Cells,
}

impl AddressMap {
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range>) -> AddressMap {
        let mut ranges: Vec<Range> = ranges.into_iter().filter(Range::is_any).collect();
        // Of one start and time, those that were said first stay first.
        ranges.sort_by_key(|range| (range.start, range.from_ns));
        let mut map = AddressMap::default();
        for range in &ranges {
            // The page of the byte before, too: see `may_contain`.
            map.pages.insert(range.start.saturating_sub(1), range.end);
        }
        let (mut reach, mut first, mut changes) = (0, 0, Vec::new());
        for versions in ranges.chunk_by(|a, b| a.start == b.start) {
            reach = versions.iter().fold(reach, |reach, range| reach.max(range.end));
            changes.clear();
            changes.extend(versions.iter().flat_map(Range::changes));
            changes.sort_unstable();
            changes.dedup();
            map.first_change.push(map.changes.len() as u32);
            map.changes.extend_from_slice(&changes);
            map.starts.extend(versions.first().map(|range| range.start));
            map.first.push(first);
            first += versions.len() as u32;
            map.reach.push(reach);
            let mut gone_by_ns = 0;
            map.gone_by_ns.extend(versions.iter().map(|range| {
                gone_by_ns = range.to_ns.max(gone_by_ns);
                gone_by_ns
            }));
        }
        map.first.push(first);
        map.first_change.push(map.changes.len() as u32);
        map.cells = Cells::new(&ranges);
        map.ranges = ranges;
        map
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Tells quickly that `addr` and the address behind it are nobody's.
    #[inline]
    pub(crate) fn may_contain(&self, addr: u64) -> bool {
        self.pages.may_contain(addr)
    }

    /// Stretches of addresses that have the same answers at all times.
    #[inline]
    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Whose code `addr` was at `time_ns`.
    pub(crate) fn find(&self, addr: u64, time_ns: u64) -> Option<Owner> {
        if self.pages.may_contain(addr) { self.search(addr, self.starts_up_to(addr), time_ns) } else { None }
    }

    /// The same, and from when to when that is the answer.
    pub(crate) fn find_lasting(&self, addr: u64, time_ns: u64) -> (Option<Owner>, std::ops::Range<u64>) {
        let below = self.starts_up_to(addr);
        (self.search(addr, below, time_ns), self.lasts(addr, below, time_ns))
    }

    /// The same for a frame of a call chain, of which all but the leaf are return addresses: those are behind the call, so that the byte before
    /// is asked for. Below an interrupt it is the address where the program was, which may be its first.
    pub(crate) fn find_frame(&self, addr: u64, is_leaf: bool, time_ns: u64) -> (Option<Owner>, std::ops::Range<u64>) {
        let (owner, lasts) = self.find_lasting(if is_leaf { addr } else { addr.wrapping_sub(1) }, time_ns);
        if is_leaf || owner.is_some() {
            return (owner, lasts);
        }
        let (owner, other) = self.find_lasting(addr, time_ns);
        (owner, lasts.start.max(other.start)..lasts.end.min(other.end))
    }

    /// How many starts there are up to an address.
    fn starts_up_to(&self, addr: u64) -> usize {
        self.starts.partition_point(|start| *start <= addr)
    }

    fn lasts(&self, addr: u64, below: usize, time_ns: u64) -> std::ops::Range<u64> {
        let mut lasts = 0..u64::MAX;
        for at in (0..below).rev().take(MAX_STEPS).take_while(|at| self.reach[*at] > addr) {
            let changes = &self.changes[self.first_change[at] as usize..self.first_change[at + 1] as usize];
            let next = changes.partition_point(|change| *change <= time_ns);
            if let Some(last) = next.checked_sub(1) {
                lasts.start = lasts.start.max(changes[last]);
            }
            if let Some(next) = changes.get(next) {
                lasts.end = lasts.end.min(*next);
            }
        }
        lasts
    }

    fn search(&self, addr: u64, below: usize, time_ns: u64) -> Option<Owner> {
        let mut second_best: Option<((u8, u64), Owner)> = None;
        for at in (0..below).rev().take(MAX_STEPS) {
            if self.reach[at] <= addr {
                break;
            }
            if let Some(here) = self.announced_at(at, time_ns) {
                if addr < here.end {
                    return Some(here.owner);
                }
                break;
            }
            if let Some((rank, owner)) = self.likeliest_at(at, addr, time_ns)
                && second_best.is_none_or(|(best, _)| rank < best)
            {
                second_best = Some((rank, owner));
            }
        }
        second_best.map(|(_, owner)| owner)
    }

    /// Of the ranges of a start those that had come by `time_ns`, or come within `early_ns` after it, the newest first, each with the latest
    /// time at which it or an older one went. Of many, those far from that time are left out, but for the oldest.
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

    /// The newest range of a start that is known to be there at the time.
    fn announced_at(&self, at: usize, time_ns: u64) -> Option<&Range> {
        let mut there = self.newest_first(at, time_ns, 0).take_while(|(_, gone_by_ns)| time_ns < *gone_by_ns);
        there.find(|(range, _)| range.announced && time_ns < range.to_ns).map(|(range, _)| range)
    }

    /// The likeliest of a start's ranges that hold an address, when none is known to be there; of equals the oldest.
    fn likeliest_at(&self, at: usize, addr: u64, time_ns: u64) -> Option<((u8, u64), Owner)> {
        let mut best: Option<((u8, u64), Owner)> = None;
        for (range, gone_by_ns) in self.newest_first(at, time_ns, CLOCK_SKEW_NS) {
            // All that is left went earlier, and is the less likely the earlier.
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
                best = Some((rank, range.owner));
            }
        }
        best
    }
}

/// How likely a range is the one when none is known to be there: the lower the likelier.
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

/// Tells quickly that an address is in no range: one bit per hashed page.
#[derive(Debug)]
struct PageFilter {
    bits: Box<[u64; 1 << (PageFilter::BITS - 6)]>,
}

impl PageFilter {
    const BITS: u32 = 16;
    /// A range of more pages lets every address through.
    const MAX_PAGES: u64 = 1 << 14;

    #[inline]
    fn bit(page: u64) -> usize {
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PageFilter::BITS)) as usize
    }

    fn insert(&mut self, start: u64, end: u64) {
        let (first, last) = (start >> 12, (end - 1) >> 12);
        if last - first >= PageFilter::MAX_PAGES {
            self.bits.fill(u64::MAX);
            return;
        }
        for page in first..=last {
            let bit = PageFilter::bit(page);
            self.bits[bit / 64] |= 1 << (bit % 64);
        }
    }

    #[inline]
    fn may_contain(&self, addr: u64) -> bool {
        let bit = PageFilter::bit(addr >> 12);
        self.bits[bit / 64] >> (bit % 64) & 1 != 0
    }
}

impl Default for PageFilter {
    fn default() -> PageFilter {
        PageFilter { bits: Box::new([0; 1 << (PageFilter::BITS - 6)]) }
    }
}

/// Length of an entry of the interpreter, about: there is one per stack size, side by side.
const INTERPRETER_BYTES: u64 = 256;

/// Ranges of the interpreter, which entries of it start, through all of the time.
pub(crate) fn interpreter_ranges(mut entries: Vec<u64>) -> impl Iterator<Item = Range> {
    entries.sort_unstable();
    entries.dedup();
    entries.into_iter().map(|start| Range {
        start,
        end: start.saturating_add(INTERPRETER_BYTES),
        from_ns: 0,
        to_ns: u64::MAX,
        owner: Owner::Interpreter,
        announced: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn function(program: u32) -> Owner {
        Owner::Function { program, function: 0 }
    }

    fn range(start: u64, len: u64, from_ns: u64, to_ns: u64, owner: Owner) -> Range {
        Range { start, end: start + len, from_ns, to_ns, owner, announced: true }
    }

    #[test]
    fn an_address_has_different_owners_at_different_times() {
        let map = AddressMap::new([
            range(0x1000, 0x80, 0, 10 * S, function(1)),
            range(0x1000, 0x100, 12 * S, u64::MAX, function(2)),
            range(0x2000, 0x80, 5 * S, 6 * S, function(3)),
        ]);
        assert_eq!(map.find(0x1000, 0), Some(function(1)));
        assert_eq!(map.find(0x107f, 10 * S - 1), Some(function(1)));
        assert_eq!(map.find(0x1080, 9 * S), None, "behind the first, before the second");
        assert_eq!(map.find(0x10c0, 12 * S), Some(function(2)));
        assert_eq!(map.find(0xfff, 12 * S), None);
        assert_eq!(map.find(0x1040, 11 * S), Some(function(1)), "unloaded but not freed yet");
        assert_eq!(map.find(0x1040, 12 * S), Some(function(2)), "the new one goes before the freed one");
        assert_eq!(map.find(0x2000, 4 * S), None, "not loaded yet");
        assert_eq!(map.find(0x2000, 5 * S - 1000), Some(function(3)), "within the skew of two clocks");
        assert_eq!(map.find(0x2000, 17 * S), None, "long gone");
    }

    /// Within the time for which an answer is said to last, it is the same.
    #[test]
    fn answers_last_as_long_as_they_are_said_to() {
        let known = Range { announced: false, ..range(0x1000, 0x80, 0, u64::MAX, function(9)) };
        let map = AddressMap::new([
            known,
            range(0x1000, 0x80, 2 * S, 3 * S, function(1)),
            range(0x1000, 0x100, 12 * S, 20 * S, function(2)),
            range(0x1040, 0x40, 5 * S, 6 * S, function(3)),
            range(0x0f00, 0x1000, S, 30 * S, Owner::Image(0)),
        ]);
        let times: Vec<u64> = (0..45 * 8).map(|eighth| eighth * S / 8).collect();
        let near = times.iter().flat_map(|time| [time.saturating_sub(1), *time, time + 1, time + CLOCK_SKEW_NS]);
        let near: Vec<u64> = near.collect();
        for addr in (0xef0..0x1f20).step_by(0x10) {
            for time in &times {
                let (answer, lasts) = map.find_lasting(addr, *time);
                assert!(lasts.contains(time) && answer == map.find(addr, *time));
                for other in near.iter().filter(|other| lasts.contains(other)) {
                    assert_eq!(map.find(addr, *other), answer, "{addr:#x} at {other}, as at {time}");
                }
            }
        }
    }

    /// What the search finds without looking at every version is what looking at all of them finds.
    #[test]
    fn versions_of_an_address_are_found_among_many() {
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..50 {
            let versions: Vec<Range> = (0..40)
                .map(|number| {
                    let from_ns = below(60) * S / 2;
                    let to_ns = if below(4) == 0 { u64::MAX } else { from_ns + below(12) * S / 2 };
                    Range {
                        announced: below(3) > 0,
                        ..range(0x1000, 0x40 << below(3), from_ns, to_ns, function(number))
                    }
                })
                .collect();
            let map = AddressMap::new(versions.iter().copied());
            let mut sorted = versions;
            sorted.sort_by_key(|range| range.from_ns);
            for addr in [0x1000, 0x1050, 0x10a0] {
                for time_ns in (0..50).flat_map(|second| [second * S, second * S + S / 2 - CLOCK_SKEW_NS / 2]) {
                    let there = |range: &&Range| range.announced && (range.from_ns..range.to_ns).contains(&time_ns);
                    let expected = match sorted.iter().rev().find(there) {
                        Some(here) => Some(here.owner).filter(|_| addr < here.end),
                        None => {
                            let holding = sorted.iter().filter(|range| addr < range.end);
                            let ranked =
                                holding.filter_map(|range| Some((rank_elsewhen(range, time_ns)?, range.owner)));
                            ranked.min_by_key(|(rank, _)| *rank).map(|(_, owner)| owner)
                        }
                    };
                    assert_eq!(map.find(addr, time_ns), expected, "{addr:#x} at {time_ns}");
                }
            }
        }
    }

    #[test]
    fn a_claim_of_a_page_ends_at_the_next_start_that_is_there() {
        let map = AddressMap::new([
            range(0x4000, 0x1000, 0, u64::MAX, Owner::Image(0)),
            range(0x4200, 0x40, 0, 5 * S, function(1)),
            range(0x4400, 0x1000, 0, u64::MAX, Owner::Image(1)),
        ]);
        assert_eq!(map.find(0x41ff, S), Some(Owner::Image(0)));
        assert_eq!(map.find(0x4200, S), Some(function(1)));
        assert_eq!(map.find(0x4240, S), None, "behind the function; the image's claim was cut off before it");
        assert_eq!(map.find(0x4400, S), Some(Owner::Image(1)));
        assert_eq!(map.find(0x5100, S), Some(Owner::Image(1)));
        assert_eq!(map.find(0x4210, 20 * S), Some(Owner::Image(0)), "the function is gone");
    }

    #[test]
    fn what_is_announced_goes_before_what_is_only_known() {
        let known = Range { announced: false, ..range(0x1000, 0x80, 0, u64::MAX, function(9)) };
        let map = AddressMap::new([known, range(0x1000, 0x80, 2 * S, 3 * S, function(1))]);
        assert_eq!(map.find(0x1010, S), Some(function(9)));
        assert_eq!(map.find(0x1010, 2 * S), Some(function(1)));
        assert_eq!(map.find(0x1010, 3 * S), Some(function(9)));
    }

    /// A lookup takes as many steps among a million versions as among a few hundred, whatever stays for ever.
    #[test]
    fn reloads_at_one_address_do_not_add_up() {
        const RELOADS: u64 = 100_000;
        let stays = Range { announced: false, ..range(0x1000, 0x80, 0, u64::MAX, function(0)) };
        let reload = |n: u64| range(0x1000, 0x80, (2 * n + 1) * S, (2 * n + 2) * S, function(n as u32 + 1));
        let map = AddressMap::new(std::iter::once(stays).chain((0..RELOADS).map(reload)));
        for n in [0, 1, 100, RELOADS / 2, RELOADS - 1] {
            let (loaded_ns, gone_ns) = ((2 * n + 1) * S, (2 * n + 2) * S);
            assert_eq!(map.find(0x1010, loaded_ns), Some(function(n as u32 + 1)));
            assert_eq!(map.find(0x1010, gone_ns + S / 2), Some(function(0)), "what was there at some time");
            assert!(map.newest_first(0, gone_ns + S / 2, u64::MAX).count() <= 3 * MAX_VERSIONS);
        }
    }

    #[test]
    fn empty_and_endless_ranges_do_no_harm() {
        let map = AddressMap::new([
            range(0x1000, 0, 0, u64::MAX, function(1)),
            Range { end: u64::MAX, ..range(1, 1, 0, u64::MAX, function(2)) },
        ]);
        assert_eq!(map.find(0x1000, 0), Some(function(2)));
        assert_eq!(map.find(0, 0), None);
        assert_eq!(AddressMap::new([]).find(0x1000, 0), None);
    }
}
