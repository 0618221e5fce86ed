//! Code of programs with the cost of each part, and the cost of source lines.

use super::{Count, Reason, Unit, as_text};
use bprec_format::bpf::names::ProgType;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// A count and its share of the program's samples in the same column.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct PartOfProgram {
    /// Number of samples, and their weight.
    #[serde(flatten)]
    pub count: Count,
    /// Share of the program's weight in the same column, %; `null` if this weight is 0.
    pub percent: Option<f64>,
}

/// Cost of a part of a program's code.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct CodeCost {
    /// Samples charged to the part, self and helper; `null` when unknown.
    pub samples: Option<u64>,
    /// Samples with an address in the part; `null` when unknown.
    #[serde(rename = "self")]
    pub own: Option<PartOfProgram>,
    /// Samples in code called from the part, or in interrupts that arrived there; `null` when unknown.
    pub helper: Option<PartOfProgram>,
    /// Self and helper as a share of all samples charged to the program, %.
    pub percent: Option<f64>,
}

/// Programs with the cost of each line and instruction: the document of `bprec annotate --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Annotation {
    /// Name of the document's format: `bprec annotate`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// Name of the event.
    pub event: String,
    /// Unit of the weights.
    pub unit: Unit,
    /// All selected samples of the event.
    pub samples: Count,
    /// Architecture of the machine code, as the recording names it.
    pub arch: Option<String>,
    /// Reason why callees of programs are unknown; `null` when known.
    pub no_helper: Option<Reason>,
    /// Requested programs with samples, the costliest first; if none has samples, all requested programs.
    pub programs: Vec<AnnotatedProgram>,
    /// Count of requested programs that `programs` does not list, because they have no samples.
    pub programs_without_samples: usize,
}

/// A program, function by function.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AnnotatedProgram {
    /// Id of the program.
    pub id: Option<u32>,
    /// Load time, ns since boot.
    pub load_time_ns: Option<u64>,
    /// Name of the program.
    pub name: String,
    /// Digest of the program's instructions.
    pub tag: Option<String>,
    /// Type of the program.
    #[serde(rename = "type", serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub prog_type: Option<ProgType>,
    /// Reason why the event cannot sample the program; the cost of its code is then unknown. `null` if samples are in the program.
    pub blind: Option<Reason>,
    /// Samples charged to the program: the sum of those of `self`, `helper` and `entry` that are known.
    pub charged: Option<Count>,
    /// Share of the weight of all samples of the event, %; `null` without samples.
    pub percent: Option<f64>,
    /// Samples in the program's own code; `null` when unknown.
    #[serde(rename = "self")]
    pub own: Option<Count>,
    /// Samples in callees; `null` when unknown.
    pub helper: Option<Count>,
    /// Samples in the code that runs the program: this code belongs to no function of the program. `null` when unknown.
    pub entry: Option<Count>,
    /// Estimated part of `entry`: the program's share of the samples in code that runs several programs, as in the report by program.
    pub entry_shared: Option<Count>,
    /// Requested functions; the entry first.
    pub functions: Vec<AnnotatedFunction>,
}

/// A function, line by line.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AnnotatedFunction {
    /// Name of the function.
    pub name: String,
    /// Address of the machine code, in JSON as hexadecimal text.
    #[serde(serialize_with = "known_address")]
    #[schemars(with = "Option<String>")]
    pub addr: Option<u64>,
    /// Size of the machine code, bytes.
    pub len_bytes: Option<u32>,
    /// Cost of the function.
    #[serde(flatten)]
    pub cost: CodeCost,
    /// Reason why source lines are missing, or why the machine code of each line is unknown; `null` otherwise.
    pub no_lines: Option<Reason>,
    /// Reason why BPF instructions are missing; `null` if present.
    pub no_bpf: Option<Reason>,
    /// Reason why machine instructions are missing or not decoded; `null` if decoded.
    pub no_machine: Option<Reason>,
    /// Code in the order of the BPF instructions.
    pub lines: Vec<CodeLine>,
    /// Lines left out after the last shown line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Samples at addresses of the function that belong to no line.
    pub elsewhere: CodeCost,
}

/// Consecutive lines that are not shown: neither hot nor next to a hot line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// Number of lines.
    pub lines: u64,
    /// Cost of these lines.
    #[serde(flatten)]
    pub cost: CodeCost,
}

