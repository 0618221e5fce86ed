//! The code of programs with its costs: a listing for people, lines for programs.

use super::cells::plain;
use super::line::{Line, share_tone};
use super::screen::Screen;
use crate::model::text::{UNKNOWN, UNNAMED, counted, fixed, grouped, printable};
use crate::model::{
    AnnotatedFunction, AnnotatedProgram, Annotation, BpfInsn, CodeCost, CodeLine, LeftOut, MachineInsn, PartOfProgram,
    Reason, SourceLine,
};
use crate::options::Tone;
use std::io;

/// Widths of the columns of cost.
const WIDTHS: [usize; 4] = [8, 7, 7, 8];
/// The columns of cost.
pub(super) const COSTS: [&str; 4] = ["SAMPLES", "%COST", "%SELF", "%HELPER"];

pub(super) fn table(annotation: &Annotation, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    for (nth, program) in annotation.programs.iter().enumerate() {
        if nth > 0 {
            writeln!(out)?;
        }
        head(annotation, program, out)?;
        for function in &program.functions {
            self::function(function, out, width)?;
        }
    }
    match annotation.programs_without_samples {
        0 => Ok(()),
        more => writeln!(out, "# {} more without a sample", counted(more as u64, "program")),
    }
}

/// Which program it is, and what is charged to it.
pub(super) fn head(annotation: &Annotation, program: &AnnotatedProgram, out: &mut Screen<'_>) -> io::Result<()> {
    let id = program.id.map(|id| format!("id {id}"));
    let prog_type = program.prog_type.map(|it| it.0.to_string());
    let tag = program.tag.as_ref().map(|tag| format!("tag {tag}"));
    let facts: Vec<String> = [id, prog_type, tag].into_iter().flatten().collect();
    let name = if program.name.is_empty() { UNNAMED } else { &program.name };
    out.line(&Line::of(Tone::Bold, format!("# {name} ({})", facts.join(", "))))?;
    let samples = program.charged.map_or_else(|| format!("{UNKNOWN} samples"), |it| counted(it.samples, "sample"));
    writeln!(out, "# {samples} of {}: {} % of all samples", annotation.event, percent(program.percent))?;
    if let Some(reason) = &program.blind {
        writeln!(out, "# no cost of its code: {reason}")?;
    }
    let count = |count: Option<u64>| count.map_or_else(|| UNKNOWN.to_owned(), grouped);
    writeln!(
        out,
        "# self {} samples, helper {}, entry {}{} (in code that runs it: in no function below)",
        count(program.own.map(|it| it.samples)),
        count(program.helper.map(|it| it.samples)),
        if program.entry_shared.is_some_and(|shared| shared.weight > 0) { "≈" } else { "" },
        count(program.entry.map(|it| it.samples))
    )?;
    if let Some(reason) = &annotation.no_helper {
        writeln!(out, "# helper: {reason}")?;
    }
    writeln!(out, "# %COST of what is charged to the program, %SELF of its self, %HELPER of its helper")
}

fn percent(percent: Option<f64>) -> String {
    percent.map_or_else(|| UNKNOWN.to_owned(), |percent| fixed(percent, 2))
}

fn function(function: &AnnotatedFunction, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    let name = if function.name.is_empty() { UNNAMED } else { &function.name };
    let bytes = function.len_bytes.map(|len| counted(len.into(), "byte"));
    let addr = function.addr.map(|addr| format!("at {addr:#x}"));
    let place: Vec<String> = bytes.into_iter().chain(addr).collect();
    writeln!(out, "#")?;
    out.line(&Line::of(Tone::Bold, format!("# FUNCTION {name}  {}", place.join(" "))))?;
    for (what, reason) in lacks(function) {
        writeln!(out, "# {what}: {reason}")?;
    }
    let header = cells_of(&COSTS.map(str::to_owned)).text;
    out.line(&Line::of(Tone::Bold, header.trim_end().to_owned()))?;
    row(costs(&function.cost), "(all of the function)", out, width)?;
    for line in &function.lines {
        self::line(line, out, width)?;
    }
    left_out(function.left_out.as_ref(), out, width)?;
    if function.elsewhere.samples > Some(0) {
        row(costs(&function.elsewhere), "(at addresses that are in no line)", out, width)?;
    }
    Ok(())
}

/// What its code has none of, and why.
pub(super) fn lacks(function: &AnnotatedFunction) -> impl Iterator<Item = (&'static str, &Reason)> {
    let lacks = [
        ("source lines", &function.no_lines),
        ("BPF instructions", &function.no_bpf),
        ("machine instructions", &function.no_machine),
    ];
    lacks.into_iter().filter_map(|(what, reason)| Some((what, reason.as_ref()?)))
}

fn left_out(left_out: Option<&LeftOut>, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    match left_out {
        Some(left_out) => row(costs(&left_out.cost), &format!("… {}", counted(left_out.lines, "line")), out, width),
        None => Ok(()),
    }
}

fn line(line: &CodeLine, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    left_out(line.left_out.as_ref(), out, width)?;
    row(costs(&line.cost), &source(line), out, width)?;
    instructions(line).try_for_each(|(cells, text)| row(cells, &text, out, width))
}

/// Where in the source a line is.
pub(super) fn source(line: &CodeLine) -> String {
    line.source.as_ref().map_or_else(|| "(no line information)".to_owned(), place)
}

