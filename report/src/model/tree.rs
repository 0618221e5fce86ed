//! Composition of programs' costs: a tree for each program.

use super::{Count, Program, Recording, Unit};
use serde::Serialize;

/// A tree for each program: the document of `bprec report --tree --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trees {
    /// `bprec tree`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// The machine and the recording.
    #[serde(skip)]
    pub recording: Recording,
    /// Every program of the recording, by id and load time.
    #[serde(skip)]
    pub programs: Vec<Program>,
    /// Limit in per cent of the program's cost: nodes below it are put together with the others of their kind.
    pub percent_limit: f64,
    /// One for each event that is asked for.
    pub events: Vec<EventTrees>,
    /// Parts that could not be read, in words.
    pub problems: Vec<String>,
}

/// The trees of an event.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EventTrees {
    /// The event.
    pub name: String,
    /// Unit of its weights.
    pub unit: Unit,
    /// All samples of the selection.
    pub samples: Count,
    /// In the order of the table by program.
    pub trees: Vec<Tree>,
    /// Programs that are not shown.
    pub others: Count,
    /// In code that runs programs, no telling which.
    pub entry_unattributed: Count,
    /// In the interpreter, no telling which program.
    pub interpreted: Count,
    /// All BPF: the sum of the trees and of the three lines before, and what the TOTAL row of the ledger has.
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
    /// Its name.
    pub name: String,
    /// Samples charged to it, as in its row of the ledger: the sum of the own samples of all of its nodes.
    #[serde(flatten)]
    pub count: Count,
    /// Share of all BPF, per cent.
    pub bpf_percent: Option<f64>,
    /// With what ran inside it: the TOTAL of its row of the ledger.
    pub total: Count,
    /// Its parts, each before what it called.
    pub nodes: Vec<TreeNode>,
    /// Programs that ran inside it, next to it, an extension for instance: the sums of their nodes. What they cost is in their own trees.
    pub inside: Vec<OtherProgram>,
    /// Its cost together with the programs that its tail calls led to; `None` where they led to none.
    pub chain: Option<TailCallChain>,
    /// Origins of the tail calls that led to it, with their part of its samples. Empty where none did.
    pub tail_called_from: Vec<TailCallOrigin>,
}

/// A program that a hook or another program runs, with the programs that its tail calls led to, directly or on from there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailCallChain {
    /// Samples charged to it, and to these programs while it had been run.
    #[serde(flatten)]
    pub count: Count,
    /// Share of all BPF, per cent.
    pub bpf_percent: Option<f64>,
    /// Programs that are charged for something, except itself.
    pub reached: Vec<OtherProgram>,
}

/// The program that was run when tail calls led to another one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailCallOrigin {
    /// `None` where several programs can be the one, or it is not in the recording.
    pub program: Option<ProgramName>,
    /// Samples charged to the program that tail calls led to.
    #[serde(flatten)]
    pub count: Count,
}

/// A program by its id and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramName {
    /// Its id.
    pub id: Option<u32>,
    /// Its name.
    pub name: String,
}

/// A part of a program's cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TreeNode {
    /// 1 for what the program consists of, 2 for what that called.
    pub depth: u32,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Its name; of several nodes in one how many there are.
    pub name: String,
    /// Id of a program.
    pub id: Option<u32>,
    /// In it, and in nothing that it called.
    #[serde(rename = "self")]
    pub own: Count,
    /// With all that it called, as far as it is charged to the program.
    pub inclusive: Count,
    /// The same with other programs that ran there.
    pub total: Count,
    /// Own share of the samples charged to the program, per cent.
    pub self_percent: Option<f64>,
    /// Share of the samples charged to the program, with all that it called, per cent.
    pub program_percent: Option<f64>,
    /// `total` of that of the program.
    pub total_percent: Option<f64>,
}

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Code that runs the program.
    Entry,
    /// A function of the program.
    Function,
    /// Callee of the program: a helper, a kfunc, or an interrupt that came.
    Helper,
    /// Kernel code below a helper.
    Kernel,
    /// Another program that ran there, an extension for instance: what it cost is in its own tree.
    Other,
    /// Several, each too small to be shown.
    Folded,
}

/// Another program that a program's tree speaks of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OtherProgram {
    /// Which.
    #[serde(flatten)]
    pub program: ProgramName,
    /// Its samples in this tree.
    #[serde(flatten)]
    pub count: Count,
}
