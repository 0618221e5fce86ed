//! Parts of programs' costs: the charges of the ledger by the way from each program to where the CPU was.

use crate::index::Index;
use crate::index::code::{Code, CodeCache};
use crate::model::Count;
use crate::pass::attribution::{Attribution, Charge};
use crate::pass::frames::kernel_frames;
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::{SampleView, Sink};
use rustc_hash::FxHashMap;

/// Meaning of a tree's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A program, by its number: the root of its tree, or elsewhere one that ran there and has a tree of its own.
    Program(u32),
    /// Trampoline, dispatcher or hook that runs the program.
    Entry,
    /// A function or an image. What has no name is [`Code::Unknown`].
    Code(Code),
    /// Programs that ran there, or what runs them: no telling which.
    OtherPrograms,
}

/// A node of a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    /// Its number is smaller than that of the node; `None` for a root.
    pub(crate) parent: Option<u32>,
    pub(crate) step: Step,
    /// The CPU was in it, and in nothing that it called. Of programs that ran there, what ran there.
    pub(crate) own: Count,
}

impl Node {
    /// True if what is counted here is charged to others than the program of the tree.
    pub(crate) fn is_of_others(&self) -> bool {
        matches!((self.parent, self.step), (Some(_), Step::Program(_) | Step::OtherPrograms))
    }
}

/// Call chains are no longer than that, on any kernel that is set as it comes; what is further in counts as part of the last.
const MAX_DEPTH: usize = 128;

/// The trees of an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventWays {
    pub(crate) nodes: Vec<Node>,
    numbers: FxHashMap<(Option<u32>, Step), u32>,
    /// Samples charged to programs that tail calls can reach, by program and the one that was run first, if that is
    /// known.
    pub(crate) origins: FxHashMap<(u32, Option<u32>), Count>,
}

impl EventWays {
    fn node(&mut self, parent: Option<u32>, step: Step) -> u32 {
        *self.numbers.entry((parent, step)).or_insert_with(|| {
            self.nodes.push(Node { parent, step, own: Count::default() });
            self.nodes.len() as u32 - 1
        })
    }

    /// Adds to what runs a program.
    pub(crate) fn add_entry(&mut self, program: u32, count: Count) {
        let root = self.node(None, Step::Program(program));
        let entry = self.node(Some(root), Step::Entry);
        self.nodes[entry as usize].own.merge(count);
    }
}

/// Adds up charges by way.
#[derive(Debug)]
pub(crate) struct TreeSink<'i> {
    index: &'i Index,
    pub(crate) events: ByEvent<EventWays>,
    codes: CodeCache<'i>,
    /// Memory for the frames at hand, innermost first,
    way: Vec<Step>,
    /// and whose they are.
    segments: Vec<Segment>,
}

/// The frames of a program and of what it called, behind those of the segment before.
#[derive(Debug, Clone, Copy)]
struct Segment {
    program: u32,
    /// Position behind its outermost function.
    end: usize,
}

impl<'i> TreeSink<'i> {
    pub(crate) fn new(index: &'i Index, events: usize) -> TreeSink<'i> {
        let events = ByEvent::new(events);
        TreeSink { index, events, codes: CodeCache::for_sink(&index.code), way: Vec::new(), segments: Vec::new() }
    }

    /// Puts the frames of a sample into [`TreeSink::way`], innermost first, and which of them are of which program into
    /// [`TreeSink::segments`]. Frames outside the outermost program are collected only if one of the programs can be
    /// the target of a tail call.
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

    /// Adds the sample to the tree of each program that its chain goes through: to the innermost what is charged to it, and to the others where it
    /// was that the next one ran. `inner` is what is charged, where that is no function of a program.
    fn add_ways(
        &mut self,
        sample: &SampleView<'_>,
        attribution: &Attribution<'_>,
        mut inner: Option<Step>,
    ) -> bprec_format::Result<()> {
        self.find_way(sample, attribution)?;
        let trees = self.events.of(sample.event);
        let mut start = 0;
        for (nth, Segment { program, end }) in self.segments.iter().enumerate() {
            // It is in its tree once.
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
                trees.nodes[node as usize].own.merge(sample.count);
            }
            (start, inner) = (*end, Some(Step::Program(*program)));
        }
        Ok(())
    }
}

/// The program that was run when tail calls led to this one, by the frames outside of it.
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
        TreeSink::new(self.index, self.events.len())
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let count = sample.count;
        let (inner, outer) = match attribution.charge {
            Charge::Elsewhere | Charge::UnknownCode => return Ok(()),
            Charge::Program { function: Some(_), .. } => return self.add_ways(sample, attribution, None),
            Charge::Program { program, function: None, .. } => {
                self.events.of(sample.event).add_entry(program, count);
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
            // A node's number is larger than its parent's.
            let mut numbers: Vec<u32> = Vec::with_capacity(theirs.nodes.len());
            for node in theirs.nodes {
                let number = mine.node(node.parent.map(|parent| numbers[parent as usize]), node.step);
                mine.nodes[number as usize].own.merge(node.own);
                numbers.push(number);
            }
            for (key, count) in theirs.origins {
                mine.origins.entry(key).or_default().merge(count);
            }
        });
    }
}
