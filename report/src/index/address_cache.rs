//! What was found at addresses: samples meet the same ones again and again.

use std::ops::Range;

/// So many addresses are remembered for each range of code,
const PER_RANGE: usize = 4;
/// at least so many, and at most.
const SLOTS_MIN: usize = 1 << 12;
const SLOTS_MAX: usize = 1 << 16;

/// Answers by the address of a frame and the time for which they hold. Of addresses with one hash it is the last that is remembered.
#[derive(Debug, Clone)]
pub(crate) struct AddressCache<T> {
    /// By hash. Their number is a power of two.
    slots: Box<[Slot<T>]>,
    /// By how much a hash is shifted to be a position among them.
    shift: u32,
}

#[derive(Debug, Clone)]
struct Slot<T> {
    addr: u64,
    is_leaf: bool,
    lasts: Range<u64>,
    found: T,
}

impl<T: Copy> AddressCache<T> {
    /// For addresses in so many ranges of code. `any` is what empty places are filled with.
    pub(crate) fn new(ranges: usize, any: T) -> AddressCache<T> {
        let slots = (ranges * PER_RANGE).clamp(SLOTS_MIN, SLOTS_MAX).next_power_of_two();
        AddressCache {
            slots: vec![Slot { addr: 0, is_leaf: false, lasts: 0..0, found: any }; slots].into(),
            shift: u64::BITS - slots.ilog2(),
        }
    }

    /// The answer on a frame, as remembered or looked up: then with the time for which it holds.
    #[inline]
    pub(crate) fn find(
        &mut self,
        addr: u64,
        is_leaf: bool,
        time_ns: u64,
        look_up: impl FnOnce() -> (T, Range<u64>),
    ) -> T {
        let at = addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        let slot = &mut self.slots[at as usize];
        if slot.addr != addr || slot.is_leaf != is_leaf || !slot.lasts.contains(&time_ns) {
            fill(slot, addr, is_leaf, look_up);
        }
        slot.found
    }
}

#[inline(never)]
fn fill<T>(slot: &mut Slot<T>, addr: u64, is_leaf: bool, look_up: impl FnOnce() -> (T, Range<u64>)) {
    let (found, lasts) = look_up();
    *slot = Slot { addr, is_leaf, lasts, found };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_asked_for_again_when_they_no_longer_hold() {
        let mut cache = AddressCache::new(1, 0);
        let mut looked_up = 0;
        let mut find = |addr: u64, is_leaf: bool, time_ns: u64| {
            cache.find(addr, is_leaf, time_ns, || {
                looked_up += 1;
                (looked_up, time_ns / 10 * 10..time_ns / 10 * 10 + 10)
            })
        };
        // Nothing is remembered of the address 0 either.
        assert_eq!((find(0, false, 5), find(0, false, 9)), (1, 1));
        assert_eq!((find(0, true, 5), find(0, true, 10), find(0, true, 19)), (2, 3, 3));
        assert_eq!((find(0x1000, false, 1), find(0, true, 19)), (4, 3));
    }
}
