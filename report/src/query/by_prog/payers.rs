//! Costs by payer: the context in which programs run, such as a task or a container.

use super::facts::{EventFacts, Facts, WantedFacts};
use super::rows::payer_name;
use super::shares::percent;
use crate::index::Index;
use crate::input::recording::OpenRecording;
use crate::model::{
    Count, EventPayers, JSON_VERSION, Known, PayerCell, PayerName, PayerOthers, PayerRow, PayerTotal, Payers, Program,
    Reason,
};
use crate::options::Payer;
use crate::pass::sinks::pivot::{ChargedRow, Key, KeyBy, Pivoted};
use crate::{Options, Result};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Cost of BPF to a payer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Paid {
    /// All samples.
    count: Count,
    /// Samples in interrupts.
    in_interrupts: Count,
    /// Program's estimated share of the samples of hooks with several programs.
    shared_entry: Count,
}

impl Paid {
    fn merge(&mut self, other: Paid) {
        self.count.merge(other.count);
        self.in_interrupts.merge(other.in_interrupts);
        self.shared_entry.merge(other.shared_entry);
    }
}

/// Returns the keys that identify payers, each key once; without keys, the name of the task.
pub(crate) fn distinct(keys: &[Payer]) -> Vec<Payer> {
    let mut asked: Vec<Payer> = Vec::new();
    for key in keys {
        if !asked.contains(key) {
            asked.push(*key);
        }
    }
    if asked.is_empty() {
        asked.push(Payer::Comm);
    }
    asked
}

/// Returns the key of the table that the report needs.
pub(crate) fn key(payers: Vec<Payer>) -> KeyBy {
    KeyBy::Payers { payers, is_whole: true }
}

/// Makes the report of costs by payer. All of `keys` together identify a payer; without keys, the name of the task does.
pub(crate) fn payers(
    recording: &OpenRecording<'_>,
    index: &Index,
    options: &Options,
    keys: &[Payer],
) -> Result<Payers> {
    let keys = distinct(keys);
    // The charges of programs are needed only for the totals by which costs are divided, so programs are not split.
    let options = Options { by: None, ..options.clone() };
    let wanted = WantedFacts { pivots: vec![key(keys.clone())], ..WantedFacts::default() };
    let (facts, ()) = Facts::gather(recording, index, &options, wanted, |_| ())?;
    Ok(of(&facts, 0, keys))
}

/// Makes the report of costs by payer from the table of charges at the position `pivot` of [`Facts::pivots`].
pub(crate) fn of(facts: &Facts<'_>, pivot: usize, keys: Vec<Payer>) -> Payers {
    Payers {
        format: "bprec payers",
        version: JSON_VERSION,
        recording: facts.recorded.clone(),
        keys,
        events: events(facts, pivot),
        programs: Arc::clone(&facts.programs),
        problems: facts.problems(),
        notes: facts.notes(),
    }
}

/// Reports the payers of the selected events. `pivot` is the position of the table of charges in [`Facts::pivots`].
pub(crate) fn events(facts: &Facts<'_>, pivot: usize) -> Vec<EventPayers> {
    let pivot = &facts.pivots[pivot];
    facts.events().map(|event| PayersBuilder::new(facts, pivot, event).event(event)).collect()
}

/// Weights by interval, each with the number of the interval.
pub(crate) type ByInterval = Vec<(u32, u64)>;

/// Adds weights by interval.
pub(crate) fn add_weights<'w>(sums: &mut BTreeMap<u32, u64>, more: impl IntoIterator<Item = (&'w u32, &'w u64)>) {
    for (interval, weight) in more {
        let sum = sums.entry(*interval).or_default();
        *sum = sum.saturating_add(*weight);
    }
}

/// Weights of payers by interval.
#[derive(Default)]
pub(crate) struct PaidByInterval {
    /// Charges by the position of the charged program (`None` for a row without a program), the name of such a row (otherwise empty), and the
    /// position of the payer in [`EventPayers::payers`].
    pub(crate) charges: BTreeMap<(Option<usize>, &'static str, usize), ByInterval>,
    /// All samples of a payer, in BPF or not.
    pub(crate) all: BTreeMap<usize, ByInterval>,
    /// All samples, of payers and of other tasks.
    pub(crate) samples: BTreeMap<u32, u64>,
}

/// Returns the charges of an event to payers by interval. `pivot` is the position of their table in the facts.
pub(crate) fn by_interval(facts: &Facts<'_>, pivot: usize, number: usize, event: &EventPayers) -> PaidByInterval {
    let pivot = &facts.pivots[pivot];
    let positions: BTreeMap<&[PayerName], usize> = event.payers.iter().map(|payer| &payer.payer[..]).zip(0..).collect();
    let place = |key: u32| match pivot.keys[key as usize].split_last() {
        Some((Key::Interval(interval), payer)) => {
            let name: Vec<PayerName> = payer.iter().map(|key| payer_name(facts.index, *key)).collect();
            Some((*positions.get(&name[..])?, u32::try_from(*interval).unwrap_or(u32::MAX)))
        }
        _ => None,
    };
    let places: Vec<Option<(usize, u32)>> = (0..pivot.keys.len() as u32).map(place).collect();
    let mut paid = PaidByInterval::default();
    let cells = &pivot.events[number];
    for cell in &cells.cells {
        let program = if let ChargedRow::Program(program) = cell.charged { Some(program as usize) } else { None };
        let weight = cell.charges.sum().weight;
        if let Some((payer, interval)) = places[cell.key as usize].filter(|_| weight > 0) {
            paid.charges.entry((program, cell.charged.name(), payer)).or_default().push((interval, weight));
        }
    }
    for (key, count) in &cells.all {
        if let Some((payer, interval)) = places[*key as usize] {
            paid.all.entry(payer).or_default().push((interval, count.weight));
        }
        if let Some(Key::Interval(interval)) = pivot.keys[*key as usize].last() {
            let sum = paid.samples.entry(u32::try_from(*interval).unwrap_or(u32::MAX)).or_default();
            *sum = sum.saturating_add(count.weight);
        }
    }
    paid.all.values_mut().for_each(|of| of.sort_unstable());
    paid
}

struct PayersBuilder<'m> {
    facts: &'m Facts<'m>,
    event: EventFacts<'m>,
    /// Keys that identify each payer.
    payers: Vec<&'m [Key]>,
    /// All samples of each payer, in BPF or not.
    all: Vec<Count>,
    /// Charges of programs by payer, the costliest program first.
    charges: Vec<PayerCharges>,
    /// True if the recording names the functions through which interrupts enter the kernel.
    has_interrupts: bool,
}

