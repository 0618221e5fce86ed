//! Groups: one row for all programs with the same owner, name, type or hook.

use super::facts::{EventFacts, Facts};
use super::rows::{ProgramRow, counts_others};
use super::shares::EventWhole;
use super::traits::happened;
use crate::index::{Index, programs};
use crate::model::{Attachment, GroupRow, Known, Program, RECORDER, Reason, Runs, RunsEstimate, program_label};
use crate::options::Group;
use crate::pass::Asked;
use crate::pass::sinks::pivot::Charges;
use crate::{Options, Sort};
use bprec_format::bpf::Tag;
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Assignment of programs to groups. Made before the pass over the samples, because the pass counts each inclusive sample once per group.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    names: Vec<String>,
    /// Group of each program; `None` for programs without a row.
    pub(super) of: Vec<Option<u32>>,
    /// Number of online CPUs, on which runs are counted.
    cpus: Option<u32>,
}

impl Grouping {
    /// Groups the requested programs.
    pub(super) fn new(index: &Index, by: Group, asked: &Asked, options: &Options) -> Grouping {
        let has_row = |number: u32, program: &programs::IndexedProgram| match asked.is_all() {
            true => options.all || !counts_others(program, index),
            false => asked.has(number),
        };
        let programs = (0..).zip(&index.programs.list);
        let of = programs.map(|(number, program)| has_row(number, program).then(|| name(program, index, by)));
        let of: Vec<Option<String>> = of.collect();
        let names: BTreeSet<&String> = of.iter().flatten().collect();
        let numbers: BTreeMap<&String, u32> = names.iter().copied().zip(0..).collect();
        let of_number = of.iter().map(|name| numbers.get(name.as_ref()?).copied()).collect();
        let cpus = index.states.cpus_online();
        Grouping { names: names.into_iter().cloned().collect(), of: of_number, cpus }
    }

    /// Returns the facts of groups that do not depend on an event.
    pub(super) fn members(&self, programs: &[Program], elapsed_ns: Option<u64>) -> Vec<GroupMembers> {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.names.len()];
        for (position, group) in self.of.iter().enumerate() {
            group.iter().for_each(|group| members[*group as usize].push(position));
        }
        let members = members.into_iter().map(|positions| {
            let (runs, known_runs) = runs(positions.iter().map(|at| &programs[*at]), elapsed_ns, self.cpus);
            let happened = positions.iter().any(|at| happened(&programs[*at]));
            GroupMembers { programs: positions.into(), runs, known_runs, happened }
        });
        members.collect()
    }
}

/// Returns the name of a program's group.
fn name(program: &programs::IndexedProgram, index: &Index, by: Group) -> String {
    let states = &index.states;
    // Without a session of bprec, the recorder did not look for owners and attach points: they are then unknown, not absent.
    let nothing = |what: &str| if states.session.is_some() { what.to_owned() } else { "(unknown)".into() };
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let joined = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    match by {
        Group::Name => program_label(program.name(), None, program.tag.map(Tag)),
        Group::Type => match program.info.and_then(|info| info.prog_type) {
            Some(prog_type) => prog_type.to_string(),
            None => "(unknown)".into(),
        },
        Group::Owner if states.is_of_recorder(program) => RECORDER.to_owned(),
        Group::Owner => match program.key().and_then(|key| states.programs.get(&key)) {
            Some(state) if !state.owners.is_empty() => {
                joined(state.owners.iter().map(|owner| lossy(&owner.comm)).collect())
            }
            Some(_) => nothing("(no process)"),
            None => "(unknown)".into(),
        },
        Group::Hook => {
            let hooks = states.attachments_of(program.id).iter().map(|it| Attachment::from(it).to_string());
            let hooks: BTreeSet<String> = hooks.collect();
            if hooks.is_empty() { nothing("(not attached)") } else { joined(hooks) }
        }
    }
}

/// Programs of a group, and facts that do not come from samples.
pub(super) struct GroupMembers {
    /// Positions of the programs, ascending.
    programs: Arc<[usize]>,
    runs: Known<Box<Runs>>,
    /// Number of programs with known runs.
    known_runs: usize,
    /// True if some program of the group was active.
    happened: bool,
}

/// Group in an event, without shares.
pub(super) struct Grouped {
    number: usize,
    /// Rows of programs with samples, and of listed programs without samples.
    pub(super) rows: Vec<ProgramRow>,
    pub(super) charges: Charges,
    /// Number of programs in the group.
    pub(super) programs: usize,
    /// Count of programs that samples cannot see.
    blind: usize,
    /// Number of programs that samples cannot see, without any sample in the programs' own code. `why_unseen` is the reason of the first such
    /// program.
    pub(super) unseen: usize,
    why_unseen: Option<Reason>,
    /// True if some program of the group was active.
    pub(super) happened: bool,
}

