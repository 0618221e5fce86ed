//! Call chains that were counted.

use super::program::program_label;
use super::{
    Annotation, Count, CountersReport, EventFinding, EventTrees, LinesReport, OverTime, Overview, Payers, Report, Unit,
};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The call chains of an event, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stacks {
    /// The event.
    pub event: String,
    /// Unit of its weights.
    pub unit: Unit,
    /// All that was counted.
    pub total: Count,
    /// The frames that stacks have, each once.
    pub frames: Vec<Frame>,
    /// The stacks, by their frames.
    pub stacks: Vec<Stack>,
}

/// A stack, and how often it was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Positions in [`Stacks::frames`], outermost first: the task, then its functions.
    pub frames: Vec<u32>,
    /// Number of samples, and their weight.
    pub count: Count,
}

/// Stacks as a tree of frames. The first node is the root, which is no frame; parents come before their children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StackTree {
    /// Position of the node that this one was called from; -1 for the root.
    pub parent: Vec<i64>,
    /// Position in [`Stacks::frames`], and behind all of these for what was folded together; -1 for the root.
    pub frame: Vec<i64>,
    /// Weight of the stacks that end here.
    pub weight: Vec<u64>,
    /// Samples of them.
    pub samples: Vec<u64>,
}

impl StackTree {
    /// Weight of each node with all below it.
    pub fn inclusive(&self) -> Vec<u64> {
        let mut weights = self.weight.clone();
        for at in (1..weights.len()).rev() {
            // Parents come before their children.
            let parent = self.parent[at] as usize;
            weights[parent] = weights[parent].saturating_add(weights[at]);
        }
        weights
    }
}

impl Stacks {
    /// Mean weight of a sample; 0 without samples.
    pub(crate) fn mean_weight(&self) -> u64 {
        self.total.weight.checked_div(self.total.samples).unwrap_or(0)
    }

    /// The stacks as a tree. Where it would have more than `max_nodes`, the lightest below each node are folded into one.
    pub fn tree(&self, max_nodes: usize) -> StackTree {
        // Stacks are in the order of their frames, so that each shares a beginning with the one before.
        let mut nodes: Vec<(usize, u32, Count)> = vec![(0, u32::MAX, Count::default())];
        let mut path: Vec<usize> = Vec::new();
        for stack in &self.stacks {
            let same = path.iter().zip(&stack.frames).take_while(|(node, frame)| nodes[**node].1 == **frame).count();
            path.truncate(same);
            for frame in &stack.frames[same..] {
                nodes.push((path.last().copied().unwrap_or(0), *frame, Count::default()));
                path.push(nodes.len() - 1);
            }
            let last = path.last().copied().unwrap_or(0);
            nodes[last].2.merge(stack.count);
        }
        let mut totals: Vec<u64> = nodes.iter().map(|(_, _, own)| own.weight).collect();
        for at in (1..nodes.len()).rev() {
            totals[nodes[at].0] = totals[nodes[at].0].saturating_add(totals[at]);
        }
        // The lightest go. Half of the memory is for the stacks that they are folded into.
        let mut sorted = totals.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let least = if nodes.len() > max_nodes { sorted[max_nodes / 2].saturating_add(1) } else { 0 };
        let mut tree = StackTree { parent: vec![-1], frame: vec![-1], weight: vec![], samples: vec![] };
        tree.weight.push(nodes[0].2.weight);
        tree.samples.push(nodes[0].2.samples);
        // By node: where it went, itself or what it was folded into; and by node that was kept: what its lightest were folded into.
        let mut places = vec![0; nodes.len()];
        let mut folded: BTreeMap<usize, usize> = BTreeMap::new();
        for at in 1..nodes.len() {
            let (parent, frame, own) = nodes[at];
            let is_folded = totals[at] < least;
            let into = places[parent];
            places[at] = match (is_folded, is_folded.then(|| folded.get(&into)).flatten()) {
                // Below what was folded already.
                _ if totals[parent] < least && parent != 0 => into,
                (true, Some(known)) => *known,
                _ => {
                    let place = tree.parent.len();
                    tree.parent.push(into as i64);
                    tree.frame.push(if is_folded { self.frames.len() as i64 } else { frame.into() });
                    tree.weight.push(0);
                    tree.samples.push(0);
                    if is_folded {
                        folded.insert(into, place);
                    }
                    place
                }
            };
            let place = places[at];
            tree.weight[place] = tree.weight[place].saturating_add(own.weight);
            tree.samples[place] = tree.samples[place].saturating_add(own.samples);
        }
        tree
    }
}

