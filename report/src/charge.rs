//! The ledger: every sample is charged once.
//!
//! A sample belongs to the innermost program of its kernel call chain, as `self` (the leaf is in the program's own code),
//! `helper` (it is in kernel code that the program called, or in an interrupt that came while it ran) or `entry` (it is in
//! the code that exists to run the program). Programs further out get it in `total`, as does the one that is charged. A
//! chain that has no program but looks as if there should be one goes to a line of its own.

use crate::address::Owner;
use crate::index::Index;
use crate::programs::{ImageKind, TrampolineKey};
use crate::symbols::Kind;
use bprec_format::{CONTEXT_MAX, Callchain, context};

/// Columns of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// The program's own code.
    Own,
    /// What it called.
    Helper,
    /// What runs it.
    Entry,
}

/// Where a sample belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribution {
    /// To no program.
    Elsewhere,
    /// To a program.
    Program {
        program: u32,
        /// The function that ran; `None` when the sample is in what runs the program.
        function: Option<u32>,
        column: Column,
        /// The frame that the program called.
        called: Option<u64>,
    },
    /// To what runs programs, no telling which.
    Entry,
    /// To a program that the interpreter ran.
    Interpreted,
    /// To code that nothing accounts for, where BPF code would be.
    Unresolved,
}

/// What a chain goes through, each once, innermost first.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    pub(crate) programs: Vec<u32>,
    pub(crate) functions: Vec<(u32, u32)>,
}

impl Inside {
    /// Programs do not nest deeper than this; a chain that says so is from no kernel.
    const MAX: usize = 64;

    /// The programs that it goes through.
    pub(crate) fn programs(&self) -> &[u32] {
        &self.programs
    }

    fn clear(&mut self) {
        self.programs.clear();
        self.functions.clear();
    }

    fn add(&mut self, program: u32, function: Option<u32>) {
        if !self.programs.contains(&program) && self.programs.len() < Inside::MAX {
            self.programs.push(program);
        }
        if let Some(function) = function
            && !self.functions.contains(&(program, function))
            && self.functions.len() < Inside::MAX
        {
            self.functions.push((program, function));
        }
    }
}

/// Decides where samples belong.
pub(crate) struct Attributor<'i> {
    index: &'i Index,
    /// Where BPF code can be.
    area: Option<(u64, u64)>,
    /// Programs of the last chain.
    pub(crate) inside: Inside,
}

/// Packs of programs are allocated in units of this size: around known code there may be other of its kind.
const PACK_BYTES: u64 = 2 << 20;

impl<'i> Attributor<'i> {
    pub(crate) fn new(index: &'i Index) -> Attributor<'i> {
        // Without the kernel's maps nothing can be told from code that is not accounted for.
        let spans = index.kernel.module_area().into_iter().chain(index.bpf_span);
        let area = spans.reduce(|(low, high), (start, end)| (low.min(start), high.max(end)));
        let area = area.filter(|_| !index.kernel.is_empty());
        Attributor {
            index,
            area: area.map(|(low, high)| (low.saturating_sub(PACK_BYTES), high.saturating_add(PACK_BYTES))),
            inside: Inside::default(),
        }
    }

    /// The attribution on a sample whose leaf in the kernel is `leaf`, if it was there, and whose chain is `chain`.
    #[inline]
    pub(crate) fn attribution(&mut self, leaf: Option<u64>, chain: Option<Callchain<'_>>, time_ns: u64) -> Attribution {
        self.inside.clear();
        match leaf {
            Some(leaf) if !self.is_plain(leaf, chain) => self.walk(leaf, chain, time_ns),
            _ => Attribution::Elsewhere,
        }
    }

    /// Whether no frame can be anything but plain kernel code. Most samples end here.
    #[inline]
    fn is_plain(&self, leaf: u64, chain: Option<Callchain<'_>>) -> bool {
        let map = &self.index.map;
        let (low, len) = self.area.map_or((0, 0), |(low, high)| (low, high - low));
        // A return address is behind the call; the map's quick answer is for both.
        let plain = |addr: u64| !map.may_contain(addr.wrapping_sub(1)) && addr.wrapping_sub(low) >= len;
        plain(leaf)
            && chain.is_none_or(|chain| {
                chain.iter().take_while(|addr| *addr != context::USER).all(|addr| addr >= CONTEXT_MAX || plain(addr))
            })
    }

    /// Whether the last chain goes through a program that runs under the kernel's guard.
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        self.inside.functions.iter().any(|(program, _)| self.index.guarded.get(*program as usize) == Some(&true))
    }

