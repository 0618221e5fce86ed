//! Lookups in ranges of code, with results that are known in advance.

use super::*;

const S: u64 = 1_000_000_000;

fn function(program: u32) -> Code {
    Code::Function { program, function: 0 }
}

fn range(start: u64, len: u64, from_ns: u64, to_ns: u64, code: Code) -> Range {
    Range { start, end: start + len, from_ns, to_ns, code, announced: true }
}

#[test]
fn an_address_has_different_owners_at_different_times() {
    let map = compiled([
        range(0x1000, 0x80, 0, 10 * S, function(1)),
        range(0x1000, 0x100, 12 * S, u64::MAX, function(2)),
        range(0x2000, 0x80, 5 * S, 6 * S, function(3)),
    ]);
    assert_eq!(find(&map, 0x1000, 0), Some(function(1)));
    assert_eq!(find(&map, 0x107f, 10 * S - 1), Some(function(1)));
    assert_eq!(find(&map, 0x1080, 9 * S), None, "after the end of program 1, before the load of program 2");
    assert_eq!(find(&map, 0x10c0, 12 * S), Some(function(2)));
    assert_eq!(find(&map, 0xfff, 12 * S), None);
    assert_eq!(find(&map, 0x1040, 11 * S), Some(function(1)), "program 1 was unloaded but may not be freed yet");
    assert_eq!(find(&map, 0x1040, 12 * S), Some(function(2)), "the new program has priority over the freed program");
    assert_eq!(find(&map, 0x2000, 4 * S), None, "program 3 is not loaded yet");
    assert_eq!(find(&map, 0x2000, 5 * S - 1000), Some(function(3)), "within the skew of two clocks");
    assert_eq!(find(&map, 0x2000, 17 * S), None, "long gone");
}

/// Compiled cells give the same code as a search, for each address and time.
#[test]
fn cells_have_the_answers_of_the_search() {
    let known = Range { announced: false, ..range(0x1000, 0x80, 0, u64::MAX, function(9)) };
    let ranges = [
        known,
        range(0x1000, 0x80, 2 * S, 3 * S, function(1)),
        range(0x1000, 0x100, 12 * S, 20 * S, function(2)),
        range(0x1040, 0x40, 5 * S, 6 * S, function(3)),
        range(0x0f00, 0x1000, S, 30 * S, Code::Image(0)),
        Range { announced: false, ..range(0x1080, 0x400, 4 * S, 7 * S, function(4)) },
    ];
    let (map, overlaps) = (compiled(ranges), Overlaps::new(ranges.to_vec()));
    let times = (0..45 * 8).map(|eighth| eighth * S / 8);
    let near = times.flat_map(|time| [time.saturating_sub(1), time, time + 1, time + CLOCK_SKEW_NS]);
    let near: Vec<u64> = near.collect();
    for addr in (0xef0..0x1f20).step_by(0x10) {
        let below = overlaps.starts.partition_point(|start| *start <= addr);
        for time in &near {
            assert_eq!(find(&map, addr, *time), overlaps.search(addr, below, *time).code, "{addr:#x} at {time}");
        }
    }
}

/// A search that skips some of the ranges with one start finds the same code as a search of all these ranges.
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
                Range { announced: below(3) > 0, ..range(0x1000, 0x40 << below(3), from_ns, to_ns, function(number)) }
            })
            .collect();
        let map = compiled(versions.iter().copied());
        let mut sorted = versions;
        sorted.sort_by_key(|range| range.from_ns);
        for addr in [0x1000, 0x1050, 0x10a0] {
            for time_ns in (0..50).flat_map(|second| [second * S, second * S + S / 2 - CLOCK_SKEW_NS / 2]) {
                let there = |range: &&Range| range.announced && (range.from_ns..range.to_ns).contains(&time_ns);
                let expected = match sorted.iter().rev().find(there) {
                    Some(here) => Some(here.code).filter(|_| addr < here.end),
                    None => {
                        let holding = sorted.iter().filter(|range| addr < range.end);
                        let ranked = holding.filter_map(|range| Some((rank_elsewhen(range, time_ns)?, range.code)));
                        ranked.min_by_key(|(rank, _)| *rank).map(|(_, code)| code)
                    }
                };
                assert_eq!(find(&map, addr, time_ns), expected, "{addr:#x} at {time_ns}");
            }
        }
    }
}

