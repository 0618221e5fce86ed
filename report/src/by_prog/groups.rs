//! Programs put together: one row for all that have an owner, a name, a type or a hook in common.

use super::rows::{ProgramRow, counts_others};
use super::shares::Whole;
use crate::index::{Index, programs};
use crate::model::{GroupRow, Known, Program, Reason, Runs, RunsEstimate};
use crate::options::Group;
use crate::sinks::ledger::Charges;
use crate::{Options, Sort};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Which programs are put together: known before samples are charged, as what is inclusive counts once per group.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    names: Vec<String>,
    /// By the index's number of a program; `None` for those that get no row.
    pub(super) of: Vec<Option<u32>>,
}

impl Grouping {
    /// The groups of the programs that are asked for, by name.
    pub(super) fn new(index: &Index, by: Group, options: &Options) -> Grouping {
        let has_row = |program: &programs::Program| match options.programs.is_empty() {
            true => options.all || !counts_others(program, index),
            false => options.programs.iter().any(|filter| filter.matches(program.id, program.tag, program.name())),
        };
        let name = |program: &programs::Program| has_row(program).then(|| name(program, index, by));
        let of: Vec<Option<String>> = index.programs.list.iter().map(name).collect();
        let names: BTreeSet<&String> = of.iter().flatten().collect();
        let numbers: BTreeMap<&String, u32> = names.iter().copied().zip(0..).collect();
        let of_number = of.iter().map(|name| numbers.get(name.as_ref()?).copied()).collect();
        Grouping { names: names.into_iter().cloned().collect(), of: of_number }
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

/// The group of a program.
fn name(program: &programs::Program, index: &Index, by: Group) -> String {
    let states = &index.states;
    // What nobody looked for may be there.
    let nothing = |what: &str| if states.session.is_some() { what.to_owned() } else { "(unknown)".into() };
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let joined = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
    match by {
        Group::Name => match program.tag {
            _ if !program.name().is_empty() => program.name().to_owned(),
            Some(tag) => format!("[{}]", bprec_format::bpf::Tag(tag)),
            None => "[no name]".into(),
        },
        Group::Type => match program.info.and_then(|info| info.prog_type) {
            Some(prog_type) => prog_type.to_string(),
            None => "(unknown)".into(),
        },
        Group::Owner => match program.key().and_then(|key| states.programs.get(&key)) {
            Some(state) if !state.owners.is_empty() => {
                joined(state.owners.iter().map(|owner| lossy(&owner.comm)).collect())
            }
            Some(_) => nothing("(no process)"),
            None => "(unknown)".into(),
        },
        Group::Hook => {
            let hooks = states.attachments_of(program.id).iter().map(|attachment| match lossy(&attachment.target) {
                target if target.is_empty() => attachment.kind.clone(),
                target => format!("{}:{target}", attachment.kind),
            });
            let hooks: BTreeSet<String> = hooks.collect();
            if hooks.is_empty() { nothing("(not attached)") } else { joined(hooks) }
        }
    }
}

/// A group before its shares are known.
pub(super) struct Grouped {
    number: usize,
    pub(super) rows: Vec<ProgramRow>,
    pub(super) charges: Charges,
    runs: Known<Runs>,
    /// Of so many programs runs are known.
    known_runs: usize,
}

/// The rows of programs by group, in the order that is asked for. What is inclusive is that of the group: `totals`. Rows of no group are
/// handed back.
pub(super) fn grouped(
    grouping: &Grouping,
    order: &[u32],
    rows: Vec<ProgramRow>,
    totals: &[crate::model::Count],
    programs: &[Program],
    sort: Sort,
) -> (Vec<Grouped>, Vec<ProgramRow>) {
    let mut members: Vec<Vec<ProgramRow>> = (0..grouping.len()).map(|_| Vec::new()).collect();
    let mut others = Vec::new();
    for row in rows {
        match grouping.of[order[row.program] as usize] {
            Some(group) => members[group as usize].push(row),
            None => others.push(row),
        }
    }
    let groups = members.into_iter().enumerate().map(|(number, mut rows)| {
        rows.sort_by_key(|row| row.program);
        let mut charges = Charges::default();
        rows.iter().for_each(|row| charges.merge(&row.charges));
        charges.total = totals.get(number).copied().unwrap_or_default();
        let (runs, known_runs) = runs(rows.iter().map(|row| &programs[row.program]));
        Grouped { number, rows, charges, runs, known_runs }
    });
    let mut groups: Vec<Grouped> = groups.filter(|group| !group.rows.is_empty()).collect();
    groups.sort_by(|a, b| a.order(b, sort).then(a.number.cmp(&b.number)));
    (groups, others)
}

/// The sum of what is known of the runs of programs, and of how many programs it is.
fn runs<'p>(programs: impl Iterator<Item = &'p Program>) -> (Known<Runs>, usize) {
    let (mut sum, mut known, mut why): (Option<Runs>, usize, Option<Reason>) = (None, 0, None);
    for program in programs {
        match (&program.runs, &mut sum) {
            (Known::Value(runs), Some(sum)) => {
                add(sum, runs);
                known += 1;
            }
            (Known::Value(runs), sum @ None) => {
                *sum = Some(Runs { span: None, ..*runs });
                known += 1;
            }
            (Known::Unknown(reason), _) => why = why.or_else(|| Some(reason.clone())),
            (Known::Impossible(_), _) => {}
        }
    }
    (Known::or_unknown(sum, why.unwrap_or(Reason::NoSnapshots)), known)
}

fn add(sum: &mut Runs, runs: &Runs) {
    let count = sum.count.saturating_add(runs.count);
    let time_ns = sum.time_ns.saturating_add(runs.time_ns);
    let misses = sum.misses.zip(runs.misses).map(|(a, b)| a.saturating_add(b));
    let cpu_percent = sum.cpu_percent.zip(runs.cpu_percent).map(|(a, b)| a + b);
    let per_second = sum.per_second.zip(runs.per_second).map(|(a, b)| a + b);
    // All are counted in the same windows, so that what chance adds to one it may add to the other.
    let estimate = match (sum.estimate, runs.estimate) {
        (Some(a), Some(b)) => Some(RunsEstimate {
            counted_for_ns: a.counted_for_ns.min(b.counted_for_ns),
            count_margin: a.count_margin.zip(b.count_margin).map(|(a, b)| a.saturating_add(b)),
        }),
        (one, other) => one.or(other),
    };
    *sum = Runs { estimate, cpu_percent, per_second, ..Runs::new(count, time_ns, misses, None) };
}

impl Grouped {
    /// How many of its programs have samples.
    pub(super) fn sampled_programs(&self) -> usize {
        self.rows.iter().filter(|row| row.has_samples()).count()
    }

