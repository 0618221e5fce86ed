//! Attribution: every sample is charged once.
//!
//! A sample is charged to the innermost program of its kernel call chain, as `self` (the leaf is in the program's own code), `helper` (the leaf is in
//! kernel code that the program called, or in an interrupt that came while it ran) or `entry` (the leaf is in code that exists to run the program).
//! The charged program and those further out count the sample in `total`. A chain that has no program, but has a frame in BPF entry
//! code or in unknown code, is charged to a separate line of the report.

use crate::index::Index;
use crate::index::code::{Code, CodeCache, KernelFrame};
use crate::index::images::{ImageKind, TrampolineKey};
use crate::index::kernel::Role;
use crate::index::runners::Runner;
use crate::pass::frames::{kernel_frames, kernel_words, words_of_leaf};

use bprec_format::{CONTEXT_MAX, Callchain, Endian, context};

/// Columns into which the samples of a program are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargeColumn {
    /// The program's own code.
    Own,
    /// Code that the program called.
    Helper,
    /// Code that runs the program.
    Entry,
}

/// Program, or other line of the report, that a sample is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// No program.
    Elsewhere,
    /// A program.
    Program {
        /// Number of the program in the index.
        program: u32,
        /// Function that ran; `None` if the sample is in code that runs the program.
        function: Option<u32>,
        /// Column that the sample counts in.
        column: ChargeColumn,
        /// Address in the next inner frame: in code that the charged code called, or in an interrupt that came while the charged code ran. `None` if
        /// the charged code is the leaf, or if the frame is unknown.
        called: Option<u64>,
    },
    /// Entry code of a hook with several programs, which share the cost: [`Attribution::sharers`].
    SharedEntry {
        /// Number of the group of programs in the index.
        group: u32,
        /// Number of further programs that may be on the hook: their attach points are unknown.
        strangers: u32,
        /// Number of the interval between two readings of run statistics, if the sample is in such an interval.
        interval: Option<u32>,
    },
    /// Entry code of unknown programs.
    Entry,
    /// An unknown program that the interpreter ran.
    Interpreted,
    /// Unknown code at an address where BPF code can be.
    UnknownCode,
}

/// Attribution of a sample, and the programs that its chain goes through.
#[derive(Debug, Clone, Copy)]
pub struct Attribution<'a> {
    /// Charge of the sample.
    pub charge: Charge,
    inside: &'a Inside,
    index: &'a Index,
}

impl Attribution<'_> {
    /// Numbers of the programs that share a [`Charge::SharedEntry`]; empty for any other charge.
    pub fn sharers(&self) -> &[u32] {
        match self.charge {
            Charge::SharedEntry { group, .. } => {
                self.index.hooks.groups().get(group as usize).map_or(&[], |group| &group.programs)
            }
            _ => &[],
        }
    }

    /// Numbers of the programs in the chain, each once, innermost first.
    pub fn programs(&self) -> &[u32] {
        &self.inside.programs
    }

    /// Address in the charged function: the leaf, the return address of the call that led to the leaf, or the address at which an interrupt came.
    /// `None` if no function is charged.
    pub fn frame(&self) -> Option<u64> {
        self.inside.frame
    }

    /// Number of frames in functions of programs.
    pub(crate) fn program_frames(&self) -> usize {
        self.inside.program_frames
    }

    /// Program and function of each frame in a program, each once, innermost first.
    pub fn functions(&self) -> &[(u32, u32)] {
        &self.inside.functions
    }

    /// Returns true if the chain has a program that runs under the kernel's guard against nesting.
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        self.functions().iter().any(|(program, _)| self.index.guarded.get(*program as usize) == Some(&true))
    }
}

/// Programs and functions of a chain, each once, innermost first.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    programs: Vec<u32>,
    functions: Vec<(u32, u32)>,
    /// Number of frames in functions of programs.
    program_frames: usize,
    /// Address of the innermost frame in a program, if that frame is charged.
    frame: Option<u64>,
}

impl Inside {
    /// Limit on the programs, and on the functions, of a chain: no kernel nests that many. Further programs and functions are left out.
    const MAX: usize = 64;

    fn clear(&mut self) {
        self.programs.clear();
        self.functions.clear();
        self.program_frames = 0;
        self.frame = None;
    }

    fn add(&mut self, program: u32, function: Option<u32>) {
        if !self.programs.contains(&program) && self.programs.len() < Inside::MAX {
            self.programs.push(program);
        }
        if let Some(function) = function {
            self.program_frames += 1;
            if !self.functions.contains(&(program, function)) && self.functions.len() < Inside::MAX {
                self.functions.push((program, function));
            }
        }
    }
}

