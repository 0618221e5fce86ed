//! What programs' costs consist of: the charges of the ledger by the way from each program to where the CPU was.

use crate::index::Index;
use crate::index::address::Owner;
use crate::index::address_cache::AddressCache;
use crate::model::Count;
use crate::pass::attribution::{Attribution, Charge};
use crate::pass::frames::{KernelFrame, kernel_frames};
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::{SampleView, Sink};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// What a node of a tree stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A program, by its number: the root of its tree, or elsewhere one that ran there and has a tree of its own.
    Program(u32),
    /// Trampoline, dispatcher or hook that runs the program.
    Entry,
    /// A function of a program.
    Function { program: u32, function: u32 },
    /// A kernel function, by its number.
    Kernel(u32),
    /// An image that runs programs, by its number.
    Image(u32),
    /// An address that has no name.
    Unnamed,
    /// Programs that ran there, or what runs them: no telling which.
    OtherPrograms,
}

/// A node of a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    /// Its number is smaller than that of the node; `None` for a root.
    pub(crate) parent: Option<u32>,
    pub(crate) place: Place,
    /// The CPU was in it, and in nothing that it called. Of programs that ran there, what ran there.
    pub(crate) own: Count,
}

impl Node {
    /// Whether what is counted here is charged to others than the program of the tree.
    pub(crate) fn is_of_others(&self) -> bool {
        matches!((self.parent, self.place), (Some(_), Place::Program(_) | Place::OtherPrograms))
    }
}

/// Call chains are no longer than that, on any kernel that is set as it comes; what is further in counts as part of the last.
const MAX_DEPTH: usize = 128;

/// The trees of an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventTrees {
    pub(crate) nodes: Vec<Node>,
    numbers: FxHashMap<(Option<u32>, Place), u32>,
    /// Of programs that tail calls can reach, by program and the one that was run first, if that can be told: what is charged to it.
    pub(crate) origins: FxHashMap<(u32, Option<u32>), Count>,
}

impl EventTrees {
    fn node(&mut self, parent: Option<u32>, place: Place) -> u32 {
        *self.numbers.entry((parent, place)).or_insert_with(|| {
            self.nodes.push(Node { parent, place, own: Count::default() });
            self.nodes.len() as u32 - 1
        })
    }

    /// Adds to what runs a program.
    pub(crate) fn add_entry(&mut self, program: u32, count: Count) {
        let root = self.node(None, Place::Program(program));
        let entry = self.node(Some(root), Place::Entry);
        self.nodes[entry as usize].own.merge(count);
    }
}

/// Adds up charges by way.
#[derive(Debug)]
pub(crate) struct TreeSink<'i> {
    index: &'i Index,
    pub(crate) events: ByEvent<EventTrees>,
    places: AddressCache<Place>,
    /// Memory for the frames at hand, innermost first,
    way: Vec<Place>,
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
        let places = AddressCache::new(index.map.len(), Place::Unnamed);
        TreeSink { index, events, places, way: Vec::new(), segments: Vec::new() }
    }

    /// Puts the frames of a sample into [`TreeSink::way`], innermost first, and which of them are of which program into
    /// [`TreeSink::segments`]. Frames that are further out than all programs are needed where tail calls can lead to one of them only.
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
            let KernelFrame { addr, is_exact } = frame;
            let place = self.places.find(addr, is_exact, time_ns, || place(index, addr, is_exact, time_ns));
            self.way.push(place);
            if let Place::Function { program, .. } = place {
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
        mut inner: Option<Place>,
    ) -> bprec_format::Result<()> {
        self.find_way(sample, attribution)?;
        let trees = self.events.of(sample.event);
        let mut start = 0;
        for (nth, Segment { program, end }) in self.segments.iter().enumerate() {
            // It is in its tree once.
            if !self.segments[..nth].iter().any(|inner| inner.program == *program) {
                let mut node = trees.node(None, Place::Program(*program));
                for place in self.way[start..*end].iter().rev().take(MAX_DEPTH) {
                    node = trees.node(Some(node), *place);
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
            (start, inner) = (*end, Some(Place::Program(*program)));
        }
        Ok(())
    }
}

/// What is at the address of a frame, and from when to when.
fn place(index: &Index, addr: u64, is_leaf: bool, time_ns: u64) -> (Place, Range<u64>) {
    // As in the ledger: a return address is behind the call, and below an interrupt it is the address itself.
    let called = if is_leaf { addr } else { addr.wrapping_sub(1) };
    let (owner, lasts) = match index.map.may_contain(called) {
        true => index.map.find_frame(addr, is_leaf, time_ns),
        false => (None, 0..u64::MAX),
    };
    let place = match owner {
        Some(Owner::Function { program, function }) => Place::Function { program, function },
        Some(Owner::Image(image)) => Place::Image(image),
        _ => index.symbols.find(called).map_or(Place::Unnamed, Place::Kernel),
    };
    (place, lasts)
}

/// The program that was run when tail calls led to this one, by the frames outside of it.
fn origin(index: &Index, program: u32, outside: &[Place], time_ns: Option<u64>) -> Option<u32> {
    let is_kernel = |place: &&Place| matches!(place, Place::Kernel(_) | Place::Unnamed);
    let functions = outside.iter().take_while(is_kernel).filter_map(|place| match place {
        Place::Kernel(function) => Some(*function),
        _ => None,
    });
    let hook = index.hooks.of(functions).or_else(|| match outside.iter().find(|place| !is_kernel(place)) {
        Some(Place::Image(image)) => index.hooks.of_image(*image),
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
                (Place::Program(program), attribution.programs().len() > 1)
            }
            Charge::SharedEntry { .. } | Charge::Entry | Charge::Interpreted => {
                (Place::OtherPrograms, !attribution.programs().is_empty())
            }
        };
        if outer { self.add_ways(sample, attribution, Some(inner)) } else { Ok(()) }
    }

    fn merge(&mut self, other: Self) {
        self.events.merge(other.events, |mine, theirs| {
            // A node's number is larger than its parent's.
            let mut numbers: Vec<u32> = Vec::with_capacity(theirs.nodes.len());
            for node in theirs.nodes {
                let number = mine.node(node.parent.map(|parent| numbers[parent as usize]), node.place);
                mine.nodes[number as usize].own.merge(node.own);
                numbers.push(number);
            }
            for (key, count) in theirs.origins {
                mine.origins.entry(key).or_default().merge(count);
            }
        });
    }
}
