//! Charges of each program by the path from the program to the code that ran.

use crate::index::Index;
use crate::index::code::{Code, CodeCache};
use crate::model::Count;
use crate::pass::attribution::{Attribution, Charge};
use crate::pass::frames::kernel_frames;
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::sinks::timed::{EqualIntervals, TimedCounts};
use crate::pass::{SampleView, Sink};
use rustc_hash::FxHashMap;

/// Step of a path: the code that a tree node stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Number of a program: the root of its tree or, below a root, another program that ran there and has its own tree.
    Program(u32),
    /// Trampoline, dispatcher or hook that runs the program.
    Entry,
    /// A function or an image; code without a name is [`Code::Unknown`].
    Code(Code),
    /// Programs without a tree of their own, inside the parent step: entry code of several or of unknown programs, or interpreted programs.
    OtherPrograms,
}

/// A node of a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathNode {
    /// Number of the parent, smaller than the node's own; `None` for a root.
    pub(crate) parent: Option<u32>,
    pub(crate) step: Step,
    /// Samples in the node itself, not in code that it called. If the node is another program below a root, all samples in that program.
    pub(crate) own: Count,
}

impl PathNode {
    /// Returns true if the samples of the node are charged to another program than the tree's.
    pub(crate) fn is_of_others(&self) -> bool {
        matches!((self.parent, self.step), (Some(_), Step::Program(_) | Step::OtherPrograms))
    }
}

/// Limit on the depth of a tree. With the kernel's default settings, chains are shorter. Samples of deeper frames count in the deepest node.
const MAX_DEPTH: usize = 128;

/// Trees of an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventWays {
    pub(crate) nodes: Vec<PathNode>,
    numbers: FxHashMap<(Option<u32>, Step), u32>,
    /// Samples charged to programs that tail calls can reach, by program and by the program that a hook ran first, if known.
    pub(crate) origins: FxHashMap<(u32, Option<u32>), Count>,
    /// [`PathNode::own`] by number of the node and by interval, if intervals are requested.
    pub(crate) timed: TimedCounts,
}

impl EventWays {
    fn node(&mut self, parent: Option<u32>, step: Step) -> u32 {
        *self.numbers.entry((parent, step)).or_insert_with(|| {
            self.nodes.push(PathNode { parent, step, own: Count::default() });
            self.nodes.len() as u32 - 1
        })
    }

    /// Adds samples to a node; `interval` is their interval, if intervals are requested.
    fn add(&mut self, node: u32, count: Count, interval: Option<u64>) {
        self.nodes[node as usize].own.merge(count);
        if let Some(interval) = interval {
            self.timed.add(node, interval, count);
        }
    }

    /// Returns the node of the entry code of a program.
    pub(crate) fn entry(&mut self, program: u32) -> u32 {
        let root = self.node(None, Step::Program(program));
        self.node(Some(root), Step::Entry)
    }
}

/// Adds up charges by path.
#[derive(Debug)]
pub(crate) struct TreeSink<'i> {
    index: &'i Index,
    /// Intervals that samples of nodes are counted by, if requested.
    intervals: Option<EqualIntervals>,
    pub(crate) events: ByEvent<EventWays>,
    codes: CodeCache<'i>,
    /// Buffer for the path of the current sample, innermost first.
    way: Vec<Step>,
    /// Segments of the call stack in `way`, innermost first. A program that occurs again further out has a further segment.
    segments: Vec<Segment>,
}

/// Part of a call stack: frames of a program and of the code that it called. A segment begins where the previous segment ends.
#[derive(Debug, Clone, Copy)]
struct Segment {
    program: u32,
    /// Position in `way` after the program's outermost function.
    end: usize,
}

