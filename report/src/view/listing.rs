//! Views as lines, for interactive screens that show a part of the lines at a time.

use super::blocks::comments;
use super::by_prog::{self, Rates};
use super::grid::{Column, Sheet};
use super::payers::{self, Repeated};
use super::{UNBOUNDED, annotation, bill, interval, tree};
use crate::model::text::{UNNAMED, clean, counted};
use crate::model::{AnnotatedFunction, Annotation, Bill, CodeCost, CodeLine, History, Interval, Payers, Report, Trees};
use std::ops::Range;

/// A view as lines without control characters. Rows fit the requested width.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Summary of the measurement.
    pub above: Vec<String>,
    /// Column names; empty without columns.
    pub header: String,
    /// Rows of the table, code or flame graph.
    pub rows: Vec<ListingRow>,
    /// Rows of sums, for display below the other rows.
    pub totals: Vec<String>,
    /// Notes about the numbers, not wrapped.
    pub notes: Vec<String>,
}

/// A row of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingRow {
    /// Text of the row.
    pub text: String,
    /// Item of the row: position in the model's list of programs, functions or lines. `None` for a row without an item, such as a sum.
    pub item: Option<usize>,
    /// Selectable boxes of a flame graph, from left to right.
    pub boxes: Vec<FlameBox>,
}

/// A box of a flame graph: the samples of a frame that share the same callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlameBox {
    /// Terminal columns that the box covers in its row.
    pub columns: Range<usize>,
    /// Label of the frame, for `below` of [`Stacks::flame_listing`]; `None` for several small frames in one box.
    ///
    /// [`Stacks::flame_listing`]: crate::Stacks::flame_listing
    pub frame: Option<String>,
    /// Label of the frame, and its share in per cent.
    pub text: String,
}

/// Level of detail of a code listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Source lines.
    Lines,
    /// Source lines, each followed by its instructions.
    Instructions,
}

impl Report {
    /// Table of the event with this index; items are positions in [`Report::programs`]. Empty if there is no such event.
    pub fn listing(&self, event: usize, width: usize) -> Listing {
        let Some(event) = self.events.get(event) else { return Listing::default() };
        let items = event.rows.iter().map(|row| Some(row.program)).collect();
        let listing = Listing::of(&by_prog::sheet(self, event, Rates::Count, None), items, width);
        let notes = comments(&by_prog::notes(self, Some(event)), UNBOUNDED);
        Listing { above: comments(&by_prog::above(self, event), width), notes, ..listing }
    }
}

impl Interval {
    /// Table of the event with this index, with bars of each program's cost in earlier intervals; items are positions in [`Report::programs`].
    pub fn listing(&self, event: usize, history: &History, width: usize) -> Listing {
        let Some(event) = self.report.events.get(event) else { return Listing::default() };
        let sheet = by_prog::sheet(&self.report, event, Rates::PerSecond, Some(history));
        let items = event.rows.iter().map(|row| Some(row.program)).collect();
        let notes = comments(&by_prog::notes(&self.report, Some(event)), UNBOUNDED);
        Listing {
            above: interval::totals(self, width).iter().map(|line| clean(line)).collect(),
            notes,
            ..Listing::of(&sheet, items, width)
        }
    }
}

impl Annotation {
    /// Functions of a program, with their cost; items are positions in the program's list of functions.
    pub fn functions_listing(&self, program: usize, width: usize) -> Listing {
        let Some(program) = self.programs.get(program) else { return Listing::default() };
        let rows = program.functions.iter().map(|function| cost_row(&function.cost, function_name(function)));
        let items = (0..program.functions.len()).map(Some).collect();
        let listing = Listing::of(&cost_sheet("FUNCTION", rows.collect()), items, width);
        Listing { above: comments(&annotation::head(self, program), UNBOUNDED), ..listing }
    }

    /// Code of a function, with its cost; items are positions in the function's list of lines.
    pub fn code_listing(&self, program: usize, function: usize, detail: Detail, width: usize) -> Listing {
        let Some(function) = self.function(program, function) else { return Listing::default() };
        let (mut rows, mut items) = (Vec::new(), Vec::new());
        for (at, line) in function.lines.iter().enumerate() {
            rows.push(cost_row(&line.cost, annotation::source(line)));
            items.push(Some(at));
            if detail == Detail::Instructions {
                rows.extend(instructions(line));
                items.resize(rows.len(), Some(at));
            }
        }
        if function.elsewhere.samples > Some(0) {
            rows.push(cost_row(&function.elsewhere, "(at addresses that are in no line)".to_owned()));
        }
        let all = cost_row(&function.cost, "(all of the function)".to_owned());
        let sheet = Sheet { totals: vec![all], ..cost_sheet("LINE", rows) };
        Listing { above: above_code(function), ..Listing::of(&sheet, items, width) }
    }

