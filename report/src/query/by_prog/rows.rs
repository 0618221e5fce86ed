//! Rows of the report by program.

use super::facts::{EventFacts, Facts};
use super::sampled::per_run;
use super::shares::EventWhole;
use super::traits::{Traits, WithoutSamples, happened};
use crate::index::Index;
use crate::index::kernel::is_inlined;
use crate::index::programs;
use crate::input::window::{Window, since};
use crate::model::{
    Attachment, Columns, Count, Counting, Known, Line, Metadata, Owner, Part, PayerName, Program, ProgramLoad, Reason,
    Row, Runs, RunsEstimate, SampledPerRun, TimeBound,
};
use crate::pass::sinks::ledger::EventLedger;
use crate::pass::sinks::pivot::{Charges, Key, PivotCell};
use crate::query::counters::{CounterHistory, exact_program};
use crate::{Options, Sort, Split};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use bprec_format::bprec;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns all programs, by number.
pub(super) fn programs(
    index: &Index,
    history: &CounterHistory,
    window: &Window,
    start_ns: u64,
    counting: Option<&Counting>,
) -> Vec<Program> {
    index.programs.list.iter().map(|known| program(known, index, history, window, start_ns, counting)).collect()
}

fn program(
    known: &programs::IndexedProgram,
    index: &Index,
    history: &CounterHistory,
    window: &Window,
    start_ns: u64,
    counting: Option<&Counting>,
) -> Program {
    let states = &index.states;
    let key = known.key();
    let state = key.and_then(|key| states.programs.get(&key));
    let released = key.and_then(|key| states.released.get(&key));
    let since_start = |time: u64| since(time, start_ns);
    let unloaded = match (released, known.unloaded_ns) {
        (Some(released), _) => {
            Some(TimeBound { after_ns: since_start(released.after_ns), before_ns: since_start(released.before_ns) })
        }
        (None, time) => time.map(|time| TimeBound::at(since_start(time))),
    };
    // A program loaded before the recording's start has no load time in the report.
    let loaded = known.loaded_ns.filter(|time| *time >= start_ns);
    // Runs on all CPUs count, even if CPUs are selected.
    let cpus = states.cpus_online();
    let runs = index.runs_of(known, window).map(|it| Runs {
        estimate: it.is_estimate.then(|| RunsEstimate {
            counted_for_ns: it.counted_ns as u64,
            count_margin: it.margin.map(|margin| margin.ceil() as u64),
            time_margin_ns: it.time_margin_ns.map(|margin| margin.ceil() as u64),
        }),
        ..Runs::new(it.count(), it.time_ns.round() as u64, it.misses.map(|it| it.round() as u64), Some(it.span))
            .on(cpus)
    });
    let unknown = |why| (Known::Unknown(why), Vec::new());
    let (exact, exact_functions) = match (counting, key) {
        (None, _) => unknown(Reason::NoExactCounters),
        (Some(_), None) => unknown(Reason::ProgramUnidentified),
        (Some(counting), Some(key)) => {
            let program = exact_program(history, counting, key, cpus);
            let exact = program.entry.unwrap_or(Known::Unknown(Reason::NotChosen));
            let exact = match exact {
                // The counting programs are attached to the entry of the program, which a tail call skips. If 0 runs were counted, the number of runs
                // is therefore unknown.
                Known::Value(exact) if exact.runs == 0 && index.is_tail_called(known) => {
                    Known::Unknown(Reason::NotEntered)
                }
                exact => exact,
            };
            (exact, program.functions)
        }
    };
    Program {
        id: known.id,
        load_time_ns: known.info.map(|info| info.load_time_ns),
        name: known.name().to_owned(),
        tag: known.tag.map(Tag),
        prog_type: known.info.and_then(|info| info.prog_type),
        functions: known.functions.iter().map(|function| function.name.clone()).collect(),
        map_memory_bytes: map_memory(std::iter::once(known), index),
        load: {
            // A recording without the code of its programs has 0 bytes for each.
            let jited_bytes = known.info.and_then(|info| info.jited_bytes).filter(|bytes| *bytes > 0);
            let verified_insns = known.info.and_then(|info| info.verified_insns);
            let load_duration_ns =
                known.load_began_ns(states).and_then(|began_ns| known.loaded_ns?.checked_sub(began_ns));
            let load = ProgramLoad { jited_bytes, verified_insns, load_duration_ns };
            (load != ProgramLoad::default()).then(|| Box::new(load))
        },
        loaded: loaded.map(|time| TimeBound::at(since_start(time))),
        unloaded,
        attachments: states.attachments_of(known.id).iter().map(Attachment::from).collect(),
        source_file: index.programs.source_file(known).map(Box::from),
        owners: {
            let owners = state.into_iter().flat_map(|state| &state.owners);
            let owner = |owner: &bprec::state::Owner| Owner {
                pid: owner.pid,
                comm: lossy(&owner.comm),
                uid: owner.uid,
                cgroup: lossy(&owner.cgroup),
            };
            owners.map(owner).collect()
        },
        pins: state.into_iter().flat_map(|state| &state.pins).map(|pin| lossy(pin)).collect(),
        uid: known.info.and_then(|info| info.uid),
        metadata: {
            let metadata = state.into_iter().flat_map(|state| &state.metadata);
            metadata.map(|(key, value)| Metadata { key: lossy(key), value: lossy(value) }).collect()
        },
        interpreted: known.interpreted,
        addressed: known.functions.iter().any(|function| function.addr.is_some()),
        captured: known.info.is_some(),
        counts_others: counts_others(known, index),
        of_recorder: index.states.is_of_recorder(known),
        runs: runs.map(Box::new),
        probe_misses: known.id.filter(|_| window.whole).and_then(|id| *states.probe_misses.get(&id)?),
        exact: exact.map(Box::new),
        exact_functions: exact_functions.into(),
    }
}

