//! Composition of programs' costs: a tree for each program.

use super::{Count, Program, Recording, Unit};
use serde::Serialize;

/// A tree for each program: the document of `bprec report --tree --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trees {
    /// Name of the document's format: `bprec tree`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// The machine and the recording.
    #[serde(skip)]
    pub recording: Recording,
    /// Every program of the recording, by id and load time.
    #[serde(skip)]
    pub programs: Vec<Program>,
    /// Threshold, % of [`Tree::total`]: the smaller callees of a node are folded into one node.
    pub percent_limit: f64,
    /// Selected events.
    pub events: Vec<EventTrees>,
    /// Problems in reading the recording, in words.
    pub problems: Vec<String>,
}

/// The trees of an event.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EventTrees {
    /// Name of the event.
    pub name: String,
    /// Unit of the weights.
    pub unit: Unit,
    /// All samples of the selection.
    pub samples: Count,
    /// Trees in the order of the table by program.
    pub trees: Vec<Tree>,
    /// Samples charged to programs without a tree of their own.
    pub others: Count,
    /// Samples in code that runs programs, if the program is unknown.
    pub entry_unattributed: Count,
    /// Samples in the interpreter, if the program is unknown.
    pub interpreted: Count,
    /// Cost of all BPF: trees, others and unattributed samples, as in the TOTAL row of the report by program.
    pub total: Count,
}

/// Composition of a program's cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tree {
    /// Position in [`Trees::programs`].
    #[serde(skip)]
    pub program: usize,
    /// Id of the program.
    pub id: Option<u32>,
    /// Name of the program.
    pub name: String,
    /// Samples charged to the program, as in its row of the report by program: the sum of the own samples of all nodes.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the cost of all BPF, %.
    pub bpf_percent: Option<f64>,
    /// Cost of the program and of programs that ran inside it: the TOTAL column of its row.
    pub total: Count,
    /// Nodes in depth-first order.
    pub nodes: Vec<TreeNode>,
    /// Programs that ran directly inside this program, for instance extensions. Their own cost is in their own trees.
    pub inside: Vec<OtherProgram>,
    /// Cost of the program and of the targets of its tail calls together; `None` without tail calls.
    pub chain: Option<TailCallChain>,
    /// Origins of the tail calls to this program: programs that a hook ran, each with its share of this program's samples. Includes this program if a
    /// hook also runs it. Empty without tail calls to this program.
    pub tail_called_from: Vec<TailCallOrigin>,
}

/// A program run by a hook or by another program, with the direct and indirect targets of its tail calls.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailCallChain {
    /// Samples charged to the program and to targets of its tail calls.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the cost of all BPF, %.
    pub bpf_percent: Option<f64>,
    /// Tail-call targets with charged samples.
    pub reached: Vec<OtherProgram>,
}

/// Origin of tail calls to a target: a program that a hook ran, with the samples of the target in the runs that began with this program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailCallOrigin {
    /// Program that the hook ran first; `None` if this program is ambiguous or not in the recording.
    pub program: Option<ProgramName>,
    /// Samples charged to the target in runs that began with `program`.
    #[serde(flatten)]
    pub count: Count,
}

/// A program by id and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramName {
    /// Id of the program.
    pub id: Option<u32>,
    /// Name of the program.
    pub name: String,
}

/// A node: part of a program's cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TreeNode {
    /// Depth in the tree: 1 for the program's own parts, 2 for their callees, and so on.
    pub depth: u32,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Name of the node; for a folded node, the number of nodes in it.
    pub name: String,
    /// Id of the program, for nodes of programs.
    pub id: Option<u32>,
    /// Samples in the node itself, without callees.
    #[serde(rename = "self")]
    pub own: Count,
    /// Samples in the node and its callees that are charged to the program.
    pub inclusive: Count,
    /// Samples in the node, in its callees, and in other programs that ran inside them.
    pub total: Count,
    /// Share of `self` in the samples charged to the program, %.
    pub self_percent: Option<f64>,
    /// Share of `inclusive` in the samples charged to the program, %.
    pub program_percent: Option<f64>,
    /// Share of `total` in [`Tree::total`], %.
    pub total_percent: Option<f64>,
    /// Weight of `inclusive` in each interval: (number of the interval, weight). Empty if intervals are not requested.
    #[serde(skip)]
    pub by_interval: Vec<(u32, u64)>,
}

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Code that runs the program.
    Entry,
    /// A function of the program.
    Function,
    /// Callee of the program (helper or kfunc), or an interrupt that arrived in the program.
    Helper,
    /// Kernel code below a helper.
    Kernel,
    /// Another program that ran inside the parent node, for instance an extension; its cost is in its own tree.
    Other,
    /// Several small nodes folded together.
    Folded,
}

/// Another program in a program's tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OtherProgram {
    /// The other program.
    #[serde(flatten)]
    pub program: ProgramName,
    /// Samples of the other program in this tree.
    #[serde(flatten)]
    pub count: Count,
}
