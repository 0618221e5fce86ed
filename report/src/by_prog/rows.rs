//! Programs, and their lines of the ledger.

use super::sampled::{disagreement, per_run};
use super::shares::Whole;
use crate::counters::history::History;
use crate::counters::{disagreements, exact_program};
use crate::index::Index;
use crate::index::programs;
use crate::index::runs::NoRuns;
use crate::input::window::{Window, since};
use crate::model::{
    Count, Counting, Disagreement, Known, Metadata, Owner, Part, PayerName, Program, Reason, Row, Runs, RunsEstimate,
    SampledPerRun, TimeBound,
};
use crate::sinks::ledger::{Charges, EventLedger, Key};
use crate::{Options, Sort, Split};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use std::cmp::{Ordering, Reverse};

/// The index's numbers of all programs, by id and load time.
pub(crate) fn order(index: &Index) -> Vec<u32> {
    let mut order: Vec<u32> = (0..index.programs.list.len() as u32).collect();
    let key = |number: u32| {
        let known = &index.programs.list[number as usize];
        // Programs without id go last.
        (known.id.is_none(), known.id, known.info.map(|info| info.load_time_ns), known.loaded_ns, known.name(), number)
    };
    order.sort_by(|a, b| key(*a).cmp(&key(*b)));
    order
}

/// All programs by id and load time, with the index's number of each.
pub(super) fn programs(
    index: &Index,
    history: &History,
    window: &Window,
    start_ns: u64,
    counting: Option<&Counting>,
) -> (Vec<Program>, Vec<u32>) {
    let order = order(index);
    let programs = order.iter().map(|number| {
        let known = &index.programs.list[*number as usize];
        program(known, index, history, window, start_ns, counting)
    });
    (programs.collect(), order)
}

fn program(
    known: &programs::Program,
    index: &Index,
    history: &History,
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
    // A load before the recording's start is that of a program which was there.
    let loaded = known.loaded_ns.filter(|time| *time >= start_ns);
    let attachments = states.attachments_of(known.id);
    let is_tail_called = !attachments.is_empty() && attachments.iter().all(|it| it.kind == TAIL_CALL);
    let is_extension = known.info.and_then(|info| info.prog_type) == Some(ProgType::EXT);
    let attachments = attachments.iter().map(|attachment| {
        let target = String::from_utf8_lossy(&attachment.target);
        if target.is_empty() { attachment.kind.clone() } else { format!("{}:{target}", attachment.kind) }
    });
    let runs = match runs(known, index, history, window, loaded) {
        // That is no count of its runs.
        Known::Value(runs) if runs.count == 0 && (is_tail_called || is_extension) => Known::Unknown(Reason::NotEntered),
        runs => runs,
    };
    let cpus = states.session.as_ref().map(|session| session.cpus_online).filter(|cpus| *cpus > 0);
    let unknown = |why| (Known::Unknown(why), Vec::new(), Vec::new());
    let (exact, exact_functions, disagreements) = match (counting, key) {
        (None, _) => unknown(Reason::NoExactCounters),
        (Some(_), None) => unknown(Reason::ProgramUnidentified),
        (Some(counting), Some(key)) => {
            let program = exact_program(&history.counters, counting, key, cpus);
            let exact = program.entry.unwrap_or(Known::Unknown(Reason::NotChosen));
            let said = match (runs.value(), exact.value()) {
                (Some(runs), Some(exact)) => disagreements(is_extension, runs, exact, counting),
                _ => Vec::new(),
            };
            let exact = match exact {
                // Nor do programs at its entry see a tail call, which skips it.
                Known::Value(exact) if exact.runs == 0 && is_tail_called => Known::Unknown(Reason::NotEntered),
                exact => exact,
            };
            (exact, program.functions, said)
        }
    };
    Program {
        id: known.id,
        load_time_ns: known.info.map(|info| info.load_time_ns),
        name: known.name().to_owned(),
        tag: known.tag.map(Tag),
        prog_type: known.info.and_then(|info| info.prog_type),
        functions: known.functions.iter().map(|function| function.name.clone()).collect(),
        map_memory_bytes: map_memory(known, index),
        loaded: loaded.map(|time| TimeBound::at(since_start(time))),
        unloaded,
        attachments: attachments.collect(),
        owners: {
            let owners = state.into_iter().flat_map(|state| &state.owners);
            let owner = |owner: &bprec_format::state::Owner| Owner {
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
        runs,
        exact,
        exact_functions,
        disagreements,
    }
}

/// Memory of the maps that a program uses, bytes.
fn map_memory(known: &programs::Program, index: &Index) -> Known<u64> {
    if known.info.is_none() {
        return Known::Unknown(Reason::NoProgInfo);
    }
    let of_map = |id: &u32| index.states.maps.get(id)?.memlock_bytes;
    let sum = known.map_ids.iter().map(of_map).try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?));
    Known::or_unknown(sum, Reason::NoMapMemory)
}