/// Returns the memory of the maps of programs, bytes; each map counts once.
pub(super) fn map_memory<'p>(
    programs: impl Iterator<Item = &'p programs::IndexedProgram> + Clone,
    index: &Index,
) -> Known<u64> {
    if programs.clone().any(|program| program.info.is_none()) {
        return Known::Unknown(Reason::NoProgInfo);
    }
    let maps: BTreeSet<u32> = programs.flat_map(|program| program.map_ids.iter().copied()).collect();
    let of_map = |id: &u32| index.states.maps.get(id)?.memlock_bytes;
    let sum = maps.iter().map(of_map).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?));
    Known::or_unknown(sum, Reason::NoMapMemory)
}

/// Returns true for a program that the recorder attaches to count other programs.
pub(super) fn counts_others(known: &programs::IndexedProgram, index: &Index) -> bool {
    // The program is also recognized by its name, because the pid of the recorder or of the loader may be unknown.
    index.states.is_loaded_by_recorder(known) || bprec::counts_others(known.name().as_bytes())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Properties of an event that its rows depend on.
pub(super) struct Basis {
    /// All samples of the event.
    pub(super) samples: Count,
    /// True for a timer: a timer cannot sample while interrupts are off.
    pub(super) is_timer: bool,
    /// True if a program on the event made or counted the samples. Such a program cannot see code under the kernel's guard.
    pub(super) is_counted_by_programs: bool,
    /// Time over which samples were aggregated, ns, if the recorder counted them in the kernel.
    pub(super) aggregated_over_ns: Option<u64>,
    /// True if samples cover everything that ran, on all CPUs, without loss: they can be compared with other counts.
    pub(super) samples_are_whole: bool,
    /// True if weights are ns and samples cover the same tasks and CPUs as run statistics, so that sampled time and run time can be added.
    pub(super) adds_to_runs: bool,
}

/// Row of a program, without shares.
pub(crate) struct ProgramRow {
    /// Position of the program.
    pub(super) program: usize,
    /// Charges of the program; rows without charges share them, because there may be many.
    pub(crate) charges: Arc<Charges>,
    pub(crate) sampled_per_run: Known<SampledPerRun>,
    pub(crate) blind: Option<Reason>,
    /// Time in the program that run statistics have and samples lack, ns; `blind` has the reason.
    pub(super) unsampled_ns: Option<u64>,
    parts: Vec<(String, Charges)>,
}

impl ProgramRow {
    pub(crate) fn has_samples(&self) -> bool {
        // A program's share of a hook may have weight but round to 0 samples, so the weight is compared as well.
        self.charges.total != Count::default() || self.charges.sum() != Count::default()
    }

    /// Returns why no sample shows the program itself. `None` if samples can see the program, or if a sample nevertheless shows more than its entry
    /// code.
    pub(super) fn unseen(&self) -> Option<&Reason> {
        self.blind.as_ref().filter(|_| !ran_in_a_sample(&self.charges))
    }

    /// Returns the reason why all or a part of the program's own time is missing in the columns.
    pub(crate) fn lack(&self) -> Option<&Reason> {
        self.unseen().or(self.blind.as_ref().filter(|_| self.unsampled_ns.is_some()))
    }

    /// Returns the charges plus the time that samples cannot see.
    pub(super) fn cost(&self) -> Count {
        let charged = self.charges.sum();
        Count { weight: charged.weight.saturating_add(self.unsampled_ns.unwrap_or(0)), ..charged }
    }

    /// Returns true if the program has samples, or if other facts show that it was active (`traits::happened`).
    pub(super) fn happened(&self, program: &Program) -> bool {
        self.has_samples() || happened(program)
    }

    /// Returns the row with its shares; `without_samples` is the line of programs without samples.
    pub(super) fn row(
        &self,
        programs: &[Program],
        whole: &EventWhole<'_>,
        without_samples: &Arc<Line>,
        options: &Options,
    ) -> Row {
        let program = &programs[self.program];
        let has_total = options.split() != Some(Split::Helper);
        let part =
            |(name, charges): &(String, Charges)| Part { name: name.clone(), line: whole.ledger(charges, has_total) };
        let line = match self.lack() {
            Some(_) if !self.has_samples() => None,
            Some(reason) => Some(whole.kept(whole.ledger_of_unseen(&self.charges, reason))),
            None if !self.has_samples() => Some(Arc::clone(without_samples)),
            None => Some(whole.kept(whole.ledger(&self.charges, true))),
        };
        let kinds = program.attachments.iter().map(|attachment| attachment.kind.as_str());
        let is_unseen = self.charges.entry == Count::default() && is_inlined(kinds);
        let line = match line.as_ref().filter(|_| is_unseen) {
            Some(line) => Some(whole.kept(without_entry(line))),
            None => line,
        };
        Row {
            program: self.program,
            id: program.id,
            name: program.name.clone(),
            blind: self.blind.clone(),
            sampled_per_run: self.sampled_per_run.clone(),
            line,
            unsampled: self.unsampled_ns.map(|time_ns| whole.unsampled(time_ns)),
            parts: options.split().map(|_| self.parts.iter().map(part).collect()),
        }
    }
}

/// Returns the line with unknown entry columns, for a program whose entry code the kernel inlines into its caller.
fn without_entry(line: &Line) -> Line {
    let columns = line.columns.as_deref().map(|columns| {
        let unseen = || Known::Unknown(Reason::EntryInlined);
        Arc::new(Columns { entry: unseen(), entry_shared: unseen(), ..columns.clone() })
    });
    Line { columns, ..line.clone() }
}

impl Facts<'_> {
    /// Returns true if samples show that a program was reached by tail calls: the program itself has samples, but by run statistics it has no runs.
    pub(super) fn has_tail_calls(&self, ledger: &EventLedger) -> bool {
        let was_entered = |(number, charges): (u32, Charges)| {
            let runs = self.programs[number as usize].runs.value();
            ran_in_a_sample(&charges) && runs.is_some_and(|runs| runs.count == 0)
        };
        ledger.programs.iter().any(was_entered)
    }

    /// Returns why samples of an event cannot see a program.
    pub(crate) fn blind(&self, event: &EventFacts<'_>, program: usize) -> Option<Reason> {
        let charges = event.ledger.programs.get(program as u32);
        blind(&self.programs[program], &self.common.traits[program], &charges, &event.basis, event.tail_calls)
    }

    /// Returns why samples of an event cannot see a program, if the report has a row for it.
    pub(crate) fn blind_row(&self, event: &EventFacts<'_>, program: usize) -> Option<Reason> {
        let is_listed = self.common.traits[program].without_samples == WithoutSamples::Listed;
        self.blind(event, program).filter(|_| is_listed || event.ledger.programs.has(program as u32))
    }

    /// Returns the row of a program in an event.
    pub(crate) fn row(&self, event: &EventFacts<'_>, program: usize, charges: Arc<Charges>) -> ProgramRow {
        let (known, basis) = (&self.programs[program], &event.basis);
        let blind = blind(known, &self.common.traits[program], &charges, basis, event.tail_calls);
        ProgramRow {
            program,
            unsampled_ns: blind.as_ref().and_then(|reason| unsampled_ns(known, &charges, reason, basis)),
            sampled_per_run: sampled_per_run(known, &charges, blind.as_ref(), basis),
            charges,
            blind,
            parts: Vec::new(),
        }
    }
}

