//! Cells: stretches of addresses within which no range of code starts or ends. What is found at one address of a cell holds for all of
//! it, so that programs are remembered once for each function and not once for each address that samples meet.

use crate::index::address::Range;

/// Cells do not go beyond a page.
const PAGE_BITS: u32 = 12;
/// Cells of a page are looked through so many at once.
const LANES: usize = 8;
/// Ranges have about a page each, and these beside them. Of recordings that say otherwise only the first and the last page of each range is
/// cut into cells, so that memory goes with what they hold and not with the numbers in it.
const SPARE_PAGES: u64 = 1 << 10;

/// The cells of all ranges.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// By hash, each at its place or behind it. Their number is a power of two.
    pages: Box<[Page]>,
    /// By how much a hash is shifted to be a position among them.
    shift: u32,
    /// Number of the first page.
    first_page: u64,
    /// Where cells start, by page; behind the last of a page [`NOTHING`].
    starts: Vec<[u16; LANES]>,
    is_complete: bool,
}

/// Lies behind every address of a page.
const NOTHING: u16 = u16::MAX;

/// Where the cells of a page are.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    /// Its number, counted from the first page.
    number: u32,
    /// Its part of `starts`; none in places that are free.
    first: u32,
    len: u32,
}

impl Cells {
    /// The cells of ranges, which lie in the order of their starts.
    pub(crate) fn new(ranges: &[Range]) -> Cells {
        let page = |addr: u64| addr >> PAGE_BITS;
        let inner = |range: &Range| page(range.start) + 1..page(range.end - 1).max(page(range.start) + 1);
        let first_page = ranges.first().map_or(0, |range| page(range.start));
        let last_page = ranges.iter().map(|range| page(range.end - 1)).max().unwrap_or(0);
        if ranges.is_empty() || u32::try_from(last_page - first_page).is_err() {
            return Cells::default();
        }
        let inner_pages = ranges.iter().map(|range| inner(range).end - inner(range).start).fold(0, u64::saturating_add);
        let is_complete = inner_pages <= ranges.len() as u64 + SPARE_PAGES;
        let mut bounds = Vec::with_capacity(ranges.len() * 4);
        for range in ranges {
            bounds.extend([page(range.start) << PAGE_BITS, range.start]);
            bounds.extend(inner(range).filter(|_| is_complete).map(|page| page << PAGE_BITS));
            bounds.push(page(range.end - 1) << PAGE_BITS);
            // A page in which nothing starts has no cells.
            bounds.extend(Some(range.end).filter(|end| offset(*end) > 0));
        }
        bounds.sort_unstable();
        bounds.dedup();
        let count = bounds.chunk_by(|a, b| page(*a) == page(*b)).count();
        let places = (count * 2).next_power_of_two();
        let mut cells = Cells {
            pages: vec![Page::default(); places].into(),
            shift: u64::BITS - places.ilog2(),
            first_page,
            starts: Vec::with_capacity(count),
            is_complete,
        };
        for of_page in bounds.chunk_by(|a, b| page(*a) == page(*b)) {
            let first = cells.starts.len() as u32;
            cells.starts.extend(of_page.chunks(LANES).map(|chunk| {
                let mut starts = [NOTHING; LANES];
                starts.iter_mut().zip(chunk).for_each(|(start, addr)| *start = offset(*addr));
                starts
            }));
            let number = (page(of_page[0]) - first_page) as u32;
            let mut at = cells.place(number);
            while cells.pages[at].len != 0 {
                at = (at + 1) & (places - 1);
            }
            cells.pages[at] = Page { number, first, len: cells.starts.len() as u32 - first };
        }
        cells
    }