/// Everything that a page shows of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The answer in one screen.
    pub overview: Overview,
    /// Trees of the costs of programs.
    pub trees: EventTrees,
    /// Findings of the advice.
    pub advice: Vec<EventFinding>,
    /// Cost of each program.
    pub report: Report,
    /// The same from interval to interval.
    pub over_time: OverTime,
    /// Cost of each program to each payer.
    pub payers: Payers,
    /// Cost of each source line of programs.
    pub lines: LinesReport,
    /// The code of programs with what each part of it cost in the event of the call chains; `None` when none has samples.
    pub code: Option<Annotation>,
    /// The call chains of one of the events.
    pub stacks: Stacks,
}

/// Samples one by one, each with its stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackSamples {
    /// The same samples by stack.
    pub stacks: Stacks,
    /// By process and thread; none where samples were not kept one by one.
    pub threads: Vec<ThreadSamples>,
}

/// Samples of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSamples {
    /// Its process.
    pub pid: u32,
    /// Its number.
    pub tid: u32,
    /// The name that it had last, if it is known.
    pub name: Option<String>,
    /// In the order of time.
    pub samples: Vec<StackSample>,
}

/// When a stack was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackSample {
    /// When, ns of the recording's clock; 0 when the sample does not say.
    pub time_ns: u64,
    /// Position in [`Stacks::stacks`].
    pub stack: u32,
    /// Number of samples, and their weight.
    pub count: Count,
}

/// Everything that a viewer with a time axis shows of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The samples.
    pub samples: StackSamples,
    /// The programs, and what the recording says of itself.
    pub report: Report,
    /// Runs of programs from snapshot to snapshot.
    pub counters: CountersReport,
}

/// A function, or as much as is known of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// Its name; `[file]` where only the file is known that it is in.
    pub name: String,
    /// Owner of the function: a program, the kernel, a file.
    pub kind: FrameKind,
    /// Its source line: of programs, where lines were asked for and the recording has them. Several lines of a function are several frames.
    pub source: Option<FrameSource>,
}

/// The line of a frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameSource {
    /// Name of the file, as the compiler was given it.
    pub file: Arc<str>,
    /// Its line.
    pub line: u32,
    /// Line of the first code of its function.
    pub function_line: u32,
}

/// Owner of a frame's function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameKind {
    /// Not a function but the task, by its name.
    Task,
    /// A file in user space; `None` where nothing was known to be mapped.
    User {
        /// Its path.
        file: Option<String>,
    },
    /// The kernel or a module.
    Kernel,
    /// A BPF program.
    Program {
        /// Its id.
        id: Option<u32>,
        /// Full name of its entry function.
        name: String,
        /// Its type.
        prog_type: Option<ProgType>,
        /// Its tag.
        tag: Option<Tag>,
    },
    /// A trampoline, dispatcher or struct_ops stub.
    Image,
}

impl Frame {
    /// The name as a viewer has room for: a function of a BPF program with the program, so that programs of one name are told apart.
    pub fn label(&self) -> String {
        let FrameKind::Program { name, .. } = &self.kind else { return self.name.clone() };
        let program = self.program_label().unwrap_or_default();
        match name == &self.name {
            true => format!("bpf:{program}"),
            false => format!("bpf:{program}:{}", self.name),
        }
    }

    /// The program that it is of, as [`super::Program::label_with_id`] has it.
    pub fn program_label(&self) -> Option<String> {
        let FrameKind::Program { id, name, tag, .. } = &self.kind else { return None };
        Some(program_label(name, *id, *tag))
    }
}