/// Returns the rows of programs with charges and, with `lists_without_samples`, of listed programs without charges, in the requested order.
pub(super) fn program_rows(
    facts: &Facts<'_>,
    event: usize,
    of: &EventFacts<'_>,
    lists_without_samples: bool,
) -> Vec<ProgramRow> {
    let (programs, charged) = (&facts.programs, &of.ledger.programs);
    let sampled = charged.iter().map(|(number, charges)| (number as usize, Arc::new(charges)));
    let none = Arc::new(Charges::default());
    let without = (0..if lists_without_samples { programs.len() } else { 0 }).filter(|program| {
        facts.common.traits[*program].without_samples == WithoutSamples::Listed && !charged.has(*program as u32)
    });
    let found = sampled.chain(without.map(|program| (program, Arc::clone(&none))));
    // Allocated in one step: with many programs, rows take most of the memory.
    let mut rows: Vec<ProgramRow> = Vec::with_capacity(found.clone().count());
    rows.extend(found.map(|(program, charges)| ProgramRow {
        parts: split_rows(facts, event, program as u32),
        ..facts.row(of, program, charges)
    }));
    rows.sort_unstable_by(|a, b| {
        let order = match facts.options.sort {
            Sort::Cost => b.cost().cmp_weight(a.cost()),
            sort => order_of(a, b, programs, sort),
        };
        order.then(a.program.cmp(&b.program))
    });
    rows
}