/// The instructions of a line, each with the cells of its cost.
pub(super) fn instructions(line: &CodeLine) -> impl Iterator<Item = ([String; 4], String)> {
    let of_bpf = line.bpf.iter().flat_map(|insn| [bpf(insn)].into_iter().chain(insn.machine.iter().map(machine)));
    of_bpf.chain(line.machine.iter().map(machine))
}

/// A line of the source with where it is.
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

/// The cells of a cost; nothing where there is no sample.
pub(super) fn costs(cost: &CodeCost) -> [String; 4] {
    let part = |part: &PartOfProgram| if part.count.samples > 0 { percent(part.percent) } else { String::new() };
    let known = |it: &Option<PartOfProgram>| it.as_ref().map_or_else(|| UNKNOWN.to_owned(), part);
    match cost.samples {
        None | Some(0) => Default::default(),
        Some(samples) => [grouped(samples), percent(cost.percent), known(&cost.own), known(&cost.helper)],
    }
}

fn row(cells: [String; 4], text: &str, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    let mut line = cells_of(&cells);
    line.push(" ", None);
    line.push(&printable(text), None);
    line.trim_end();
    line.cut(width);
    out.line(&line)
}

/// The columns of cost, of which the shares stand out when they are high.
fn cells_of(cells: &[String; 4]) -> Line {
    let mut line = Line::default();
    for ((cell, width), name) in cells.iter().zip(WIDTHS).zip(COSTS) {
        let tone = if name.ends_with('%') { share_tone(cell) } else { None };
        line.push(&format!("{cell:>width$}"), tone);
        line.push(" ", None);
    }
    line
}

const CSV_COLUMNS: [&str; 24] = [
    "event",
    "id",
    "load_time_ns",
    "program",
    "function",
    "kind",
    "file",
    "line",
    "column",
    "text",
    "slot",
    "addr",
    "offset_bytes",
    "bytes",
    "called",
    "lines",
    "samples",
    "percent",
    "self_samples",
    "self_weight",
    "self_percent",
    "helper_samples",
    "helper_weight",
    "helper_percent",
];

pub(super) fn csv(annotation: &Annotation, out: &mut Screen<'_>) -> io::Result<()> {
    out.values(CSV_COLUMNS.map(str::to_owned), ",")?;
    for program in &annotation.programs {
        for function in &program.functions {
            csv_function(annotation, program, function, out)?;
        }
    }
    Ok(())
}

fn csv_function(
    annotation: &Annotation,
    program: &AnnotatedProgram,
    function: &AnnotatedFunction,
    out: &mut Screen<'_>,
) -> io::Result<()> {
    let cells = |kind: &str| {
        Cells::default()
            .set("event", annotation.event.clone())
            .set("id", plain(program.id))
            .set("load_time_ns", plain(program.load_time_ns))
            .set("program", program.name.clone())
            .set("function", function.name.clone())
            .set("kind", kind.to_owned())
    };
    let left_out = |left_out: &LeftOut| cells("left_out").set("lines", left_out.lines.to_string()).cost(&left_out.cost);
    let machine = |insn: &MachineInsn| {
        let place = cells("machine").set("addr", format!("{:#x}", insn.addr));
        let place = place.set("offset_bytes", insn.offset_bytes.to_string()).set("bytes", insn.bytes.clone());
        place.set("text", insn.text.clone()).set("called", insn.called.clone().unwrap_or_default()).cost(&insn.cost)
    };
    cells("function")
        .set("addr", plain(function.addr.map(|addr| format!("{addr:#x}"))))
        .cost(&function.cost)
        .write(out)?;
    for line in &function.lines {
        line.left_out.iter().try_for_each(|it| left_out(it).write(out))?;
        let source = line.source.as_ref().map_or_else(|| cells("line"), |source| cells("line").source(source));
        source.cost(&line.cost).write(out)?;
        for insn in &line.bpf {
            let shown = cells("bpf").set("slot", insn.slot.to_string()).set("text", insn.text.clone());
            shown.part("self", insn.own.as_ref()).part("helper", insn.helper.as_ref()).write(out)?;
            insn.machine.iter().try_for_each(|insn| machine(insn).write(out))?;
        }
        line.machine.iter().try_for_each(|insn| machine(insn).write(out))?;
    }
    function.left_out.iter().try_for_each(|it| left_out(it).write(out))?;
    cells("elsewhere").cost(&function.elsewhere).write(out)
}

/// A line of CSV being filled in.
#[derive(Default)]
struct Cells([String; CSV_COLUMNS.len()]);

impl Cells {
    fn set(mut self, column: &str, value: String) -> Cells {
        if let Some(at) = CSV_COLUMNS.iter().position(|name| *name == column) {
            self.0[at] = value;
        }
        self
    }

    fn source(self, source: &SourceLine) -> Cells {
        let place = self.set("file", source.file.to_string()).set("line", source.line.to_string());
        place.set("column", source.column.to_string()).set("text", source.text.to_string())
    }

    fn part(self, name: &str, part: Option<&PartOfProgram>) -> Cells {
        let samples = self.set(&format!("{name}_samples"), plain(part.map(|it| it.count.samples)));
        let weight = samples.set(&format!("{name}_weight"), plain(part.map(|it| it.count.weight)));
        weight.set(&format!("{name}_percent"), plain(part.and_then(|it| it.percent)))
    }

    fn cost(self, cost: &CodeCost) -> Cells {
        let sums = self.set("samples", plain(cost.samples)).set("percent", plain(cost.percent));
        sums.part("self", cost.own.as_ref()).part("helper", cost.helper.as_ref())
    }

    fn write(self, out: &mut Screen<'_>) -> io::Result<()> {
        out.values(self.0, ",")
    }
}
