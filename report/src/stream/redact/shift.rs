//! Redaction of addresses: each region of the address space is shifted by a random offset of its own, drawn per recording.
//!
//! Addresses within a region keep their distances, so that they stay in their functions and in order. Regions move independently, because distances
//! between regions would reveal the original addresses of regions with a fixed place.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use bprec_format::CONTEXT_MAX;

/// End of the lowest region: 32-bit user space, and programs loaded without address randomization.
const LOW_END: u64 = 1 << 32;
/// Start of the kernel's half.
const KERNEL: u64 = 1 << 63;
/// Kernel text on x86-64.
const X86_TEXT: Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_c000_0000;
/// Modules and BPF programs on x86-64.
const X86_MODULES: Range<u64> = 0xffff_ffff_c000_0000..0xffff_ffff_ff00_0000;
/// Fixed address on every machine: shifting it would reveal the offset.
const X86_VSYSCALL: Range<u64> = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;

const PAGE_BYTES: u64 = 64 << 10;
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Offsets of the regions.
#[derive(Debug)]
pub(super) struct Shift {
    low: u64,
    user: u64,
    kernel: u64,
    text: u64,
    modules: u64,
}

impl Shift {
    pub(super) fn random() -> Shift {
        let random = RandomState::new();
        let draw = |number: u64, from: u64, to: u64, align_bytes: u64| {
            let steps = (to - from) / align_bytes;
            from + random.hash_one(number) % steps * align_bytes
        };
        let text = draw(3, 1 << 31, 1 << 38, HUGE_PAGE_BYTES);
        Shift {
            low: draw(0, 1 << 33, 1 << 38, PAGE_BYTES),
            user: draw(1, 1 << 40, 1 << 46, PAGE_BYTES),
            kernel: draw(2, 1 << 30, 1 << 44, HUGE_PAGE_BYTES).wrapping_neg(),
            text: text.wrapping_neg(),
            // Modules move with the kernel text: their relative calls reach it only within 2 GiB.
            modules: draw(4, 0, 512 << 20, 4096).wrapping_sub(text),
        }
    }

    /// Shifts an address. Other values stay: small numbers, and the markers in call chains.
    pub(super) fn of(&self, addr: u64) -> u64 {
        addr.wrapping_add(self.by(addr))
    }

    /// Returns the offset by which an address is shifted.
    pub(super) fn by(&self, addr: u64) -> u64 {
        match addr {
            ..4096 | CONTEXT_MAX.. => 0,
            4096..LOW_END => self.low,
            LOW_END..KERNEL => self.user,
            _ if X86_VSYSCALL.contains(&addr) => 0,
            _ if X86_TEXT.contains(&addr) => self.text,
            _ if X86_MODULES.contains(&addr) => self.modules,
            _ => self.kernel,
        }
    }

    /// Shifts a number if it is a kernel address.
    pub(super) fn of_kernel(&self, number: u64) -> u64 {
        if number >= KERNEL { self.of(number) } else { number }
    }

    /// Returns true if a number in code is a kernel address.
    pub(super) fn is_kernel(number: u64) -> bool {
        (0xff00_0000_0000_0000..X86_MODULES.end).contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_pages_stay_within_a_region() {
        for _ in 0..1000 {
            let shift = Shift::random();
            let regions =
                [4096..LOW_END, LOW_END..1 << 47, 0xffff_0000_0000_0000..0xffff_ff80_0000_0000, X86_TEXT, X86_MODULES];
            for region in &regions {
                let (first, last) = (region.start, region.end - 1);
                assert!(shift.of(first) != first && shift.of(first) < shift.of(last), "{region:x?}");
                assert_eq!(shift.of(last) - shift.of(first), last - first, "{region:x?}");
                assert_eq!(shift.by(first) % 4096, 0);
                assert_eq!(shift.of(first) >> 63, first >> 63, "{region:x?}");
            }
            let ends = regions.map(|region| (shift.of(region.start), shift.of(region.end - 1)));
            assert!(ends[..2].is_sorted_by(|a, b| a.1 < b.0) && ends[2..].is_sorted_by(|a, b| a.1 < b.0), "{ends:x?}");
            // Modules call functions of the kernel text, and a call reaches at most 2 GiB.
            assert!(shift.of(X86_MODULES.start) - shift.of(X86_TEXT.start) < 1 << 31);
            assert_eq!([0, 1, u64::MAX, CONTEXT_MAX].map(|number| shift.of(number)), [0, 1, u64::MAX, CONTEXT_MAX]);
        }
    }
}