/// Estimates the events per run of a program from samples, if runs and samples cover the same time.
fn sampled_per_run(
    program: &Program,
    charges: &Charges,
    blind: Option<&Reason>,
    basis: &Basis,
) -> Known<SampledPerRun> {
    let runs = match &program.runs {
        Known::Value(runs) => runs,
        Known::Unknown(reason) => return Known::Unknown(reason.clone()),
        Known::Impossible(anomaly) => return Known::Impossible(anomaly.clone()),
    };
    match blind {
        Some(reason) => Known::Unknown(reason.clone()),
        None if !basis.samples_are_whole => Known::Unknown(Reason::PartOnly),
        None => per_run(charges, runs),
    }
}

/// Returns the time in the program that samples lack, ns: its time by run statistics minus its sampled time. Returns `None` in three cases: `reason`
/// means that samples were taken but are in another line, because they do not identify the program; the two times cannot be compared; or no time is
/// missing.
fn unsampled_ns(program: &Program, charges: &Charges, reason: &Reason, basis: &Basis) -> Option<u64> {
    let takes_no_samples = matches!(
        reason,
        Reason::Guarded { .. } | Reason::InSamplingInterrupt | Reason::InterruptsOff { .. } | Reason::Unsampled { .. }
    );
    let runs = program.runs.value().filter(|_| takes_no_samples && basis.adds_to_runs)?;
    let sampled_ns = charges.own.weight.saturating_add(charges.helper.weight);
    runs.time_ns.checked_sub(sampled_ns).filter(|time_ns| *time_ns > 0)
}

