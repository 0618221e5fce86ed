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
use crate::{Charges, Count, Split};
use bprec_format::{CONTEXT_MAX, Callchain, context};
use rustc_hash::FxHashMap;

/// What a program's cost is split by: the part that a sample goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The program's own code.
    Code,
    /// What runs the program.
    Entry,
    /// A function of the program.
    Function(u32),
    /// Tasks of a name.
    Comm(u32),
    /// A thread whose name is not known.
    Thread(u32),
    /// A CPU.
    Cpu(u32),
    /// A cgroup.
    Cgroup(u64),
    /// A kernel function.
    Kernel(u32),
    /// It cannot be told.
    Unknown,
}

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
pub(crate) enum Verdict {
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

impl Charges {
    fn column(&mut self, column: Column) -> &mut Count {
        match column {
            Column::Own => &mut self.own,
            Column::Helper => &mut self.helper,
            Column::Entry => &mut self.entry,
        }
    }
}

/// The ledger of one event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventLedger {
    pub(crate) samples: Count,
    pub(crate) idle: Count,
    pub(crate) entry: Count,
    pub(crate) interpreted: Count,
    pub(crate) unresolved: Count,
    /// Of all samples, those in programs that run under the kernel's guard.
    pub(crate) guarded: Count,
    /// Counted in the kernel without room for where they were.
    pub(crate) overflow: Count,
    /// By program.
    pub(crate) programs: Vec<Charges>,
    /// By program and part.
    pub(crate) parts: FxHashMap<(u32, Key), Charges>,
    /// Time of the first and last sample.
    pub(crate) span: Option<(u64, u64)>,
    /// CPUs with samples, one bit each.
    pub(crate) cpus: Vec<u64>,
}

/// CPU numbers from here up are from no machine.
const MAX_CPUS: u32 = 1 << 16;

impl EventLedger {
    pub(crate) fn new(programs: usize) -> EventLedger {
        EventLedger { programs: vec![Charges::default(); programs], ..EventLedger::default() }
    }

    /// Counts a sample, or several that one record stands for, whosever they are.
    #[inline]
    pub(crate) fn sample(&mut self, count: Count, time_ns: Option<u64>, cpu: Option<u32>) {
        self.samples.merge(count);
        if let Some(time) = time_ns {
            let (first, last) = self.span.get_or_insert((time, time));
            *first = (*first).min(time);
            *last = (*last).max(time);
        }
        if let Some(cpu) = cpu.filter(|cpu| *cpu < MAX_CPUS) {
            let word = cpu as usize / 64;
            if word >= self.cpus.len() {
                self.cpus.resize(word + 1, 0);
            }
            self.cpus[word] |= 1 << (cpu % 64);
        }
    }

