//! The ledger: every sample is charged once.
//!
//! A sample belongs to the innermost program of its kernel call chain, as `self` (the leaf is in the program's own code),
//! `helper` (it is in kernel code that the program called, or in an interrupt that came while it ran) or `entry` (it is in
//! the code that exists to run the program). Programs further out get it in `total`, as does the one that is charged. A
//! chain that has no program but looks as if there should be one goes to a line of its own.

use crate::index::Index;
use crate::index::code::{Code, CodeCache, KernelFrame};
use crate::index::images::{ImageKind, TrampolineKey};
use crate::index::kernel::Role;
use crate::index::runners::Runner;
use crate::pass::frames::{kernel_frames, kernel_words, words_of_leaf};

use bprec_format::{CONTEXT_MAX, Callchain, Endian, context};

/// Columns of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The program's own code.
    Own,
    /// Code that it called.
    Helper,
    /// Code that runs it.
    Entry,
}

/// Attribution of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// To no program.
    Elsewhere,
    /// To a program.
    Program {
        /// Its number in the index.
        program: u32,
        /// The function that ran; `None` when the sample is in what runs the program.
        function: Option<u32>,
        /// Column of the ledger.
        column: Column,
        /// The frame that the program called.
        called: Option<u64>,
    },
    /// To what runs several programs, which share it: [`Attribution::sharers`].
    SharedEntry {
        /// The group of the programs, by its number in the index.
        group: u32,
        /// Number of further programs that may be on the hook: their attach points are unknown.
        strangers: u32,
        /// Number of the interval between two readings of run statistics, if it was in one.
        interval: Option<u32>,
    },
    /// To what runs programs, no telling which.
    Entry,
    /// To a program that the interpreter ran.
    Interpreted,
    /// To no known program: to code that nothing accounts for, where BPF code could be.
    UnknownCode,
}

/// Attribution of a sample, and the programs that its chain goes through.
#[derive(Debug, Clone, Copy)]
pub struct Attribution<'a> {
    /// Place where the sample is charged.
    pub charge: Charge,
    inside: &'a Inside,
    index: &'a Index,
}

impl Attribution<'_> {
    /// Numbers of the programs that share a [`Charge::SharedEntry`]; none of any other charge. Which of them ran is not known.
    pub fn sharers(&self) -> &[u32] {
        match self.charge {
            Charge::SharedEntry { group, .. } => {
                self.index.hooks.groups().get(group as usize).map_or(&[], |group| &group.programs)
            }
            _ => &[],
        }
    }

    /// Numbers of the programs that the chain goes through, each once, innermost first.
    pub fn programs(&self) -> &[u32] {
        &self.inside.programs
    }

    /// Address in the function that is charged: of the leaf, or of the frame, where a call returns to or an interrupt
    /// came; `None` where no function of a program is charged.
    pub fn frame(&self) -> Option<u64> {
        self.inside.frame
    }

    /// Number of frames of the chain in functions of programs.
    pub(crate) fn program_frames(&self) -> usize {
        self.inside.program_frames
    }

    /// Program and function of each frame that is in a program, each once, innermost first.
    pub fn functions(&self) -> &[(u32, u32)] {
        &self.inside.functions
    }

    /// True if the chain goes through a program that runs under the kernel's guard.
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        self.functions().iter().any(|(program, _)| self.index.guarded.get(*program as usize) == Some(&true))
    }
}

/// Programs that a chain goes through, each once, innermost first.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    programs: Vec<u32>,
    functions: Vec<(u32, u32)>,
    /// Frames that are in these.
    program_frames: usize,
    /// The innermost frame that is in a program, where that is charged.
    frame: Option<u64>,
}

impl Inside {
    /// Programs do not nest deeper than this; a chain that says so is from no kernel.
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

/// Decides where samples belong.
pub(crate) struct Attributor<'i> {
    index: &'i Index,
    codes: CodeCache<'i>,
    /// Programs of the last chain.
    inside: Inside,
}

