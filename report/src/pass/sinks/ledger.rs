//! The ledger of an event: the samples charged to each program, by column (own code, helpers, entry code), and sums over all samples.

use crate::index::Index;
use crate::index::kernel::Role;
use crate::model::Count;
use crate::pass::attribution::{Attribution, Charge};
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::sinks::pivot::Charges;
use crate::pass::sinks::sharing::{HookWeights, Sharers, share_out};
use crate::pass::{SampleView, Sink};
use bprec_format::bprec::state::OVERFLOW_PID;
use bprec_format::misc;
use rustc_hash::FxHashMap;

/// Charges (charged samples) by program, stored only for programs with charges: a recording may have many events and programs, and few pairs of event
/// and program have charges.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramCharges {
    /// Programs and charges, in the order of the first charge.
    list: Vec<(u32, Charges)>,
    /// Hash table of positions in `list`, with linear probing. A program's slot is given by the lowest bits of its number; if it is taken, the next
    /// free slot is used. The length is a power of two, at least twice the number of programs.
    places: Vec<u32>,
}

/// Marks a free slot.
const FREE: u32 = u32::MAX;

impl ProgramCharges {
    /// Charges of a program; zero for a program without charges.
    pub(crate) fn get(&self, program: u32) -> Charges {
        self.position(program).map_or(Charges::default(), |at| self.list[at].1)
    }

    /// Returns true if a program has charges.
    pub(crate) fn has(&self, program: u32) -> bool {
        self.position(program).is_some()
    }

    /// Programs with charges, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Charges)> {
        self.list.iter().map(|(program, charges)| (*program, charges))
    }

    /// Sum of all charges.
    pub(crate) fn sum(&self) -> Charges {
        let mut sum = Charges::default();
        self.list.iter().for_each(|(_, charges)| sum.merge(charges));
        sum
    }

    #[inline]
    fn of(&mut self, program: u32) -> &mut Charges {
        let at = match self.position(program) {
            Some(at) => at,
            None => self.add(program),
        };
        &mut self.list[at].1
    }

    #[inline]
    fn position(&self, program: u32) -> Option<usize> {
        let mask = self.places.len().checked_sub(1)?;
        let mut place = program as usize & mask;
        loop {
            let at = self.places[place] as usize;
            if self.list.get(at)?.0 == program {
                return Some(at);
            }
            place = (place + 1) & mask;
        }
    }

    #[cold]
    fn add(&mut self, program: u32) -> usize {
        self.list.push((program, Charges::default()));
        let last = self.list.len() - 1;
        if self.list.len() * 2 > self.places.len() {
            self.places = vec![FREE; (self.list.len() * 4).next_power_of_two()];
            (0..last).for_each(|at| self.place(at));
        }
        self.place(last);
        last
    }

    fn place(&mut self, at: usize) {
        let mask = self.places.len() - 1;
        let mut place = self.list[at].0 as usize & mask;
        while self.places[place] != FREE {
            place = (place + 1) & mask;
        }
        self.places[place] = at as u32;
    }

    fn merge(&mut self, other: &ProgramCharges) {
        other.iter().for_each(|(program, charges)| self.of(program).merge(charges));
    }
}

/// Ledger of one event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventLedger {
    pub(crate) samples: Count,
    pub(crate) idle: Count,
    pub(crate) entry: Count,
    /// Samples in entry code of several programs, until they are shared out.
    shared_entry: FxHashMap<Sharers, Count>,
    pub(crate) interpreted: Count,
    /// Samples in unknown code.
    pub(crate) unknown_code: Count,
    /// Samples in programs that run under the kernel's guard against nesting.
    pub(crate) guarded: Count,
    /// True if pid 0 had samples in user mode. The idle task has none, so pid 0 then stands for tasks of other pid namespaces.
    pub(crate) has_foreign_tasks: bool,
    /// Samples that the kernel counted without a call chain, as its table was full.
    pub(crate) overflow: Count,
    pub(crate) programs: ProgramCharges,
    /// Inclusive samples of each group of programs (`--by owner` and the like), by number of the group.
    pub(crate) groups: Vec<Count>,
    /// Time of the first and last sample, ns.
    pub(crate) span: Option<(u64, u64)>,
    /// CPUs with samples, one bit each.
    pub(crate) cpus: Vec<u64>,
}

