//! Programs, and their lines of the ledger.

use super::sampled::disagreement;
use super::{Charges, Count, EventReport, Origin, Program, Row, Runs, SplitRow, Unit, Unknown, since};
use crate::charge::{EventLedger, Key};
use crate::counters::{Counting, disagreements, exact_program};
use crate::index::Index;
use crate::programs::Known;
use crate::window::Window;
use crate::{Options, Result, Sort, Split};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use std::cmp::{Ordering, Reverse};

/// All programs by id and load time, with the index's number of each.
pub(super) fn programs(
    index: &Index,
    window: &Window,
    start_ns: u64,
    counting: Option<&Counting>,
) -> (Vec<Program>, Vec<u32>) {
    let mut order: Vec<u32> = (0..index.programs.known.len() as u32).collect();
    let key = |number: u32| {
        let known = &index.programs.known[number as usize];
        // Programs without id go last.
        (known.id.is_none(), known.id, known.info.map(|info| info.load_time_ns), known.loaded_ns, known.name(), number)
    };
    order.sort_by(|a, b| key(*a).cmp(&key(*b)));
    let programs = order.iter().map(|number| {
        let known = &index.programs.known[*number as usize];
        program(known, index, window, start_ns, counting)
    });
    (programs.collect(), order)
}

fn program(known: &Known, index: &Index, window: &Window, start_ns: u64, counting: Option<&Counting>) -> Program {
    let states = &index.states;
    let load_time_ns = known.info.map(|info| info.load_time_ns);
    let key = known.id.zip(load_time_ns);
    let state = key.and_then(|key| states.programs.get(&key));
    let released = key.and_then(|key| states.released.get(&key));
    let since_start = |time: u64| since(time, start_ns);
    let unloaded = match (released, known.unloaded_ns) {
        (Some(released), _) => Some(Origin::Between(since_start(released.after_ns), since_start(released.before_ns))),
        (None, time) => time.map(|time| Origin::At(since_start(time))),
    };
    // A load before the recording's start is that of a program which was there.
    let loaded = known.loaded_ns.filter(|time| *time >= start_ns);
    let attachments = states.attachments.iter().filter(|attachment| Some(attachment.prog_id) == known.id);
    let attachments = attachments.map(|attachment| {
        let target = String::from_utf8_lossy(&attachment.target);
        if target.is_empty() { attachment.kind.clone() } else { format!("{}:{target}", attachment.kind) }
    });
    let runs = runs(known, index, window, loaded);
    let cpus = states.session.as_ref().map(|session| session.cpus_online).filter(|cpus| *cpus > 0);
    let unknown = |why: &str| (Err(Unknown(why.into())), Vec::new(), Vec::new());
    let (exact, exact_functions, disagreements) = match (counting, key) {
        (None, _) => unknown("the recording has no exact counters"),
        (Some(_), None) => unknown("the recording does not tell which program it is"),
        (Some(counting), Some(key)) => {
            let program = exact_program(&index.counters, counting, key, cpus);
            let exact = program.entry.unwrap_or_else(|| Err(Unknown("it was not chosen to be counted".into())));
            let said = match (&runs, &exact) {
                (Ok(runs), Ok(exact)) => disagreements(runs, exact, counting),
                _ => Vec::new(),
            };
            (exact, program.functions, said)
        }
    };
    Program {
        id: known.id,
        load_time_ns,
        name: known.name().to_owned(),
        tag: known.tag.map(Tag),
        prog_type: known.info.and_then(|info| info.prog_type),
        functions: known.functions.iter().map(|function| function.name.clone()).collect(),
        loaded: loaded.map(|time| Origin::At(since_start(time))),
        unloaded,
        attachments: attachments.collect(),
        owners: state.map(|state| state.owners.clone()).unwrap_or_default(),
        pins: state.map(|state| state.pins.iter().map(|pin| lossy(pin)).collect()).unwrap_or_default(),
        uid: known.info.and_then(|info| info.uid),
        metadata: state
            .map(|state| state.metadata.iter().map(|(key, value)| (lossy(key), lossy(value))).collect())
            .unwrap_or_default(),
        interpreted: known.interpreted,
        addressed: known.functions.iter().any(|function| function.addr.is_some()),
        captured: known.info.is_some(),
        of_recorder: known.info.is_none()
            && known.loader_pid.is_some()
            && known.loader_pid == states.session.as_ref().and_then(|session| session.recorder_pid),
        runs,
        exact,
        exact_functions,
        disagreements,
    }
}

