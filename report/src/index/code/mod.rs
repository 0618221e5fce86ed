//! The kernel's address space, compiled: the code at an address at a time. Attribution, hooks, trees, stacks, exports and listings use this lookup.
//!
//! At the end of the first pass, all code that a recording announces is cut into cells: ranges of addresses, each with a list of values by time
//! (`compile`). Kernel functions, which have no lifetime, are found by an interval search when no cell has the address.

mod cells;
mod compile;
pub(crate) mod user;

use self::cells::{Moments, PageBits, PageFilter};
use self::compile::Compiled;
pub(crate) use self::compile::{Range, interpreter_ranges};
use super::kernel::Role;
use super::symbols::{KernelMaps, KernelSymbols};

/// Kind of the code at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Code {
    /// Numbers of a program and of a function in it.
    Function { program: u32, function: u32 },
    /// Number of a trampoline, dispatcher or struct_ops stub. [`super::hooks::Hooks::of_image`] has the programs that it runs.
    Image(u32),
    /// Kernel code: the number of the function, if the recording names it, and its role for BPF programs.
    Kernel { function: Option<u32>, role: Role },
    /// Address in the area of BPF code, but in no known function.
    Unknown,
}

impl Code {
    /// Kernel code without a name or a special role.
    pub(crate) const PLAIN: Code = Code::Kernel { function: None, role: Role::Plain };

    /// Entry of the interpreter, which runs programs without machine code.
    pub(crate) const INTERPRETER: Code = Code::Kernel { function: None, role: Role::Interpreter };

    /// Returns true if the code has a name.
    pub(crate) fn is_named(self) -> bool {
        !matches!(self, Code::Kernel { function: None, .. } | Code::Unknown)
    }

    /// Number of the kernel function.
    pub(crate) fn kernel_function(self) -> Option<u32> {
        if let Code::Kernel { function, .. } = self { function } else { None }
    }

    /// Returns true for code of programs, and for code that exists to run programs.
    pub(crate) fn is_bpf(self) -> bool {
        match self {
            Code::Function { .. } | Code::Image(_) => true,
            Code::Kernel { role, .. } => role.runs_programs(),
            Code::Unknown => false,
        }
    }
}

/// A frame of a call chain in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelFrame {
    /// Address in the sample.
    pub(crate) addr: u64,
    /// True if the CPU was at the address. Otherwise a call returns to the address.
    pub(crate) is_exact: bool,
}

impl KernelFrame {
    /// Returns an address in the instruction that ran: a return address may already be in the next function.
    #[inline]
    pub(crate) fn code_addr(self) -> u64 {
        if self.is_exact { self.addr } else { self.addr.wrapping_sub(1) }
    }
}

/// The kernel's address space.
#[derive(Debug, Default)]
pub(crate) struct CodeMap {
    compiled: Compiled,
    /// Pages on which [`PlainTest`] must be false: those of compiled ranges and of kernel functions that run programs, and of the byte before each
    /// range or function.
    pages: PageFilter,
    area: Area,
    /// Kernel functions that the recording names.
    pub(crate) kernel: KernelSymbols,
    /// Address ranges of the kernel's text and modules.
    pub(crate) maps: KernelMaps,
}

/// Area of BPF code: addresses from the lowest to the highest announced code or module, with a margin of a pack. Empty if unknown.
#[derive(Debug, Clone, Copy, Default)]
struct Area {
    low: u64,
    bytes: u64,
}

/// Size of the packs in which the kernel allocates the code of programs. A pack with known code may also have code that the recording does not
/// announce, so the area of BPF code extends this far below and above known code.
const PACK_BYTES: u64 = 2 << 20;

impl CodeMap {
    /// Compiles the ranges of programs, images and other announced code.
    pub(crate) fn new(ranges: Vec<Range>, kernel: KernelSymbols, maps: KernelMaps) -> CodeMap {
        let announced = ranges.iter().filter(|range| range.is_any()).map(|range| (range.start, range.end));
        let spans = announced.chain(maps.module_area());
        let area = spans.reduce(|(low, high), (start, end)| (low.min(start), high.max(end)));
        // Without the address ranges of the kernel and its modules, kernel code inside the area would count as unknown BPF code. The area is then
        // left empty.
        let area = area.filter(|_| !maps.is_empty()).map(|(low, high)| {
            let low = low.saturating_sub(PACK_BYTES);
            Area { low, bytes: high.saturating_add(PACK_BYTES).saturating_sub(low) }
        });
        let ranges: Vec<Range> = ranges.into_iter().filter(Range::is_any).collect();
        let mut pages = PageFilter::default();
        let timed = ranges.iter().map(|range| (range.start, range.end));
        timed.chain(kernel.that_run_programs()).for_each(|(start, end)| pages.insert(start.saturating_sub(1), end));
        CodeMap { compiled: Compiled::new(ranges), pages, area: area.unwrap_or_default(), kernel, maps }
    }

