//! Predictions of the CPU time without some programs, by payer (the context, such as a task or a container, that pays for the programs): subtracts
//! the bill of these programs.

use super::bill::is_named;
use super::facts::{EventFacts, Facts, WantedFacts};
use super::notes::{of_unseen, unseen};
use super::payers::distinct;
use super::rows::payer_name;
use super::shares::{machine_margin, margin, millicpus, percent};
use crate::index::Index;
use crate::index::owners::{Owners, REMOVED};
use crate::index::student::NORMAL_95;
use crate::input::event_kind::EventKind;
use crate::input::recording::OpenRecording;
use crate::model::{
    Count, CpuChange, CpuTime, EventWithout, JSON_VERSION, Known, Note, Operations, OtherPayers, PayerName,
    PayerWithout, RemovedProgram, Without,
};
use crate::options::{Payer, names_event};
use crate::pass::Asked;
use crate::pass::sinks::bill::{BillPart, BillSink, Billed, EventBillLines};
use crate::pass::sinks::pivot::Key;
use crate::pass::sinks::sharing::HookWeights;
use crate::{Error, Options, ProgFilter, Result};
use bprec_filter::Glob;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Half of a 95 % interval of the cost that samples do not show, as a fraction of the predicted saving. Such cost arises because programs evict the
/// tasks' cached data and branch predictions, and because the timer samples some code late. Not measured in a recording: with this value, the
/// intervals held in 52 of 56 random mixes of the bench `bill`, with a tenth in 50.
const UNSAMPLED_COST: f64 = 0.15;

/// Predicts the CPU time without the programs and owners that `patterns` name. All of `keys` together identify a payer; without keys, the name of the
/// task does. The event `per` counts operations, for the CPU time per operation.
///
/// # Errors
/// Fails if the recording lacks a program, an owner or an event that is named.
pub(crate) fn without(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
    patterns: &[String],
    keys: &[Payer],
    per: Option<&str>,
) -> Result<Without> {
    let (keys, mut options) = (distinct(keys), Options { by: None, ..options.clone() });
    let per = per.map(|name| operations(recording, name, &mut options)).transpose()?;
    let owners = Owners::new(index);
    let (removed_programs, removed_owners) = removed(index, &owners, patterns)?;
    let parted =
        Arc::new(owners.without(|program| removed_programs.has(program), |owner| removed_owners[owner as usize]));
    let events = recording.events.all().len();
    let wanted = WantedFacts { comm: keys.contains(&Payer::Comm), ..WantedFacts::default() };
    let (facts, sink) = Facts::gather(recording, index, &options, wanted, |_| {
        BillSink::new(index, Arc::clone(&parted), keys.clone(), events)
    })?;
    let (payers, mut lines) = sink.finish(&HookWeights::new(index, &facts.selection.window));
    let operations =
        per.map(|event| (event, lines.of(event).busy.take().map_or_else(FxHashMap::default, |busy| *busy)));
    let builder = WithoutBuilder { facts: &facts, payers: &payers, operations };
    let has_samples = |event: &usize| Some(*event) != per && facts.event(*event).ledger.samples.samples > 0;
    let with_samples: Vec<usize> = facts.events().filter(has_samples).collect();
    let is_removed = |program: &usize| parted.number_of(*program as u32) == Some(REMOVED);
    let removed = (0..facts.programs.len()).filter(is_removed);
    let programs = removed.clone().map(|program| {
        let known = &facts.programs[program];
        RemovedProgram { id: known.id, name: known.label(), exact: known.exact.value().cloned() }
    });
    let named = owners.list.iter().zip(&removed_owners).filter(|(_, is_removed)| **is_removed);
    let mut notes = facts.notes();
    let mut idle = with_samples.iter().filter_map(|event| match facts.event(*event).busy {
        Known::Unknown(reason) => Some(Note::IdleUnknown { reason }),
        _ => None,
    });
    notes.extend(idle.next());
    notes.extend(with_samples.first().and_then(|number| {
        let unseen = unseen(&facts, &facts.event(*number), removed);
        of_unseen(&facts, *number, &unseen)
    }));
    notes.extend(per.and_then(|event| builder.uncounted(event)));
    let events = with_samples.into_iter().map(|event| {
        let mut lines = std::mem::take(lines.of(event));
        if let Some(weight_of_ns) = facts.weight_of_cpu_ns(event) {
            lines.replace_by_measured(&index.states.holder_times, &parted, weight_of_ns);
        }
        builder.event(event, &lines)
    });
    Ok(Without {
        format: "bprec without",
        version: JSON_VERSION,
        recording: facts.recorded.clone(),
        patterns: patterns.to_vec(),
        owners: named.map(|(owner, _)| owner.name.clone()).collect(),
        programs: programs.collect(),
        events: events.collect(),
        keys: keys.clone(),
        operation: per.map(|event| recording.names[event].clone()),
        problems: facts.problems(),
        notes,
    })
}

