//! Trees of the code that makes up the cost of each program.

use super::blocks::{Block, NO_EVENT, View, problems};
use super::by_prog::measured;
use super::cells::{number, percent};
use super::columns::{LineColumn, LineColumns};
use super::grid::{Column, Sheet};
use super::screen::Screen;
use crate::model::text::UNKNOWN;
use crate::model::{Count, EventTrees, NodeKind, OtherProgram, ProgramName, Tree, Trees};
use std::io;

/// Legend of the columns.
const LEGEND: &str = "SAMPLES and %PROGRAM count the line and the code that it called, SELF %PROGRAM the line alone; percentages are of the program's cost";
/// Legend of programs that ran inside other programs.
const LEGEND_INSIDE: &str = "%TOTAL: of the line, the code that it called and other programs that ran there (→), as share of \
                             the program's TOTAL; these other programs also have their own trees";
/// Legend of tail-call chains.
const LEGEND_CHAIN: &str =
    "chain: cost of a program and of the programs that it tail-calls; ←: the program that tail-calls this one";

/// Limit on the programs that the line of a tail-call chain names.
const NAMED_IN_CHAIN: usize = 4;

pub(super) fn view(report: &Trees, _: usize) -> View<'_> {
    let mut view = View::default();
    view.events(&report.events, NO_EVENT, |event| {
        [Block::Fact(measured(&report.recording, &event.name)), Block::Gap, Block::Table(sheet(event))]
    });
    let trees = || report.events.iter().flat_map(|event| &event.trees);
    let mut legend = vec![LEGEND];
    legend.extend(trees().any(|tree| !tree.inside.is_empty()).then_some(LEGEND_INSIDE));
    legend.extend(trees().any(|tree| !tree.tail_called_from.is_empty()).then_some(LEGEND_CHAIN));
    view.notes(legend, problems(&report.problems));
    view
}

/// A line of a tree, or a sum over trees.
#[derive(Default)]
struct TreeLine<'r> {
    event: &'r str,
    kind: &'static str,
    tree: Option<&'r Tree>,
    depth: u32,
    name: &'r str,
    own: Option<Count>,
    count: Option<Count>,
    total: Option<Count>,
    self_percent: Option<f64>,
    program_percent: Option<f64>,
    total_percent: Option<f64>,
    /// Text of the line in tables; empty for lines that only CSV has.
    text: String,
    /// Share of the cost of all BPF, %; `Some(None)` if it is unknown. `None` for lines that have no such share.
    bpf_percent: Option<Option<f64>>,
    /// True for a node whose cost is charged to the program.
    is_charged: bool,
    /// True for a node of a tree whose total includes other programs. Only such a node shows a share of the total.
    is_shared: bool,
}

impl<'r> TreeLine<'r> {
    fn new(event: &'r str, kind: &'static str, count: Count, text: String) -> TreeLine<'r> {
        TreeLine { event, kind, count: Some(count), text, ..TreeLine::default() }
    }
}

/// Lines of a tree.
fn tree_lines<'r>(event: &'r str, tree: &'r Tree) -> Vec<TreeLine<'r>> {
    let line = |kind, depth, name: &'r str, count, text| TreeLine {
        tree: Some(tree),
        depth,
        name,
        ..TreeLine::new(event, kind, count, text)
    };
    let head = with_id(&ProgramName { id: tree.id, name: tree.name.clone() });
    let first = line("program", 0, &tree.name, tree.count, head);
    let mut lines = vec![TreeLine { total: Some(tree.total), bpf_percent: Some(tree.bpf_percent), ..first }];
    let is_shared = tree.total != tree.count;
    lines.extend(tree.nodes.iter().map(|node| {
        let is_other = node.kind == NodeKind::Other;
        let name = ProgramName { id: node.id, name: node.name.clone() };
        let name = if node.id.is_some() { with_id(&name) } else { name.name };
        let arrow = if is_other { "→ " } else { "" };
        let indented = format!("{:indent$}{arrow}{name}", "", indent = 2 * node.depth as usize);
        TreeLine {
            own: Some(node.own),
            total: Some(node.total),
            self_percent: node.self_percent,
            program_percent: node.program_percent,
            total_percent: node.total_percent,
            is_charged: !is_other,
            is_shared,
            ..line(kind(node.kind), node.depth, &node.name, node.inclusive, indented)
        }
    }));
    lines.extend(tree.inside.iter().map(|it| line("inside", 1, &it.program.name, it.count, String::new())));
    if let Some(chain) = &tree.chain {
        let with = format!("  chain: with {}", listed(&chain.reached));
        let first = line("chain", 1, &tree.name, chain.count, with);
        lines.push(TreeLine { bpf_percent: Some(chain.bpf_percent), ..first });
        lines.extend(chain.reached.iter().map(|it| line("reached", 2, &it.program.name, it.count, String::new())));
    }
    lines.extend(tree.tail_called_from.iter().map(|from| {
        let origin = from.program.as_ref().map_or_else(|| "an unknown program".to_owned(), with_id);
        let name = from.program.as_ref().map_or("", |program| &program.name);
        line("tail_called_from", 1, name, from.count, format!("  ← run by tail calls from {origin}"))
    }));
    lines
}