/// Attributes samples to programs.
pub(crate) struct Attributor<'i> {
    index: &'i Index,
    codes: CodeCache<'i>,
    /// Programs of the latest chain.
    inside: Inside,
}

impl<'i> Attributor<'i> {
    pub(crate) fn new(index: &'i Index) -> Attributor<'i> {
        Attributor { index, codes: CodeCache::new(&index.code), inside: Inside::default() }
    }

    /// Returns the attribution of a sample with this chain. `leaf` is the sample's address; `None` for a sample outside of the kernel.
    #[inline]
    pub(crate) fn attribution(
        &mut self,
        leaf: Option<u64>,
        chain: Option<Callchain<'_>>,
        time_ns: u64,
    ) -> Attribution<'_> {
        self.inside.clear();
        let charge = match leaf {
            // `walk` gets the bytes and byte order of the chain instead of a `Callchain`, so that they stay in registers. A `Callchain` would be
            // written to memory just before `walk` reads it, and the CPU would wait for it.
            Some(leaf) => match chain {
                Some(chain) => self.walk(leaf, chain.bytes(), chain.endian(), time_ns),
                None => self.walk(leaf, &[], Endian::NATIVE, time_ns),
            },
            None => Charge::Elsewhere,
        };
        Attribution { charge, inside: &self.inside, index: self.index }
    }

    #[inline]
    fn walk(&mut self, leaf: u64, words: &[u8], endian: Endian, time_ns: u64) -> Charge {
        let chain = Some(Callchain::new(words, endian));
        let test = self.index.code.plain_test();
        let is_plain = |addr: u64| test.is_plain(addr);
        let mut found = Walked::Open(Clue::Elsewhere);
        if !is_plain(leaf) {
            found = self.frame(found, KernelFrame { addr: leaf, is_exact: true }, None, time_ns);
        }
        // Address in the next inner frame: of the instruction that ran, or of the call instruction.
        let mut inner = leaf;
        let mut words = kernel_words(&chain);
        // Nearly all chains begin with the leaf's address. If a chain does not, its addresses in the leaf's own frame are skipped.
        if words.next().is_some_and(|first| first != leaf) {
            let skipped = words_of_leaf(self.index, leaf, &chain, time_ns);
            words = kernel_words(&chain);
            words.by_ref().take(skipped).for_each(drop);
            if skipped == 0
                && let Some(first) = words.next()
            {
                if !is_plain(first) {
                    found = self.frame(found, KernelFrame { addr: first, is_exact: true }, Some(inner), time_ns);
                }
                inner = first;
            }
        }
        for addr in words {
            if !is_plain(addr) {
                found = self.frame(found, KernelFrame { addr, is_exact: false }, Some(inner), time_ns);
            }
            inner = addr.wrapping_sub(1);
        }
        match found {
            Walked::Settled(charge) => charge,
            Walked::Open(Clue::Elsewhere) => Charge::Elsewhere,
            Walked::Open(Clue::UnknownCode) => Charge::UnknownCode,
            Walked::Open(Clue::Event) => self.event(leaf, chain, time_ns),
            Walked::Open(Clue::Hook) => self.hook(leaf, chain, time_ns),
        }
    }

    /// Charges a chain in `perf_trace_X`, which fills the fields of trace event X, to the programs on X, if any. A chain that also passes through
    /// code that runs programs is charged by `hook` instead.
    fn event(&mut self, leaf: u64, chain: Option<Callchain<'_>>, time_ns: u64) -> Charge {
        let index = self.index;
        match index.hooks.of_event(self.functions(leaf, &chain, time_ns), time_ns) {
            Some(hook) => self.entry(Some(hook), None, time_ns),
            None => Charge::Elsewhere,
        }
    }

    /// Charges a chain that passes through a hook. The kernel functions of the chain identify the hook.
    fn hook(&mut self, leaf: u64, chain: Option<Callchain<'_>>, time_ns: u64) -> Charge {
        let index = self.index;
        match index.hooks.of(self.functions(leaf, &chain, time_ns)) {
            None => self.entry(None, None, time_ns),
            Some(hook) => match index.hooks.at_user_ip(hook, user_ip(&chain)) {
                // No BPF program is on the user probe at this address.
                None => Charge::Elsewhere,
                hook => self.entry(hook, None, time_ns),
            },
        }
    }