fn order_of(a: &ProgramRow, b: &ProgramRow, programs: &[Program], sort: Sort) -> Ordering {
    let largest_first = |value: fn(&Charges) -> Count| value(&b.charges).cmp_weight(value(&a.charges));
    let (p, q) = (&programs[a.program], &programs[b.program]);
    let by_runs = |value: fn(&Program) -> Option<(u64, u64)>| {
        // Fractions are compared by cross-multiplication, without rounding. Unknown values go last.
        match (value(p), value(q)) {
            (Some((n, d)), Some((m, e))) => (u128::from(m) * u128::from(d)).cmp(&(u128::from(n) * u128::from(e))),
            (known, other) => other.is_some().cmp(&known.is_some()),
        }
    };
    match sort {
        Sort::Cost => largest_first(Charges::sum),
        Sort::Samples => b.charges.sum().samples.cmp(&a.charges.sum().samples),
        Sort::SelfTime => largest_first(|charges| charges.own),
        Sort::Helper => largest_first(|charges| charges.helper),
        Sort::Entry => largest_first(|charges| charges.entry),
        Sort::Total => largest_first(|charges| charges.total),
        Sort::Runs => by_runs(|program| match (program.exact_throughout(), &program.runs) {
            (Some(exact), _) => Some((exact.runs, 1)),
            (None, runs) => runs.value().map(|runs| (runs.count, 1)),
        }),
        Sort::NsPerRun => by_runs(|program| {
            let exact = program.exact_throughout().and_then(|exact| exact.time.value());
            match (exact, program.runs.value()) {
                (Some(time), _) => Some(((time.value * 1000.0) as u64, 1000)),
                (None, runs) => runs.filter(|runs| runs.count > 0).map(|runs| (runs.time_ns, runs.count)),
            }
        }),
        Sort::Cpu => {
            by_runs(|program| program.runs.value().map(|runs| (runs.time_ns, 1))).then(largest_first(Charges::sum))
        }
        Sort::Misses => by_runs(|program| program.runs.value()?.misses.map(|misses| (misses, 1))),
        Sort::Id => Ordering::Equal,
        Sort::Name => p.name.cmp(&q.name),
        Sort::Type => p.prog_type.map(|t| t.to_string()).cmp(&q.prog_type.map(|t| t.to_string())),
    }
}

impl Count {
    pub(super) fn cmp_weight(self, other: Count) -> Ordering {
        (self.weight, self.samples).cmp(&(other.weight, other.samples))
    }
}

fn split_rows(facts: &Facts<'_>, event: usize, program: u32) -> Vec<(String, Charges)> {
    let Some(split) = &facts.split else { return Vec::new() };
    let mut parts: Vec<&PivotCell> = split.events[event].of(program).iter().collect();
    // Parts with equal costs are in the order of their keys.
    parts.sort_by_key(|cell| {
        let (sum, total) = (cell.charges.sum(), cell.charges.total);
        (Reverse(sum.weight), Reverse(sum.samples), Reverse(total.weight), cell.key)
    });
    let parts = parts.into_iter().take(facts.options.limit.unwrap_or(usize::MAX));
    let named = |cell: &PivotCell| {
        let key = split.keys[cell.key as usize].first().copied().unwrap_or(Key::Unknown);
        (part_name(facts.index, program, key), cell.charges)
    };
    parts.map(named).collect()
}

