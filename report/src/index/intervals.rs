//! Search of the interval that contains an address, for names that hold for a whole recording.

use std::ops::Range;

/// Values by ranges of addresses. If several ranges contain an address, the range with the highest start has precedence; of ranges with the same
/// start, the last one.
#[derive(Debug, Clone)]
pub(crate) struct AddressIntervals<T> {
    /// Starts, ascending.
    starts: Vec<u64>,
    /// For each start address: the address after the end of its range, and the value.
    values: Vec<(u64, T)>,
}

impl<T> AddressIntervals<T> {
    pub(crate) fn new(mut intervals: Vec<(Range<u64>, T)>) -> AddressIntervals<T> {
        intervals.sort_by_key(|(addrs, _)| addrs.start);
        let starts = intervals.iter().map(|(addrs, _)| addrs.start).collect();
        AddressIntervals { starts, values: intervals.into_iter().map(|(addrs, value)| (addrs.end, value)).collect() }
    }

    /// Returns the interval that contains an address, as its number in the order of starts.
    #[inline]
    pub(crate) fn find(&self, addr: u64) -> Option<u32> {
        let below = self.starts.partition_point(|start| *start <= addr).checked_sub(1)?;
        (addr < self.values[below].0).then_some(below as u32)
    }

    /// Returns the value at an address, and the distance of the address from the start of its range.
    pub(crate) fn at(&self, addr: u64) -> Option<(&T, u64)> {
        let number = self.find(addr)? as usize;
        Some((&self.values[number].1, addr - self.starts[number]))
    }

    /// Addresses and value of an interval, by its number.
    pub(crate) fn get(&self, number: u32) -> Option<(Range<u64>, &T)> {
        let (end, value) = self.values.get(number as usize)?;
        Some((self.starts[number as usize]..*end, value))
    }

    /// Addresses and values of all intervals, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, &T)> {
        self.starts.iter().zip(&self.values).map(|(start, (end, value))| (*start..*end, value))
    }

    /// Values in order, for update.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().map(|(_, value)| value)
    }

    /// Maps each value.
    pub(crate) fn map<U>(self, value: impl Fn(T) -> U) -> AddressIntervals<U> {
        let values = self.values.into_iter().map(|(end, it)| (end, value(it))).collect();
        AddressIntervals { starts: self.starts, values }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }
}

impl<T> Default for AddressIntervals<T> {
    fn default() -> AddressIntervals<T> {
        AddressIntervals { starts: Vec::new(), values: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_start_decides() {
        let intervals = AddressIntervals::new(vec![
            (0x3000..0x3010, "last"),
            (0x1000..0x2000, "wide"),
            (0x1100..0x1200, "within"),
            (0x3000..0x3020, "same start"),
            (u64::MAX - 1..u64::MAX, "end"),
        ]);
        for (addr, expected) in [
            (0xfff, None),
            (0x1000, Some(("wide", 0))),
            (0x10ff, Some(("wide", 0xff))),
            (0x11ff, Some(("within", 0xff))),
            // The wide range also contains this address, but the search looks only at the range with the highest start, which has ended.
            (0x1200, None),
            (0x301f, Some(("same start", 0x1f))),
            (u64::MAX - 1, Some(("end", 0))),
            (u64::MAX, None),
        ] {
            assert_eq!(intervals.at(addr).map(|(value, offset)| (*value, offset)), expected, "{addr:#x}");
        }
        assert_eq!(intervals.find(0x1100).and_then(|number| intervals.get(number)), Some((0x1100..0x1200, &"within")));
        assert_eq!(AddressIntervals::<()>::default().at(0), None);
    }
}