/// Returns the groups in the requested order, and the rows without a group. A sample with several programs of a group counts once in the group's
/// inclusive count.
pub(super) fn grouped(
    grouping: &Grouping,
    facts: &Facts<'_>,
    event: &EventFacts<'_>,
    rows: Vec<ProgramRow>,
) -> (Vec<Grouped>, Vec<ProgramRow>) {
    let members = &facts.common.members;
    let group_of = |row: &ProgramRow| grouping.of[row.program];
    let mut counts: FxHashMap<Option<u32>, usize> = FxHashMap::default();
    rows.iter().for_each(|row| *counts.entry(group_of(row)).or_default() += 1);
    let mut rows_of: FxHashMap<Option<u32>, Vec<ProgramRow>> =
        counts.into_iter().map(|(group, count)| (group, Vec::with_capacity(count))).collect();
    for row in rows {
        rows_of.entry(group_of(&row)).or_default().push(row);
    }
    let others = rows_of.remove(&None).unwrap_or_default();
    let groups = members.iter().enumerate().map(|(number, members)| {
        let mut rows = rows_of.remove(&Some(number as u32)).unwrap_or_default();
        rows.sort_by_key(|row| row.program);
        let mut charges = Charges::default();
        rows.iter().for_each(|row| charges.merge(&row.charges));
        charges.total = event.ledger.groups.get(number).copied().unwrap_or_default();
        let (mut blind, mut unseen, mut why_unseen) = (0, 0, None);
        let mut with_row = rows.iter().peekable();
        for position in members.programs.iter() {
            let row = with_row.next_if(|row| row.program == *position);
            let (is_unseen, why) = match row {
                Some(row) => (row.unseen().is_some(), row.blind.clone()),
                None => (true, facts.blind(event, *position)),
            };
            blind += usize::from(why.is_some());
            if is_unseen && why.is_some() {
                unseen += 1;
                why_unseen = why_unseen.or(why);
            }
        }
        let happened = members.happened || rows.iter().any(ProgramRow::has_samples);
        Grouped { number, rows, charges, programs: members.programs.len(), blind, unseen, why_unseen, happened }
    });
    let mut groups: Vec<Grouped> = groups.filter(|group| group.programs > 0).collect();
    groups.sort_by(|a, b| a.order(b, members, facts.options.sort).then(a.number.cmp(&b.number)));
    (groups, others)
}

/// Returns the sum of the known runs of programs, and the number of programs with known runs. Rates are computed over `elapsed_ns`, the selected
/// time: rates over the programs' different lifetimes would not add up.
fn runs<'p>(
    programs: impl Iterator<Item = &'p Program>,
    elapsed_ns: Option<u64>,
    cpus: Option<u32>,
) -> (Known<Box<Runs>>, usize) {
    let (mut sum, mut known, mut why): (Option<Runs>, usize, Option<Reason>) = (None, 0, None);
    for program in programs {
        match (&program.runs, &mut sum) {
            (Known::Value(runs), Some(sum)) => {
                add(sum, runs);
                known += 1;
            }
            (Known::Value(runs), sum @ None) => {
                *sum = Some(**runs);
                known += 1;
            }
            (Known::Unknown(reason), _) => why = why.or_else(|| Some(reason.clone())),
            (Known::Impossible(_), _) => {}
        }
    }
    let over_elapsed = |sum: Runs| {
        let elapsed = elapsed_ns.map(|elapsed_ns| (0, elapsed_ns));
        let runs = Runs::new(sum.count, sum.time_ns, sum.misses, elapsed).on(cpus);
        Box::new(Runs { estimate: sum.estimate, span: None, ..runs })
    };
    (Known::or_unknown(sum.map(over_elapsed), why.unwrap_or(Reason::NoSnapshots)), known)
}

fn add(sum: &mut Runs, runs: &Runs) {
    let count = sum.count.saturating_add(runs.count);
    let time_ns = sum.time_ns.saturating_add(runs.time_ns);
    let misses = sum.misses.zip(runs.misses).map(|(a, b)| a.saturating_add(b));
    // All programs are counted in the same windows, so their margins add up.
    let estimate = match (sum.estimate, runs.estimate) {
        (Some(a), Some(b)) => Some(RunsEstimate {
            counted_for_ns: a.counted_for_ns.min(b.counted_for_ns),
            count_margin: a.count_margin.zip(b.count_margin).map(|(a, b)| a.saturating_add(b)),
            time_margin_ns: a.time_margin_ns.zip(b.time_margin_ns).map(|(a, b)| a.saturating_add(b)),
        }),
        (one, other) => one.or(other),
    };
    *sum = Runs { estimate, ..Runs::new(count, time_ns, misses, None) };
}

