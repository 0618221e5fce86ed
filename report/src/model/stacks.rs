//! Call chains that were counted.

use super::{Count, Unit};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;

/// The call chains of an event, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stacks {
    /// The event.
    pub event: String,
    /// What its weights are.
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
    /// How often.
    pub count: Count,
}

/// A function, or as much as is known of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// Its name; `[file]` where only the file is known that it is in.
    pub name: String,
    /// What it is a function of.
    pub kind: FrameKind,
}

/// What a frame is a function of.
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
        let FrameKind::Program { id, name, .. } = &self.kind else { return self.name.clone() };
        let id = id.map_or_else(String::new, |id| format!(" ({id})"));
        match name == &self.name {
            true => format!("bpf:{name}{id}"),
            false => format!("bpf:{name}{id}:{}", self.name),
        }
    }
}
