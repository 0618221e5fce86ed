//! The ledger of an event: the samples charged to each program, by column (own code, helpers, entry code), and sums over all samples.

use crate::index::Index;
use crate::index::kernel::Role;
use crate::model::Count;
use crate::pass::attribution::{Attribution, Charge, ChargeColumn};
use crate::pass::sinks::by_event::ByEvent;
use crate::pass::sinks::pivot::Charges;
use crate::pass::sinks::sharing::{HookWeights, Sharers, share_out};
use crate::pass::{SampleView, Sink};
use bprec_format::bprec::state::OVERFLOW_PID;
use bprec_format::misc;
use rustc_hash::FxHashMap;

/// Charges (charged samples) by program and column, stored only where there are charges: a recording may have many events and programs, and few pairs of event and
/// program have charges, most of them in one column.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramCharges {
    /// Cells in the order of the first charge; once sorted, in the order of programs.
    cells: Vec<Cell>,
    /// Hash table of positions in `cells`, with linear probing; empty once the cells are sorted. If a cell's slot is taken, the next free slot is used.
    /// The length is a power of two, at least twice the number of cells.
    places: Vec<u32>,
}

/// Samples of a program in one column.
#[derive(Debug, Clone, Copy)]
struct Cell {
    program: u32,
    /// A [`ChargeColumn`], [`SHARED_ENTRY`] or [`INNER`].
    column: u32,
    count: Count,
}

/// Column of the program's share of hooks with several programs, a part of [`ChargeColumn::Entry`].
const SHARED_ENTRY: u32 = ChargeColumn::Entry as u32 + 1;

/// Column of samples inside the program that are not charged to it.
const INNER: u32 = SHARED_ENTRY + 1;

/// Marks a free slot.
const FREE: u32 = u32::MAX;

impl ProgramCharges {
    /// Charges of a program; zero for a program without charges. Needs sorted cells, as do the next three functions.
    pub(crate) fn get(&self, program: u32) -> Charges {
        charges(self.of_program(program))
    }

    /// Returns true if a program has charges.
    pub(crate) fn has(&self, program: u32) -> bool {
        !self.of_program(program).is_empty()
    }

    /// Programs with charges, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Charges)> + Clone {
        self.cells.chunk_by(|a, b| a.program == b.program).map(|cells| (cells[0].program, charges(cells)))
    }

    /// Sum of all charges.
    pub(crate) fn sum(&self) -> Charges {
        charges(&self.cells)
    }

    fn of_program(&self, program: u32) -> &[Cell] {
        let from = self.cells.partition_point(|cell| cell.program < program);
        let len = self.cells[from..].partition_point(|cell| cell.program == program);
        &self.cells[from..from + len]
    }

    fn sort(&mut self) {
        self.places = Vec::new();
        self.cells.sort_unstable_by_key(|cell| cell.program);
        self.cells.shrink_to_fit();
    }

    #[inline]
    fn of(&mut self, program: u32, column: u32) -> &mut Count {
        let at = match self.position(program, column) {
            Some(at) => at,
            None => self.add(program, column),
        };
        &mut self.cells[at].count
    }

    #[inline]
    fn position(&self, program: u32, column: u32) -> Option<usize> {
        let mask = self.places.len().checked_sub(1)?;
        let mut place = slot(program, column) & mask;
        loop {
            let at = self.places[place] as usize;
            let cell = self.cells.get(at)?;
            if (cell.program, cell.column) == (program, column) {
                return Some(at);
            }
            place = (place + 1) & mask;
        }
    }

    #[cold]
    fn add(&mut self, program: u32, column: u32) -> usize {
        self.cells.push(Cell { program, column, count: Count::default() });
        let last = self.cells.len() - 1;
        if self.cells.len() * 2 > self.places.len() {
            self.places = vec![FREE; (self.cells.len() * 4).next_power_of_two()];
            (0..last).for_each(|at| self.place(at));
        }
        self.place(last);
        last
    }

    fn place(&mut self, at: usize) {
        let mask = self.places.len() - 1;
        let mut place = slot(self.cells[at].program, self.cells[at].column) & mask;
        while self.places[place] != FREE {
            place = (place + 1) & mask;
        }
        self.places[place] = at as u32;
    }

    fn merge(&mut self, other: &ProgramCharges) {
        other.cells.iter().for_each(|cell| self.of(cell.program, cell.column).merge(cell.count));
    }
}

/// Slot of a cell, to be cut to the length of the table. Programs with near numbers have near slots.
#[inline]
fn slot(program: u32, column: u32) -> usize {
    program as usize * 4 + column as usize
}

/// Sum of cells.
fn charges(cells: &[Cell]) -> Charges {
    let mut sums = [Count::default(); INNER as usize + 1];
    cells.iter().for_each(|cell| sums[cell.column as usize].merge(cell.count));
    let [own, helper, entry, shared_entry, inner] = sums;
    Charges { own, helper, entry, shared_entry, total: own + helper + entry + inner }
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
            Charge::Program { program, column, .. } => self.programs.of(program, column as u32).merge(count),
        }
        // The charged program is the innermost one.
        let is_charged = matches!(attribution.charge, Charge::Program { .. });
        for program in attribution.programs().iter().skip(usize::from(is_charged)) {
            self.programs.of(*program, INNER).merge(count);
        }
    }

    /// Shares out the cost of hooks with several programs, and sorts the charges. `group_of` has the group of each program, if programs are grouped.
    pub(crate) fn share_entry(&mut self, weights: &HookWeights<'_>, group_of: &[Option<u32>]) {
        let shared = std::mem::take(&mut self.shared_entry).into_iter();
        let parts = shared.map(|(sharers, count)| (sharers, (), count)).collect();
        share_out(parts, weights, |program, (), share| match program {
            None => self.entry.merge(share),
            Some(program) => {
                self.programs.of(program, ChargeColumn::Entry as u32).merge(share);
                self.programs.of(program, SHARED_ENTRY).merge(share);
                if let Some(Some(number)) = group_of.get(program as usize) {
                    self.group(*number).merge(share);
                }
            }
        });
        self.programs.sort();
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
            one.of(*program, ChargeColumn::Own as u32).merge(count(weight));
            other.of(*program, ChargeColumn::Helper as u32).merge(count(weight));
            other.of(*program, INNER).merge(count(weight));
        }
        one.merge(&other);
        one.sort();
        for (program, weight) in programs.iter().zip(1..) {
            let total = Count { samples: 3, weight: 3 * weight };
            let expected = Charges { own: count(weight), helper: count(weight), total, ..Charges::default() };
            assert_eq!((one.get(*program), one.has(*program)), (expected, true));
        }
        assert_eq!((one.iter().count(), one.get(5), one.has(5)), (programs.len(), Charges::default(), false));
        let weights = (1..=programs.len() as u64).sum::<u64>();
        assert_eq!((one.sum().own.weight, one.sum().total.weight), (weights, 3 * weights));
    }
}
