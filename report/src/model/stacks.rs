//! Call chains, and the samples of each call chain.

use super::program::program_label;
use super::{
    Annotation, Count, CountersReport, EventBill, EventFinding, EventTrees, LinesReport, OverTime, Overview, Payers,
    Report, TimedCount, Unit, Workload,
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
    /// Distinct stacks, sorted by their frames.
    pub stacks: Vec<Stack>,
}

/// A stack and the samples with this stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Positions in [`Stacks::frames`], outermost first: the task, then its functions.
    pub frames: Vec<u32>,
    /// Container of the task: position in [`StackSamples::containers`]. `None` if the task was in no container, or if containers were not requested.
    pub container: Option<u32>,
    /// Number and weight of the samples.
    pub count: Count,
}

/// Label of a stack in exports for profile viewers.
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
    /// Position in [`Stacks::frames`]; -1 for the root. A node that stands for several folded nodes has no frame: its value is the length of
    /// [`Stacks::frames`].
    pub frame: Vec<i64>,
    /// Weight of the samples whose stack ends at the node.
    pub weight: Vec<u64>,
    /// Number of the samples whose stack ends at the node.
    pub samples: Vec<u64>,
}

impl StackTree {
    /// Returns the weight of each node, including all nodes below it.
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

    /// Finds the stack's innermost frame in a BPF program, and returns the frame's position in [`Stacks::frames`]; `None` if no frame is in a
    /// program.
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

    /// Builds the tree of the stacks. If the tree would have more than `max_nodes` nodes, light nodes are folded: one node stands for all folded
    /// children of a parent, with everything below them.
    pub fn tree(&self, max_nodes: usize) -> StackTree {
        self.tree_with_ends(max_nodes).0
    }

    /// Builds the tree as [`Stacks::tree`] does. Also returns the counts of its nodes by interval, from the counts of the stacks. If several stacks
    /// end at one node, the node has several counts in an interval.
    pub fn timed_tree(&self, max_nodes: usize, by_interval: &[TimedCount]) -> (StackTree, Vec<TimedCount>) {
        let (tree, ends) = self.tree_with_ends(max_nodes);
        let of_node = |cell: &TimedCount| TimedCount { number: ends[cell.number as usize] as u32, ..*cell };
        let timed = by_interval.iter().map(of_node).collect();
        (tree, timed)
    }

    /// Builds the tree, and returns for each stack the node at which it ends.
    fn tree_with_ends(&self, max_nodes: usize) -> (StackTree, Vec<usize>) {
        // The stacks are sorted by their frames, so each stack shares a prefix with its predecessor.
        let mut nodes: Vec<(usize, u32, Count)> = vec![(0, u32::MAX, Count::default())];
        let mut path: Vec<usize> = Vec::new();
        let mut ends: Vec<usize> = Vec::with_capacity(self.stacks.len());
        for stack in &self.stacks {
            let same = path.iter().zip(&stack.frames).take_while(|(node, frame)| nodes[**node].1 == **frame).count();
            path.truncate(same);
            for frame in &stack.frames[same..] {
                nodes.push((path.last().copied().unwrap_or(0), *frame, Count::default()));
                path.push(nodes.len() - 1);
            }
            let last = path.last().copied().unwrap_or(0);
            nodes[last].2.merge(stack.count);
            ends.push(last);
        }
        let mut totals: Vec<u64> = nodes.iter().map(|(_, _, own)| own.weight).collect();
        for at in (1..nodes.len()).rev() {
            totals[nodes[at].0] = totals[nodes[at].0].saturating_add(totals[at]);
        }
        // Nodes lighter than `least` are folded. Kept nodes are at most half of `max_nodes`: each of them may need a further node that stands for its
        // folded children.
        let mut sorted = totals.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let least = if nodes.len() > max_nodes { sorted[max_nodes / 2].saturating_add(1) } else { 0 };
        let mut tree = StackTree { parent: vec![-1], frame: vec![-1], weight: vec![], samples: vec![] };
        tree.weight.push(nodes[0].2.weight);
        tree.samples.push(nodes[0].2.samples);
        // `places`: for each node, its position in `tree`. `folded`: for each kept node, the tree node that stands for its folded children.
        let mut places = vec![0; nodes.len()];
        let mut folded: BTreeMap<usize, usize> = BTreeMap::new();
        for at in 1..nodes.len() {
            let (parent, frame, own) = nodes[at];
            let is_folded = totals[at] < least;
            let into = places[parent];
            places[at] = match (is_folded, is_folded.then(|| folded.get(&into)).flatten()) {
                // The parent is folded as well: both belong to the same node of `tree`.
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
        ends.iter_mut().for_each(|end| *end = places[*end]);
        (tree, ends)
    }
}

/// Data of the HTML page of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Summary for the first screen.
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
    /// Cost of each owner of programs in the event of `stacks`; `None` without a sampling event.
    pub bill: Option<EventBill>,
    /// Cost of each source line of programs.
    pub lines: LinesReport,
    /// Code of programs with its cost in the event of `stacks`; `None` if no program has samples.
    pub code: Option<Annotation>,
    /// Call chains of one event.
    pub stacks: Stacks,
    /// Counts of the stacks in each interval of [`OverTime::interval_ns`], sorted by position in `stacks`, then by interval.
    pub stacks_by_interval: Vec<TimedCount>,
}

/// Samples by stack, and by thread and time if the recording has single samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackSamples {
    /// The samples, summed by stack, and by container if containers were requested.
    pub stacks: Stacks,
    /// Containers of the tasks; a pod if the container is unknown. Empty if containers were not requested.
    pub containers: Vec<Workload>,
    /// Samples by thread; empty if the recording has counts instead of single samples.
    pub threads: Vec<ThreadSamples>,
    /// Counts of the stacks in each interval, sorted by position in [`Stacks::stacks`], then by interval; empty if not requested.
    pub by_interval: Vec<TimedCount>,
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

/// Data of the exports for profile viewers: call chains, programs and counters.
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
    /// Source line of a program's code; `None` for other code, and if lines were not requested or not recorded. Each line of a function is a separate
    /// frame.
    pub source: Option<FrameSource>,
}

/// Source line of a frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameSource {
    /// File name given to the compiler.
    pub file: Arc<str>,
    /// Line number in the file.
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
    /// File of the code: a path, `[kernel]` or `[bpf]`; `None` for a task, and if the file is unknown.
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
    /// Returns the name for profile viewers. A function of a BPF program has the program's label as a prefix: functions of several programs may have
    /// the same name.
    pub fn label(&self) -> String {
        let FrameKind::Program { name, .. } = &self.kind else { return self.name.clone() };
        let program = self.program_label().unwrap_or_default();
        match name == &self.name {
            true => format!("bpf:{program}"),
            false => format!("bpf:{program}:{}", self.name),
        }
    }

    /// Label of the frame's program, as [`super::Program::label_with_id`]; `None` if the frame is not in a program.
    pub fn program_label(&self) -> Option<String> {
        let FrameKind::Program { id, name, tag, .. } = &self.kind else { return None };
        Some(program_label(name, *id, *tag))
    }
}