/// Charges of a program by payer; if `program` is `None`, charges of the row `name`.
struct PayerCharges {
    program: Option<usize>,
    name: &'static str,
    sum: Count,
    payers: Vec<(u32, Paid)>,
}

impl<'m> PayersBuilder<'m> {
    fn new(facts: &'m Facts<'_>, pivot: &'m Pivoted, event: usize) -> PayersBuilder<'m> {
        // A payer has two lists of keys. The second list, for charged samples in interrupts, is the first list followed by `Key::Interrupt`. Both
        // lists stand for the same payer here.
        let mut payers: Vec<&[Key]> = Vec::new();
        let of_key = pivot.keys.iter().map(|keys| {
            let payer = keys.strip_suffix(&[Key::Interrupt]).unwrap_or(keys);
            if payers.last() != Some(&payer) {
                payers.push(payer);
            }
            payers.len() as u32 - 1
        });
        let of_key: Vec<u32> = of_key.collect();
        let mut all = vec![Count::default(); payers.len()];
        let cells = &pivot.events[event];
        cells.all.iter().for_each(|(key, count)| all[of_key[*key as usize] as usize].merge(*count));
        let charges = cells.by_charged().map(|(charged, cells)| {
            let mut paid: BTreeMap<u32, Paid> = BTreeMap::new();
            for cell in cells {
                let count = cell.charges.sum();
                let is_inside = pivot.keys[cell.key as usize].last() == Some(&Key::Interrupt);
                let in_interrupts = if is_inside { count } else { Count::default() };
                let shared_entry = cell.charges.shared_entry;
                paid.entry(of_key[cell.key as usize]).or_default().merge(Paid { count, in_interrupts, shared_entry });
            }
            let payers: Vec<(u32, Paid)> =
                paid.into_iter().filter(|(_, paid)| paid.count != Count::default()).collect();
            let (program, name) = match charged {
                ChargedRow::Program(number) => (Some(number as usize), ""),
                _ => (None, charged.name()),
            };
            PayerCharges { program, name, sum: payers.iter().map(|(_, paid)| paid.count).sum(), payers }
        });
        let mut charges: Vec<PayerCharges> = charges.filter(|charges| !charges.payers.is_empty()).collect();
        charges.sort_by_key(|it| (Reverse(it.sum.weight), it.program.is_none(), it.program, it.name));
        let has_interrupts = !facts.index.code.kernel.is_empty();
        PayersBuilder { facts, event: facts.event(event), payers, all, charges, has_interrupts }
    }

    fn event(self, number: usize) -> EventPayers {
        let (event, facts) = (&self.event, self.facts);
        let (machine, bpf) = (event.machine.value().copied(), event.bpf);
        let in_interrupts = |count: Count| match (event.has_chains, self.has_interrupts) {
            (true, true) => Known::Value(count),
            (false, _) => Known::Unknown(Reason::NoCallChains),
            (true, false) => Known::Unknown(Reason::NoKernelSymbols),
        };
        let interrupts_percent = |paid: &Paid| {
            let known = in_interrupts(paid.in_interrupts).into_value()?;
            percent(known.weight, Some(paid.count.weight))
        };
        let all = |payer: u32| self.all[payer as usize];
        let share = |count: Count| PayerTotal {
            count,
            bpf_percent: percent(count.weight, Some(bpf.weight)),
            machine_percent: percent(count.weight, machine),
        };
        let mut sums: FxHashMap<u32, Paid> = FxHashMap::default();
        for (payer, paid) in self.charges.iter().flat_map(|charges| &charges.payers) {
            sums.entry(*payer).or_default().merge(*paid);
        }
        let named =
            |payer: &u32| self.payers[*payer as usize].iter().map(|key| payer_name(facts.index, *key)).collect();
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
        for mut charges in self.charges {
            let payers = &mut charges.payers;
            payers.sort_by(|(x, a), (y, b)| b.count.cmp_weight(a.count).then_with(|| positions[x].cmp(&positions[y])));
            let asked = &facts.selection.asked;
            let is_shown = charges.program.map_or(asked.is_all(), |at| asked.has(at as u32));
            let limit = if is_shown { facts.options.limit.unwrap_or(usize::MAX) } else { 0 };
            let known = charges.program.map(|at| &facts.programs[at]);
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
                    is_estimate: paid.shared_entry.weight > 0,
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
            name: facts.recording.names[number].clone(),
            unit: event.unit,
            samples: event.ledger.samples,
            machine: event.machine.clone(),
            late_ticks: event.late_ticks,
            payers,
            rows,
            others: PayerOthers { pairs: others.0, total: share(others.1) },
            total: share(bpf),
        }
    }
}
