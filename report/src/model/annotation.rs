//! The code of programs with what each part of it cost, and the cost of source lines.

use super::{Count, ProgTypeName, Reason, Unit};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// A count, and its part of what the program has of that kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct PartOfProgram {
    /// Number of samples, and their weight.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the program's weight of the same column, per cent; `null` when it has none.
    pub percent: Option<f64>,
}

/// Cost of a part of a program.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct CodeCost {
    /// Samples charged there, self and helper; `null` where their number is not known.
    pub samples: Option<u64>,
    /// Samples whose address is there; `null` where that is not known.
    #[serde(rename = "self")]
    pub own: Option<PartOfProgram>,
    /// Samples in what was called from there, or interrupted it there; `null` where that is not known.
    pub helper: Option<PartOfProgram>,
    /// Both, of all that is charged to the program.
    pub percent: Option<f64>,
}

/// Programs with the cost of each line and instruction: the document of `bprec annotate --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Annotation {
    /// `bprec annotate`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// The event.
    pub event: String,
    /// Unit of its weights.
    pub unit: Unit,
    /// All samples of the event that were looked at.
    pub samples: Count,
    /// Machine that the code is for, as the recording calls it.
    pub arch: Option<String>,
    /// Why samples do not tell what programs called; `null` when they do.
    pub no_helper: Option<Reason>,
    /// The programs that were asked for and have samples, or all that were asked for when none has; the costliest first.
    pub programs: Vec<AnnotatedProgram>,
    /// Number of further programs that were asked for and have no samples.
    pub programs_without_samples: usize,
}

/// A program, function by function.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AnnotatedProgram {
    /// Its id.
    pub id: Option<u32>,
    /// When it was loaded, ns since boot.
    pub load_time_ns: Option<u64>,
    /// Its name.
    pub name: String,
    /// Digest of its instructions.
    pub tag: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    #[schemars(with = "Option<String>")]
    pub prog_type: Option<ProgTypeName>,
    /// Why the event has no samples of what it does, though it runs: then nothing of its code has a cost. `null` when it has.
    pub blind: Option<Reason>,
    /// Samples charged to it: self, helper and entry, as far as they are known.
    pub charged: Option<Count>,
    /// Share of the weight of all samples of the event, per cent; `null` when there are none.
    pub percent: Option<f64>,
    /// In its own code; `null` where that is not known.
    #[serde(rename = "self")]
    pub own: Option<Count>,
    /// In what it called; `null` where that is not known.
    pub helper: Option<Count>,
    /// In what runs it, which is no part of any function; `null` where that is not known.
    pub entry: Option<Count>,
    /// Part of `entry` that is an estimate: its share of code that runs several programs, as in the report by program.
    pub entry_shared: Option<Count>,
    /// The functions that were asked for; the entry first.
    pub functions: Vec<AnnotatedFunction>,
}

/// A function, line by line.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AnnotatedFunction {
    /// Its name.
    pub name: String,
    /// Address of its machine code, in JSON as hexadecimal text.
    #[serde(serialize_with = "known_address")]
    #[schemars(with = "Option<String>")]
    pub addr: Option<u64>,
    /// Bytes of its machine code.
    pub len_bytes: Option<u32>,
    /// Its cost.
    #[serde(flatten)]
    pub cost: CodeCost,
    /// Why its code has no source lines; `null` when it has.
    pub no_lines: Option<Reason>,
    /// Why it has no BPF instructions; `null` when it has.
    pub no_bpf: Option<Reason>,
    /// Why it has no machine instructions, or which are no text; `null` when it has.
    pub no_machine: Option<Reason>,
    /// Its code, in the order of the BPF instructions.
    pub lines: Vec<CodeLine>,
    /// Lines left out behind the last one shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Samples at addresses that are in none of its lines.
    pub elsewhere: CodeCost,
}

/// Lines that are not hot enough to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// Number of lines.
    pub lines: u64,
    /// Their cost.
    #[serde(flatten)]
    pub cost: CodeCost,
}

