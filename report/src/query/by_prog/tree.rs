//! Costs as trees.

use super::facts::{Facts, WantedFacts};
use super::payers::add_weights;
use super::shares::percent;
use crate::index::Index;
use crate::index::code::Code;
use crate::input::recording::OpenRecording;
use crate::model::{
    Count, EventReport, EventTrees, JSON_VERSION, NodeKind, OtherProgram, Program, ProgramName, Row, TailCallChain,
    TailCallOrigin, TimedCount, Tree, TreeNode, Trees,
};
use crate::pass::sinks::pivot::{Key, Pivoted};
use crate::pass::sinks::tree::{self, PathNode, Step, TreeSink};
use crate::{Options, Result};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Makes the report of costs as trees. Nodes with less than `percent_limit` % of [`Tree::total`] are folded.
pub(crate) fn trees(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
    percent_limit: f64,
) -> Result<Trees> {
    let ledger_options = Options { by: None, ..options.clone() };
    let events = recording.events.all().len();
    let (facts, mut sink) = Facts::gather(recording, index, &ledger_options, WantedFacts::default(), |_| {
        TreeSink::new(index, events, None)
    })?;
    share_entries(&facts, &mut sink, None);
    let (report, selected) = (facts.report(), facts.events().collect::<Vec<usize>>());
    drop(facts);
    let maker = TreesBuilder { index, programs: &report.programs, percent_limit };
    let events =
        report.events.iter().zip(selected).map(|(event, at)| maker.event(event, &sink.events[at], &[])).collect();
    Ok(Trees {
        format: "bprec tree",
        version: JSON_VERSION,
        percent_limit,
        events,
        recording: report.recording,
        programs: Arc::unwrap_or_clone(report.programs),
        problems: report.problems,
    })
}

/// Adds to each program's tree the program's estimated share of hooks that run several programs. `by_interval` has these shares by interval.
fn share_entries(facts: &Facts<'_>, sink: &mut TreeSink<'_>, by_interval: Option<&Pivoted>) {
    for event in facts.events() {
        let shared = facts.ledgers[event].programs.iter().map(|(program, charges)| (program, charges.shared_entry));
        for (program, shared) in shared.filter(|(_, shared)| *shared != Count::default()) {
            let ways = sink.events.of(event);
            let entry = ways.entry(program);
            ways.nodes[entry as usize].own.merge(shared);
            for (pivot, cell) in by_interval
                .iter()
                .flat_map(|pivot| pivot.events[event].of(program).iter().map(move |cell| (pivot, cell)))
            {
                let has_shared = cell.charges.shared_entry != Count::default();
                if let ([Key::Interval(interval)], true) = (&pivot.keys[cell.key as usize][..], has_shared) {
                    ways.timed.add(entry, *interval, cell.charges.shared_entry);
                }
            }
        }
    }
}

/// Makes the trees of an event, given by its number and its report, with costs by interval. `by_interval` has the charges of programs by interval.
pub(crate) fn of_event(
    facts: &Facts<'_>,
    sink: &mut TreeSink<'_>,
    (number, event): (usize, &EventReport),
    percent_limit: f64,
    by_interval: &Pivoted,
) -> EventTrees {
    share_entries(facts, sink, Some(by_interval));
    let timed = std::mem::take(&mut sink.events.of(number).timed).finish();
    let maker = TreesBuilder { index: facts.index, programs: &facts.programs, percent_limit };
    maker.event(event, &sink.events[number], &timed)
}

struct TreesBuilder<'m> {
    index: &'m Index,
    programs: &'m [Program],
    percent_limit: f64,
}

/// Nodes of an event with their inclusive sums.
struct Sums<'s> {
    nodes: &'s [PathNode],
    /// For each node, the samples in it and below it that are charged to the program of its tree.
    charged: Vec<Count>,
    /// Weights of `charged` by interval, if known.
    by_interval: Vec<BTreeMap<u32, u64>>,
    /// For each node, all samples in it and below it, including those charged to other programs.
    totals: Vec<Count>,
    children: Vec<Vec<u32>>,
    /// Root node of each program.
    roots: FxHashMap<u32, u32>,
    /// For each program, the programs that ran directly inside it.
    inside: FxHashMap<u32, FxHashMap<u32, Count>>,
}