    /// Instructions of a line of a function, with their cost.
    pub fn line_listing(&self, program: usize, function: usize, line: usize, width: usize) -> Listing {
        let function = self.function(program, function);
        let Some((function, line)) = function.and_then(|it| Some((it, it.lines.get(line)?))) else {
            return Listing::default();
        };
        let all = cost_row(&line.cost, "(all of the line)".to_owned());
        let sheet = Sheet { totals: vec![all], ..cost_sheet("INSTRUCTION", instructions(line).collect()) };
        let above = above_code(function).into_iter().chain([clean(&annotation::source(line))]).collect();
        Listing { above, ..Listing::of(&sheet, Vec::new(), width) }
    }

    fn function(&self, program: usize, function: usize) -> Option<&AnnotatedFunction> {
        self.programs.get(program)?.functions.get(function)
    }
}

impl Trees {
    /// Tree of a program (position in [`Trees::programs`]), or the trees of all programs, for the first event.
    pub fn listing(&self, program: Option<usize>, width: usize) -> Listing {
        let Some(event) = self.events.first() else { return Listing::default() };
        let sheet = match program {
            None => tree::sheet(event),
            Some(program) => match event.trees.iter().find(|tree| tree.program == program) {
                Some(tree) => tree::of_program(tree),
                None => return Listing::default(),
            },
        };
        let above = vec![clean(&event.name)];
        Listing {
            above,
            notes: self.problems.iter().map(|it| clean(it)).collect(),
            ..Listing::of(&sheet, vec![], width)
        }
    }
}

impl Payers {
    /// Payers of a program (position in [`Payers::programs`]), or of all programs, for the first event.
    pub fn listing(&self, program: Option<usize>, width: usize) -> Listing {
        let Some(event) = self.events.first() else { return Listing::default() };
        let sheet = match program {
            None => payers::payers(self, event),
            Some(program) => {
                let sheet = payers::pairs(self, event, Repeated::Named);
                let rows = sheet.rows.into_iter().zip(&event.rows);
                let rows = rows.filter(|(_, row)| row.program == Some(program)).map(|(cells, _)| cells).collect();
                Sheet { rows, totals: Vec::new(), ..sheet }
            }
        };
        let above = vec![clean(&event.name)];
        Listing { above, notes: vec![payers::LEGEND.to_owned()], ..Listing::of(&sheet, vec![], width) }
    }
}

impl Bill {
    /// Owners in the first event.
    pub fn listing(&self, width: usize) -> Listing {
        let Some(event) = self.events.first() else { return Listing::default() };
        let notes = bill::legend(&self.events).map(str::to_owned).chain(self.problems.iter().map(|it| clean(it)));
        let (above, notes) = (vec![clean(&event.name)], notes.collect());
        Listing { above, notes, ..Listing::of(&bill::owners(event), vec![], width) }
    }
}

impl Listing {
    /// Lines of a sheet. `items` are the items of its first rows; later rows have none.
    fn of(sheet: &Sheet, items: Vec<Option<usize>>, width: usize) -> Listing {
        let (header, rows, totals) = sheet.lines(width);
        let items = items.into_iter().chain(std::iter::repeat(None));
        let rows =
            rows.into_iter().zip(items).map(|(text, item)| ListingRow { text, item, boxes: Vec::new() }).collect();
        Listing { header, rows, totals, ..Listing::default() }
    }
}

fn cost_sheet(what: &str, rows: Vec<Vec<String>>) -> Sheet {
    let [samples, cost, own, helper] = annotation::COSTS.map(|name| Column::number(name).always());
    Sheet {
        columns: vec![samples, cost, own, helper, Column::text(what).always().cut_to(24).cut_at_end()],
        rows,
        totals: Vec::new(),
    }
}

fn cost_row(cost: &CodeCost, text: String) -> Vec<String> {
    annotation::costs(cost).into_iter().chain([text]).collect()
}

fn instructions(line: &CodeLine) -> impl Iterator<Item = Vec<String>> {
    annotation::instructions(line).map(|(cells, text)| cells.into_iter().chain([text]).collect())
}

fn function_name(function: &AnnotatedFunction) -> String {
    if function.name.is_empty() { UNNAMED.to_owned() } else { function.name.clone() }
}

/// Name and size of the function, and the parts of its code that are unknown.
fn above_code(function: &AnnotatedFunction) -> Vec<String> {
    let bytes = function.len_bytes.map(|len| format!(" · {}", counted(len.into(), "byte"))).unwrap_or_default();
    let first = clean(&format!("function {}{bytes}", function_name(function)));
    let lacks = annotation::lacks(function).map(|(what, reason)| clean(&format!("{what}: {reason}")));
    [first].into_iter().chain(lacks).collect()
}