/// Instructions that one entry of the line table stands for. The same line of the source may come again.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CodeLine {
    /// Lines left out before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Position in the source; `null` where it is not known.
    pub source: Option<SourceLine>,
    /// Its cost.
    #[serde(flatten)]
    pub cost: CodeCost,
    /// Its BPF instructions.
    pub bpf: Vec<BpfInsn>,
    /// Machine instructions of the line of which it cannot be proven to which BPF instruction they belong.
    pub machine: Vec<MachineInsn>,
}

/// A place in the source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct SourceLine {
    /// Name of the file, as the compiler was given it.
    pub file: Arc<str>,
    /// From 1; 0 for code that the compiler could assign to none.
    pub line: u32,
    /// From 1; 0 when the compiler gave none.
    pub column: u16,
    /// The line, without what indents it.
    pub text: Arc<str>,
}

/// A BPF instruction.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BpfInsn {
    /// Its slot in the program.
    pub slot: u32,
    /// Its text.
    pub text: String,
    /// Samples in its machine instructions, where those are known; `null` where they are not.
    #[serde(rename = "self")]
    pub own: Option<PartOfProgram>,
    /// Samples in what it called, where that is known.
    pub helper: Option<PartOfProgram>,
    /// Its machine instructions, where it is proven that they are its.
    pub machine: Vec<MachineInsn>,
}

/// A machine instruction.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MachineInsn {
    /// Its address, in JSON as hexadecimal text.
    #[serde(serialize_with = "address")]
    #[schemars(with = "String")]
    pub addr: u64,
    /// Offset from the start of the function, bytes.
    pub offset_bytes: u32,
    /// Its bytes, in hexadecimal digits.
    pub bytes: String,
    /// Its text; the bytes again where this processor's code is not decoded.
    pub text: String,
    /// Function that it calls, where the recording has a name for it.
    pub called: Option<String>,
    /// Its cost.
    #[serde(flatten)]
    pub cost: CodeCost,
}

/// Cost of source lines: the document of `bprec report --lines --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LinesReport {
    /// `bprec lines`.
    pub format: &'static str,
    /// [`super::JSON_VERSION`].
    pub version: u32,
    /// One for each event that is asked for.
    pub events: Vec<EventLines>,
}

/// The lines of an event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EventLines {
    /// The event.
    pub name: String,
    /// Unit of its weights.
    pub unit: Unit,
    /// All samples of the event that were looked at.
    pub samples: Count,
    /// Lines that have samples; the costliest first.
    pub rows: Vec<LineRow>,
    /// Number and cost of the lines that are not listed.
    pub others: OtherLines,
    /// Self of the programs that were asked for.
    #[serde(rename = "self")]
    pub own: Count,
    /// Helper of the programs that were asked for; `null` where that is not known.
    pub helper: Option<Count>,
    /// Why samples do not tell what programs called; `null` when they do.
    pub no_helper: Option<Reason>,
}

/// Lines that are not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OtherLines {
    /// Number of lines.
    pub lines: u64,
    /// In their own code.
    #[serde(rename = "self")]
    pub own: Count,
    /// In what was called there; `null` where that is not known.
    pub helper: Option<Count>,
}

/// Cost of a source line of a program's function.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LineRow {
    /// Id of the program.
    pub id: Option<u32>,
    /// When it was loaded, ns since boot.
    pub load_time_ns: Option<u64>,
    /// Its name.
    pub program: String,
    /// The function.
    pub function: String,
    /// The line, with its first column and text; `null` for all code of the function without line information.
    pub source: Option<SourceLine>,
    /// In the code of the line.
    #[serde(rename = "self")]
    pub own: Count,
    /// In what was called there; `null` where that is not known.
    pub helper: Option<Count>,
    /// Both, of the weight of all samples of the event; `null` when there are none.
    pub percent: Option<f64>,
}

fn address<S: serde::Serializer>(addr: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{addr:#x}"))
}

fn known_address<S: serde::Serializer>(addr: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    addr.map(|addr| format!("{addr:#x}")).serialize(serializer)
}
