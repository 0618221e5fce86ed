//! Code of BPF programs with its cost, as a listing and as CSV.

use super::blocks::{Block, View};
use super::cells::{number, percent};
use super::columns::{LineColumn, LineColumns};
use super::line::{TonedLine, share_tone};
use super::screen::Screen;
use crate::model::text::{UNKNOWN, UNNAMED, counted, grouped, printable};
use crate::model::{
    AnnotatedFunction, AnnotatedProgram, Annotation, BpfInsn, CodeCost, CodeLine, LeftOut, MachineInsn, PartOfProgram,
    Reason, SourceLine,
};
use std::io;

/// Widths of the cost columns, in characters.
const WIDTHS: [usize; 4] = [8, 7, 7, 8];
/// Names of the cost columns.
pub(super) const COSTS: [&str; 4] = ["SAMPLES", "%COST", "%SELF", "%HELPER"];

pub(super) fn view(annotation: &Annotation, _: usize) -> View<'_> {
    let mut view = View::default();
    for (nth, program) in annotation.programs.iter().enumerate() {
        if nth > 0 {
            view.push(Block::Blank);
        }
        view.0.extend(head(annotation, program));
        program.functions.iter().for_each(|function| self::function(function, &mut view));
    }
    if annotation.programs_without_samples > 0 {
        let more = counted(annotation.programs_without_samples as u64, "program");
        view.push(Block::Fact(format!("{more} more without a sample")));
    }
    view
}

/// Lines about a program: name, charged samples and their parts, and the meaning of the cost columns.
pub(super) fn head(annotation: &Annotation, program: &AnnotatedProgram) -> Vec<Block<'static>> {
    let id = program.id.map(|id| format!("id {id}"));
    let prog_type = program.prog_type.map(|it| it.to_string());
    let tag = program.tag.as_ref().map(|tag| format!("tag {tag}"));
    let facts: Vec<String> = [id, prog_type, tag].into_iter().flatten().collect();
    let name = if program.name.is_empty() { UNNAMED } else { &program.name };
    let samples = program.charged.map_or_else(|| format!("{UNKNOWN} samples"), |it| counted(it.samples, "sample"));
    let share = percent(program.percent);
    let mut lines = vec![format!("{samples} of {}: {share} % of all samples", annotation.event)];
    lines.extend(program.blind.iter().map(|reason| format!("the cost of the program's code is unknown: {reason}")));
    let [own, helper, entry] =
        [program.own, program.helper, program.entry].map(|count| number(count.map(|count| count.samples)));
    let about = if program.entry_shared.is_some_and(|shared| shared.weight > 0) { "≈" } else { "" };
    lines.push(format!("self {own} samples, helper {helper}, entry {about}{entry} (entry code is not listed below)"));
    lines.extend(annotation.no_helper.iter().map(|reason| format!("helper: {reason}")));
    lines.push(
        "%COST: share of all samples charged to the program; %SELF: share of its self samples; %HELPER: share of its helper \
         samples"
            .to_owned(),
    );
    let first = Block::Title(format!("{name} ({})", facts.join(", ")));
    [first].into_iter().chain(lines.into_iter().map(Block::Fact)).collect()
}

fn function<'v>(function: &AnnotatedFunction, view: &mut View<'v>) {
    let name = if function.name.is_empty() { UNNAMED } else { &function.name };
    let bytes = function.len_bytes.map(|len| counted(len.into(), "byte"));
    let addr = function.addr.map(|addr| format!("at {addr:#x}"));
    let place: Vec<String> = bytes.into_iter().chain(addr).collect();
    view.push(Block::Gap);
    view.push(Block::Title(format!("FUNCTION {name}  {}", place.join(" "))));
    view.0.extend(lacks(function).map(|(what, reason)| Block::Fact(format!("{what}: {reason}"))));
    let header = cells_of(&COSTS.map(str::to_owned)).text;
    view.push(Block::Heading(header.trim_end().to_owned()));
    view.push(row(costs(&function.cost), "(all of the function)"));
    let left_out = |left_out: &LeftOut| row(costs(&left_out.cost), &format!("… {}", counted(left_out.lines, "line")));
    for line in &function.lines {
        view.0.extend(line.left_out.as_ref().map(left_out));
        view.push(row(costs(&line.cost), &source(line)));
        view.0.extend(instructions(line).map(|(cells, text)| row(cells, &text)));
    }
    view.0.extend(function.left_out.as_ref().map(left_out));
    if function.elsewhere.samples > Some(0) {
        view.push(row(costs(&function.elsewhere), "(at addresses that are in no line)"));
    }
}