/// Limit on CPU numbers: no machine has more CPUs.
const MAX_CPUS: u32 = 1 << 16;

impl EventLedger {
    /// Counts a sample, or several samples of one record, in the sums that do not depend on programs.
    #[inline]
    pub(crate) fn sample(&mut self, count: Count, time_ns: Option<u64>, cpu: Option<u32>) {
        self.samples.merge(count);
        if let Some(time) = time_ns {
            let (first, last) = self.span.get_or_insert((time, time));
            *first = (*first).min(time);
            *last = (*last).max(time);
        }
        if let Some(cpu) = cpu.filter(|cpu| *cpu < MAX_CPUS) {
            let word = cpu as usize / 64;
            if word >= self.cpus.len() {
                self.cpus.resize(word + 1, 0);
            }
            self.cpus[word] |= 1 << (cpu % 64);
        }
    }

    /// Charges a sample, or several samples of one record.
    pub(crate) fn charge(&mut self, attribution: &Attribution<'_>, count: Count) {
        match attribution.charge {
            Charge::Elsewhere => {}
            Charge::Entry => self.entry.merge(count),
            Charge::SharedEntry { group, strangers, interval } => {
                self.shared_entry.entry(Sharers { group, strangers, interval }).or_default().merge(count);
            }
            Charge::Interpreted => self.interpreted.merge(count),
            Charge::UnknownCode => self.unknown_code.merge(count),
            Charge::Program { program, column, .. } => self.programs.of(program).column(column).merge(count),
        }
        for program in attribution.programs() {
            self.programs.of(*program).total.merge(count);
        }
    }

    /// Shares out the cost of hooks with several programs. `group_of` has the group of each program, if programs are grouped.
    pub(crate) fn share_entry(&mut self, weights: &HookWeights<'_>, group_of: &[Option<u32>]) {
        let shared = std::mem::take(&mut self.shared_entry).into_iter();
        let parts = shared.map(|(sharers, count)| (sharers, (), count)).collect();
        share_out(parts, weights, |program, (), share| match program {
            None => self.entry.merge(share),
            Some(program) => {
                let charges = self.programs.of(program);
                charges.add_shared_entry(share);
                charges.total.merge(share);
                if let Some(Some(number)) = group_of.get(program as usize) {
                    self.group(*number).merge(share);
                }
            }
        });
    }

    fn group(&mut self, number: u32) -> &mut Count {
        let number = number as usize;
        if number >= self.groups.len() {
            self.groups.resize(number + 1, Count::default());
        }
        &mut self.groups[number]
    }

    /// Counts a sample once for each group that has a program in the chain, even if the group has several. `group_of` has the group of each program.
    #[inline(never)]
    fn charge_groups(&mut self, attribution: &Attribution<'_>, count: Count, group_of: &[Option<u32>]) {
        let group = |program: &u32| group_of[*program as usize];
        let programs = attribution.programs();
        for (at, program) in programs.iter().enumerate() {
            if let Some(number) = group(program)
                && !programs[..at].iter().any(|inner| group(inner) == Some(number))
            {
                self.group(number).merge(count);
            }
        }
    }

    /// Adds the counts of another thread.
    pub(crate) fn merge(&mut self, other: EventLedger) {
        self.samples.merge(other.samples);
        self.idle.merge(other.idle);
        self.entry.merge(other.entry);
        for (key, theirs) in other.shared_entry {
            self.shared_entry.entry(key).or_default().merge(theirs);
        }
        self.interpreted.merge(other.interpreted);
        self.unknown_code.merge(other.unknown_code);
        self.guarded.merge(other.guarded);
        self.overflow.merge(other.overflow);
        self.has_foreign_tasks |= other.has_foreign_tasks;
        self.programs.merge(&other.programs);
        if self.groups.len() < other.groups.len() {
            self.groups.resize(other.groups.len(), Count::default());
        }
        for (mine, theirs) in self.groups.iter_mut().zip(other.groups) {
            mine.merge(theirs);
        }
        self.span = match (self.span, other.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
        if self.cpus.len() < other.cpus.len() {
            self.cpus.resize(other.cpus.len(), 0);
        }
        for (mine, theirs) in self.cpus.iter_mut().zip(&other.cpus) {
            *mine |= theirs;
        }
    }
}

/// Charges samples to the ledgers of their events.
#[derive(Debug)]
pub(crate) struct LedgerSink<'i> {
    index: &'i Index,
    /// Group of each program, if programs are grouped.
    group_of: &'i [Option<u32>],
    events: ByEvent<EventLedger>,
}