fn runs(known: &Known, index: &Index, window: &Window, loaded_ns: Option<u64>) -> Result<Runs, Unknown> {
    if let Some(off) = index.states.stats_off.as_ref().filter(|off| !index.runs.any || window.contains(off.time_ns)) {
        // What was counted until then is not of all of the time.
        return Err(Unknown(off.reason.clone()));
    }
    if !index.runs.any {
        return Err(Unknown(match &index.states.session {
            None => "the recording has no run statistics".into(),
            Some(session) if session.counters_note.is_empty() => format!("counters: {}", session.counters),
            Some(session) => session.counters_note.clone(),
        }));
    }
    let key = known.id.zip(known.info.map(|info| info.load_time_ns));
    let loaded_ns = loaded_ns.filter(|time| window.contains(*time));
    let delta = key.and_then(|(id, load_time_ns)| index.runs.delta(id, load_time_ns, loaded_ns, window));
    let delta = delta.ok_or_else(|| Unknown("no two snapshots of it in the window".into()))?;
    Ok(Runs { count: delta.runs, time_ns: delta.time_ns, misses: delta.misses, span: Some(delta.span) })
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of the ledger, in the order that is asked for.
pub(super) fn program_rows(
    index: &Index,
    ledger: &EventLedger,
    programs: &[Program],
    order: &[u32],
    event: &EventReport,
    options: &Options,
) -> Vec<Row> {
    let mut parts: Vec<Vec<(Key, Charges)>> = vec![Vec::new(); order.len()];
    for ((program, key), charges) in &ledger.parts {
        parts[*program as usize].push((*key, *charges));
    }
    let tail_calls = order
        .iter()
        .enumerate()
        .any(|(position, number)| is_tail_called(&programs[position], &ledger.programs[*number as usize]));
    let mut rows: Vec<Row> = order
        .iter()
        .enumerate()
        .map(|(position, number)| {
            let charges = ledger.programs[*number as usize];
            let program = &programs[position];
            let blind = blind(program, index.guarded[*number as usize], &charges, event, tail_calls);
            // What is reached by tail calls is in the time of its caller, and has the samples.
            let is_told = event.samples_are_whole && event.unit == Unit::Nanoseconds && blind.is_none() && !tail_calls;
            let runs = program.runs.as_ref().ok().filter(|_| is_told);
            Row {
                program: position,
                charges,
                disagreement: runs.and_then(|runs| disagreement(&charges, runs, &event.name, event.samples)),
                blind,
                parts: split_rows(index, *number, std::mem::take(&mut parts[*number as usize]), options),
            }
        })
        .collect();
    rows.sort_by(|a, b| order_of(a, b, programs, options.sort).then(a.program.cmp(&b.program)));
    rows
}

fn order_of(a: &Row, b: &Row, programs: &[Program], sort: Sort) -> Ordering {
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
            (None, runs) => runs.as_ref().ok().map(|runs| (runs.count, 1)),
        }),
        Sort::NsPerRun => by_runs(|program| {
            let exact = program.exact_throughout().and_then(|exact| exact.time);
            match (exact, program.runs.as_ref().ok()) {
                (Some(time), _) => Some(((time.value * 1000.0) as u64, 1000)),
                (None, runs) => runs.filter(|runs| runs.count > 0).map(|runs| (runs.time_ns, runs.count)),
            }
        }),
        Sort::Misses => by_runs(|program| program.runs.as_ref().ok()?.misses.map(|misses| (misses, 1))),
        Sort::Id => Ordering::Equal,
        Sort::Name => p.name.cmp(&q.name),
        Sort::Type => p.prog_type.map(|t| t.to_string()).cmp(&q.prog_type.map(|t| t.to_string())),
    }
}