    /// How many numbers of cells there are.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() * LANES
    }

    /// Whether all addresses of all ranges are in cells.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Number of the cell that an address is in; `None` where no cell is.
    #[inline]
    pub(crate) fn find(&self, addr: u64) -> Option<u32> {
        let number = u32::try_from((addr >> PAGE_BITS).wrapping_sub(self.first_page)).ok()?;
        let mut at = self.place(number);
        let page = loop {
            let page = self.pages.get(at)?;
            if page.number == number && page.len != 0 {
                break page;
            }
            if page.len == 0 {
                return None;
            }
            at = (at + 1) & (self.pages.len() - 1);
        };
        let of_page = self.starts.get(page.first as usize..)?.get(..page.len as usize)?;
        let offset = offset(addr);
        // All lanes are compared, so that nothing has to be guessed by the processor. Nearly every page has few cells.
        let up_to = |starts: &[u16; LANES]| starts.iter().map(|start| u16::from(*start <= offset)).sum::<u16>();
        let cells: u32 = of_page.iter().map(|starts| u32::from(up_to(starts))).sum();
        // A page has a cell that starts where it does.
        (page.first * LANES as u32 + cells).checked_sub(1)
    }

    #[inline]
    fn place(&self, number: u32) -> usize {
        (u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }
}

/// Where an address is in its page.
#[inline]
fn offset(addr: u64) -> u16 {
    (addr & ((1 << PAGE_BITS) - 1)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::address::{AddressMap, Owner};

    fn range(start: u64, end: u64) -> Range {
        Range { start, end, from_ns: 0, to_ns: u64::MAX, owner: Owner::Image((start & 0xffff) as u32), announced: true }
    }

    /// Ranges of many shapes: nested, touching, over ends of pages, more of them in a page than are looked through at once.
    fn ranges() -> Vec<Range> {
        let dense = (0..40).map(|number| range(0x9000 + number * 0x40, 0x9000 + number * 0x40 + 0x30));
        let shapes = [(0x1004, 0x1100), (0x1100, 0x1180), (0x1ff0, 0x4010), (0x2000, 0x3000), (0x2100, 0x2101)];
        let mut ranges: Vec<Range> = shapes.into_iter().map(|(start, end)| range(start, end)).chain(dense).collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    #[test]
    fn all_addresses_of_a_cell_belong_to_the_same_owner() {
        let ranges = ranges();
        let (map, cells) = (AddressMap::new(ranges.clone()), Cells::new(&ranges));
        assert!(cells.is_complete());
        let mut owner_of = vec![None; cells.len()];
        for addr in 0..0xb000 {
            let owner = map.find(addr, 5);
            match cells.find(addr) {
                Some(cell) => assert_eq!(*owner_of[cell as usize].get_or_insert(owner), owner, "{addr:#x}"),
                None => assert_eq!(owner, None, "{addr:#x}"),
            }
        }
        for range in &ranges {
            assert!(cells.find(range.start).is_some() && cells.find(range.end - 1).is_some(), "{range:?}");
            assert_ne!(cells.find(range.start), cells.find(range.start.wrapping_sub(1)), "{range:?}");
            assert_ne!(cells.find(range.end), cells.find(range.end - 1), "{range:?}");
        }
        assert_eq!((cells.find(0), cells.find(u64::MAX)), (None, None));
    }

    #[test]
    fn memory_goes_with_the_ranges_and_not_with_their_lengths() {
        let long = |number: u64| range(number << 20, (number << 20) + 0xff_f00);
        let ranges: Vec<Range> = (1..100).map(long).collect();
        let cells = Cells::new(&ranges);
        assert!(!cells.is_complete() && cells.len() <= 2 * LANES * ranges.len(), "{}", cells.len());
        for range in &ranges {
            assert!(cells.find(range.start).is_some() && cells.find(range.end - 1).is_some(), "{range:?}");
            assert_eq!(cells.find(range.start + 0x8_0000), None, "{range:?}");
        }
    }

    #[test]
    fn ranges_that_no_kernel_has_make_no_cells() {
        for ranges in [vec![], vec![range(0, u64::MAX)], vec![range(0x1000, 0x1001), range(1 << 60, (1 << 60) + 1)]] {
            let cells = Cells::new(&ranges);
            assert_eq!((cells.len(), cells.find(0x1000), cells.find(u64::MAX)), (0, None, None), "{ranges:?}");
        }
    }
}