/// Whether it is one of those that the recorder puts around others to count them.
pub(super) fn counts_others(known: &programs::Program, index: &Index) -> bool {
    let recorder = index.states.session.as_ref().and_then(|session| session.recorder_pid);
    let of_recorder = known.info.is_none() && known.loader_pid.is_some() && known.loader_pid == recorder;
    // Recordings that do not tell who recorded have the names.
    of_recorder || ["bprec_session", "bprec_enter", "bprec_leave", "bprec_gauge"].contains(&known.name())
}

fn runs(
    known: &programs::Program,
    index: &Index,
    history: &History,
    window: &Window,
    loaded_ns: Option<u64>,
) -> Known<Runs> {
    if let Some(off) = index.states.stats_off.as_ref().filter(|off| !history.runs.any || window.contains(off.time_ns)) {
        // What was counted until then is not of all of the time.
        return Known::Unknown(Reason::recorder(&off.reason));
    }
    if !history.runs.any {
        return Known::Unknown(match &index.states.session {
            None => Reason::NoRunStatistics,
            Some(session) if session.counters_note.is_empty() => {
                Reason::CountersAre { counters: session.counters.clone() }
            }
            Some(session) => Reason::recorder(&session.counters_note),
        });
    }
    let loaded_ns = loaded_ns.filter(|time| window.contains(*time));
    let Some((id, load_time_ns)) = known.key() else { return Known::Unknown(Reason::NoSnapshots) };
    match history.runs.delta(id, load_time_ns, loaded_ns, window) {
        Ok(delta) => Known::Value(Runs {
            estimate: delta.estimate.map(|it| RunsEstimate { counted_for_ns: it.on_ns, count_margin: it.runs_margin }),
            ..Runs::new(delta.runs, delta.time_ns, delta.misses, Some(delta.span))
        }),
        Err(NoRuns::NoSnapshots) => Known::Unknown(Reason::NoSnapshots),
        Err(NoRuns::NoWindows) => Known::Unknown(Reason::StatisticsWereOff),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the rows of an event are of.
pub(super) struct Basis<'b> {
    /// Name of the event.
    pub(super) name: &'b str,
    /// All of its samples.
    pub(super) samples: Count,
    /// A timer that cannot interrupt where interrupts are off.
    pub(super) is_timer: bool,
    /// A program on the event made or counted the samples: it cannot see what runs under the kernel's guard.
    pub(super) is_counted_by_programs: bool,
    /// Samples are of all that ran in the recording, on all CPUs, and none is missing: they can be held against other counts.
    pub(super) samples_are_whole: bool,
}

/// A program's line before its shares are known.
pub(super) struct ProgramRow {
    /// Position among the programs.
    pub(super) program: usize,
    pub(super) charges: Charges,
    pub(super) sampled_per_run: Known<SampledPerRun>,
    pub(super) blind: Option<Reason>,
    pub(super) disagreement: Option<Disagreement>,
    parts: Vec<(String, Charges)>,
}

impl ProgramRow {
    pub(super) fn has_samples(&self) -> bool {
        // A share may be less than a sample.
        self.charges.total != Count::default() || self.charges.sum() != Count::default()
    }

    /// Why samples say nothing of what the program does, where the only ones that are charged to it are of what runs it.
    pub(super) fn unseen(&self) -> Option<&Reason> {
        self.blind.as_ref().filter(|_| !ran_in_a_sample(&self.charges))
    }

    /// Samples or runs; where nobody looked for runs, also that the program came or went. A program that is not in the
    /// recording is listed among the missed.
    pub(super) fn happened(&self, program: &Program) -> bool {
        if self.has_samples() || program.exact.value().is_some_and(|exact| exact.runs > 0) {
            return true;
        }
        match &program.runs {
            Known::Value(runs) => runs.count > 0 || runs.misses.is_some_and(|misses| misses > 0),
            // It was there for a moment, or nothing led to it; there may be hundreds like it.
            Known::Unknown(Reason::StatisticsWereOff | Reason::NotEntered) => false,
            // What was gone before the recording started is no part of it.
            Known::Unknown(_) | Known::Impossible(_) => {
                let went = program.unloaded.is_some_and(|unloaded| unloaded.before_ns >= 0);
                program.captured && (program.loaded.is_some() || went)
            }
        }
    }

    /// The row with its shares.
    pub(super) fn row(&self, programs: &[Program], whole: &Whole, options: &Options) -> Row {
        let program = &programs[self.program];
        let has_total = options.split() != Some(Split::Helper);
        let part =
            |(name, charges): &(String, Charges)| Part { name: name.clone(), line: whole.ledger(charges, has_total) };
        let line = match self.unseen() {
            Some(_) if !self.has_samples() => None,
            Some(reason) => Some(whole.ledger_of_unseen(&self.charges, reason)),
            None => Some(whole.ledger(&self.charges, true)),
        };
        Row {
            program: self.program,
            id: program.id,
            name: program.name.clone(),
            blind: self.blind.clone(),
            disagreement: self.disagreement.clone(),
            sampled_per_run: self.sampled_per_run.clone(),
            line,
            parts: options.split().map(|_| self.parts.iter().map(part).collect()),
        }
    }
}

/// The lines of the ledger, in the order that is asked for.
pub(super) fn program_rows(
    index: &Index,
    ledger: &EventLedger,
    programs: &[Program],
    order: &[u32],
    basis: &Basis<'_>,
    options: &Options,
) -> Vec<ProgramRow> {
    let mut parts: Vec<Vec<(Key, Charges)>> = vec![Vec::new(); order.len()];
    for ((program, key), charges) in &ledger.parts {
        parts[*program as usize].push((*key, *charges));
    }
    let tail_calls = order
        .iter()
        .enumerate()
        .any(|(position, number)| is_tail_called(&programs[position], &ledger.programs[*number as usize]));
    let rows = order.iter().enumerate().map(|(position, number)| {
        let charges = ledger.programs[*number as usize];
        let program = &programs[position];
        let blind = blind(program, index.guarded[*number as usize], &charges, basis, tail_calls);
        // What is reached by tail calls is in the time of its caller, and has the samples.
        let is_told = basis.samples_are_whole && basis.is_timer && blind.is_none() && !tail_calls;
        let runs = program.runs.value().filter(|_| is_told);
        ProgramRow {
            program: position,
            charges,
            sampled_per_run: sampled_per_run(program, &charges, blind.as_ref(), basis),
            disagreement: runs.and_then(|runs| disagreement(&charges, runs, basis.name, basis.samples)),
            blind,
            parts: split_rows(index, *number, std::mem::take(&mut parts[*number as usize]), options),
        }
    });
    let mut rows: Vec<ProgramRow> = rows.collect();
    let cost = |row: &ProgramRow| best_cost(row, &programs[row.program], basis);
    rows.sort_by(|a, b| {
        let order = match options.sort {
            Sort::Cost => cost(b).cmp_weight(cost(a)),
            sort => order_of(a, b, programs, sort),
        };
        order.then(a.program.cmp(&b.program))
    });
    rows
}

/// What of the event there is in a run of the program, if runs are of the same as the samples.
fn sampled_per_run(
    program: &Program,
    charges: &Charges,
    blind: Option<&Reason>,
    basis: &Basis<'_>,
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

/// What is charged to a program; where a timer cannot see it, its time by the kernel's statistics.
fn best_cost(row: &ProgramRow, program: &Program, basis: &Basis<'_>) -> Count {
    match program.runs.value() {
        Some(runs) if basis.is_timer && row.unseen().is_some() => Count { samples: 0, weight: runs.time_ns },
        _ => row.charges.sum(),
    }
}

fn order_of(a: &ProgramRow, b: &ProgramRow, programs: &[Program], sort: Sort) -> Ordering {
    let largest_first = |value: fn(&Charges) -> Count| value(&b.charges).cmp_weight(value(&a.charges));
    let (p, q) = (&programs[a.program], &programs[b.program]);
    let by_runs = |value: fn(&Program) -> Option<(u64, u64)>| {
        // Fractions are compared without rounding; what is not known goes last.
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

fn split_rows(
    index: &Index,
    program: u32,
    mut parts: Vec<(Key, Charges)>,
    options: &Options,
) -> Vec<(String, Charges)> {
    // The map they come from has no order: the key breaks ties.
    parts.sort_by_key(|(key, charges)| {
        let (sum, total) = (charges.sum(), charges.total);
        (Reverse(sum.weight), Reverse(sum.samples), Reverse(total.weight), *key)
    });
    let parts = parts.into_iter().take(options.limit.unwrap_or(usize::MAX));
    parts.map(|(key, charges)| (part_name(index, program, key), charges)).collect()
}

fn part_name(index: &Index, program: u32, key: Key) -> String {
    match key {
        Key::Code => "(own code)".into(),
        Key::Entry => "(entry)".into(),
        Key::Function(function) => index.programs.list[program as usize]
            .functions
            .get(function as usize)
            .map_or_else(String::new, |f| f.name.clone()),
        Key::Kernel(symbol) => index.symbols.name(symbol),
        Key::Interrupt => "(interrupt)".into(),
        Key::Comm(_)
        | Key::Thread(_)
        | Key::Process(_)
        | Key::Cpu(_)
        | Key::Cgroup(_)
        | Key::Workload(_)
        | Key::Unknown => payer_name(index, key).label(),
    }
}

/// Who pays, by its key.
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
        Key::Code | Key::Entry | Key::Function(_) | Key::Kernel(_) | Key::Interrupt | Key::Unknown => {
            PayerName::Unknown
        }
    }
}

/// With fewer expected samples than this, none says nothing.
const SURE_SAMPLES: u64 = 20;

/// Tracepoints, and the families of them, that fire with interrupts off.
const IRQS_OFF: [&str; 9] = [
    "sched_switch",
    "sched_wakeup",
    "sched_waking",
    "sched_stat_",
    "sched_migrate_task",
    "hrtimer_",
    "irq_handler_",
    "local_timer_",
    "irq_disable",
];

/// Whether the program was in the call chain of a sample. What runs it is sampled where it is not.
fn ran_in_a_sample(charges: &Charges) -> bool {
    let Charges { own, helper, entry, total, .. } = charges;
    *own != Count::default() || *helper != Count::default() || total.samples > entry.samples
}

/// The kind of attachment of programs in program arrays.
const TAIL_CALL: &str = "tail_call";

/// Whether others reach the program by tail calls: the kernel counts no run of it then.
fn is_tail_called(program: &Program, charges: &Charges) -> bool {
    program.attachments.iter().any(|attachment| attachment.split(':').next() == Some(TAIL_CALL))
        || ran_in_a_sample(charges) && program.runs.value().is_some_and(|runs| runs.count == 0)
}

/// Why the samples of this event say nothing about a program. With `tail_calls` in the recording, a program's run time may be
/// that of the programs it called, which have the samples.
fn blind(program: &Program, guarded: bool, charges: &Charges, basis: &Basis<'_>, tail_calls: bool) -> Option<Reason> {
    if program.interpreted {
        return Some(Reason::Interpreted);
    }
    if program.captured && !program.addressed {
        return Some(Reason::AddressesHidden);
    }
    if basis.is_counted_by_programs
        && let Some(unseen) = super::sampler::unseen(program, guarded)
    {
        return Some(unseen);
    }
    if !basis.is_timer {
        return None;
    }
    if program.prog_type == Some(ProgType::PERF_EVENT) {
        return Some(Reason::InSamplingInterrupt);
    }
    let hook = program.attachments.iter().find_map(|attachment| {
        let name = attachment.rsplit(':').next()?;
        IRQS_OFF.iter().any(|prefix| name.starts_with(prefix)).then_some(name)
    });
    if let Some(hook) = hook {
        return Some(Reason::InterruptsOff { hook: hook.to_owned() });
    }
    // Time that was measured, without a single sample: the timer does not see it.
    let period = basis.samples.weight.checked_div(basis.samples.samples)?;
    let runs = program.runs.value()?;
    let expected = runs.time_ns.checked_div(period)?;
    let is_unsampled = !tail_calls && !ran_in_a_sample(charges) && expected >= SURE_SAMPLES;
    is_unsampled.then_some(Reason::Unsampled { expected })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A program of which nothing is known.
    pub(in crate::by_prog) fn program() -> Program {
        Program {
            id: None,
            load_time_ns: None,
            name: String::new(),
            tag: None,
            prog_type: None,
            functions: Vec::new(),
            map_memory_bytes: Known::Unknown(Reason::NoProgInfo),
            loaded: None,
            unloaded: None,
            attachments: Vec::new(),
            owners: Vec::new(),
            pins: Vec::new(),
            uid: None,
            metadata: Vec::new(),
            interpreted: false,
            addressed: true,
            captured: true,
            counts_others: false,
            runs: Known::Unknown(Reason::NoRunStatistics),
            exact: Known::Unknown(Reason::NoExactCounters),
            exact_functions: Vec::new(),
            disagreements: Vec::new(),
        }
    }
}