    fn order(&self, other: &Grouped, sort: Sort) -> Ordering {
        let weight =
            |value: fn(&Charges) -> crate::model::Count| value(&other.charges).cmp_weight(value(&self.charges));
        let largest = |value: fn(&Runs) -> Option<f64>| {
            let of = |group: &Grouped| group.runs.value().and_then(value).unwrap_or(-1.0);
            of(other).total_cmp(&of(self))
        };
        match sort {
            Sort::Cost => weight(Charges::sum),
            Sort::Samples => other.charges.sum().samples.cmp(&self.charges.sum().samples),
            Sort::SelfTime => weight(|charges| charges.own),
            Sort::Helper => weight(|charges| charges.helper),
            Sort::Entry => weight(|charges| charges.entry),
            Sort::Total => weight(|charges| charges.total),
            Sort::Runs => largest(|runs| Some(runs.count as f64)),
            Sort::NsPerRun => largest(|runs| runs.ns_per_run),
            Sort::Misses => largest(|runs| runs.misses.map(|misses| misses as f64)),
            Sort::Id => self.rows[0].program.cmp(&other.rows[0].program),
            // Groups are numbered by name.
            Sort::Name | Sort::Type => Ordering::Equal,
        }
    }

    /// The group with its shares.
    pub(super) fn row(&self, grouping: &Grouping, whole: &Whole) -> GroupRow {
        let unseen: Vec<_> = self.rows.iter().map_while(ProgramRow::unseen).collect();
        let line = match unseen.first() {
            Some(reason) if unseen.len() == self.rows.len() => {
                let has_samples = self.rows.iter().any(ProgramRow::has_samples);
                has_samples.then(|| whole.ledger_of_unseen(&self.charges, reason))
            }
            _ => Some(whole.ledger(&self.charges, true)),
        };
        GroupRow {
            name: grouping.names[self.number].clone(),
            programs: self.rows.iter().map(|row| row.program).collect(),
            blind_programs: self.rows.iter().filter(|row| row.blind.is_some()).count(),
            line,
            programs_with_runs: self.known_runs,
            runs: self.runs.clone(),
        }
    }
}