/// Parts of the function's code that are unknown, with reasons.
pub(super) fn lacks(function: &AnnotatedFunction) -> impl Iterator<Item = (&'static str, &Reason)> {
    let lacks = [
        ("source lines", &function.no_lines),
        ("BPF instructions", &function.no_bpf),
        ("machine instructions", &function.no_machine),
    ];
    lacks.into_iter().filter_map(|(what, reason)| Some((what, reason.as_ref()?)))
}

/// Position and text of a source line, or a text for code without line information.
pub(super) fn source(line: &CodeLine) -> String {
    line.source.as_ref().map_or_else(|| "(no line information)".to_owned(), place)
}

/// Instructions of a line, each with its cost cells.
pub(super) fn instructions(line: &CodeLine) -> impl Iterator<Item = ([String; 4], String)> {
    let of_bpf = line.bpf.iter().flat_map(|insn| [bpf(insn)].into_iter().chain(insn.machine.iter().map(machine)));
    of_bpf.chain(line.machine.iter().map(machine))
}

/// Position and text of a source line. The directory of the file is left out.
pub(super) fn place(source: &SourceLine) -> String {
    let SourceLine { file, line, column, text } = source;
    let file = file.rsplit('/').next().unwrap_or(file);
    match column {
        0 => format!("{file}:{line}  {text}"),
        _ => format!("{file}:{line}:{column}  {text}"),
    }
}

fn bpf(insn: &BpfInsn) -> ([String; 4], String) {
    let part =
        |part: &Option<PartOfProgram>| part.as_ref().filter(|it| it.count.samples > 0).map(|it| percent(it.percent));
    let cells = [None, None, part(&insn.own), part(&insn.helper)].map(Option::unwrap_or_default);
    (cells, format!("  {:>4}: {}", insn.slot, insn.text))
}

fn machine(insn: &MachineInsn) -> ([String; 4], String) {
    let called = insn.called.as_ref().map(|name| format!(" <{name}>")).unwrap_or_default();
    (costs(&insn.cost), format!("         +{:<#6x} {}{called}", insn.offset_bytes, insn.text))
}

/// Cells of a cost; empty if there are no samples, or if their count is unknown.
pub(super) fn costs(cost: &CodeCost) -> [String; 4] {
    let part = |part: &PartOfProgram| if part.count.samples > 0 { percent(part.percent) } else { String::new() };
    let known = |it: &Option<PartOfProgram>| it.as_ref().map_or_else(|| UNKNOWN.to_owned(), part);
    match cost.samples {
        None | Some(0) => Default::default(),
        Some(samples) => [grouped(samples), percent(cost.percent), known(&cost.own), known(&cost.helper)],
    }
}

fn row(cells: [String; 4], text: &str) -> Block<'static> {
    let mut line = cells_of(&cells);
    line.push(" ", None);
    line.push(&printable(text), None);
    line.trim_end();
    Block::Line(line)
}

/// Cost cells as a line, in which high shares stand out.
fn cells_of(cells: &[String; 4]) -> TonedLine {
    let mut line = TonedLine::default();
    for ((cell, width), name) in cells.iter().zip(WIDTHS).zip(COSTS) {
        let tone = if name.starts_with('%') { share_tone(cell) } else { None };
        line.push(&format!("{cell:>width$}"), tone);
        line.push(" ", None);
    }
    line
}

/// A CSV line.
struct CsvLine<'r> {
    program: &'r AnnotatedProgram,
    function: &'r AnnotatedFunction,
    kind: &'static str,
    addr: Option<u64>,
    source: Option<&'r SourceLine>,
    bpf: Option<&'r BpfInsn>,
    machine: Option<&'r MachineInsn>,
    lines: Option<u64>,
    cost: Option<&'r CodeCost>,
}