/// Instructions of one entry of the line table. A source line may have several entries.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CodeLine {
    /// Lines left out before this line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Position in the source; `null` when unknown.
    pub source: Option<SourceLine>,
    /// Cost of the line.
    #[serde(flatten)]
    pub cost: CodeCost,
    /// BPF instructions of the line.
    pub bpf: Vec<BpfInsn>,
    /// Machine instructions of the line that cannot be assigned to a BPF instruction with certainty.
    pub machine: Vec<MachineInsn>,
}

/// A position in source code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct SourceLine {
    /// File name given to the compiler.
    pub file: Arc<str>,
    /// Line number from 1; 0 for code without a line.
    pub line: u32,
    /// Column from 1; 0 when unknown.
    pub column: u16,
    /// Text of the line without indentation.
    pub text: Arc<str>,
}

/// A BPF instruction.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BpfInsn {
    /// Index of the instruction's first 8-byte slot in the program.
    pub slot: u32,
    /// Disassembly of the instruction.
    pub text: String,
    /// Samples in the machine instructions of this BPF instruction; `null` when the machine instructions are unknown.
    #[serde(rename = "self")]
    pub own: Option<PartOfProgram>,
    /// Samples in callees of the instruction; `null` when unknown.
    pub helper: Option<PartOfProgram>,
    /// Machine instructions that certainly belong to this instruction.
    pub machine: Vec<MachineInsn>,
}

/// A machine instruction.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MachineInsn {
    /// Address, in JSON as hexadecimal text.
    #[serde(serialize_with = "address")]
    #[schemars(with = "String")]
    pub addr: u64,
    /// Offset from the start of the function, bytes.
    pub offset_bytes: u32,
    /// Machine code in hexadecimal digits.
    pub bytes: String,
    /// Disassembly; the bytes again if the architecture is not decoded.
    pub text: String,
    /// Name of the called function, if known.
    pub called: Option<String>,
    /// Cost of the instruction.
    #[serde(flatten)]
    pub cost: CodeCost,
}

/// Cost of source lines: the document of `bprec report --lines --json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LinesReport {
    /// Name of the document's format: `bprec lines`.
    pub format: &'static str,
    /// Version of the document's format: [`super::JSON_VERSION`].
    pub version: u32,
    /// Selected events.
    pub events: Vec<EventLines>,
}

/// Source lines of an event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EventLines {
    /// Name of the event.
    pub name: String,
    /// Unit of the weights.
    pub unit: Unit,
    /// All selected samples of the event.
    pub samples: Count,
    /// Lines with samples; the costliest first.
    pub rows: Vec<LineRow>,
    /// Number and cost of lines that are not listed.
    pub others: OtherLines,
    /// Self samples of the requested programs.
    #[serde(rename = "self")]
    pub own: Count,
    /// Helper samples of the requested programs; `null` when unknown.
    pub helper: Option<Count>,
    /// Reason why callees of programs are unknown; `null` when known.
    pub no_helper: Option<Reason>,
}

/// Lines that are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OtherLines {
    /// Number of lines.
    pub lines: u64,
    /// Samples in the lines themselves.
    #[serde(rename = "self")]
    pub own: Count,
    /// Samples in callees of the lines; `null` when unknown.
    pub helper: Option<Count>,
}

/// Cost of a source line of a program's function.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LineRow {
    /// Id of the program.
    pub id: Option<u32>,
    /// Load time of the program, ns since boot.
    pub load_time_ns: Option<u64>,
    /// Name of the program.
    pub program: String,
    /// Name of the function.
    pub function: String,
    /// Source line; `null` for the code of the function that has no line information.
    pub source: Option<SourceLine>,
    /// Samples in the code of the line.
    #[serde(rename = "self")]
    pub own: Count,
    /// Samples in callees of the line; `null` when unknown.
    pub helper: Option<Count>,
    /// Self and helper as a share of all samples of the event, %; `null` without samples.
    pub percent: Option<f64>,
}

/// Serializes an address as a hexadecimal number.
pub(crate) fn address<S: serde::Serializer>(addr: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{addr:#x}"))
}

fn known_address<S: serde::Serializer>(addr: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    addr.map(|addr| format!("{addr:#x}")).serialize(serializer)
}