impl<'i> LedgerSink<'i> {
    /// Makes an empty sink. `group_of` has the group of each program; empty without grouping.
    pub(crate) fn new(index: &'i Index, group_of: &'i [Option<u32>], events: usize) -> LedgerSink<'i> {
        LedgerSink { index, group_of, events: ByEvent::new(events) }
    }

    /// Returns the ledgers, with the cost of shared hooks shared out.
    pub(crate) fn finish(mut self, weights: &HookWeights<'_>) -> ByEvent<EventLedger> {
        self.events.iter_mut().for_each(|ledger| ledger.share_entry(weights, self.group_of));
        self.events
    }
}

/// Returns true if the CPU was idle. Without the kernel's symbols, all samples of the idle task in the kernel outside programs count as idle.
pub(crate) fn is_idle(index: &Index, sample: &SampleView<'_>, charge: Charge) -> bool {
    let Some(ip) = sample.kernel_ip.filter(|_| charge == Charge::Elsewhere && sample.pid_tid == (0, 0)) else {
        return false;
    };
    index.code.kernel.is_empty() || index.code.kernel.role_at(ip) == Role::Idle
}

impl Sink for LedgerSink<'_> {
    fn fork(&self) -> Self {
        LedgerSink::new(self.index, self.group_of, self.events.len())
    }

    #[inline(always)]
    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let count = sample.count;
        let is_idle = is_idle(self.index, sample, attribution.charge);
        let ledger = self.events.of(sample.event);
        ledger.sample(count, sample.time_ns, sample.cpu);
        if sample.pid_tid.0 == OVERFLOW_PID && self.index.aggregations.contains_key(&sample.event) {
            ledger.overflow.merge(count);
        }
        if is_idle {
            ledger.idle.merge(count);
        }
        ledger.has_foreign_tasks |= sample.pid_tid == (0, 0) && sample.record.misc & misc::CPUMODE_MASK == misc::USER;
        if attribution.charge != Charge::Elsewhere {
            if attribution.is_guarded() {
                ledger.guarded.merge(count);
            }
            ledger.charge(attribution, count);
            if !self.group_of.is_empty() {
                ledger.charge_groups(attribution, count, self.group_of);
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.events.merge(other.events, EventLedger::merge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Program numbers that collide in the hash table and wrap around at its end. Each program is charged several times.
    #[test]
    fn charges_of_any_programs_are_found_again() {
        let programs: Vec<u32> = (0..300).map(|at| at * 1024 % 4099 * 77).chain([u32::MAX, u32::MAX - 1]).collect();
        let count = |weight| Count { samples: 1, weight };
        let (mut one, mut other) = (ProgramCharges::default(), ProgramCharges::default());
        for (program, weight) in programs.iter().zip(1..) {
            one.of(*program).own.merge(count(weight));
            one.of(*program).total.merge(count(weight));
            other.of(*program).helper.merge(count(weight));
        }
        one.merge(&other);
        for (program, weight) in programs.iter().zip(1..) {
            let expected =
                Charges { own: count(weight), helper: count(weight), total: count(weight), ..Charges::default() };
            assert_eq!(one.get(*program), expected);
        }
        assert_eq!((one.iter().count(), one.get(5)), (programs.len(), Charges::default()));
        let weights = (1..=programs.len() as u64).sum::<u64>();
        assert_eq!((one.sum().own.weight, one.sum().sum().weight), (weights, 2 * weights));
    }
}
