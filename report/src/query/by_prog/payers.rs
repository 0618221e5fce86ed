//! The ledger by payer.

use super::Built;
use super::rows::payer_name;
use super::shares::percent;
use crate::index::Index;
use crate::input::recording::Recording;
use crate::input::window::Window;
use crate::model::{
    Count, EventPayers, EventReport, JSON_VERSION, Known, PayerCell, PayerName, PayerOthers, PayerRow, PayerTotal,
    Payers, Program, Reason,
};
use crate::options::Payer;
use crate::pass::Selection;
use crate::pass::sinks::payers::{EventPaid, Paid, PayersSink, interrupts};
use crate::pass::sinks::timeline::Charged;
use crate::{Options, ProgFilter, Result};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Makes the report. Payers are told apart by all of `keys`; without any by the name of the task.
pub(crate) fn payers(recording: &Recording<'_>, index: &Index, options: &Options, keys: &[Payer]) -> Result<Payers> {
    let mut asked: Vec<Payer> = Vec::new();
    for key in keys {
        if !asked.contains(key) {
            asked.push(*key);
        }
    }
    if asked.is_empty() {
        asked.push(Payer::Comm);
    }
    let keys = asked;
    // The ledger beside it is for the total and what shares are of.
    let ledger_options = Options { by: None, ..options.clone() };
    let interrupts = interrupts(index);
    let sink = PayersSink::new(index, &keys, &interrupts, recording.events.all().len());
    let needs_comm = keys.contains(&Payer::Comm);
    let Built { report, mut sink, weights } = super::build_with(recording, index, &ledger_options, needs_comm, sink)?;
    sink.share_entry(index.hooks.groups(), |group, interval| weights.of(group, interval));
    let window = Window::of(&options.time, recording, index.start_ns())?;
    let selected = Selection::new(recording, index, &window, options)?.events;
    let selected = (0..selected.len()).filter(|event| selected[*event]);
    let maker =
        Maker { index, options, sink: &sink, programs: &report.programs, has_interrupts: !index.symbols.is_empty() };
    let events = report.events.iter().zip(selected).map(|(event, at)| maker.event(event, &sink.events[at])).collect();
    Ok(Payers {
        format: "bprec payers",
        version: JSON_VERSION,
        recording: report.recording,
        keys,
        events,
        programs: report.programs,
        problems: report.problems,
        notes: report.notes,
    })
}

struct Maker<'m, 'i> {
    index: &'m Index,
    options: &'m Options,
    sink: &'m PayersSink<'i>,
    programs: &'m [Program],
    /// The recording names the functions through which interrupts enter the kernel.
    has_interrupts: bool,
}

/// A program's charges by payer: its position, the sum, and each payer's.
struct Charges {
    program: Option<usize>,
    name: &'static str,
    sum: Count,
    payers: Vec<(u32, Paid)>,
}