/// Returns the event with this name, which counts operations, and selects it beside the events that `options` select.
fn operations(recording: &OpenRecording<'_>, name: &str, options: &mut Options) -> Result<usize> {
    let events = (0..recording.names.len()).filter(|event| recording.kinds[*event] == EventKind::Pmu);
    let Some(event) = events.clone().find(|event| names_event(name, &recording.names[*event])) else {
        let known = events.map(|event| recording.names[event].as_str()).collect::<Vec<_>>().join(", ");
        let answer = format!("the recording has no samples of this event; it has samples of {known}");
        return Err(Error::option("--per", name, answer));
    };
    if !options.events.is_empty() {
        options.events.push(recording.names[event].clone());
    }
    Ok(event)
}

/// Returns the programs that the patterns match, and, for each owner, true if a pattern matches its name.
///
/// # Errors
/// Fails if a pattern matches neither a program nor an owner.
fn removed(index: &Index, owners: &Owners, patterns: &[String]) -> Result<(Asked, Vec<bool>)> {
    let (mut filters, mut removed) = (Vec::new(), vec![false; owners.list.len()]);
    let programs = &index.programs.list;
    for text in patterns.iter().map(|text| text.trim()) {
        let filter: ProgFilter = text.parse().map_err(|problem| Error::option("--without", text, problem))?;
        let pattern = Glob::new(text);
        let mut is_found = programs.iter().any(|program| program.matches(&filter));
        for (owner, removed) in owners.list.iter().zip(&mut removed) {
            if is_named(&pattern, &owner.name) {
                (is_found, *removed) = (true, true);
            }
        }
        if !is_found {
            let names = programs.iter().map(|program| program.name());
            return Err(Error::no_program_or_owner(text, names.chain(owners.list.iter().map(|it| it.name.as_str()))));
        }
        filters.push(filter);
    }
    Ok((Asked::new(&filters, programs), removed))
}

/// CPU time of a payer, and the part of it that the removed programs cause.
#[derive(Debug, Clone, Copy, Default)]
struct PayerCost {
    now: Count,
    operations: Count,
    removed: Billed,
    /// Part of `removed` in tasks of removed owners. Samples show all CPU time of these tasks, so it has no hidden cost.
    in_tasks: Count,
}

impl PayerCost {
    fn merge(&mut self, other: PayerCost) {
        self.now.merge(other.now);
        self.operations.merge(other.operations);
        self.removed.merge(other.removed);
        self.in_tasks.merge(other.in_tasks);
    }

    /// Cost that disappears with the removed programs. Code that still runs for other programs is not included.
    fn saved(&self) -> Count {
        self.removed.count.without(self.removed.common)
    }

    /// Half of a 95 % interval of the cost that samples do not show.
    fn unsampled(&self) -> f64 {
        UNSAMPLED_COST * self.saved().without(self.in_tasks).weight as f64
    }
}

struct WithoutBuilder<'b> {
    facts: &'b Facts<'b>,
    /// Keys that identify each payer.
    payers: &'b [Vec<Key>],
    /// Event that counts operations, and the operations of each payer.
    operations: Option<(usize, FxHashMap<u32, Count>)>,
}

