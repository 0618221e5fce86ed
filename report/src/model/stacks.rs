//! Call chains with their numbers of samples.

use super::program::program_label;
use super::{
    Annotation, Count, CountersReport, EventFinding, EventTrees, LinesReport, OverTime, Overview, Payers, Report, Unit,
    Workload,
};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Distinct call chains of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stacks {
    /// Name of the event.
    pub event: String,
    /// Unit of the weights.
    pub unit: Unit,
    /// Sum over all stacks.
    pub total: Count,
    /// Distinct frames of all stacks.
    pub frames: Vec<Frame>,
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
}

/// A stack and the samples with this stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Positions in [`Stacks::frames`], outermost first: the task, then its functions.
    pub frames: Vec<u32>,
    /// Container that the task was in, as a position in [`StackSamples::containers`]; `None` outside of containers, and if containers were not requested.
    pub container: Option<u32>,
    /// Number and weight of the samples.
    pub count: Count,
}

/// A label of a stack in exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StackLabel<'s> {
    /// Name of the task.
    Comm(&'s str),
    /// Full name of the innermost program's entry function.
    ProgramName(&'s str),
    /// Id of the program.
    ProgramId(u32),
    /// Type of the program.
    ProgramType(ProgType),
    /// Tag of the program.
    ProgramTag(Tag),
}

/// Stacks as a tree of frames. The first node is the root and has no frame; parents come before their children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StackTree {
    /// Position of the caller's node; -1 for the root.
    pub parent: Vec<i64>,
    /// Position in [`Stacks::frames`]; -1 for the root. The length of [`Stacks::frames`] marks a node that several nodes are folded into.
    pub frame: Vec<i64>,
    /// Weight of the samples whose stack ends at the node.
    pub weight: Vec<u64>,
    /// Number of the samples whose stack ends at the node.
    pub samples: Vec<u64>,
}

impl StackTree {
    /// Returns the weight of each node with all nodes below it.
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

    /// Returns the position in [`Stacks::frames`] of the stack's innermost frame in a program; `None` if no frame is in a program.
    pub(crate) fn innermost_program(&self, stack: &Stack) -> Option<u32> {
        let is_program = |frame: &&u32| matches!(self.frames[**frame as usize].kind, FrameKind::Program { .. });
        stack.frames.iter().rev().find(is_program).copied()
    }

    /// Returns the labels of a stack: the task, and the innermost program.
    pub(crate) fn labels(&self, stack: &Stack) -> Vec<StackLabel<'_>> {
        let mut frames = stack.frames.iter().map(|frame| &self.frames[*frame as usize]);
        let task = frames.find(|frame| frame.kind == FrameKind::Task);
        let mut labels: Vec<StackLabel<'_>> = task.map(|task| StackLabel::Comm(&task.name)).into_iter().collect();
        let program = self.innermost_program(stack).map(|frame| &self.frames[frame as usize].kind);
        if let Some(FrameKind::Program { id, name, prog_type, tag }) = program {
            labels.push(StackLabel::ProgramName(name));
            labels.extend(id.map(StackLabel::ProgramId));
            labels.extend(prog_type.map(StackLabel::ProgramType));
            labels.extend(tag.map(StackLabel::ProgramTag));
        }
        labels
    }

    /// Builds the tree of the stacks. If it would exceed `max_nodes`, the lightest children of each node are folded into one node.
    pub fn tree(&self, max_nodes: usize) -> StackTree {
        // The stacks are sorted by their frames, so each stack shares a prefix with its predecessor.
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
        // The lightest nodes are folded. Half of the node limit is reserved for the nodes that they are folded into.
        let mut sorted = totals.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let least = if nodes.len() > max_nodes { sorted[max_nodes / 2].saturating_add(1) } else { 0 };
        let mut tree = StackTree { parent: vec![-1], frame: vec![-1], weight: vec![], samples: vec![] };
        tree.weight.push(nodes[0].2.weight);
        tree.samples.push(nodes[0].2.samples);
        // `places`: position in `tree` of each of `nodes`. `folded`: for each kept node, the tree node that its lightest children are folded into.
        let mut places = vec![0; nodes.len()];
        let mut folded: BTreeMap<usize, usize> = BTreeMap::new();
        for at in 1..nodes.len() {
            let (parent, frame, own) = nodes[at];
            let is_folded = totals[at] < least;
            let into = places[parent];
            places[at] = match (is_folded, is_folded.then(|| folded.get(&into)).flatten()) {
                // The parent is folded: the node goes into the same tree node.
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

/// Contents of the HTML page of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// First screen.
    pub overview: Overview,
    /// Trees of the costs of programs.
    pub trees: EventTrees,
    /// Findings of the advice.
    pub advice: Vec<EventFinding>,
    /// Cost of each program.
    pub report: Report,
    /// Cost of each program in each interval.
    pub over_time: OverTime,
    /// Cost of each program to each payer.
    pub payers: Payers,
    /// Cost of each source line of programs.
    pub lines: LinesReport,
    /// Code of programs with its cost in the event of `stacks`; `None` if no program has samples.
    pub code: Option<Annotation>,
    /// Call chains of one event.
    pub stacks: Stacks,
}

/// Samples one by one, each with its stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackSamples {
    /// The samples, summed by stack, and by container if containers were requested.
    pub stacks: Stacks,
    /// Containers of the stacks, and pods without a known container; empty if they were not requested.
    pub containers: Vec<Workload>,
    /// Samples by thread; empty if the recording has counts instead of single samples.
    pub threads: Vec<ThreadSamples>,
}

/// Samples of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSamples {
    /// Id of the process.
    pub pid: u32,
    /// Id of the thread.
    pub tid: u32,
    /// Last known name of the thread.
    pub name: Option<String>,
    /// Samples in the order of time.
    pub samples: Vec<StackSample>,
}

