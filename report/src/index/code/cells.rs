//! Cells: ranges of addresses, each with values by time.

/// Values by address and time. Within a cell, all addresses have the same values; within a segment of a cell, the value does not change.
#[derive(Debug, Clone)]
pub(crate) struct Cells<T> {
    /// First addresses of the cells, ascending. A cell ends where the next one starts.
    starts: Vec<u64>,
    /// Position of the first segment of each cell, and one past the last segment.
    first: Vec<u32>,
    /// Segments by cell, then by time: start of the segment, ns, and the value.
    segments: Vec<(u64, T)>,
}

/// First and last time, ns, between which a lookup gives the same result.
pub(crate) type Moments = (u64, u64);

impl<T: Copy> Cells<T> {
    /// Starts a cell. Its address must be higher than those of all earlier cells.
    pub(super) fn begin(&mut self, start: u64) {
        self.starts.push(start);
        self.first.push(self.segments.len() as u32);
    }

    /// Adds a segment to the last cell. It must start later than the cell's earlier segments.
    pub(super) fn push(&mut self, from_ns: u64, value: T) {
        self.segments.push((from_ns, value));
        if let Some(end) = self.first.last_mut() {
            *end = self.segments.len() as u32;
        }
    }

    /// Number of segments of all cells.
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Number of cells.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns the value at an address at a time, and the times for which it holds.
    #[inline]
    pub(crate) fn at(&self, addr: u64, time_ns: u64) -> (Option<T>, Moments) {
        let cell = self.starts.partition_point(|start| *start <= addr);
        let Some(cell) = cell.checked_sub(1) else { return (None, (0, u64::MAX)) };
        let segments = &self.segments[self.first[cell] as usize..self.first[cell + 1] as usize];
        let next = segments.partition_point(|(from_ns, _)| *from_ns <= time_ns);
        let last_ns = segments.get(next).map_or(u64::MAX, |(from_ns, _)| from_ns - 1);
        match next.checked_sub(1).map(|at| segments[at]) {
            Some((from_ns, value)) => (Some(value), (from_ns, last_ns)),
            None => (None, (0, last_ns)),
        }
    }
}

impl<T> Default for Cells<T> {
    fn default() -> Cells<T> {
        Cells { starts: Vec::new(), first: vec![0], segments: Vec::new() }
    }
}

/// Quick test for pages without code: one bit per hash of a page. If the bit is 0, the page has no code.
#[derive(Debug)]
pub(super) struct PageFilter {
    bits: Box<[u64; 1 << (PageFilter::BITS - 6)]>,
}

impl PageFilter {
    const BITS: u32 = 16;
    /// Limit on the pages of a range: with a larger range, every page may contain code.
    const MAX_PAGES: u64 = 1 << 14;

    #[inline]
    fn bit(page: u64) -> usize {
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PageFilter::BITS)) as usize
    }

    /// Adds the pages of a range of addresses.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
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

    pub(super) fn bits(&self) -> PageBits<'_> {
        PageBits(&self.bits)
    }
}

/// Reference to the filter's bits, which stays in a register.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageBits<'f>(&'f [u64; 1 << (PageFilter::BITS - 6)]);

impl PageBits<'_> {
    #[inline]
    pub(super) fn may_contain(self, addr: u64) -> bool {
        let bit = PageFilter::bit(addr >> 12);
        self.0[bit / 64] >> (bit % 64) & 1 != 0
    }
}

impl Default for PageFilter {
    fn default() -> PageFilter {
        PageFilter { bits: Box::new([0; 1 << (PageFilter::BITS - 6)]) }
    }
}