impl Count {
    fn cmp_weight(self, other: Count) -> Ordering {
        (self.weight, self.samples).cmp(&(other.weight, other.samples))
    }
}

fn split_rows(index: &Index, program: u32, mut parts: Vec<(Key, Charges)>, options: &Options) -> Vec<SplitRow> {
    // The map they come from has no order: the key breaks ties.
    parts.sort_by_key(|(key, charges)| {
        let (sum, total) = (charges.sum(), charges.total);
        (Reverse(sum.weight), Reverse(sum.samples), Reverse(total.weight), *key)
    });
    let parts = parts.into_iter().take(options.limit.unwrap_or(usize::MAX));
    parts
        .map(|(key, charges)| SplitRow {
            name: part_name(index, program, key),
            charges,
            has_total: options.by != Some(Split::Helper),
        })
        .collect()
}

fn part_name(index: &Index, program: u32, key: Key) -> String {
    match key {
        Key::Code => "(own code)".into(),
        Key::Entry => "(entry)".into(),
        Key::Function(function) => index.programs.known[program as usize]
            .functions
            .get(function as usize)
            .map_or_else(String::new, |f| f.name.clone()),
        Key::Comm(comm) => index.tasks.name(comm).to_owned(),
        Key::Thread(tid) => format!(":{tid}"),
        Key::Cpu(cpu) => format!("cpu {cpu}"),
        Key::Cgroup(id) => index.cgroups.get(&id).cloned().unwrap_or_else(|| format!("cgroup {id}")),
        Key::Kernel(symbol) => index.symbols.name(symbol),
        Key::Unknown => "n/a".into(),
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

/// Whether others reach the program by tail calls: the kernel counts no run of it then.
fn is_tail_called(program: &Program, charges: &Charges) -> bool {
    program.attachments.iter().any(|attachment| attachment.starts_with("tail_call:"))
        || charges.total.samples > 0 && program.runs.as_ref().is_ok_and(|runs| runs.count == 0)
}

/// Why the samples of this event say nothing about a program. With `tail_calls` in the recording, a program's run time may be
/// that of the programs it called, which have the samples.
fn blind(
    program: &Program,
    guarded: bool,
    charges: &Charges,
    event: &EventReport,
    tail_calls: bool,
) -> Option<Unknown> {
    if program.interpreted {
        return Some(Unknown("it has no machine code: the interpreter runs it".into()));
    }
    if program.captured && !program.addressed {
        return Some(Unknown("the kernel hid its addresses: samples in it cannot be told from others".into()));
    }
    if (event.bpf_sampler.is_some() || event.aggregated.is_some())
        && let Some(unseen) = super::sampler::unseen(program, guarded)
    {
        return Some(unseen);
    }
    if !event.is_timer {
        return None;
    }
    if program.prog_type == Some(ProgType::PERF_EVENT) {
        return Some(Unknown("a perf_event program runs in the interrupt that samples".into()));
    }
    let hook = program.attachments.iter().find_map(|attachment| {
        let name = attachment.rsplit(':').next()?;
        IRQS_OFF.iter().any(|prefix| name.starts_with(prefix)).then_some(name)
    });
    if let Some(hook) = hook {
        return Some(Unknown(format!("{hook} runs with interrupts off, where this event cannot sample")));
    }
    // Time that was measured, without a single sample: the timer does not see it.
    let period = event.samples.weight.checked_div(event.samples.samples)?;
    let runs = program.runs.as_ref().ok()?;
    let expected = runs.time_ns.checked_div(period)?;
    (!tail_calls && charges.total.samples == 0 && expected >= SURE_SAMPLES).then(|| {
        Unknown(format!("it ran for the time of {expected} samples and got none: interrupts are off while it runs"))
    })
}