    /// Returns the numbers of the kernel functions of a chain, innermost first.
    fn functions<'s>(
        &'s mut self,
        leaf: u64,
        chain: &Option<Callchain<'s>>,
        time_ns: u64,
    ) -> impl Iterator<Item = u32> + use<'s, 'i> {
        let frames = kernel_frames(self.index, leaf, chain, time_ns);
        frames.filter_map(move |frame| self.codes.of_frame(frame, time_ns).kernel_function())
    }

    /// Charges entry code of a hook to its programs.
    fn entry(&mut self, hook: Option<u32>, called: Option<u64>, time_ns: u64) -> Charge {
        match hook.map_or(Runner::Unknown, |hook| self.index.hooks.runner(hook, time_ns)) {
            Runner::One(program) => {
                self.inside.add(program, None);
                Charge::Program { program, function: None, column: ChargeColumn::Entry, called }
            }
            Runner::Several { group, strangers } => {
                let interval = self.index.runs.interval(time_ns);
                Charge::SharedEntry { group, strangers, interval }
            }
            Runner::Unknown => Charge::Entry,
        }
    }

    /// Processes the next frame outwards. `called` is an address in the next inner frame, which this frame called; `None` if this frame is the leaf.
    fn frame(&mut self, found: Walked, frame: KernelFrame, called: Option<u64>, time_ns: u64) -> Walked {
        let code = self.codes.of_frame(frame, time_ns);
        let Walked::Open(clue) = found else {
            if let Code::Function { program, function } = code {
                self.inside.add(program, Some(function));
            }
            return found;
        };
        match code {
            Code::Function { program, function } => {
                self.inside.add(program, Some(function));
                self.inside.frame = Some(frame.addr);
                let column = if called.is_some() { ChargeColumn::Helper } else { ChargeColumn::Own };
                Walked::Settled(Charge::Program { program, function: Some(function), column, called })
            }
            Code::Image(image) => self.image(clue, image, called, time_ns),
            Code::Kernel { role: Role::Interpreter, .. } => Walked::Settled(Charge::Interpreted),
            Code::Kernel { role: Role::Hook | Role::UserProbe, .. } => Walked::Open(Clue::Hook),
            Code::Kernel { role: Role::Event, .. } if clue == Clue::Elsewhere => Walked::Open(Clue::Event),
            Code::Unknown if clue == Clue::Elsewhere => Walked::Open(Clue::UnknownCode),
            Code::Kernel { .. } | Code::Unknown => found,
        }
    }

    /// Processes a frame in an image (trampoline, dispatcher or struct_ops stub). `called` is an address in the function that this frame called;
    /// `None` if this frame is the leaf. A trampoline also calls the kernel function that it instruments. Time in that function is not entry code, so
    /// the walk continues outward.
    fn image(&mut self, clue: Clue, image: u32, called: Option<u64>, time_ns: u64) -> Walked {
        let for_programs = match (called, self.index.programs.images[image as usize].kind) {
            (None, _) => true,
            // The trampoline instruments a function of a program. The walk has not met this function, so the trampoline called code for the attached
            // programs.
            (Some(_), ImageKind::Trampoline(TrampolineKey::Program { .. })) => true,
            (Some(called), ImageKind::Trampoline(TrampolineKey::Kernel { .. })) => {
                self.index.code.kernel.role_at(called) == Role::Guard
            }
            // A struct_ops stub calls only the program and the functions that enter and leave it.
            (Some(_), ImageKind::StructOps) => true,
            (Some(_), ImageKind::Dispatcher) => false,
        };
        if !for_programs {
            return Walked::Open(clue);
        }
        Walked::Settled(self.entry(self.index.hooks.of_image(image), called, time_ns))
    }
}

/// Returns the address in user space at which the task entered the kernel, if the chain has it.
pub(crate) fn user_ip(chain: &Option<Callchain<'_>>) -> Option<u64> {
    let mut words = chain.as_ref()?.iter().skip_while(|word| *word != context::USER);
    words.nth(1).filter(|word| *word < CONTEXT_MAX)
}

/// State of the walk through the frames of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walked {
    /// No program yet.
    Open(Clue),
    /// The charge is decided.
    Settled(Charge),
}

/// Clue to the charge, from the frames so far. Decides the charge if no frame further out is in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clue {
    Elsewhere,
    UnknownCode,
    /// A frame makes a trace event, for programs or for other users.
    Event,
    /// A frame runs programs.
    Hook,
}

#[cfg(test)]
mod tests;