impl Grouped {
    /// Number of programs with samples.
    pub(super) fn sampled_programs(&self) -> usize {
        self.rows.iter().filter(|row| row.has_samples()).count()
    }

    /// Time in the group's programs that run statistics have and samples lack, ns; `None` if no program has such time.
    pub(super) fn unsampled_ns(&self) -> Option<u64> {
        self.rows.iter().filter_map(|row| row.unsampled_ns).reduce(u64::saturating_add)
    }

    pub(super) fn cost(&self) -> crate::model::Count {
        let charged = self.charges.sum();
        crate::model::Count { weight: charged.weight.saturating_add(self.unsampled_ns().unwrap_or(0)), ..charged }
    }

    fn order(&self, other: &Grouped, members: &[GroupMembers], sort: Sort) -> Ordering {
        let weight =
            |value: fn(&Charges) -> crate::model::Count| value(&other.charges).cmp_weight(value(&self.charges));
        let largest = |value: fn(&Runs) -> Option<f64>| {
            let of = |group: &Grouped| members[group.number].runs.value().and_then(|runs| value(runs)).unwrap_or(-1.0);
            of(other).total_cmp(&of(self))
        };
        match sort {
            Sort::Cost => other.cost().cmp_weight(self.cost()),
            Sort::Samples => other.charges.sum().samples.cmp(&self.charges.sum().samples),
            Sort::SelfTime => weight(|charges| charges.own),
            Sort::Helper => weight(|charges| charges.helper),
            Sort::Entry => weight(|charges| charges.entry),
            Sort::Total => weight(|charges| charges.total),
            Sort::Runs => largest(|runs| Some(runs.count as f64)),
            Sort::NsPerRun => largest(|runs| runs.ns_per_run),
            Sort::Cpu => largest(|runs| Some(runs.time_ns as f64)),
            Sort::Misses => largest(|runs| runs.misses.map(|misses| misses as f64)),
            Sort::Id => members[self.number].programs.cmp(&members[other.number].programs),
            // Groups are numbered in the order of names.
            Sort::Name | Sort::Type => Ordering::Equal,
        }
    }

    /// Returns the group's row with its shares.
    pub(super) fn row(&self, grouping: &Grouping, members: &[GroupMembers], whole: &EventWhole<'_>) -> GroupRow {
        let members = &members[self.number];
        let line = match &self.why_unseen {
            Some(reason) if self.unseen == self.programs => {
                (self.sampled_programs() > 0).then(|| whole.ledger_of_unseen(&self.charges, reason))
            }
            _ => Some(whole.ledger(&self.charges, true)),
        };
        GroupRow {
            name: grouping.names[self.number].clone(),
            programs: members.programs.clone(),
            blind_programs: self.blind,
            line,
            unsampled: self.unsampled_ns().map(|time_ns| whole.unsampled(time_ns)),
            programs_with_runs: members.known_runs,
            runs: members.runs.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::program;
    use super::*;

    /// Ten programs run one after another, each for 10 ms, in a recording of one second: together, they take a tenth of a CPU.
    #[test]
    fn rates_are_of_the_time_that_is_looked_at() {
        const MS: u64 = 1_000_000;
        let one = |at: u64| Program {
            runs: Known::Value(Box::new(Runs::new(50, 10 * MS, Some(1), Some((at * 10 * MS, (at + 1) * 10 * MS))))),
            ..program()
        };
        let programs: Vec<Program> = (0..10).map(one).collect();
        let (sum, known) = runs(programs.iter(), Some(1000 * MS), Some(4));
        let sum = **sum.value().unwrap();
        assert_eq!((known, sum.count, sum.time_ns, sum.misses, sum.span), (10, 500, 100 * MS, Some(10), None));
        assert_eq!(sum.machine_percent, Some(2.5));
        assert_eq!((sum.cpu_percent, sum.per_second, sum.ns_per_run), (Some(10.0), Some(500.0), Some(200_000.0)));
        let (alone, _) = runs(programs[..1].iter(), Some(1000 * MS), None);
        assert_eq!(alone.value().unwrap().cpu_percent, Some(1.0), "every row has the same base");
        let (unknown, _) = runs(programs.iter(), None, Some(4));
        assert_eq!(unknown.value().unwrap().cpu_percent, None);
    }
}
