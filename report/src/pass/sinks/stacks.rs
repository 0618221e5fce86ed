//! Call chains, counted: the same samples as the ledger's, by all that was on the stack.

use crate::index::Index;
use crate::index::address::Owner;
use crate::index::demangle::function_name;
use crate::input::recording::Recording;
use crate::model::{Count, Frame, FrameKind, FrameSource, Stack, StackSample, StackSamples, Stacks, ThreadSamples};
use crate::pass::attribution::Attribution;
use crate::pass::sinks::mappings::Mappings;
use crate::pass::{self, Asked, SampleView, Selection, Sink};
use crate::{Error, Options, Result};
use bprec_format::{CONTEXT_MAX, context, misc};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// What a frame is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    /// The task, outermost: number of its name, or the thread when it has none.
    Comm(u32),
    Thread(u32),
    /// A function of a program, by their numbers, and the address in it where that is kept, or else 0.
    Program(u32, u32, u64),
    Image(u32),
    /// A kernel function, by its number.
    Kernel(u32),
    /// An address in the kernel or a module.
    KernelAddr(u64),
    /// A function of a mapped file, by their numbers.
    Function(u32, u32),
    /// Somewhere in a mapped file, by its number.
    File(u32),
    /// Somewhere in user space.
    User,
}

impl Place {
    /// True if both are the same function.
    fn is_same_function(self, other: Place) -> bool {
        let function =
            |place| if let Place::Program(number, at, _) = place { Place::Program(number, at, 0) } else { place };
        function(self) == function(other)
    }
}

/// Facts of samples that are kept beside their call chains.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kept {
    /// Each sample with when it was taken, in which thread.
    pub(crate) samples: bool,
    /// Addresses in programs.
    pub(crate) addresses: bool,
}

/// An address in a function of a program: their numbers before it.
pub(crate) type CodeAddress = (u32, u32, u64);

/// Whose addresses those of a call chain are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Kernel,
    User,
}

/// The call chains of the first event that is asked for and has samples.
pub(crate) fn of(recording: &Recording<'_>, index: &Index, options: &Options) -> Result<Stacks> {
    let maps = Mappings::of(recording, &index.files);
    let selection = Selection { needs_comm: true, ..Selection::new(recording, index, options)? };
    let sink = StacksSink::new(index, &maps, selection.asked.clone(), Kept::default());
    let (sink, _) = pass::run(recording, index, &selection, sink, |_, _| {});
    Ok(sink.named(recording, &selection.events, options, &FxHashMap::default())?.stacks)
}

/// Counts call chains of one event: of the first that has samples.
pub(crate) struct StacksSink<'i> {
    index: &'i Index,
    maps: &'i Mappings<'i>,
    /// Programs that a chain has to go through one of, unless all are asked for.
    asked: Asked,
    /// The first event that has samples so far.
    event: Option<usize>,
    /// Outermost last; what each was counted with is in [`StacksSink::counts`].
    stacks: FxHashMap<Box<[Place]>, u32>,
    counts: Vec<Count>,
    kept: Kept,
    /// One by one, where that is asked for.
    samples: Vec<Taken>,
    /// Memory for the chain at hand.
    chain: Vec<Place>,
}

/// A sample, and its stack by the number that the sink gave it. In the order of threads and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Taken {
    pid: u32,
    tid: u32,
    time_ns: u64,
    offset: u64,
    comm: Option<u32>,
    stack: u32,
    count: Count,
}