    fn walk(&mut self, leaf: u64, chain: Option<Callchain<'_>>, time_ns: u64) -> Attribution {
        let mut found = self.frame(Found::Open(Attribution::Elsewhere), leaf, None, time_ns);
        let mut inner = leaf;
        for addr in outer_frames(&chain) {
            found = self.frame(found, addr, Some(inner), time_ns);
            // A return address may already be the next function's.
            inner = addr.wrapping_sub(1);
        }
        match found {
            // Only a hook leaves that open.
            Found::Open(Attribution::Entry) => self.hook(leaf, chain),
            Found::Settled(attribution) | Found::Open(attribution) => attribution,
        }
    }

    /// The attribution on a chain through a hook: the first function that leads to one place says whose it is.
    fn hook(&mut self, leaf: u64, chain: Option<Callchain<'_>>) -> Attribution {
        let index = self.index;
        let callers = outer_frames(&chain).map(|addr| addr.wrapping_sub(1));
        let mut functions = std::iter::once(leaf).chain(callers).filter_map(|addr| index.symbols.find(addr));
        match functions.find_map(|function| index.hooks.of(function)).flatten() {
            Some(program) => {
                self.inside.add(program, None);
                Attribution::Program { program, function: None, column: Column::Entry, called: None }
            }
            None => Attribution::Entry,
        }
    }

    /// Goes one frame out. `called` is the frame before, which this one called; `None` for the leaf.
    fn frame(&mut self, found: Found, addr: u64, called: Option<u64>, time_ns: u64) -> Found {
        let map = &self.index.map;
        let owner = match called {
            None => map.find(addr, time_ns),
            // A return address is behind the call, so that the byte before it is asked for. Below an interrupt it is the
            // address where the program was, which may be its first.
            Some(_) => map.find(addr.wrapping_sub(1), time_ns).or_else(|| map.find(addr, time_ns)),
        };
        match owner {
            None => match found {
                Found::Open(Attribution::Elsewhere) if self.is_unresolved(addr) => Found::Open(Attribution::Unresolved),
                _ => found,
            },
            Some(owner) => self.owned_frame(found, owner, called),
        }
    }

    fn owned_frame(&mut self, found: Found, owner: Owner, called: Option<u64>) -> Found {
        let Found::Open(line) = found else {
            if let Owner::Function { program, function } = owner {
                self.inside.add(program, Some(function));
            }
            return found;
        };
        match owner {
            Owner::Function { program, function } => {
                self.inside.add(program, Some(function));
                let column = if called.is_some() { Column::Helper } else { Column::Own };
                Found::Settled(Attribution::Program { program, function: Some(function), column, called })
            }
            Owner::Image(image) => self.image(line, image, called),
            Owner::Interpreter => Found::Settled(Attribution::Interpreted),
            Owner::Hook => Found::Open(Attribution::Entry),
            Owner::OutOfLine => found,
        }
    }

    /// A frame in an image. The image also calls what it instruments: only what it does for its programs is entry.
    fn image(&mut self, line: Attribution, image: u32, called: Option<u64>) -> Found {
        let image = &self.index.programs.images[image as usize];
        let for_programs = match (called, image.kind) {
            (None, _) => true,
            // What it instruments is a program, and would have been met before it.
            (Some(_), ImageKind::Trampoline(TrampolineKey::Program { .. })) => true,
            (Some(called), ImageKind::Trampoline(TrampolineKey::Kernel { .. })) => {
                self.index.symbols.kind_at(called) == Kind::Guard
            }
            (Some(_), ImageKind::Dispatcher | ImageKind::StructOps) => false,
        };
        if !for_programs {
            return Found::Open(line);
        }
        Found::Settled(match image.program {
            Some(program) => {
                self.inside.add(program, None);
                Attribution::Program { program, function: None, column: Column::Entry, called }
            }
            None => Attribution::Entry,
        })
    }

    /// Whether an address that belongs to nothing is where BPF code can be.
    fn is_unresolved(&self, addr: u64) -> bool {
        self.area.is_some_and(|(low, high)| (low..high).contains(&addr)) && self.index.kernel.find(addr).is_none()
    }
}

/// The kernel frames of a chain, the leaf left out.
fn outer_frames<'c>(chain: &'c Option<Callchain<'_>>) -> impl Iterator<Item = u64> + 'c {
    let words = chain.iter().flat_map(|chain| chain.iter());
    let kernel = words.skip_while(|word| *word != context::KERNEL).skip(1);
    kernel.take_while(|word| *word < CONTEXT_MAX).skip(1)
}

/// What is known of a sample when some of its frames have been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The attribution, unless a frame further out is a program's.
    Open(Attribution),
    /// The attribution.
    Settled(Attribution),
}

#[cfg(test)]
mod tests;