impl Maker<'_, '_> {
    fn event(&self, event: &EventReport, paid: &EventPaid) -> EventPayers {
        let (machine, bpf) = (event.machine.value().copied(), event.total.count);
        let in_interrupts = |count: Count| match (event.has_chains, self.has_interrupts) {
            (true, true) => Known::Value(count),
            (false, _) => Known::Unknown(Reason::NoCallChains),
            (true, false) => Known::Unknown(Reason::NoKernelSymbols),
        };
        let interrupts_percent = |paid: &Paid| {
            let known = in_interrupts(paid.in_interrupts).into_value()?;
            percent(known.weight, Some(paid.count.weight))
        };
        let all = |payer: u32| paid.all.get(payer as usize).copied().unwrap_or_default();
        let share = |count: Count| PayerTotal {
            count,
            bpf_percent: percent(count.weight, Some(bpf.weight)),
            machine_percent: percent(count.weight, machine),
        };
        let mut sums: FxHashMap<u32, Paid> = FxHashMap::default();
        for ((_, payer), charged) in &paid.charges {
            sums.entry(*payer).or_default().merge(*charged);
        }
        let named =
            |payer: &u32| self.sink.keys_of(*payer).into_iter().map(|key| payer_name(self.index, key)).collect();
        let payers = sums.into_iter().map(|(payer, paid)| (payer, paid, named(&payer)));
        let mut payers: Vec<(u32, Paid, Vec<PayerName>)> = payers.collect();
        payers.sort_by(|(_, a, by_a), (_, b, by_b)| b.count.cmp_weight(a.count).then_with(|| by_a.cmp(by_b)));
        let positions: FxHashMap<u32, usize> = payers.iter().map(|(payer, ..)| *payer).zip(0..).collect();
        let payers = payers.into_iter().map(|(payer, paid, name)| {
            let PayerTotal { bpf_percent, machine_percent, .. } = share(paid.count);
            PayerRow {
                payer: name,
                count: paid.count,
                in_interrupts_percent: interrupts_percent(&paid),
                in_interrupts: in_interrupts(paid.in_interrupts),
                all: all(payer),
                payer_percent: percent(paid.count.weight, Some(all(payer).weight)),
                bpf_percent,
                machine_percent,
            }
        });
        let payers = payers.collect();
        let (mut rows, mut others) = (Vec::new(), (0, Count::default()));
        for charges in self.charges(paid, &positions) {
            let is_shown = charges.program.map_or(self.options.programs.is_empty(), |at| self.is_asked(at));
            let limit = if is_shown { self.options.limit.unwrap_or(usize::MAX) } else { 0 };
            let known = charges.program.and_then(|at| self.programs.get(at));
            for (nth, (payer, paid)) in charges.payers.into_iter().enumerate() {
                if nth >= limit {
                    others = (others.0 + 1, others.1 + paid.count);
                    continue;
                }
                let PayerTotal { count, bpf_percent, machine_percent } = share(paid.count);
                rows.push(PayerCell {
                    program: charges.program,
                    id: known.and_then(|program| program.id),
                    name: known.map_or_else(|| charges.name.to_owned(), Program::label),
                    payer: positions.get(&payer).copied().unwrap_or_default(),
                    count,
                    in_interrupts_percent: interrupts_percent(&paid),
                    in_interrupts: in_interrupts(paid.in_interrupts),
                    program_percent: percent(count.weight, Some(charges.sum.weight)),
                    payer_percent: percent(count.weight, Some(all(payer).weight)),
                    bpf_percent,
                    machine_percent,
                });
            }
        }
        EventPayers {
            name: event.name.clone(),
            unit: event.unit,
            samples: event.samples,
            machine: event.machine.clone(),
            is_scaled: event.is_scaled(),
            payers,
            rows,
            others: PayerOthers { pairs: others.0, total: share(others.1) },
            total: share(bpf),
        }
    }

    /// The charges by program, the costliest first, and of each by payer, the one who pays most first.
    fn charges(&self, paid: &EventPaid, positions: &FxHashMap<u32, usize>) -> Vec<Charges> {
        let mut by_program: FxHashMap<Charged, Vec<(u32, Paid)>> = FxHashMap::default();
        for ((charged, payer), paid) in &paid.charges {
            by_program.entry(*charged).or_default().push((*payer, *paid));
        }
        let charges = by_program.into_iter().map(|(charged, mut payers)| {
            payers.sort_by(|(x, a), (y, b)| b.count.cmp_weight(a.count).then_with(|| positions[x].cmp(&positions[y])));
            let (program, name) = match charged {
                Charged::Program(number) => (Some(number as usize), ""),
                // All of these are shared by now.
                Charged::Entry | Charged::Sharers(_) => (None, "(entry, unattributed)"),
                Charged::Interpreted => (None, "(interpreted programs)"),
            };
            Charges { program, name, sum: payers.iter().map(|(_, paid)| paid.count).sum(), payers }
        });
        let mut charges: Vec<Charges> = charges.collect();
        charges.sort_by_key(|it| (Reverse(it.sum.weight), it.program.is_none(), it.program, it.name));
        charges
    }

    fn is_asked(&self, program: usize) -> bool {
        let program = &self.programs[program];
        let matches = |filter: &ProgFilter| filter.matches(program.id, program.tag.map(|it| it.0), &program.name);
        self.options.programs.is_empty() || self.options.programs.iter().any(matches)
    }
}