impl<'i> TreeSink<'i> {
    pub(crate) fn new(index: &'i Index, events: usize, intervals: Option<EqualIntervals>) -> TreeSink<'i> {
        let (events, codes) = (ByEvent::new(events), CodeCache::for_sink(&index.code));
        TreeSink { index, intervals, events, codes, way: Vec::new(), segments: Vec::new() }
    }

    fn interval(&self, sample: &SampleView<'_>) -> Option<u64> {
        Some(self.intervals.as_ref()?.at(sample.time_ns?))
    }

    /// Fills [`TreeSink::way`] with the frames of a sample, innermost first, and [`TreeSink::segments`] with their programs. Frames further out than
    /// the outermost program are needed only to find the origin of tail calls.
    fn find_way(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let index = self.index;
        let time_ns = sample.time_ns.unwrap_or(u64::MAX);
        self.way.clear();
        self.segments.clear();
        let needs_all = attribution.programs().iter().any(|program| index.tail_calls.reach(*program));
        let mut left = attribution.program_frames();
        let chain = sample.callchain()?;
        let Some(leaf) = sample.kernel_ip else { return Ok(()) };
        for (nth, frame) in kernel_frames(index, leaf, &chain, time_ns).enumerate() {
            let code = Some(self.codes.of_frame(frame, time_ns)).filter(|code| code.is_named());
            self.way.push(Step::Code(code.unwrap_or(Code::Unknown)));
            if let Some(Code::Function { program, .. }) = code {
                match self.segments.last_mut() {
                    Some(segment) if segment.program == program => segment.end = nth + 1,
                    _ => self.segments.push(Segment { program, end: nth + 1 }),
                }
                left = left.saturating_sub(1);
            }
            if left == 0 && !needs_all {
                break;
            }
        }
        Ok(())
    }

    /// Adds the sample to the tree of each program in its chain. In the tree of the innermost program, the sample counts at the code that ran; in the
    /// tree of any other program, at the place where the next inner program ran. `inner` is the charged step if it is no function of a program.
    fn add_ways(
        &mut self,
        sample: &SampleView<'_>,
        attribution: &Attribution<'_>,
        mut inner: Option<Step>,
    ) -> bprec_format::Result<()> {
        self.find_way(sample, attribution)?;
        let interval = self.interval(sample);
        let trees = self.events.of(sample.event);
        let mut start = 0;
        for (nth, Segment { program, end }) in self.segments.iter().enumerate() {
            // If a program is twice in the chain, only its inner segment counts, so that the sample is in its tree once.
            if !self.segments[..nth].iter().any(|inner| inner.program == *program) {
                let mut node = trees.node(None, Step::Program(*program));
                for step in self.way[start..*end].iter().rev().take(MAX_DEPTH) {
                    node = trees.node(Some(node), *step);
                }
                match inner {
                    Some(inner) => node = trees.node(Some(node), inner),
                    None if self.index.tail_calls.reach(*program) => {
                        let origin = origin(self.index, *program, &self.way[*end..], sample.time_ns);
                        trees.origins.entry((*program, origin)).or_default().merge(sample.count);
                    }
                    None => {}
                }
                trees.add(node, sample.count, interval);
            }
            (start, inner) = (*end, Some(Step::Program(*program)));
        }
        Ok(())
    }
}

/// Returns the program that a hook ran before tail calls led to `program`, from the frames outside of `program`.
fn origin(index: &Index, program: u32, outside: &[Step], time_ns: Option<u64>) -> Option<u32> {
    let code = |step: &Step| if let Step::Code(code) = step { Some(*code) } else { None };
    let is_kernel = |code: &Code| matches!(code, Code::Kernel { .. } | Code::Unknown);
    let functions = outside.iter().map_while(code).take_while(is_kernel).filter_map(Code::kernel_function);
    let hook = index.hooks.of(functions).or_else(|| match outside.iter().filter_map(code).find(|it| !is_kernel(it)) {
        Some(Code::Image(image)) => index.hooks.of_image(image),
        _ => None,
    });
    index.tail_calls.origin(program, &index.hooks, hook, time_ns.unwrap_or(u64::MAX))
}

impl Sink for TreeSink<'_> {
    fn fork(&self) -> Self {
        TreeSink::new(self.index, self.events.len(), self.intervals.clone())
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let count = sample.count;
        let (inner, outer) = match attribution.charge {
            Charge::Elsewhere | Charge::UnknownCode => return Ok(()),
            Charge::Program { function: Some(_), .. } => return self.add_ways(sample, attribution, None),
            Charge::Program { program, function: None, .. } => {
                let interval = self.interval(sample);
                let ways = self.events.of(sample.event);
                let entry = ways.entry(program);
                ways.add(entry, count, interval);
                (Step::Program(program), attribution.programs().len() > 1)
            }
            Charge::SharedEntry { .. } | Charge::Entry | Charge::Interpreted => {
                (Step::OtherPrograms, !attribution.programs().is_empty())
            }
        };
        if outer { self.add_ways(sample, attribution, Some(inner)) } else { Ok(()) }
    }

    fn merge(&mut self, other: Self) {
        self.events.merge(other.events, |mine, theirs| {
            // A node's number is larger than its parent's, so `numbers` already has the parent.
            let mut numbers: Vec<u32> = Vec::with_capacity(theirs.nodes.len());
            for node in theirs.nodes {
                let number = mine.node(node.parent.map(|parent| numbers[parent as usize]), node.step);
                mine.nodes[number as usize].own.merge(node.own);
                numbers.push(number);
            }
            mine.timed.merge(theirs.timed, |number| numbers[number as usize]);
            for (key, count) in theirs.origins {
                mine.origins.entry(key).or_default().merge(count);
            }
        });
    }
}