impl<'s> Sums<'s> {
    fn new(nodes: &'s [PathNode], timed: &[TimedCount]) -> Sums<'s> {
        let charged = |node: &PathNode| if node.is_of_others() { Count::default() } else { node.own };
        let mut sums = Sums {
            nodes,
            charged: nodes.iter().map(charged).collect(),
            by_interval: vec![BTreeMap::new(); nodes.len()],
            totals: nodes.iter().map(|node| node.own).collect(),
            children: vec![Vec::new(); nodes.len()],
            roots: FxHashMap::default(),
            inside: FxHashMap::default(),
        };
        for cell in timed.iter().filter(|cell| !nodes[cell.number as usize].is_of_others()) {
            sums.by_interval[cell.number as usize].insert(cell.interval, cell.count.weight);
        }
        let mut root_programs = Vec::with_capacity(nodes.len());
        // The parent of a node has a smaller number, so its program is known already.
        for node in nodes {
            let own_tree = |step| if let Step::Program(program) = step { Some(program) } else { None };
            let root = node.parent.map_or_else(|| own_tree(node.step), |parent| root_programs[parent as usize]);
            if let (Some(_), Some(outer), Some(inner)) = (node.parent, root, own_tree(node.step)) {
                sums.inside.entry(outer).or_default().entry(inner).or_default().merge(node.own);
            }
            root_programs.push(root);
        }
        for (number, node) in nodes.iter().enumerate().rev() {
            match (node.parent, node.step) {
                (Some(parent), _) => {
                    let (charged, total) = (sums.charged[number], sums.totals[number]);
                    sums.charged[parent as usize].merge(charged);
                    sums.totals[parent as usize].merge(total);
                    let (before, from) = sums.by_interval.split_at_mut(number);
                    add_weights(&mut before[parent as usize], &from[0]);
                    sums.children[parent as usize].push(number as u32);
                }
                (None, Step::Program(program)) => drop(sums.roots.insert(program, number as u32)),
                (None, _) => {}
            }
        }
        sums
    }

    /// Returns the samples in a program, including those of other programs that ran inside it.
    fn total_of(&self, program: u32) -> Count {
        self.roots.get(&program).map_or(Count::default(), |root| self.totals[*root as usize])
    }
}

/// Tree under construction.
struct Making<'m> {
    sums: &'m Sums<'m>,
    charged: Count,
    total: Count,
    nodes: Vec<TreeNode>,
}

/// Chains of tail calls, with their samples. `reached` has, for each program that a hook ran, the programs that its tail calls led to. `from` has the
/// reverse: for each program, the programs that hooks ran at the start of the chains to it. `None` stands for an unknown program.
#[derive(Default)]
struct Chains {
    reached: FxHashMap<u32, FxHashMap<u32, Count>>,
    from: FxHashMap<u32, Vec<(Option<u32>, Count)>>,
}

impl Chains {
    fn new(origins: &FxHashMap<(u32, Option<u32>), Count>) -> Chains {
        let mut chains = Chains::default();
        for ((program, origin), count) in origins {
            chains.from.entry(*program).or_default().push((*origin, *count));
            if let Some(origin) = origin.filter(|origin| origin != program) {
                chains.reached.entry(origin).or_default().insert(*program, *count);
            }
        }
        chains
    }

    /// Returns the samples of a program in runs that tail calls of other programs led to.
    fn of_others(&self, program: u32) -> Count {
        let from = self.from.get(&program).into_iter().flatten();
        from.filter(|(from, _)| *from != Some(program)).map(|(_, count)| *count).sum()
    }
}

