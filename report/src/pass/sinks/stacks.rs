//! Sink that counts call chains.

use crate::index::Index;
use crate::index::code::{Code, CodeCache, KernelFrame};
use crate::index::demangle::function_name;
use crate::input::recording::OpenRecording;
use crate::model::{Count, Frame, FrameKind, FrameSource, Stack, StackSample, StackSamples, Stacks, ThreadSamples};
use crate::pass::attribution::Attribution;
use crate::pass::sinks::timed::{EqualIntervals, TimedCounts};
use crate::pass::{self, Asked, SampleView, Selection, Sink};
use crate::{Error, Options, Result};
use bprec_format::{CONTEXT_MAX, context, misc};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Frame of a counted stack, by numbers and addresses. Names are looked up after the pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum StackFrame {
    /// Task, as the outermost frame: the number of its name, and the workload of its container if containers are kept.
    Comm(u32, Option<u32>),
    Thread(u32, Option<u32>),
    /// Code of the kernel or of a program that has a name. The second number is the address if the code is a program's and addresses are kept,
    /// otherwise 0.
    Code(Code, u64),
    /// Address in the kernel or a module.
    KernelAddr(u64),
    /// Numbers of a mapped file and of a function in it.
    Function(u32, u32),
    /// Number of a mapped file, without a function.
    File(u32),
    /// Unknown place in user space.
    User,
}

impl StackFrame {
    /// Returns true if both frames are in the same function.
    fn is_same_function(self, other: StackFrame) -> bool {
        let function = |frame| if let StackFrame::Code(code, _) = frame { StackFrame::Code(code, 0) } else { frame };
        function(self) == function(other)
    }
}

/// Details of samples that are kept beside their call chains.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptDetails {
    /// Time and thread of each sample.
    pub(crate) samples: bool,
    /// Addresses of frames in programs.
    pub(crate) addresses: bool,
    /// Container of each sample's task.
    pub(crate) containers: bool,
    /// Counts of stacks in these intervals.
    pub(crate) intervals: Option<EqualIntervals>,
}

/// Number of a program, number of one of its functions, and an address in the function.
pub(crate) type CodeAddress = (u32, u32, u64);

/// Numbers of a stack's frames, and the position of its container.
type FramesAndContainer = (Vec<u32>, Option<u32>);

/// Address space of a part of a call chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Kernel,
    User,
}

/// Counts the call chains of the first selected event that has samples.
pub(crate) fn of(recording: &OpenRecording<'_>, index: &Index, options: &Options) -> Result<Stacks> {
    let selection = Selection { needs_comm: true, ..Selection::new(recording, index, options)? };
    let sink = StacksSink::new(index, selection.asked.clone(), KeptDetails::default());
    let (sink, _) = pass::run(recording, index, &selection, sink, |_, _| {});
    Ok(sink.named(recording, &selection.events, options, &FxHashMap::default())?.stacks)
}

/// Counts the call chains of the first event that has samples.
pub(crate) struct StacksSink<'i> {
    index: &'i Index,
    codes: CodeCache<'i>,
    /// Requested programs. A chain counts if it contains one of these programs, or if all programs are requested.
    asked: Asked,
    /// The first event that has samples so far.
    event: Option<usize>,
    /// Number of each stack, as an index of [`StacksSink::counts`]. The outermost frame of a stack is last.
    stacks: FxHashMap<Box<[StackFrame]>, u32>,
    counts: Vec<Count>,
    kept: KeptDetails,
    /// Samples one by one, if they are kept.
    samples: Vec<Taken>,
    /// Counts by stack and interval, if they are kept.
    timed: TimedCounts,
    /// Buffer for the chain of the current sample.
    chain: Vec<StackFrame>,
}

