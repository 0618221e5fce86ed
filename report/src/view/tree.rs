//! Trees: what each program's cost consists of.

use super::cells::{percent, plain};
use super::grid::{Column, Sheet};
use super::opening::measured;
use super::screen::Screen;
use super::write_notes;
use crate::model::text::{UNKNOWN, grouped};
use crate::model::{Count, EventTrees, NodeKind, OtherProgram, ProgramName, Tree, TreeNode, Trees};
use std::io;

/// What the columns are.
const LEGEND: &str = "SAMPLES and %PROGRAM: in it and in what it called; SELF %PROGRAM: in itself alone; both of what is charged to the program";
/// What is more where programs ran inside others,
const LEGEND_INSIDE: &str =
    "%TOTAL: the same with other programs that ran there (→), of the program's TOTAL; those have trees of their own";
/// and where tail calls led to some.
const LEGEND_CHAIN: &str = "chain: what is charged to a program and to those that its tail calls led to; ←: from where tail calls led to a program";

/// Programs of a chain that are named in its line.
const NAMED_IN_CHAIN: usize = 4;

pub(super) fn table(report: &Trees, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
    for (nth, event) in report.events.iter().enumerate() {
        if nth > 0 {
            writeln!(out)?;
        }
        writeln!(out, "# {}", measured(&report.recording, &event.name))?;
        writeln!(out, "#")?;
        sheet(event).write(out, width)?;
    }
    if report.events.is_empty() {
        writeln!(out, "# no event of this recording samples the CPUs")?;
    }
    let trees = || report.events.iter().flat_map(|event| &event.trees);
    let mut notes = vec![LEGEND.to_owned()];
    notes.extend(trees().any(|tree| !tree.inside.is_empty()).then(|| LEGEND_INSIDE.to_owned()));
    notes.extend(trees().any(|tree| !tree.tail_called_from.is_empty()).then(|| LEGEND_CHAIN.to_owned()));
    notes.extend(report.problems.iter().cloned());
    write_notes(&notes, out, width)
}

fn columns() -> Vec<Column> {
    vec![
        Column::number("SAMPLES").always(),
        Column::number("%BPF").droppable(1),
        Column::number("%PROGRAM").share().always(),
        Column::number("SELF %PROGRAM").always(),
        Column::number("%TOTAL").droppable(2),
        Column::text("PROGRAM, AND WHAT IT CALLED").always().cut_to(24),
    ]
}

/// One tree alone.
pub(super) fn of_program(tree: &Tree) -> Sheet {
    Sheet { columns: columns(), rows: rows_of(tree), totals: Vec::new() }
}

/// The trees of an event.
pub(super) fn sheet(event: &EventTrees) -> Sheet {
    let mut rows: Vec<Vec<String>> = event.trees.iter().flat_map(rows_of).collect();
    let line = |count: Count, name: &str| {
        let empty = String::new;
        vec![grouped(count.samples), empty(), empty(), empty(), empty(), name.to_owned()]
    };
    let lines = [
        (event.others, "(other programs)"),
        (event.entry_unattributed, "(entry, unattributed)"),
        (event.interpreted, "(interpreted programs)"),
    ];
    rows.extend(lines.iter().filter(|(count, _)| *count != Count::default()).map(|(count, name)| line(*count, name)));
    Sheet { columns: columns(), rows, totals: vec![line(event.total, "TOTAL")] }
}

/// The lines of a tree.
fn rows_of(tree: &Tree) -> Vec<Vec<String>> {
    let empty = String::new;
    let head = ProgramName { id: tree.id, name: tree.name.clone() };
    let first = [grouped(tree.count.samples), percent(tree.bpf_percent)];
    let mut rows = vec![first.into_iter().chain([empty(), empty(), empty(), with_id(&head)]).collect()];
    let is_shared = tree.total != tree.count;
    let node = |node: &TreeNode| {
        let is_other = node.kind == NodeKind::Other;
        let name = ProgramName { id: node.id, name: node.name.clone() };
        let name = if node.id.is_some() { with_id(&name) } else { name.name };
        let arrow = if is_other { "→ " } else { "" };
        let indented = format!("{:indent$}{arrow}{name}", "", indent = 2 * node.depth as usize);
        let samples = if is_other { node.total } else { node.inclusive }.samples;
        let of_charged = |value| if is_other { empty() } else { percent(value) };
        let of_total = if is_shared { percent(node.total_percent) } else { empty() };
        vec![
            grouped(samples),
            empty(),
            of_charged(node.program_percent),
            of_charged(node.self_percent),
            of_total,
            indented,
        ]
    };
    rows.extend(tree.nodes.iter().map(node));
    rows.extend(tree.chain.iter().map(|chain| {
        let first = [grouped(chain.count.samples), percent(chain.bpf_percent), empty(), empty(), empty()];
        first.into_iter().chain([format!("  chain: with {}", listed(&chain.reached))]).collect()
    }));
    rows.extend(tree.tail_called_from.iter().map(|from| {
        let origin = from.program.as_ref().map_or_else(|| "no telling where".to_owned(), with_id);
        let origin = format!("  ← run by tail calls from {origin}");
        vec![grouped(from.count.samples), empty(), empty(), empty(), empty(), origin]
    }));
    rows
}