impl TreesBuilder<'_> {
    fn event(&self, event: &EventReport, trees: &tree::EventWays, timed: &[TimedCount]) -> EventTrees {
        let sums = Sums::new(&trees.nodes, timed);
        let count = |row: &Row| row.line.as_ref().map_or(Count::default(), |line| line.count);
        let bpf = event.total.count;
        let chains = Chains::new(&trees.origins);
        let rows = event.rows.iter().map(|row| (row, row.program as u32));
        let shown = rows.filter(|(row, number)| {
            count(row) != Count::default() || sums.roots.contains_key(number) || chains.reached.contains_key(number)
        });
        let trees = shown.map(|(row, number)| {
            let (charged, total) = (count(row), sums.total_of(number));
            let mut making = Making { sums: &sums, charged, total, nodes: Vec::new() };
            if let Some(root) = sums.roots.get(&number) {
                self.push_children(&mut making, *root, 1);
            }
            Tree {
                program: row.program,
                id: row.id,
                name: self.programs[row.program].label(),
                count: charged,
                bpf_percent: percent(charged.weight, Some(bpf.weight)),
                total,
                nodes: making.nodes,
                inside: self.others(sums.inside.get(&number)),
                chain: self.chain(&chains, number, charged, bpf),
                tail_called_from: self.tail_called_from(&chains, number),
            }
        });
        let line =
            |line: &crate::model::Known<Arc<crate::model::Line>>| line.value().map_or(Count::default(), |it| it.count);
        EventTrees {
            name: event.name.clone(),
            unit: event.unit,
            samples: event.samples,
            trees: trees.collect(),
            others: event.others.line.count + event.counting_programs.line.count,
            entry_unattributed: line(&event.entry_unattributed),
            interpreted: line(&event.interpreted),
            total: bpf,
        }
    }

    fn chain(&self, chains: &Chains, program: u32, charged: Count, bpf: Count) -> Option<TailCallChain> {
        let reached = chains.reached.get(&program)?;
        let count = charged.without(chains.of_others(program)) + reached.values().copied().sum();
        let bpf_percent = percent(count.weight, Some(bpf.weight));
        Some(TailCallChain { count, bpf_percent, reached: self.others(Some(reached)) })
    }

    fn tail_called_from(&self, chains: &Chains, program: u32) -> Vec<TailCallOrigin> {
        // A program that is only run by hooks has no tail callers to list.
        let from = chains.from.get(&program).filter(|from| from.iter().any(|(from, _)| *from != Some(program)));
        let mut from = from.cloned().unwrap_or_default();
        from.sort_by(|a, b| b.1.cmp_weight(a.1).then(a.0.cmp(&b.0)));
        let named = |(from, count): (Option<u32>, Count)| TailCallOrigin {
            program: from.map(|program| self.program_name(program)),
            count,
        };
        from.into_iter().map(named).collect()
    }

    /// Names the programs, the largest weight first.
    fn others(&self, programs: Option<&FxHashMap<u32, Count>>) -> Vec<OtherProgram> {
        let mut programs: Vec<(u32, Count)> = programs.into_iter().flatten().map(|(it, count)| (*it, *count)).collect();
        programs.sort_by(|a, b| b.1.cmp_weight(a.1).then(a.0.cmp(&b.0)));
        let named = |(program, count)| OtherProgram { program: self.program_name(program), count };
        programs.into_iter().map(named).collect()
    }

    fn program_name(&self, program: u32) -> ProgramName {
        let program = &self.programs[program as usize];
        ProgramName { id: program.id, name: program.label() }
    }

    /// Appends the callees of a node, each followed by its own callees.
    fn push_children(&self, making: &mut Making<'_>, parent: u32, depth: u32) {
        let sums = making.sums;
        let parent_step = sums.nodes[parent as usize].step;
        let children = sums.children[parent as usize].iter();
        let mut children: Vec<(String, u32)> = children.map(|child| (self.name(sums, *child), *child)).collect();
        children.sort_by(|a, b| {
            let total = |child: u32| sums.totals[child as usize];
            let by_step = || sums.nodes[a.1 as usize].step.cmp(&sums.nodes[b.1 as usize].step);
            total(b.1).cmp_weight(total(a.1)).then_with(|| a.0.cmp(&b.0)).then_with(by_step)
        });
        let (charged, whole) = (making.charged.weight, making.total.weight);
        let of_charged = |count: Count| percent(count.weight, Some(charged));
        let of_total = |count: Count| percent(count.weight, Some(whole));
        let is_small = |count: Count| of_total(count).is_some_and(|percent| percent < self.percent_limit);
        let (mut folded, mut folded_charged, mut folded_total) = (0u64, Count::default(), Count::default());
        let mut folded_by_interval = BTreeMap::new();
        for (name, child) in children {
            let (node, total) = (&sums.nodes[child as usize], sums.totals[child as usize]);
            let inclusive = sums.charged[child as usize];
            if is_small(total) {
                folded += 1;
                folded_charged.merge(inclusive);
                folded_total.merge(total);
                add_weights(&mut folded_by_interval, &sums.by_interval[child as usize]);
                continue;
            }
            let is_of_others = node.is_of_others();
            let kind = match (node.step, parent_step) {
                _ if is_of_others => NodeKind::Other,
                (Step::Entry, _) => NodeKind::Entry,
                (Step::Code(Code::Function { .. }) | Step::Program(_), _) => NodeKind::Function,
                (_, Step::Code(Code::Function { .. })) => NodeKind::Helper,
                _ => NodeKind::Kernel,
            };
            let own = if is_of_others { Count::default() } else { node.own };
            let id = match node.step {
                Step::Program(program) => self.index.programs.list[program as usize].id,
                _ => None,
            };
            making.nodes.push(TreeNode {
                depth,
                kind,
                name,
                id,
                own,
                inclusive,
                total,
                self_percent: of_charged(own),
                program_percent: of_charged(inclusive),
                total_percent: of_total(total),
                by_interval: sums.by_interval[child as usize].clone().into_iter().collect(),
            });
            self.push_children(making, child, depth + 1);
        }
        if folded > 0 {
            making.nodes.push(TreeNode {
                depth,
                kind: NodeKind::Folded,
                name: format!("… {folded} more"),
                id: None,
                own: folded_charged,
                inclusive: folded_charged,
                total: folded_total,
                self_percent: of_charged(folded_charged),
                program_percent: of_charged(folded_charged),
                total_percent: of_total(folded_total),
                by_interval: folded_by_interval.into_iter().collect(),
            });
        }
    }

    fn name(&self, sums: &Sums<'_>, node: u32) -> String {
        match sums.nodes[node as usize].step {
            Step::Entry => "(entry)".into(),
            Step::Program(program) => self.program_name(program).name,
            Step::OtherPrograms => "(running programs, not known which)".into(),
            Step::Code(code) => self.index.code_name(code).unwrap_or_else(|| "[unknown]".into()),
        }
    }
}