/// A kept sample. `stack` is the sink's number of its stack. Sorts by thread and time.
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
    pub(crate) fn new(index: &'i Index, asked: Asked, kept: KeptDetails) -> StacksSink<'i> {
        StacksSink {
            index,
            codes: CodeCache::for_sink(&index.code),
            asked,
            event: None,
            stacks: FxHashMap::default(),
            counts: Vec::new(),
            kept,
            samples: Vec::new(),
            timed: TimedCounts::default(),
            chain: Vec::new(),
        }
    }

    /// Returns true if samples of this event are counted: no earlier event has samples so far. Drops the samples of later events.
    fn takes(&mut self, event: usize) -> bool {
        if self.event.is_none_or(|first| event < first) {
            self.event = Some(event);
            self.stacks.clear();
            self.counts.clear();
            self.samples.clear();
            self.timed = TimedCounts::default();
        }
        self.event == Some(event)
    }

    /// Counts a stack and returns its number.
    fn count(&mut self, chain: &[StackFrame], count: Count) -> u32 {
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

    /// Writes the chain of a sample, innermost first, into [`StacksSink::chain`].
    fn walk(&mut self, sample: &SampleView<'_>) -> bprec_format::Result<()> {
        self.chain.clear();
        let (pid, time_ns) = (sample.pid_tid.0, sample.time_ns.unwrap_or(u64::MAX));
        let is_user = sample.record.misc & misc::CPUMODE_MASK == misc::USER;
        let leaf_space = if is_user { Space::User } else { Space::Kernel };
        let mut space = leaf_space;
        // The leaf's address is exact. The addresses further out are return addresses, which point after the call.
        let mut is_exact = true;
        let mut repeats_leaf = false;
        for word in sample.callchain()?.into_iter().flat_map(|chain| chain.iter()) {
            if word >= CONTEXT_MAX {
                space = match word {
                    context::KERNEL | context::GUEST_KERNEL | context::HV => Space::Kernel,
                    _ => Space::User,
                };
                is_exact = true;
                // The rest of the chain is in another record. The next word is not an address but the cookie of that record.
                if word == context::USER_DEFERRED {
                    self.chain.push(StackFrame::User);
                    break;
                }
                continue;
            }
            if (leaf_space, space) == (Space::User, Space::Kernel) {
                // The sample is of a precise event and was in user space, but its interrupt came in the kernel. The kernel's frames do not belong to
                // the sample.
                continue;
            }
            repeats_leaf |= self.chain.is_empty() && sample.ip() == Some(word);
            let frame = self.frame(space, KernelFrame { addr: word, is_exact }, pid, time_ns);
            is_exact = false;
            self.chain.push(frame);
        }
        if let Some(ip) = sample.ip().filter(|_| !repeats_leaf) {
            let leaf = self.frame(leaf_space, KernelFrame { addr: ip, is_exact: true }, pid, time_ns);
            self.set_leaf(leaf);
        }
        // A sample with an unreadable cgroup stays in the profile without a container, so that all exports have the same samples.
        let container = if self.kept.containers { self.container(sample).unwrap_or_default() } else { None };
        let thread = StackFrame::Thread(sample.pid_tid.1, container);
        self.chain.push(sample.comm.map_or(thread, |comm| StackFrame::Comm(comm, container)));
        Ok(())
    }

    /// Returns the workload of a sample's task if it is a container or a pod.
    fn container(&self, sample: &SampleView<'_>) -> bprec_format::Result<Option<u32>> {
        let workloads = self.index.workloads();
        let workload = sample.cgroup()?.and_then(|cgroup| workloads.of_cgroup(cgroup));
        let is_container = |number: &u32| workloads.get(*number).is_some_and(|it| it.id.is_some() || it.pod.is_some());
        Ok(workload.filter(is_container))
    }

    /// Puts the leaf of a precise event in the place of the first frames, if these belong to the leaf's function, or else before them.
    /// [`crate::pass::frames`] has the rules.
    fn set_leaf(&mut self, leaf: StackFrame) {
        let is_unnamed = |frame: &StackFrame| matches!(frame, StackFrame::KernelAddr(_));
        let is_function = matches!(leaf, StackFrame::Code(..) | StackFrame::Function(..));
        match self.chain.as_mut_slice() {
            [first, ..] if first.is_same_function(leaf) || is_unnamed(first) && is_unnamed(&leaf) => *first = leaf,
            [_, second, ..] if second.is_same_function(leaf) && is_function => {
                *second = leaf;
                self.chain.remove(0);
            }
            _ => self.chain.insert(0, leaf),
        }
    }

    fn frame(&mut self, space: Space, frame: KernelFrame, pid: u32, time_ns: u64) -> StackFrame {
        if space == Space::User {
            return match self.index.user.find(pid, frame.code_addr(), time_ns) {
                Some((file, mapped)) => match self.index.user.function(&self.index.files, file, mapped) {
                    Some(number) => StackFrame::Function(file, number),
                    None => StackFrame::File(file),
                },
                None => StackFrame::User,
            };
        }
        let code = self.codes.of_frame(frame, time_ns);
        match code {
            Code::Function { .. } if self.kept.addresses => StackFrame::Code(code, frame.code_addr()),
            code if code.is_named() => StackFrame::Code(code, 0),
            _ => StackFrame::KernelAddr(frame.code_addr()),
        }
    }

    /// Addresses in programs, of all stacks.
    pub(crate) fn addresses(&self) -> BTreeSet<CodeAddress> {
        let in_programs = self.stacks.keys().flatten().filter_map(|frame| match *frame {
            StackFrame::Code(Code::Function { program, function }, addr) => Some((program, function, addr)),
            _ => None,
        });
        in_programs.collect()
    }

    /// Names the frames of the counted stacks; `lines` has the source lines of addresses.
    ///
    /// # Errors
    /// Fails if `events` selects no event.
    pub(crate) fn named(
        mut self,
        recording: &OpenRecording<'_>,
        events: &[bool],
        options: &Options,
        lines: &FxHashMap<CodeAddress, FrameSource>,
    ) -> Result<StackSamples> {
        let event = self.event.or_else(|| events.iter().position(|is_asked| *is_asked));
        let no_event = || Error::option("--event", "", "the recording has no event that samples the CPUs");
        let event = event.ok_or_else(no_event)?;
        let mut names = FrameNumbers::default();
        // Several frames may have the same name, for instance all unknown addresses of a module. Their stacks are then one stack.
        let mut stacks: BTreeMap<FramesAndContainer, (Count, Vec<u32>)> = BTreeMap::new();
        // Workloads have the same numbers in whatever order samples come, so the positions of containers are always the same.
        let used: BTreeSet<u32> = self.stacks.keys().filter_map(|frames| container_of(frames)).collect();
        let containers = used.iter().filter_map(|number| self.index.workloads().get(*number).cloned()).collect();
        let container_positions: BTreeMap<u32, u32> = used.into_iter().zip(0..).collect();
        for (frames, number) in &self.stacks {
            let container = container_of(frames).and_then(|number| container_positions.get(&number).copied());
            let frames = frames.iter().rev().map(|frame| names.number(*frame, || self.name(*frame, options, lines)));
            let (count, numbers) = stacks.entry((frames.collect(), container)).or_default();
            count.merge(self.counts[*number as usize]);
            numbers.push(*number);
        }
        let (frames, order) = names.sorted();
        let mut stacks: Vec<(Stack, Vec<u32>)> = stacks
            .into_iter()
            .map(|((frames, container), (count, numbers))| {
                let frames = frames.into_iter().map(|number| order[number as usize]).collect();
                (Stack { frames, container, count }, numbers)
            })
            .collect();
        stacks.sort_by(|(a, _), (b, _)| (&a.frames, a.container).cmp(&(&b.frames, b.container)));
        // Final position of each stack, by the sink's number.
        let mut positions = vec![0; self.counts.len()];
        for (position, (_, numbers)) in (0..).zip(&stacks) {
            numbers.iter().for_each(|number| positions[*number as usize] = position);
        }
        let samples = std::mem::take(&mut self.samples);
        let threads = self.threads(samples, &positions);
        let mut timed = TimedCounts::default();
        timed.merge(std::mem::take(&mut self.timed), |number| positions[number as usize]);
        let stacks: Vec<Stack> = stacks.into_iter().map(|(stack, _)| stack).collect();
        let total = stacks.iter().map(|stack| stack.count).sum();
        let unit = self.index.unit(recording, event);
        let stacks = Stacks { event: recording.names[event].clone(), unit, total, frames, stacks };
        Ok(StackSamples { stacks, containers, threads, by_interval: timed.finish() })
    }

    /// Returns the samples by thread, in the order of time.
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

    fn name(&self, of: StackFrame, options: &Options, lines: &FxHashMap<CodeAddress, FrameSource>) -> Frame {
        let index = self.index;
        let frame = |name: String, kind| Frame { name, kind, source: None };
        match of {
            StackFrame::Comm(number, _) => frame(index.tasks.name(number).to_owned(), FrameKind::Task),
            StackFrame::Thread(tid, _) => frame(format!("[thread {tid}]"), FrameKind::Task),
            StackFrame::Code(code, addr) => {
                let kind = match code {
                    Code::Function { program, .. } => {
                        let program = &index.programs.list[program as usize];
                        FrameKind::Program {
                            id: program.id,
                            name: program.name().to_owned(),
                            prog_type: program.info.and_then(|info| info.prog_type),
                            tag: program.tag.map(bprec_format::bpf::Tag),
                        }
                    }
                    Code::Image(_) => FrameKind::Image,
                    Code::Kernel { .. } | Code::Unknown => FrameKind::Kernel,
                };
                let source = match code {
                    Code::Function { program, function } => lines.get(&(program, function, addr)).cloned(),
                    _ => None,
                };
                Frame { source, ..frame(index.code_name(code).unwrap_or_default(), kind) }
            }
            StackFrame::KernelAddr(addr) => {
                let module = index.code.maps.find(addr).map(|module| module.trim_matches(['[', ']']));
                frame(format!("[{}]", module.unwrap_or("kernel")), FrameKind::Kernel)
            }
            StackFrame::Function(file, number) => {
                let kind = FrameKind::User { file: Some(index.user.path(file).to_owned()) };
                frame(function_name(index.user.function_name(&index.files, file, number), options), kind)
            }
            StackFrame::File(file) => {
                let path = index.user.path(file);
                let name = path.rsplit('/').next().unwrap_or(path).trim_matches(['[', ']']);
                frame(format!("[{name}]"), FrameKind::User { file: Some(path.to_owned()) })
            }
            StackFrame::User => frame("[unknown]".to_owned(), FrameKind::User { file: None }),
        }
    }
}

impl Sink for StacksSink<'_> {
    fn fork(&self) -> Self {
        StacksSink::new(self.index, self.asked.clone(), self.kept.clone())
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
        if let Some((intervals, time_ns)) = self.kept.intervals.as_ref().zip(sample.time_ns) {
            self.timed.add(stack, intervals.at(time_ns), sample.count);
        }
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
        self.timed.merge(other.timed, |number| numbers[number as usize]);
        let samples = other.samples.into_iter();
        self.samples.extend(samples.map(|taken| Taken { stack: numbers[taken.stack as usize], ..taken }));
    }
}

/// Returns the container of a stack: the outermost frame, which is the last, has the number of its workload.
fn container_of(frames: &[StackFrame]) -> Option<u32> {
    match frames.last() {
        Some(StackFrame::Comm(_, container) | StackFrame::Thread(_, container)) => *container,
        _ => None,
    }
}

/// Numbers of distinct frames.
#[derive(Default)]
struct FrameNumbers {
    by_frame: FxHashMap<StackFrame, u32>,
    numbers: BTreeMap<Frame, u32>,
}

impl FrameNumbers {
    fn number(&mut self, frame: StackFrame, name: impl FnOnce() -> Frame) -> u32 {
        *self.by_frame.entry(frame).or_insert_with(|| {
            let next = self.numbers.len() as u32;
            *self.numbers.entry(name()).or_insert(next)
        })
    }

    /// Returns the frames sorted by name, and the position of each number in this order. The order of samples does not matter.
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
