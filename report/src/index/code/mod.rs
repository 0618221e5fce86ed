//! The kernel's address space, compiled: what code is at an address at a time. Everyone asks here: attribution, hooks, trees, stacks, exports, listings.
//!
//! At the end of the first pass all that a recording says of code is cut into [`Cells`]: stretches of addresses that each have a list of answers by
//! time (`compile`). What has no lifetime, functions of the kernel, is found by one interval search below them.

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
    /// A function of a program, by their numbers.
    Function { program: u32, function: u32 },
    /// A trampoline, dispatcher or struct_ops stub, by its number. What it runs is asked of [`super::hooks::Hooks::of_image`].
    Image(u32),
    /// The kernel's own: the number of the function, if the recording names it, and what it is to BPF programs.
    Kernel { function: Option<u32>, role: Role },
    /// In no function that is known, where BPF code can be.
    Unknown,
}

impl Code {
    /// Kernel code that is nothing special.
    pub(crate) const PLAIN: Code = Code::Kernel { function: None, role: Role::Plain };

    /// Entry of the interpreter, which runs programs without machine code.
    pub(crate) const INTERPRETER: Code = Code::Kernel { function: None, role: Role::Interpreter };

    /// Returns true if it has a name.
    pub(crate) fn is_named(self) -> bool {
        !matches!(self, Code::Kernel { function: None, .. } | Code::Unknown)
    }

    /// The number of the kernel function.
    pub(crate) fn kernel_function(self) -> Option<u32> {
        if let Code::Kernel { function, .. } = self { function } else { None }
    }

    /// Returns true if it is a program's, or exists to run programs.
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
    /// The address as the sample has it.
    pub(crate) addr: u64,
    /// The processor was at the address. Otherwise a call returns to it.
    pub(crate) is_exact: bool,
}

impl KernelFrame {
    /// An address in the instruction that ran: a call ends before its return address, which may be the next function's.
    #[inline]
    pub(crate) fn code_addr(self) -> u64 {
        if self.is_exact { self.addr } else { self.addr.wrapping_sub(1) }
    }
}

/// The kernel's address space.
#[derive(Debug, Default)]
pub(crate) struct CodeMap {
    compiled: Compiled,
    /// Pages of these and of the kernel's functions that run programs, and of the byte before each: see [`PlainTest`].
    pages: PageFilter,
    area: Area,
    /// Functions of the kernel that the recording names.
    pub(crate) kernel: KernelSymbols,
    /// The kernel's text and its modules.
    pub(crate) maps: KernelMaps,
}

/// Range in which BPF code can be; empty if that is not known.
#[derive(Debug, Clone, Copy, Default)]
struct Area {
    low: u64,
    bytes: u64,
}

/// Packs of programs are allocated in units of this size: around known code there may be other of its kind.
const PACK_BYTES: u64 = 2 << 20;

impl CodeMap {
    /// `ranges` are those of programs, images and what else the side band announces.
    pub(crate) fn new(ranges: Vec<Range>, kernel: KernelSymbols, maps: KernelMaps) -> CodeMap {
        let announced = ranges.iter().filter(|range| range.is_any()).map(|range| (range.start, range.end));
        let spans = announced.chain(maps.module_area());
        let area = spans.reduce(|(low, high), (start, end)| (low.min(start), high.max(end)));
        // Without the kernel's maps nothing can be told from code that is not accounted for.
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

    /// A quick test for plain code.
    #[inline]
    pub(crate) fn plain_test(&self) -> PlainTest<'_> {
        PlainTest { pages: self.pages.bits(), area: self.area }
    }

    /// The code at an address at a time.
    pub(crate) fn at(&self, addr: u64, time_ns: u64) -> Code {
        self.resolved(self.compiled.at(addr, time_ns).0, addr)
    }

    /// The code of a frame at a time, and for which moments it is that. A return address is behind the call, so that the byte before is asked
    /// for. Below an interrupt the address is where the program was, which may be its first.
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

/// Tells quickly that a frame at an address can be nothing but plain code of the kernel, whether the address is exact or one that a call
/// returns to. Most are.
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

/// Codes of frames as one thread meets them: samples meet the same ones again and again. Of addresses with one hash the last is remembered.
#[derive(Debug)]
pub(crate) struct CodeCache<'i> {
    map: &'i CodeMap,
    /// By hash. Their number is a power of two.
    slots: Box<[Slot]>,
    /// Number of bits that a hash is shifted by to be a position among them.
    shift: u32,
}

#[derive(Debug, Clone)]
struct Slot {
    frame: KernelFrame,
    moments: Moments,
    code: Code,
}

/// Number of addresses that are remembered for each cell, and limits on their number.
const SLOTS_PER_CELL: usize = 2;
const SLOTS_MIN: usize = 1 << 12;
const SLOTS_MAX: usize = 1 << 16;
/// Limit on addresses that a sink remembers beside the attribution: it meets fewer.
const SINK_SLOTS_MAX: usize = 1 << 14;

impl<'i> CodeCache<'i> {
    /// A cache for attribution, which every sample asks.
    pub(crate) fn new(map: &'i CodeMap) -> CodeCache<'i> {
        CodeCache::with_slots(map, SLOTS_MAX)
    }

    /// A cache for a sink, beside that of the attribution.
    pub(crate) fn for_sink(map: &'i CodeMap) -> CodeCache<'i> {
        CodeCache::with_slots(map, SINK_SLOTS_MAX)
    }

    fn with_slots(map: &'i CodeMap, most: usize) -> CodeCache<'i> {
        let slots = (map.compiled.len() * SLOTS_PER_CELL).clamp(SLOTS_MIN, most).next_power_of_two();
        // No moment is at or behind 1 and at or before 0.
        let none = Slot { frame: KernelFrame { addr: 0, is_exact: false }, moments: (1, 0), code: Code::PLAIN };
        CodeCache { map, slots: vec![none; slots].into(), shift: u64::BITS - slots.ilog2() }
    }

    /// The code of a frame, as remembered or looked up.
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
fn fill(slot: &mut Slot, map: &CodeMap, frame: KernelFrame, time_ns: u64) {
    let (code, moments) = map.of_frame(frame, time_ns);
    *slot = Slot { frame, moments, code };
}

#[cfg(test)]
mod tests;