#[test]
fn a_claim_of_a_page_ends_at_the_next_start_that_is_there() {
    let map = compiled([
        range(0x4000, 0x1000, 0, u64::MAX, Code::Image(0)),
        range(0x4200, 0x40, 0, 5 * S, function(1)),
        range(0x4400, 0x1000, 0, u64::MAX, Code::Image(1)),
    ]);
    assert_eq!(find(&map, 0x41ff, S), Some(Code::Image(0)));
    assert_eq!(find(&map, 0x4200, S), Some(function(1)));
    assert_eq!(find(&map, 0x4240, S), None, "after the function; the range of the image was cut off before it");
    assert_eq!(find(&map, 0x4400, S), Some(Code::Image(1)));
    assert_eq!(find(&map, 0x5100, S), Some(Code::Image(1)));
    assert_eq!(find(&map, 0x4210, 20 * S), Some(Code::Image(0)), "the function is gone");
}

#[test]
fn what_is_announced_goes_before_what_is_only_known() {
    let known = Range { announced: false, ..range(0x1000, 0x80, 0, u64::MAX, function(9)) };
    let map = compiled([known, range(0x1000, 0x80, 2 * S, 3 * S, function(1))]);
    assert_eq!(find(&map, 0x1010, S), Some(function(9)));
    assert_eq!(find(&map, 0x1010, 2 * S), Some(function(1)));
    assert_eq!(find(&map, 0x1010, 3 * S), Some(function(9)));
}

/// A search takes as many steps among a hundred thousand ranges with one start as among a few hundred, even if some ranges stay loaded.
#[test]
fn reloads_at_one_address_do_not_add_up() {
    const RELOADS: u64 = 100_000;
    let stays = Range { announced: false, ..range(0x1000, 0x80, 0, u64::MAX, function(0)) };
    let reload = |n: u64| range(0x1000, 0x80, (2 * n + 1) * S, (2 * n + 2) * S, function(n as u32 + 1));
    let ranges: Vec<Range> = std::iter::once(stays).chain((0..RELOADS).map(reload)).collect();
    let (map, overlaps) = (compiled(ranges.iter().copied()), Overlaps::new(ranges));
    for n in [0, 1, 100, RELOADS / 2, RELOADS - 1] {
        let (loaded_ns, gone_ns) = ((2 * n + 1) * S, (2 * n + 2) * S);
        assert_eq!(find(&map, 0x1010, loaded_ns), Some(function(n as u32 + 1)));
        assert_eq!(find(&map, 0x1010, gone_ns + S / 2), Some(function(0)), "the program that is loaded at all times");
        assert!(overlaps.newest_first(0, gone_ns + S / 2, u64::MAX).count() <= 3 * MAX_VERSIONS);
    }
}

#[test]
fn empty_and_endless_ranges_do_no_harm() {
    let map = compiled([
        range(0x1000, 0, 0, u64::MAX, function(1)),
        Range { end: u64::MAX, ..range(1, 1, 0, u64::MAX, function(2)) },
    ]);
    assert_eq!(find(&map, 0x1000, 0), Some(function(2)));
    assert_eq!(find(&map, 0, 0), None);
    assert_eq!(find(&compiled([]), 0x1000, 0), None);
}

fn find(map: &Compiled, addr: u64, time_ns: u64) -> Option<Code> {
    map.at(addr, time_ns).0
}

/// Checks that all addresses have cells.
fn compiled(ranges: impl IntoIterator<Item = Range>) -> Compiled {
    let map = Compiled::new(ranges.into_iter().filter(Range::is_any).collect());
    assert!(map.rest.is_none());
    map
}

/// A hundred programs per second on three pages; each is loaded for 10 ms.
#[test]
fn addresses_that_are_reused_for_long_have_all_their_programs() {
    const PROGRAMS: u64 = 6_000;
    let start = |n: u64| 0x1000 + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 3072 * 4;
    let of_program = |n: u64| range(start(n), 150, (n + 1) * S / 100, (n + 2) * S / 100, function(n as u32));
    let map = Compiled::new((0..PROGRAMS).map(of_program).collect());
    assert!(map.rest.is_some(), "the other ranges are searched");
    for n in 0..PROGRAMS {
        for (offset, time_ns) in [(0, (n + 1) * S / 100), (149, (n + 2) * S / 100 - 1)] {
            let (code, moments) = map.at(start(n) + offset, time_ns);
            assert_eq!(code, Some(function(n as u32)));
            assert!(moments.0 <= time_ns && time_ns <= moments.1, "{moments:?}");
        }
    }
}

/// Ranges as a hostile file of two megabytes can have: all overlap, each with hundreds of lifetimes.
#[test]
fn hostile_ranges_take_bounded_time_and_memory() {
    let of_start =
        |start: u64| (0..8).map(move |n| range(0x1000 + start, 0x2000, n * 20 * S, n * 20 * S + S, function(1)));
    let ranges: Vec<Range> = (0..2_000).flat_map(of_start).collect();
    let count = ranges.len();
    let Compiled { cells, rest } = Compiled::new(ranges);
    assert!(rest.is_some() && cells.segments() <= count * SEGMENTS_PER_RANGE + SPARE + 1, "{}", cells.segments());
}