impl WithoutBuilder<'_> {
    fn event(&self, number: usize, lines: &EventBillLines) -> EventWithout {
        let facts = self.facts;
        let event = facts.event(number);
        let mut costs: FxHashMap<u32, PayerCost> = FxHashMap::default();
        for (payer, now) in lines.busy.iter().flat_map(|busy| busy.iter()) {
            costs.entry(*payer).or_default().now.merge(*now);
        }
        for ((owner, _, part, payer), billed) in &lines.lines {
            if let Some(payer) = payer.filter(|_| *owner == Some(REMOVED)) {
                let in_tasks = if *part == BillPart::Tasks { billed.count } else { Count::default() };
                costs.entry(payer).or_default().merge(PayerCost { removed: *billed, in_tasks, ..PayerCost::default() });
            }
        }
        for (payer, operations) in self.operations.iter().flat_map(|(_, of)| of) {
            costs.entry(*payer).or_default().operations.merge(*operations);
        }
        let name = |payer: u32| self.payers[payer as usize].iter().map(|key| payer_name(facts.index, *key)).collect();
        let costs = costs.into_iter().map(|(payer, cost)| (cost, name(payer)));
        let mut costs: Vec<(PayerCost, Vec<PayerName>)> = costs.collect();
        costs.sort_by(|(a, x), (b, y)| b.saved().cmp_weight(a.saved()).then_with(|| x.cmp(y)));
        let (mut payers, mut others, mut sum, mut total) = (Vec::new(), 0, PayerCost::default(), PayerCost::default());
        for (cost, payer) in costs {
            total.merge(cost);
            let has_room = facts.options.limit.is_none_or(|limit| payers.len() < limit);
            if has_room && cost.removed.count.weight > 0 {
                payers.push(PayerWithout { payer, change: self.change(&event, &cost) });
            } else {
                others += 1;
                sum.merge(cost);
            }
        }
        EventWithout {
            name: facts.recording.names[number].clone(),
            unit: event.unit,
            samples: event.ledger.samples,
            machine: event.machine.clone(),
            late_ticks: event.late_ticks,
            payers,
            others: OtherPayers { payers: others, change: self.change(&event, &sum) },
            total: self.change(&event, &total),
        }
    }

    fn change(&self, event: &EventFacts<'_>, cost: &PayerCost) -> CpuChange {
        let (machine, samples) = (event.machine.value().copied(), event.ledger.samples);
        let saved = cost.saved();
        let unsampled = cost.unsampled();
        let cpus = self.facts.recorded.cpus;
        // The predicted time is the time now minus the saving, so the error of the saving (`unsampled`) is an error of the predicted time, too.
        let time = |count: Count, unsampled: f64| {
            let machine_percent = percent(count.weight, machine);
            let unsampled = machine.map(|machine| unsampled * 100.0 / machine as f64);
            let sampled = machine_margin(count.samples, samples, machine);
            let margin_percent = sampled.zip(unsampled).map(|(sampled, unsampled)| sampled.hypot(unsampled));
            let (millicpus, margin_millicpus) = (millicpus(machine_percent, cpus), millicpus(margin_percent, cpus));
            CpuTime { count, machine_percent, margin_percent, millicpus, margin_millicpus }
        };
        // If idle time is unknown, `now` includes samples of idle CPUs, so it is no CPU time.
        let busy = Some(cost.now.weight).filter(|_| event.busy.is_value());
        let busy_time = |count: Count, unsampled: f64| match busy {
            Some(_) => time(count, unsampled),
            None => CpuTime { count, ..CpuTime::default() },
        };
        CpuChange {
            now: busy_time(cost.now, 0.0),
            without: busy_time(cost.now.without(saved), unsampled),
            saved: time(saved, unsampled),
            tax_percent: percent(saved.weight, busy),
            tax_margin_percent: percent(1, busy)
                .map(|per_unit| (margin(saved.samples, cost.now.samples) * 100.0).hypot(unsampled * per_unit)),
            shared: cost.removed.shared.without(cost.removed.common),
            staying: cost.removed.common,
            operations: self.operations.as_ref().map(|_| self.operations(event, cost)),
        }
    }

    /// Divides the CPU time of a payer by the number of its operations.
    fn operations(&self, event: &EventFacts<'_>, cost: &PayerCost) -> Operations {
        let (saved, operations) = (cost.saved(), cost.operations);
        let count = Some(operations.weight as f64).filter(|count| *count > 0.0);
        // Ticks that are missing everywhere are represented by those that arrived.
        let scale = match (event.whole.capacity_ns, event.machine.value()) {
            (Some(capacity_ns), Some(machine)) if *machine > 0 => capacity_ns as f64 / *machine as f64,
            _ => 1.0,
        };
        let per_operation = |weight: f64| count.map(|count| weight * scale / count);
        let sampled = margin(saved.samples, event.ledger.samples.samples) * event.ledger.samples.weight as f64;
        // Each operation is sampled if the period is 1, so the count has no error.
        let is_exact = operations.samples == operations.weight;
        let count_error = if is_exact { 0.0 } else { NORMAL_95 / (operations.samples.max(1) as f64).sqrt() };
        Operations {
            count: operations,
            per_second: count.zip(self.facts.recorded.elapsed_ns).map(|(count, time_ns)| count * 1e9 / time_ns as f64),
            now: per_operation(cost.now.weight as f64).filter(|_| event.busy.is_value()),
            saved: per_operation(saved.weight as f64),
            margin: per_operation(sampled.hypot(cost.unsampled()).hypot(count_error * saved.weight as f64)),
        }
    }

    /// Returns a note if the event that counts operations lacks samples.
    fn uncounted(&self, event: usize) -> Option<Note> {
        let (lost, throttled) = (self.facts.lost(event), self.facts.throttled(event));
        let name = || self.facts.recording.names[event].clone();
        let is_complete = lost.value() == Some(&0) && throttled == 0;
        (!is_complete).then(|| Note::OperationsMissing { event: name(), lost: lost.into_value(), throttled })
    }
}