/// A sample: its time and its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackSample {
    /// Time of the sample, ns of the recording's clock; 0 when unknown.
    pub time_ns: u64,
    /// Position in [`Stacks::stacks`].
    pub stack: u32,
    /// Number and weight of the samples that this entry stands for.
    pub count: Count,
}

/// Contents of the exports for profile viewers: call chains, programs and counters.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The samples.
    pub samples: StackSamples,
    /// Costs of programs, and facts about the recording.
    pub report: Report,
    /// Runs of programs between snapshots.
    pub counters: CountersReport,
}

/// A function, or its file if the function is unknown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// Name of the function; `[file]` if only the file is known.
    pub name: String,
    /// Owner of the function: a program, the kernel, a file.
    pub kind: FrameKind,
    /// Source line, for programs, if lines were requested and recorded. Each line of a function is a frame of its own.
    pub source: Option<FrameSource>,
}

/// Source line of a frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameSource {
    /// File name given to the compiler.
    pub file: Arc<str>,
    /// Line number.
    pub line: u32,
    /// Line number of the first code of the function.
    pub function_line: u32,
}

/// Owner of a frame's function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameKind {
    /// The task itself, by name.
    Task,
    /// A function in user space.
    User {
        /// Path of the mapped file; `None` if no mapping is known.
        file: Option<String>,
    },
    /// The kernel or a module.
    Kernel,
    /// A BPF program.
    Program {
        /// Id of the program.
        id: Option<u32>,
        /// Full name of the program's entry function.
        name: String,
        /// Type of the program.
        prog_type: Option<ProgType>,
        /// Tag of the program.
        tag: Option<Tag>,
    },
    /// A trampoline, dispatcher or struct_ops stub.
    Image,
}

impl FrameKind {
    /// File of the code: a path, `[kernel]` or `[bpf]`; `None` if unknown.
    pub(crate) fn file(&self) -> Option<&str> {
        match self {
            FrameKind::Task => None,
            FrameKind::User { file } => file.as_deref(),
            FrameKind::Kernel => Some("[kernel]"),
            FrameKind::Program { .. } | FrameKind::Image => Some("[bpf]"),
        }
    }
}

impl Frame {
    /// Returns the name for viewers. Functions of a BPF program get the program's label as a prefix, which distinguishes functions of equal names.
    pub fn label(&self) -> String {
        let FrameKind::Program { name, .. } = &self.kind else { return self.name.clone() };
        let program = self.program_label().unwrap_or_default();
        match name == &self.name {
            true => format!("bpf:{program}"),
            false => format!("bpf:{program}:{}", self.name),
        }
    }

    /// Label of the frame's program, as [`super::Program::label_with_id`].
    pub fn program_label(&self) -> Option<String> {
        let FrameKind::Program { id, name, tag, .. } = &self.kind else { return None };
        Some(program_label(name, *id, *tag))
    }
}
