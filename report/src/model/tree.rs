//! What programs' costs consist of: a tree for each program.

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
    /// What has less than this of its program's cost, in per cent, is put together with the others of its kind.
    pub percent_limit: f64,
    /// One for each event that is asked for.
    pub events: Vec<EventTrees>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
}

/// The trees of an event.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EventTrees {
    /// The event.
    pub name: String,
    /// What its weights are.
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

/// What a program's cost consists of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tree {
    /// Position in [`Trees::programs`].
    #[serde(skip)]
    pub program: usize,
    /// Id of the program.
    pub id: Option<u32>,
    /// Its name.
    pub name: String,
    /// What is charged to it, as in its row of the ledger: the sum of all that its nodes have themselves.
    #[serde(flatten)]
    pub count: Count,
    /// Of all BPF.
    pub bpf_percent: Option<f64>,
    /// With what ran inside it: the TOTAL of its row of the ledger.
    pub total: Count,
    /// Its parts, each before what it called.
    pub nodes: Vec<TreeNode>,
    /// Programs that ran inside it, next to it, an extension for instance: the sums of their nodes. What they cost is in their own trees.
    pub inside: Vec<OtherProgram>,
    /// What it costs with all that its tail calls led to; `None` where none did.
    pub chain: Option<TailCallChain>,
    /// Of what is charged to it: where tail calls led to it. Empty where none did.
    pub tail_called_from: Vec<TailCallOrigin>,
}

/// A program that a hook or another program runs, with the programs that its tail calls led to, directly or on from there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailCallChain {
    /// What is charged to it and to these when it had been run.
    #[serde(flatten)]
    pub count: Count,
    /// Of all BPF.
    pub bpf_percent: Option<f64>,
    /// Those that are charged for something, but for itself.
    pub reached: Vec<OtherProgram>,
}

/// The program that was run when tail calls led to another one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailCallOrigin {
    /// `None` where several programs can be the one, or it is not in the recording.
    pub program: Option<ProgramName>,
    /// What is charged to the program that tail calls led to.
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
    /// What it is.
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
    /// Of what is charged to the program: itself.
    pub self_percent: Option<f64>,
    /// Of what is charged to the program: with all that it called.
    pub program_percent: Option<f64>,
    /// `total` of that of the program.
    pub total_percent: Option<f64>,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// What runs the program.
    Entry,
    /// A function of the program.
    Function,
    /// What the program called: a helper, a kfunc, or an interrupt that came.
    Helper,
    /// What ran below that.
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
    /// What the tree says of it.
    #[serde(flatten)]
    pub count: Count,
}