/// Lines of an event; the last line is the total.
fn lines(event: &EventTrees) -> Vec<TreeLine<'_>> {
    let sums = [
        ("others", event.others, "(other programs)"),
        ("entry", event.entry_unattributed, "(entry, program unknown)"),
        ("interpreted", event.interpreted, "(interpreted programs)"),
        ("total", event.total, "TOTAL"),
    ];
    let sums = sums.into_iter().map(|(kind, count, text)| {
        let is_shown = kind == "total" || count != Count::default();
        TreeLine::new(&event.name, kind, count, if is_shown { text.to_owned() } else { String::new() })
    });
    event.trees.iter().flat_map(|tree| tree_lines(&event.name, tree)).chain(sums).collect()
}

fn fields<'r>() -> LineColumns<'r, TreeLine<'r>> {
    type F<'r> = LineColumn<'r, TreeLine<'r>>;
    let charged = |it: &TreeLine<'_>, share| if it.is_charged { percent(share) } else { String::new() };
    let samples = |it: &TreeLine<'_>| match it.kind {
        "other" => it.total,
        _ => it.count,
    };
    LineColumns::new([
        F::csv("event", |it| Some(it.event)),
        F::csv("kind", |it| Some(it.kind)),
        F::csv("id", |it| it.tree?.id),
        F::csv("program", |it| Some(it.tree?.name.clone())),
        F::csv("depth", |it| it.tree.map(|_| it.depth)),
        F::csv("name", |it| Some(it.name)),
        F::csv("self_samples", |it| Some(it.own?.samples)),
        F::csv("self_weight", |it| Some(it.own?.weight)),
        F::csv("samples", |it| Some(it.count?.samples))
            .and_text(Column::number("SAMPLES").always(), move |it| number(samples(it).map(|count| count.samples))),
        F::csv("weight", |it| Some(it.count?.weight)),
        F::text(Column::number("%BPF").droppable(1), |it| it.bpf_percent.map(percent).unwrap_or_default()),
        F::csv("self_percent", |it| it.self_percent)
            .and_text(Column::number("SELF %PROGRAM").always(), move |it| charged(it, it.self_percent)),
        F::csv("program_percent", |it| it.program_percent)
            .and_text(Column::number("%PROGRAM").share().always(), move |it| charged(it, it.program_percent))
            .ahead(1),
        F::csv("total_samples", |it| Some(it.total?.samples)),
        F::csv("total_weight", |it| Some(it.total?.weight)),
        F::csv("total_percent", |it| it.total_percent).and_text(Column::number("%TOTAL").droppable(2), |it| {
            if it.is_shared { percent(it.total_percent) } else { String::new() }
        }),
        F::text(Column::text("PROGRAM, AND WHAT IT CALLED").always().cut_to(24), |it| it.text.clone()),
    ])
}

/// Table of a single tree.
pub(super) fn of_program(tree: &Tree) -> Sheet {
    fields().sheet(tree_lines("", tree).iter().filter(|it| !it.text.is_empty()), [])
}

/// Table of an event's trees.
pub(super) fn sheet(event: &EventTrees) -> Sheet {
    let lines = lines(event);
    let (rows, total) = lines.split_at(lines.len() - 1);
    fields().sheet(rows.iter().filter(|it| !it.text.is_empty()), total)
}

pub(super) fn csv(report: &Trees, out: &mut Screen<'_>) -> io::Result<()> {
    fields().write_csv(report.events.iter().flat_map(lines), out)
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
