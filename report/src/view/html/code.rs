//! Code of BPF programs with its cost, as data for the script of the HTML page.

use crate::model::text::{UNNAMED, counted};
use crate::model::{AnnotatedFunction, AnnotatedProgram, Annotation, CodeCost, CodeLine};
use crate::view::blocks::comments;
use crate::view::{UNBOUNDED, annotation};
use serde::Serialize;

/// Limit on source lines and instructions in a page, about two megabytes. A program whose code does not fit is left out as a whole.
const MAX_ROWS: usize = 20_000;

/// Code of programs with samples.
#[derive(Serialize)]
pub(super) struct PageCode {
    columns: [&'static str; 4],
    programs: Vec<PageProgram>,
    /// Note on programs whose code is left out; empty if there are none.
    notes: Vec<String>,
}

#[derive(Serialize)]
struct PageProgram {
    /// Key of the program, the same as in the table of programs.
    key: String,
    facts: Vec<String>,
    functions: Vec<PageFunction>,
}

#[derive(Serialize)]
struct PageFunction {
    name: String,
    lacks: Vec<String>,
    cells: [String; 4],
    lines: Vec<PageCodeLine>,
    elsewhere: Option<[String; 4]>,
}

#[derive(Serialize)]
struct PageCodeLine {
    cells: [String; 4],
    /// Share of the program's charged samples, %.
    percent: f64,
    text: String,
    instructions: Vec<([String; 4], String)>,
}

/// Converts the code of programs to data for the page, the costliest programs first. `key` returns the key of a program in the page.
pub(super) fn code(annotation: Option<&Annotation>, key: impl Fn(&AnnotatedProgram) -> String) -> PageCode {
    let (mut rows, mut left_out) = (0, 0);
    let mut programs = Vec::new();
    if let Some(annotation) = annotation {
        for program in
            annotation.programs.iter().filter(|program| program.charged.is_some_and(|charged| charged.samples > 0))
        {
            let own = rows_of(program);
            if rows + own <= MAX_ROWS {
                rows += own;
                programs.push(self::program(annotation, program, key(program)));
            } else {
                left_out += 1;
            }
        }
    }
    let notes = match left_out {
        0 => Vec::new(),
        more => vec![format!("{} more: bprec annotate has their code", counted(more, "program"))],
    };
    PageCode { columns: annotation::COSTS, programs, notes }
}

fn rows_of(program: &AnnotatedProgram) -> usize {
    let lines = program.functions.iter().flat_map(|function| &function.lines);
    lines.map(|line| 1 + annotation::instructions(line).count()).sum()
}

fn program(annotation: &Annotation, program: &AnnotatedProgram, key: String) -> PageProgram {
    PageProgram {
        key,
        facts: comments(&annotation::head(annotation, program), UNBOUNDED),
        functions: program.functions.iter().map(function).collect(),
    }
}

fn function(function: &AnnotatedFunction) -> PageFunction {
    PageFunction {
        name: super::text(if function.name.is_empty() { UNNAMED } else { &function.name }),
        lacks: annotation::lacks(function).map(|(what, reason)| super::text(&format!("{what}: {reason}"))).collect(),
        cells: annotation::costs(&function.cost),
        lines: function.lines.iter().map(line).collect(),
        elsewhere: Some(&function.elsewhere).filter(|cost| cost.samples > Some(0)).map(annotation::costs),
    }
}

fn line(line: &CodeLine) -> PageCodeLine {
    let CodeCost { percent, .. } = line.cost;
    let instructions = annotation::instructions(line).map(|(cells, text)| (cells, super::text(&text)));
    PageCodeLine {
        cells: annotation::costs(&line.cost),
        percent: percent.unwrap_or(0.0),
        text: super::text(&annotation::source(line)),
        instructions: instructions.collect(),
    }
}