fn part_name(index: &Index, program: u32, key: Key) -> String {
    match key {
        Key::Code => "(own code)".into(),
        Key::Entry => "(entry)".into(),
        Key::Function(function) => index.programs.list[program as usize]
            .functions
            .get(function as usize)
            .map_or_else(String::new, |f| f.name.clone()),
        Key::Kernel(symbol) => index.code.kernel.name(symbol),
        Key::Interrupt => "(interrupt)".into(),
        Key::Comm(_)
        | Key::Thread(_)
        | Key::Process(_)
        | Key::Cpu(_)
        | Key::Cgroup(_)
        | Key::Workload(_)
        | Key::Interval(_)
        | Key::Unknown => payer_name(index, key).label(),
    }
}

/// Returns the name of a payer by its key.
pub(super) fn payer_name(index: &Index, key: Key) -> PayerName {
    match key {
        Key::Comm(comm) => PayerName::Comm(index.tasks.name(comm).to_owned()),
        Key::Thread(tid) => PayerName::Thread(tid),
        Key::Process(pid) => {
            let comm = index.tasks.last(pid).map(|comm| index.tasks.name(comm).to_owned());
            PayerName::Process { pid, comm }
        }
        Key::Cpu(cpu) => PayerName::Cpu(cpu),
        Key::Cgroup(id) => PayerName::Cgroup { id, path: index.cgroups.get(&id).cloned() },
        Key::Workload(number) => {
            index.workloads().get(number).map_or(PayerName::Unknown, |it| PayerName::Workload(it.clone()))
        }
        _ => PayerName::Unknown,
    }
}

/// Least number of expected samples from which a program without any sample counts as one that samples cannot see.
const SURE_SAMPLES: u64 = 20;

/// Returns true if the program itself was in a sample's call chain, not only its entry code.
fn ran_in_a_sample(charges: &Charges) -> bool {
    let Charges { own, helper, entry, total, .. } = charges;
    *own != Count::default() || *helper != Count::default() || total.samples > entry.samples
}

/// Returns why samples of this event cannot see a program. With `tail_calls`, run time proves nothing: it may be the time of programs that the
/// program tail-called, which have their own samples.
fn blind(program: &Program, traits: &Traits, charges: &Charges, basis: &Basis, tail_calls: bool) -> Option<Reason> {
    if program.interpreted {
        return Some(Reason::Interpreted);
    }
    if program.captured && !program.addressed {
        return Some(Reason::AddressesHidden);
    }
    if basis.is_counted_by_programs
        && let Some(unseen) = super::sampler::unseen(program, traits.guarded)
    {
        return Some(unseen);
    }
    if !basis.is_timer {
        return None;
    }
    if program.prog_type == Some(ProgType::PERF_EVENT) {
        return Some(Reason::InSamplingInterrupt);
    }
    if let Some(hook) = &traits.irqs_off {
        return Some(Reason::InterruptsOff { hook: hook.clone() });
    }
    // From here on, the program's run time shows if the timer can see it: it cannot if enough run time has no sample at all.
    let period = basis.samples.weight.checked_div(basis.samples.samples)?;
    let runs = program.runs.value()?;
    // If the runs are estimated, the lower bound of their time is used.
    let expected = runs.time_ns.saturating_sub(runs.time_margin_ns()?).checked_div(period)?;
    // A program that was loaded for less than an interval of aggregation may have no samples for another reason: they did not fit into a full table,
    // or were charged to another program at the same address.
    let was_there_for_ns = program.unloaded.map(|at| at.before_ns - program.loaded.map_or(0, |at| at.after_ns));
    let too_short = was_there_for_ns.zip(basis.aggregated_over_ns).is_some_and(|(there, over)| there < over as i64);
    let is_unsampled = !tail_calls && !too_short && !ran_in_a_sample(charges) && expected >= SURE_SAMPLES;
    is_unsampled.then_some(Reason::Unsampled { expected })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A program without any known fact.
    pub(in crate::query::by_prog) fn program() -> Program {
        Program::default()
    }
}