impl<'i> StacksSink<'i> {
    pub(crate) fn new(index: &'i Index, maps: &'i Mappings<'i>, asked: Asked, kept: Kept) -> StacksSink<'i> {
        StacksSink {
            index,
            maps,
            asked,
            event: None,
            stacks: FxHashMap::default(),
            counts: Vec::new(),
            kept,
            samples: Vec::new(),
            chain: Vec::new(),
        }
    }

    /// Returns true if samples of an event are counted. Those of events behind it are dropped.
    fn takes(&mut self, event: usize) -> bool {
        if self.event.is_none_or(|first| event < first) {
            self.event = Some(event);
            self.stacks.clear();
            self.counts.clear();
            self.samples.clear();
        }
        self.event == Some(event)
    }

    /// Counts a stack. Its number.
    fn count(&mut self, chain: &[Place], count: Count) -> u32 {
        match self.stacks.get(chain) {
            Some(number) => {
                self.counts[*number as usize].merge(count);
                *number
            }
            None => {
                let number = self.counts.len() as u32;
                self.stacks.insert(chain.into(), number);
                self.counts.push(count);
                number
            }
        }
    }

    /// Puts the chain of a sample, innermost first, into [`StacksSink::chain`].
    fn walk(&mut self, sample: &SampleView<'_>) -> bprec_format::Result<()> {
        self.chain.clear();
        let (pid, time_ns) = (sample.pid_tid.0, sample.time_ns.unwrap_or(u64::MAX));
        let is_user = sample.record.misc & misc::CPUMODE_MASK == misc::USER;
        let leaf_space = if is_user { Space::User } else { Space::Kernel };
        let mut space = leaf_space;
        // Where the processor was; further out are return addresses, which are behind the call.
        let mut is_exact = true;
        let mut repeats_leaf = false;
        for word in sample.callchain()?.into_iter().flat_map(|chain| chain.iter()) {
            if word >= CONTEXT_MAX {
                space = match word {
                    context::KERNEL | context::GUEST_KERNEL | context::HV => Space::Kernel,
                    _ => Space::User,
                };
                is_exact = true;
                // What follows is no address, but tells which record has the rest.
                if word == context::USER_DEFERRED {
                    self.chain.push(Place::User);
                    break;
                }
                continue;
            }
            if (leaf_space, space) == (Space::User, Space::Kernel) {
                // A precise event was in user space, and its interrupt came in the kernel.
                continue;
            }
            repeats_leaf |= self.chain.is_empty() && sample.ip() == Some(word);
            let addr = if is_exact { word } else { word.wrapping_sub(1) };
            is_exact = false;
            self.chain.push(self.place(space, addr, pid, time_ns));
        }
        if let Some(ip) = sample.ip().filter(|_| !repeats_leaf) {
            self.set_leaf(self.place(leaf_space, ip, pid, time_ns));
        }
        self.chain.push(sample.comm.map_or(Place::Thread(sample.pid_tid.1), Place::Comm));
        Ok(())
    }

    /// Puts the leaf of a precise event in place of the chain's first frames that stand for it, as [`crate::pass::frames`] does.
    fn set_leaf(&mut self, leaf: Place) {
        let is_unnamed = |place: &Place| matches!(place, Place::KernelAddr(_));
        let is_function = matches!(leaf, Place::Program(..) | Place::Image(_) | Place::Kernel(_) | Place::Function(..));
        match self.chain.as_mut_slice() {
            [first, ..] if first.is_same_function(leaf) || is_unnamed(first) && is_unnamed(&leaf) => *first = leaf,
            [_, second, ..] if second.is_same_function(leaf) && is_function => {
                *second = leaf;
                self.chain.remove(0);
            }
            _ => self.chain.insert(0, leaf),
        }
    }

    fn place(&self, space: Space, addr: u64, pid: u32, time_ns: u64) -> Place {
        if space == Space::User {
            return match self.maps.find(pid, addr, time_ns) {
                Some((file, mapped)) => {
                    self.maps.function(file, mapped).map_or(Place::File(file), |number| Place::Function(file, number))
                }
                None => Place::User,
            };
        }
        match self.index.map.find(addr, time_ns) {
            Some(Owner::Function { program, function }) => {
                Place::Program(program, function, if self.kept.addresses { addr } else { 0 })
            }
            Some(Owner::Image(image)) => Place::Image(image),
            _ => self.index.symbols.find(addr).map_or(Place::KernelAddr(addr), Place::Kernel),
        }
    }

    /// Addresses in programs that stacks have.
    pub(crate) fn addresses(&self) -> BTreeSet<CodeAddress> {
        let places = self.stacks.keys().flatten();
        let in_programs = places.filter_map(|place| match *place {
            Place::Program(program, function, addr) => Some((program, function, addr)),
            _ => None,
        });
        in_programs.collect()
    }

    /// Names what was counted, with these lines.
    ///
    /// # Errors
    /// When none of `events` is asked for, by event.
    pub(crate) fn named(
        mut self,
        recording: &Recording<'_>,
        events: &[bool],
        options: &Options,
        lines: &FxHashMap<CodeAddress, FrameSource>,
    ) -> Result<StackSamples> {
        let event = self.event.or_else(|| events.iter().position(|is_asked| *is_asked));
        let no_event = || Error::option("--event", "", "the recording has no event that samples the CPUs");
        let event = event.ok_or_else(no_event)?;
        let mut names = Names::default();
        // Several places may have one name: an unknown address is one of its module's.
        let mut stacks: BTreeMap<Vec<u32>, (Count, Vec<u32>)> = BTreeMap::new();
        for (places, number) in &self.stacks {
            let frames = places.iter().rev().map(|place| names.number(*place, || self.name(*place, options, lines)));
            let (count, numbers) = stacks.entry(frames.collect()).or_default();
            count.merge(self.counts[*number as usize]);
            numbers.push(*number);
        }
        let (frames, order) = names.sorted();
        let mut stacks: Vec<(Stack, Vec<u32>)> = stacks
            .into_iter()
            .map(|(frames, (count, numbers))| {
                let frames = frames.into_iter().map(|number| order[number as usize]).collect();
                (Stack { frames, count }, numbers)
            })
            .collect();
        stacks.sort_by(|(a, _), (b, _)| a.frames.cmp(&b.frames));
        // By the sink's number of a stack: where it is now.
        let mut positions = vec![0; self.counts.len()];
        for (position, (_, numbers)) in (0..).zip(&stacks) {
            numbers.iter().for_each(|number| positions[*number as usize] = position);
        }
        let samples = std::mem::take(&mut self.samples);
        let threads = self.threads(samples, &positions);
        let stacks: Vec<Stack> = stacks.into_iter().map(|(stack, _)| stack).collect();
        let total = stacks.iter().map(|stack| stack.count).sum();
        let unit = self.index.unit(recording, event);
        let stacks = Stacks { event: recording.names[event].clone(), unit, total, frames, stacks };
        Ok(StackSamples { stacks, threads })
    }

    /// Samples by thread, each thread's in the order of time.
    fn threads(&self, mut samples: Vec<Taken>, positions: &[u32]) -> Vec<ThreadSamples> {
        samples.sort_unstable();
        let of_a_thread = samples.chunk_by(|a, b| (a.pid, a.tid) == (b.pid, b.tid));
        let threads = of_a_thread.map(|taken| ThreadSamples {
            pid: taken[0].pid,
            tid: taken[0].tid,
            name: taken.iter().rev().find_map(|sample| sample.comm).map(|comm| self.index.tasks.name(comm).to_owned()),
            samples: taken
                .iter()
                .map(|sample| StackSample {
                    time_ns: sample.time_ns,
                    stack: positions[sample.stack as usize],
                    count: sample.count,
                })
                .collect(),
        });
        threads.collect()
    }

    fn name(&self, place: Place, options: &Options, lines: &FxHashMap<CodeAddress, FrameSource>) -> Frame {
        let index = self.index;
        let frame = |name: String, kind| Frame { name, kind, source: None };
        match place {
            Place::Comm(number) => frame(index.tasks.name(number).to_owned(), FrameKind::Task),
            Place::Thread(tid) => frame(format!("[thread {tid}]"), FrameKind::Task),
            Place::Program(number, function, addr) => {
                let program = &index.programs.list[number as usize];
                let name = program.functions.get(function as usize).map_or("", |function| &function.name);
                let kind = FrameKind::Program {
                    id: program.id,
                    name: program.name().to_owned(),
                    prog_type: program.info.and_then(|info| info.prog_type),
                    tag: program.tag.map(bprec_format::bpf::Tag),
                };
                Frame { source: lines.get(&(number, function, addr)).cloned(), ..frame(name.to_owned(), kind) }
            }
            Place::Image(image) => frame(index.programs.images[image as usize].name.clone(), FrameKind::Image),
            Place::Kernel(number) => frame(index.symbols.name(number), FrameKind::Kernel),
            Place::KernelAddr(addr) => {
                let module = index.kernel.find(addr).map(|module| module.trim_matches(['[', ']']));
                frame(format!("[{}]", module.unwrap_or("kernel")), FrameKind::Kernel)
            }
            Place::Function(file, number) => {
                let kind = FrameKind::User { file: Some(self.maps.file(file).to_owned()) };
                frame(function_name(self.maps.function_name(file, number), options), kind)
            }
            Place::File(file) => {
                let path = self.maps.file(file);
                let name = path.rsplit('/').next().unwrap_or(path).trim_matches(['[', ']']);
                frame(format!("[{name}]"), FrameKind::User { file: Some(path.to_owned()) })
            }
            Place::User => frame("[unknown]".to_owned(), FrameKind::User { file: None }),
        }
    }
}

impl Sink for StacksSink<'_> {
    fn fork(&self) -> Self {
        StacksSink::new(self.index, self.maps, self.asked.clone(), self.kept)
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let is_asked = || attribution.programs().iter().any(|program| self.asked.has(*program));
        if self.event.is_some_and(|first| first < sample.event) || !self.asked.is_all() && !is_asked() {
            return Ok(());
        }
        self.takes(sample.event);
        self.walk(sample)?;
        let chain = std::mem::take(&mut self.chain);
        let stack = self.count(&chain, sample.count);
        self.chain = chain;
        if self.kept.samples {
            let ((pid, tid), time_ns) = (sample.pid_tid, sample.time_ns.unwrap_or(0));
            let (offset, comm, count) = (sample.offset, sample.comm, sample.count);
            self.samples.push(Taken { pid, tid, time_ns, offset, comm, stack, count });
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        if other.event.is_none_or(|event| !self.takes(event)) {
            return;
        }
        let mut numbers = vec![0; other.counts.len()];
        for (chain, number) in other.stacks {
            numbers[number as usize] = self.count(&chain, other.counts[number as usize]);
        }
        let samples = other.samples.into_iter();
        self.samples.extend(samples.map(|taken| Taken { stack: numbers[taken.stack as usize], ..taken }));
    }
}

/// Frames by number, each once.
#[derive(Default)]
struct Names {
    by_place: FxHashMap<Place, u32>,
    numbers: BTreeMap<Frame, u32>,
}

impl Names {
    fn number(&mut self, place: Place, name: impl FnOnce() -> Frame) -> u32 {
        *self.by_place.entry(place).or_insert_with(|| {
            let next = self.numbers.len() as u32;
            *self.numbers.entry(name()).or_insert(next)
        })
    }

    /// The frames in an order that does not depend on that of the samples, and what each number is in it.
    fn sorted(self) -> (Vec<Frame>, Vec<u32>) {
        let mut order = vec![0; self.numbers.len()];
        let mut frames = Vec::with_capacity(order.len());
        for (at, (frame, number)) in (0..).zip(self.numbers) {
            order[number as usize] = at;
            frames.push(frame);
        }
        (frames, order)
    }
}