    /// Returns a quick test for plain code.
    #[inline]
    pub(crate) fn plain_test(&self) -> PlainTest<'_> {
        PlainTest { pages: self.pages.bits(), area: self.area }
    }

    /// Returns the code at an address at a time.
    pub(crate) fn at(&self, addr: u64, time_ns: u64) -> Code {
        self.resolved(self.compiled.at(addr, time_ns).0, addr)
    }

    /// Returns the code of a frame at a time, and the times for which it holds. A return address points after the call, so the byte before the
    /// address is looked up. If no compiled range has this byte, the address itself is looked up: in a frame that was interrupted, it may be the
    /// first byte of a program.
    pub(crate) fn of_frame(&self, frame: KernelFrame, time_ns: u64) -> (Code, Moments) {
        let addr = frame.code_addr();
        let (code, moments) = self.compiled.at(addr, time_ns);
        match code {
            None if !frame.is_exact => {
                let (code, others) = self.compiled.at(frame.addr, time_ns);
                (self.resolved(code, addr), (moments.0.max(others.0), moments.1.min(others.1)))
            }
            code => (self.resolved(code, addr), moments),
        }
    }

    fn resolved(&self, code: Option<Code>, addr: u64) -> Code {
        match code {
            Some(Code::Kernel { function: None, role }) => Code::Kernel { function: self.kernel.find(addr), role },
            Some(code) => code,
            None => match self.kernel.find(addr) {
                Some(function) => Code::Kernel { function: Some(function), role: self.kernel.role(function) },
                None if self.area.contains(addr) && self.maps.find(addr).is_none() => Code::Unknown,
                None => Code::PLAIN,
            },
        }
    }
}

/// Quick test that is true only if an address is in plain kernel code, whether the address is exact or a return address. Most sampled addresses pass
/// the test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainTest<'m> {
    pages: PageBits<'m>,
    area: Area,
}

impl PlainTest<'_> {
    #[inline]
    pub(crate) fn is_plain(self, addr: u64) -> bool {
        !self.pages.may_contain(addr.wrapping_sub(1)) && !self.area.contains(addr)
    }
}

impl Area {
    #[inline]
    fn contains(self, addr: u64) -> bool {
        addr.wrapping_sub(self.low) < self.bytes
    }
}

/// Cache of the code of frames, for one thread: samples have the same frames again and again. Of frames with the same hash, the cache holds the
/// latest.
#[derive(Debug)]
pub(crate) struct CodeCache<'i> {
    map: &'i CodeMap,
    /// Slots by hash; their number is a power of two.
    slots: Box<[CacheSlot]>,
    /// Right shift, in bits, that makes a hash the index of a slot.
    shift: u32,
}

#[derive(Debug, Clone)]
struct CacheSlot {
    frame: KernelFrame,
    moments: Moments,
    code: Code,
}

/// Number of slots per cell, within the limits below.
const SLOTS_PER_CELL: usize = 2;
/// Least number of slots of a cache.
const SLOTS_MIN: usize = 1 << 12;
/// Limit on the slots of the attribution's cache.
const SLOTS_MAX: usize = 1 << 16;
/// Limit on the slots of a sink's cache: a sink looks up fewer frames than the attribution.
const SINK_SLOTS_MAX: usize = 1 << 14;

impl<'i> CodeCache<'i> {
    /// Makes a cache for attribution, which looks up frames of every sample.
    pub(crate) fn new(map: &'i CodeMap) -> CodeCache<'i> {
        CodeCache::with_slots(map, SLOTS_MAX)
    }

    /// Makes a cache for a sink.
    pub(crate) fn for_sink(map: &'i CodeMap) -> CodeCache<'i> {
        CodeCache::with_slots(map, SINK_SLOTS_MAX)
    }

    fn with_slots(map: &'i CodeMap, most: usize) -> CodeCache<'i> {
        let slots = (map.compiled.len() * SLOTS_PER_CELL).clamp(SLOTS_MIN, most).next_power_of_two();
        // An empty time range, from 1 to 0: the slot never matches.
        let none = CacheSlot { frame: KernelFrame { addr: 0, is_exact: false }, moments: (1, 0), code: Code::PLAIN };
        CodeCache { map, slots: vec![none; slots].into(), shift: u64::BITS - slots.ilog2() }
    }

    /// Returns the code of a frame, cached or looked up.
    #[inline]
    pub(crate) fn of_frame(&mut self, frame: KernelFrame, time_ns: u64) -> Code {
        let at = frame.addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        let slot = &mut self.slots[at as usize];
        if slot.frame != frame || time_ns < slot.moments.0 || slot.moments.1 < time_ns {
            fill(slot, self.map, frame, time_ns);
        }
        slot.code
    }
}

#[inline(never)]
fn fill(slot: &mut CacheSlot, map: &CodeMap, frame: KernelFrame, time_ns: u64) {
    let (code, moments) = map.of_frame(frame, time_ns);
    *slot = CacheSlot { frame, moments, code };
}

#[cfg(test)]
mod tests;