fn with_id(program: &ProgramName) -> String {
    format!("{} ({})", program.name, program.id.map_or_else(|| UNKNOWN.into(), |id| id.to_string()))
}

fn listed(programs: &[OtherProgram]) -> String {
    let mut names: Vec<String> = programs.iter().take(NAMED_IN_CHAIN).map(|it| with_id(&it.program)).collect();
    if programs.len() > NAMED_IN_CHAIN {
        names.push(format!("{} more", programs.len() - NAMED_IN_CHAIN));
    }
    names.join(", ")
}

const COLUMNS: [&str; 15] = [
    "event",
    "kind",
    "id",
    "program",
    "depth",
    "name",
    "self_samples",
    "self_weight",
    "samples",
    "weight",
    "self_percent",
    "program_percent",
    "total_samples",
    "total_weight",
    "total_percent",
];

pub(super) fn csv(report: &Trees, out: &mut Screen<'_>) -> io::Result<()> {
    out.values(COLUMNS.map(str::to_owned), ",")?;
    for event in &report.events {
        let counts = |count: Option<Count>| [plain(count.map(|it| it.samples)), plain(count.map(|it| it.weight))];
        for tree in &event.trees {
            let first = |kind: &str, depth: u32, name: &str| {
                [event.name.clone(), kind.into(), plain(tree.id), tree.name.clone(), depth.to_string(), name.into()]
            };
            let line = |first: [String; 6], count: Count, total: Option<Count>| {
                let numbers = [counts(None), counts(Some(count)), [String::new(), String::new()], counts(total)];
                first.into_iter().chain(numbers.into_iter().flatten()).chain([String::new()]).collect::<Vec<_>>()
            };
            out.values(line(first("program", 0, &tree.name), tree.count, Some(tree.total)), ",")?;
            for node in &tree.nodes {
                let percents = [node.self_percent, node.program_percent].map(plain);
                let numbers =
                    [counts(Some(node.own)), counts(Some(node.inclusive)), percents, counts(Some(node.total))];
                let first = first(kind(node.kind), node.depth, &node.name);
                let last = [plain(node.total_percent)];
                out.values(first.into_iter().chain(numbers.into_iter().flatten()).chain(last), ",")?;
            }
            for inside in &tree.inside {
                out.values(line(first("inside", 1, &inside.program.name), inside.count, None), ",")?;
            }
            if let Some(chain) = &tree.chain {
                out.values(line(first("chain", 1, &tree.name), chain.count, None), ",")?;
                for reached in &chain.reached {
                    out.values(line(first("reached", 2, &reached.program.name), reached.count, None), ",")?;
                }
            }
            for from in &tree.tail_called_from {
                let name = from.program.as_ref().map_or("", |program| &program.name);
                out.values(line(first("tail_called_from", 1, name), from.count, None), ",")?;
            }
        }
        let sums = [
            ("others", event.others),
            ("entry", event.entry_unattributed),
            ("interpreted", event.interpreted),
            ("total", event.total),
        ];
        for (kind, count) in sums {
            let empty = String::new;
            let first = [event.name.clone(), kind.into(), empty(), empty(), empty(), empty(), empty(), empty()];
            let last = [(); 5].map(|()| empty());
            out.values(first.into_iter().chain(counts(Some(count))).chain(last), ",")?;
        }
    }
    Ok(())
}

fn kind(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Entry => "entry",
        NodeKind::Function => "function",
        NodeKind::Helper => "helper",
        NodeKind::Kernel => "kernel",
        NodeKind::Other => "other",
        NodeKind::Folded => "folded",
    }
}