impl<'i> Attributor<'i> {
    pub(crate) fn new(index: &'i Index) -> Attributor<'i> {
        Attributor { index, codes: CodeCache::new(&index.code), inside: Inside::default() }
    }

    /// The attribution on a sample whose leaf in the kernel is `leaf`, if it was there, and whose chain is `chain`.
    #[inline]
    pub(crate) fn attribution(
        &mut self,
        leaf: Option<u64>,
        chain: Option<Callchain<'_>>,
        time_ns: u64,
    ) -> Attribution<'_> {
        self.inside.clear();
        let charge = match leaf {
            // In parts, which are in registers: what is put together in memory and read at once is waited for.
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
        // An address in the instruction that ran, or that called what did.
        let mut inner = leaf;
        let mut words = kernel_words(&chain);
        // Nearly all chains begin with the leaf; they are walked once.
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

    /// Charges a chain inside `perf_trace_X`, which fills an event's fields, but not inside its BPF dispatch: to the
    /// programs on X, if it has any.
    fn event(&mut self, leaf: u64, chain: Option<Callchain<'_>>, time_ns: u64) -> Charge {
        let index = self.index;
        match index.hooks.of_event(self.functions(leaf, &chain, time_ns), time_ns) {
            Some(hook) => self.entry(Some(hook), None, time_ns),
            None => Charge::Elsewhere,
        }
    }

    /// The attribution on a chain through a hook: its functions lead to one, which says whose it is.
    fn hook(&mut self, leaf: u64, chain: Option<Callchain<'_>>, time_ns: u64) -> Charge {
        let index = self.index;
        match index.hooks.of(self.functions(leaf, &chain, time_ns)) {
            None => self.entry(None, None, time_ns),
            Some(hook) => match index.hooks.at_user_ip(hook, user_ip(&chain)) {
                // A probe of somebody else's, without a program.
                None => Charge::Elsewhere,
                hook => self.entry(hook, None, time_ns),
            },
        }
    }

    /// Numbers of the kernel functions of a chain, innermost first.
    fn functions<'s>(
        &'s mut self,
        leaf: u64,
        chain: &Option<Callchain<'s>>,
        time_ns: u64,
    ) -> impl Iterator<Item = u32> + use<'s, 'i> {
        let frames = kernel_frames(self.index, leaf, chain, time_ns);
        frames.filter_map(move |frame| self.codes.of_frame(frame, time_ns).kernel_function())
    }

    /// The attribution on what a hook does for its programs.
    fn entry(&mut self, hook: Option<u32>, called: Option<u64>, time_ns: u64) -> Charge {
        match hook.map_or(Runner::Unknown, |hook| self.index.hooks.runner(hook, time_ns)) {
            Runner::One(program) => {
                self.inside.add(program, None);
                Charge::Program { program, function: None, column: Column::Entry, called }
            }
            Runner::Several { group, strangers } => {
                let interval = self.index.runs.interval(time_ns);
                Charge::SharedEntry { group, strangers, interval }
            }
            Runner::Unknown => Charge::Entry,
        }
    }

    /// Goes one frame out. `called` is the frame before, which this one called; `None` for the leaf.
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
                let column = if called.is_some() { Column::Helper } else { Column::Own };
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

    /// A frame in an image. The image also calls what it instruments: only what it does for its programs is entry.
    fn image(&mut self, clue: Clue, image: u32, called: Option<u64>, time_ns: u64) -> Walked {
        let for_programs = match (called, self.index.programs.images[image as usize].kind) {
            (None, _) => true,
            // A trampoline of a program: the program would have been met before it.
            (Some(_), ImageKind::Trampoline(TrampolineKey::Program { .. })) => true,
            (Some(called), ImageKind::Trampoline(TrampolineKey::Kernel { .. })) => {
                self.index.code.kernel.role_at(called) == Role::Guard
            }
            // It calls nothing but what enters and leaves the program, and that.
            (Some(_), ImageKind::StructOps) => true,
            (Some(_), ImageKind::Dispatcher) => false,
        };
        if !for_programs {
            return Walked::Open(clue);
        }
        Walked::Settled(self.entry(self.index.hooks.of_image(image), called, time_ns))
    }
}

/// Address in user space at which the task came into the kernel, if the chain says so.
fn user_ip(chain: &Option<Callchain<'_>>) -> Option<u64> {
    let mut words = chain.as_ref()?.iter().skip_while(|word| *word != context::USER);
    words.nth(1).filter(|word| *word < CONTEXT_MAX)
}

/// Progress of a walk through the frames of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walked {
    /// No program yet.
    Open(Clue),
    /// The attribution.
    Settled(Charge),
}

/// Clue that decides the attribution of a sample, unless a frame further out is a program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clue {
    Elsewhere,
    UnknownCode,
    /// It is in what makes an event, for programs or for others.
    Event,
    /// It is in what runs programs.
    Hook,
}

#[cfg(test)]
mod tests;