impl CsvLine<'_> {
    fn own(&self) -> Option<&PartOfProgram> {
        self.bpf.map_or_else(|| self.cost?.own.as_ref(), |insn| insn.own.as_ref())
    }

    fn helper(&self) -> Option<&PartOfProgram> {
        self.bpf.map_or_else(|| self.cost?.helper.as_ref(), |insn| insn.helper.as_ref())
    }
}

pub(super) fn csv(annotation: &Annotation, out: &mut Screen<'_>) -> io::Result<()> {
    type F<'r> = LineColumn<'r, CsvLine<'r>>;
    let hex = |addr| format!("{addr:#x}");
    let fields: [F<'_>; 24] = [
        F::csv("event", |_| Some(annotation.event.clone())),
        F::csv("id", |it| it.program.id),
        F::csv("load_time_ns", |it| it.program.load_time_ns),
        F::csv("program", |it| Some(it.program.name.clone())),
        F::csv("function", |it| Some(it.function.name.clone())),
        F::csv("kind", |it| Some(it.kind)),
        F::csv("file", |it| Some(it.source?.file.to_string())),
        F::csv("line", |it| Some(it.source?.line)),
        F::csv("column", |it| Some(it.source?.column)),
        F::csv("text", |it| {
            let of_code = it.bpf.map(|insn| insn.text.clone()).or(it.machine.map(|insn| insn.text.clone()));
            of_code.or(it.source.map(|source| source.text.to_string()))
        }),
        F::csv("slot", |it| Some(it.bpf?.slot)),
        F::csv("addr", move |it| it.addr.or(it.machine.map(|insn| insn.addr)).map(hex)),
        F::csv("offset_bytes", |it| Some(it.machine?.offset_bytes)),
        F::csv("bytes", |it| Some(it.machine?.bytes.clone())),
        F::csv("called", |it| it.machine?.called.clone()),
        F::csv("lines", |it| it.lines),
        F::csv("samples", |it| it.cost?.samples),
        F::csv("percent", |it| it.cost?.percent),
        F::csv("self_samples", |it| Some(it.own()?.count.samples)),
        F::csv("self_weight", |it| Some(it.own()?.count.weight)),
        F::csv("self_percent", |it| it.own()?.percent),
        F::csv("helper_samples", |it| Some(it.helper()?.count.samples)),
        F::csv("helper_weight", |it| Some(it.helper()?.count.weight)),
        F::csv("helper_percent", |it| it.helper()?.percent),
    ];
    let lines = annotation
        .programs
        .iter()
        .flat_map(|program| program.functions.iter().flat_map(move |function| csv_lines(program, function)));
    LineColumns::new(fields).write_csv(lines, out)
}

fn csv_lines<'r>(program: &'r AnnotatedProgram, function: &'r AnnotatedFunction) -> Vec<CsvLine<'r>> {
    let line = |kind, cost| CsvLine {
        program,
        function,
        kind,
        addr: None,
        source: None,
        bpf: None,
        machine: None,
        lines: None,
        cost,
    };
    let left_out = |it: &'r LeftOut| CsvLine { lines: Some(it.lines), ..line("left_out", Some(&it.cost)) };
    let machine = |it: &'r MachineInsn| CsvLine { machine: Some(it), ..line("machine", Some(&it.cost)) };
    let mut lines = vec![CsvLine { addr: function.addr, ..line("function", Some(&function.cost)) }];
    for it in &function.lines {
        lines.extend(it.left_out.as_ref().map(left_out));
        lines.push(CsvLine { source: it.source.as_ref(), ..line("line", Some(&it.cost)) });
        for insn in &it.bpf {
            lines.push(CsvLine { bpf: Some(insn), ..line("bpf", None) });
            lines.extend(insn.machine.iter().map(machine));
        }
        lines.extend(it.machine.iter().map(machine));
    }
    lines.extend(function.left_out.as_ref().map(left_out));
    lines.push(line("elsewhere", Some(&function.elsewhere)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_shares_stand_out_and_counts_do_not() {
        let line = |cells: [&str; 4]| cells_of(&cells.map(str::to_owned));
        let plain = |line: &TonedLine| TonedLine::toned(None, line.text.clone());
        let (high, low) = (line(["12", "99.00", "0.00", "0.00"]), line(["990,000", "0.10", "0.00", "0.00"]));
        assert_ne!(high, plain(&high));
        assert_eq!(low, plain(&low));
    }
}