    /// Charges a sample, or several that one record stands for. `part` is where in the split of the program the charge goes.
    pub(crate) fn charge(&mut self, verdict: Verdict, count: Count, inside: &Inside, split: Option<Split>, part: Key) {
        match verdict {
            Verdict::Elsewhere => {}
            Verdict::Entry => self.entry.merge(count),
            Verdict::Interpreted => self.interpreted.merge(count),
            Verdict::Unresolved => self.unresolved.merge(count),
            Verdict::Program { program, column, .. } => {
                self.programs[program as usize].column(column).merge(count);
                if split.is_some() {
                    self.parts.entry((program, part)).or_default().column(column).merge(count);
                }
            }
        }
        for program in &inside.programs {
            self.programs[*program as usize].total.merge(count);
            if matches!(split, Some(Split::Comm | Split::Cpu | Split::Cgroup)) {
                self.parts.entry((*program, part)).or_default().total.merge(count);
            }
        }
        if split == Some(Split::Func) {
            for (program, function) in &inside.functions {
                self.parts.entry((*program, Key::Function(*function))).or_default().total.merge(count);
            }
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn merge(&mut self, other: EventLedger) {
        self.samples.merge(other.samples);
        self.idle.merge(other.idle);
        self.entry.merge(other.entry);
        self.interpreted.merge(other.interpreted);
        self.unresolved.merge(other.unresolved);
        self.guarded.merge(other.guarded);
        self.overflow.merge(other.overflow);
        for (mine, theirs) in self.programs.iter_mut().zip(&other.programs) {
            mine.merge(theirs);
        }
        for (key, theirs) in other.parts {
            self.parts.entry(key).or_default().merge(&theirs);
        }
        self.span = match (self.span, other.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
        if self.cpus.len() < other.cpus.len() {
            self.cpus.resize(other.cpus.len(), 0);
        }
        for (mine, theirs) in self.cpus.iter_mut().zip(&other.cpus) {
            *mine |= theirs;
        }
    }
}

/// What a chain goes through, each once, innermost first.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    programs: Vec<u32>,
    functions: Vec<(u32, u32)>,
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
pub(crate) struct Judge<'i> {
    index: &'i Index,
    /// Where BPF code can be.
    area: Option<(u64, u64)>,
    /// Programs of the last chain.
    pub(crate) inside: Inside,
}

/// Packs of programs are allocated in units of this size: around known code there may be other of its kind.
const PACK_BYTES: u64 = 2 << 20;

impl<'i> Judge<'i> {
    pub(crate) fn new(index: &'i Index) -> Judge<'i> {
        // Without the kernel's maps nothing can be told from code that is not accounted for.
        let spans = index.kernel.module_area().into_iter().chain(index.bpf_span);
        let area = spans.reduce(|(low, high), (start, end)| (low.min(start), high.max(end)));
        let area = area.filter(|_| !index.kernel.is_empty());
        Judge {
            index,
            area: area.map(|(low, high)| (low.saturating_sub(PACK_BYTES), high.saturating_add(PACK_BYTES))),
            inside: Inside::default(),
        }
    }

    /// The verdict on a sample whose leaf in the kernel is `leaf`, if it was there, and whose chain is `chain`.
    #[inline]
    pub(crate) fn verdict(&mut self, leaf: Option<u64>, chain: Option<Callchain<'_>>, time_ns: u64) -> Verdict {
        self.inside.clear();
        match leaf {
            Some(leaf) if !self.is_plain(leaf, chain) => self.walk(leaf, chain, time_ns),
            _ => Verdict::Elsewhere,
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

    fn walk(&mut self, leaf: u64, chain: Option<Callchain<'_>>, time_ns: u64) -> Verdict {
        let mut found = self.frame(Found::Open(Verdict::Elsewhere), leaf, None, time_ns);
        let mut inner = leaf;
        for addr in outer_frames(&chain) {
            found = self.frame(found, addr, Some(inner), time_ns);
            // A return address may already be the next function's.
            inner = addr.wrapping_sub(1);
        }
        match found {
            // Only a hook leaves that open.
            Found::Open(Verdict::Entry) => self.hook(leaf, chain),
            Found::Settled(verdict) | Found::Open(verdict) => verdict,
        }
    }

    /// The verdict on a chain through a hook: the first function that leads to one place says whose it is.
    fn hook(&mut self, leaf: u64, chain: Option<Callchain<'_>>) -> Verdict {
        let index = self.index;
        let callers = outer_frames(&chain).map(|addr| addr.wrapping_sub(1));
        let mut functions = std::iter::once(leaf).chain(callers).filter_map(|addr| index.symbols.find(addr));
        match functions.find_map(|function| index.hooks.of(function)).flatten() {
            Some(program) => {
                self.inside.add(program, None);
                Verdict::Program { program, function: None, column: Column::Entry, called: None }
            }
            None => Verdict::Entry,
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
                Found::Open(Verdict::Elsewhere) if self.is_unresolved(addr) => Found::Open(Verdict::Unresolved),
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
                Found::Settled(Verdict::Program { program, function: Some(function), column, called })
            }
            Owner::Image(image) => self.image(line, image, called),
            Owner::Interpreter => Found::Settled(Verdict::Interpreted),
            Owner::Hook => Found::Open(Verdict::Entry),
            Owner::OutOfLine => found,
        }
    }

    /// A frame in an image. The image also calls what it instruments: only what it does for its programs is entry.
    fn image(&mut self, line: Verdict, image: u32, called: Option<u64>) -> Found {
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
                Verdict::Program { program, function: None, column: Column::Entry, called }
            }
            None => Verdict::Entry,
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
    /// The verdict, unless a frame further out is a program's.
    Open(Verdict),
    /// The verdict.
    Settled(Verdict),
}

#[cfg(test)]
mod tests;
