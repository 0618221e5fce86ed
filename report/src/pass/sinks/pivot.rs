//! The pivot: charges by event, by charged program, and by one key of each sample.

use super::by_event::ByEvent;
use super::sharing::{HookWeights, Sharers, share_out};
use super::timed::EqualIntervals;
use crate::index::Index;
use crate::index::code::{Code, CodeCache};
use crate::index::kernel::Role;
use crate::model::Count;
use crate::options::Payer;
use crate::pass::attribution::{Attribution, Charge, ChargeColumn};
use crate::pass::frames::kernel_frames;
use crate::pass::{SampleView, Sink};
use bprec_format::Callchain;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Key that splits charges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The program's own code.
    Code,
    /// Trampoline, dispatcher or hook that runs the program.
    Entry,
    /// A function of the program.
    Function(u32),
    /// All tasks with the same name, by the number of the name.
    Comm(u32),
    /// A thread without a known name.
    Thread(u32),
    /// A process.
    Process(u32),
    /// A CPU.
    Cpu(u32),
    /// A cgroup.
    Cgroup(u64),
    /// Workload (container, unit) of a cgroup, by its number in the index.
    Workload(u32),
    /// A kernel function.
    Kernel(u32),
    /// An interrupt. As a callee of the program: the interrupt came while the program ran. As a payer: the program ran in the interrupt.
    Interrupt,
    /// An interval of time, by its number.
    Interval(u64),
    /// The key is unknown.
    Unknown,
}

/// Property of a sample that gives its key.
#[derive(Debug, Clone)]
pub(crate) enum KeyBy {
    /// Functions of the program.
    Function,
    /// Helper or kfunc that the program called.
    Helper,
    /// Payers (contexts in which programs run, such as tasks or containers), each identified by one or more keys. With `is_whole`, samples outside of
    /// BPF count too, and charged samples in an interrupt get [`Key::Interrupt`] as a further key.
    Payers { payers: Vec<Payer>, is_whole: bool },
    /// Payers, and intervals of one length. Samples outside BPF count too.
    PayersByInterval { payers: Vec<Payer>, intervals: EqualIntervals },
    /// Intervals of one length.
    Intervals(EqualIntervals),
    /// Intervals between ascending moments. Samples before the first and after the last moment do not count.
    Moments(Vec<u64>),
}

impl KeyBy {
    /// Returns true if names of tasks are needed.
    pub(crate) fn needs_comm(&self) -> bool {
        matches!(self, KeyBy::Payers { payers, .. } | KeyBy::PayersByInterval { payers, .. } if payers.contains(&Payer::Comm))
    }
}

/// Row that a sample is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ChargedRow {
    /// A program, by its number.
    Program(u32),
    /// Entry code of unknown programs.
    Entry,
    /// Unknown programs that the interpreter ran.
    Interpreted,
}

impl ChargedRow {
    /// Name of a row without a program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ChargedRow::Program(_) => "",
            ChargedRow::Entry => "(entry, program unknown)",
            ChargedRow::Interpreted => "(interpreted programs)",
        }
    }
}

/// Charged samples, by column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Charges {
    /// Samples in the program's own functions.
    pub(crate) own: Count,
    /// Samples in kernel code that the program called, or that interrupted it.
    pub(crate) helper: Count,
    /// Samples in code that exists to run the program.
    pub(crate) entry: Count,
    /// Part of `entry`: the program's share of hooks with several programs.
    pub(crate) shared_entry: Count,
    /// Inclusive samples, also of other programs that ran inside. Not a part of [`Charges::sum`].
    pub(crate) total: Count,
}

impl Charges {
    /// Sum of the columns: each sample is in the sum of one program.
    pub(crate) fn sum(&self) -> Count {
        self.own + self.helper + self.entry
    }

    /// Samples during the program's runs: inclusive, without entry code.
    pub(crate) fn inside(&self) -> Count {
        self.total.without(self.entry)
    }

    pub(crate) fn merge(&mut self, other: &Charges) {
        self.own.merge(other.own);
        self.helper.merge(other.helper);
        self.entry.merge(other.entry);
        self.shared_entry.merge(other.shared_entry);
        self.total.merge(other.total);
    }

    pub(crate) fn add_shared_entry(&mut self, count: Count) {
        self.entry.merge(count);
        self.shared_entry.merge(count);
    }

    pub(crate) fn column(&mut self, column: ChargeColumn) -> &mut Count {
        match column {
            ChargeColumn::Own => &mut self.own,
            ChargeColumn::Helper => &mut self.helper,
            ChargeColumn::Entry => &mut self.entry,
        }
    }
}

/// Interned keys. Several keys of a sample form a path in a trie: each number stands for a key and the number of the key before it.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyNumbers {
    numbers: FxHashMap<(Option<u32>, Key), u32>,
    keys: Vec<(Option<u32>, Key)>,
    /// Number returned last, tried first: successive samples often have the same key.
    last: Option<u32>,
}

impl KeyNumbers {
    #[inline]
    fn number(&mut self, before: Option<u32>, key: Key) -> u32 {
        if let Some(last) = self.last.filter(|last| self.keys[*last as usize] == (before, key)) {
            return last;
        }
        let number = *self.numbers.entry((before, key)).or_insert_with(|| {
            self.keys.push((before, key));
            self.keys.len() as u32 - 1
        });
        self.last = Some(number);
        number
    }

    fn path(&self, key: u32) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut next = Some(key);
        while let Some(key) = next {
            let (before, key) = self.keys[key as usize];
            keys.push(key);
            next = before;
        }
        keys.reverse();
        keys
    }

    /// Returns the number of a sample's payer; `None` without keys of payers.
    #[inline]
    pub(crate) fn payer(
        &mut self,
        index: &Index,
        payers: &[Payer],
        sample: &SampleView<'_>,
    ) -> bprec_format::Result<Option<u32>> {
        let mut number = None;
        for payer in payers {
            number = Some(self.number(number, payer_key(index, *payer, sample)?));
        }
        Ok(number)
    }

    /// Adds the keys of another table. Returns, for each number in the other table, the number of the same keys in this table.
    pub(crate) fn merge(&mut self, other: KeyNumbers) -> Vec<u32> {
        // In each table, a key's number is larger than the number of the key before it: `numbers` already has the key before.
        let mut numbers: Vec<u32> = Vec::with_capacity(other.keys.len());
        for (before, key) in other.keys {
            let before = before.map(|before| numbers[before as usize]);
            numbers.push(self.number(before, key));
        }
        numbers
    }

    /// Returns the list of keys that each number stands for, sorted, and the position of each number in this order. The numbers depend on the order
    /// of the samples, the positions do not.
    pub(crate) fn sorted(&self) -> (Vec<Vec<Key>>, Vec<u32>) {
        let mut paths: Vec<(Vec<Key>, u32)> = (0..self.keys.len() as u32).map(|key| (self.path(key), key)).collect();
        paths.sort_unstable();
        let mut positions = vec![0; paths.len()];
        paths.iter().zip(0..).for_each(|((_, key), position)| positions[*key as usize] = position);
        (paths.into_iter().map(|(path, _)| path).collect(), positions)
    }
}

/// Row and key of a cell in one number, so that a lookup hashes one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CellKey(u64);

impl CellKey {
    const ENTRY: u32 = u32::MAX;
    const INTERPRETED: u32 = u32::MAX - 1;

    #[inline]
    fn new(charged: ChargedRow, key: u32) -> CellKey {
        let row = match charged {
            ChargedRow::Program(program) => program,
            ChargedRow::Entry => CellKey::ENTRY,
            ChargedRow::Interpreted => CellKey::INTERPRETED,
        };
        CellKey(u64::from(row) << 32 | u64::from(key))
    }

    fn charged(self) -> ChargedRow {
        match (self.0 >> 32) as u32 {
            CellKey::ENTRY => ChargedRow::Entry,
            CellKey::INTERPRETED => ChargedRow::Interpreted,
            program => ChargedRow::Program(program),
        }
    }

    fn key(self) -> u32 {
        self.0 as u32
    }
}

/// Charges of an event during the pass.
#[derive(Debug, Clone, Default)]
struct EventCharges {
    /// All samples by key.
    all: FxHashMap<u32, Count>,
    cells: FxHashMap<CellKey, Charges>,
    /// Samples in entry code of several programs, until they are shared out.
    shared: FxHashMap<(Sharers, u32), Count>,
}

/// Charges samples by event, by charged program and by a key.
#[derive(Debug)]
pub(crate) struct Pivot<'i> {
    index: &'i Index,
    by: Arc<KeyBy>,
    /// Cache of code by address, to find interrupts further out in the chain than programs. `None` if keys do not depend on interrupts.
    codes: Option<CodeCache<'i>>,
    keys: KeyNumbers,
    events: ByEvent<EventCharges>,
}

/// Charges of one row in samples with one key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PivotCell {
    pub(crate) charged: ChargedRow,
    /// Position of the key among [`Pivoted::keys`].
    pub(crate) key: u32,
    pub(crate) charges: Charges,
}

/// Charges of an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventCells {
    /// All samples by key, if requested.
    pub(crate) all: FxHashMap<u32, Count>,
    /// Cells in the order of rows, then of keys.
    pub(crate) cells: Vec<PivotCell>,
}

impl EventCells {
    /// Cells of each row.
    pub(crate) fn by_charged(&self) -> impl Iterator<Item = (ChargedRow, &[PivotCell])> {
        self.cells.chunk_by(|a, b| a.charged == b.charged).map(|cells| (cells[0].charged, cells))
    }

    /// Cells of a program.
    pub(crate) fn of(&self, program: u32) -> &[PivotCell] {
        let charged = ChargedRow::Program(program);
        let from = self.cells.partition_point(|cell| cell.charged < charged);
        let len = self.cells[from..].partition_point(|cell| cell.charged == charged);
        &self.cells[from..from + len]
    }
}

/// Charges of a pass, with the cost of shared hooks shared out.
#[derive(Debug)]
pub(crate) struct Pivoted {
    /// Keys, ascending. Each is a list, because a sample can have several keys at once.
    pub(crate) keys: Vec<Vec<Key>>,
    pub(crate) events: ByEvent<EventCells>,
}

impl<'i> Pivot<'i> {
    pub(crate) fn new(index: &'i Index, by: KeyBy, events: usize) -> Pivot<'i> {
        let needs_interrupts = matches!(by, KeyBy::Payers { is_whole: true, .. });
        let codes = needs_interrupts.then(|| CodeCache::for_sink(&index.code));
        Pivot { index, by: Arc::new(by), codes, keys: KeyNumbers::default(), events: ByEvent::new(events) }
    }

    /// Shares out the cost of hooks with several programs, and sorts keys and cells.
    pub(crate) fn finish(self, weights: &HookWeights<'_>) -> Pivoted {
        let (keys, numbers) = self.keys.sorted();
        let number = |key: u32| numbers[key as usize];
        let events = self.events.map(|EventCharges { all, mut cells, shared }| {
            let parts =
                shared.into_iter().map(|((sharers, key), count)| (sharers, (number(key), key), count)).collect();
            let has_totals = matches!(*self.by, KeyBy::Payers { .. } | KeyBy::Intervals(_) | KeyBy::Moments(_));
            share_out(parts, weights, |program, (_, key), share| {
                let charged = program.map_or(ChargedRow::Entry, ChargedRow::Program);
                let charges = cells.entry(CellKey::new(charged, *key)).or_default();
                match program {
                    Some(_) => charges.add_shared_entry(share),
                    None => charges.entry.merge(share),
                }
                if has_totals {
                    charges.total.merge(share);
                }
            });
            let cells = cells.into_iter().map(|(at, charges)| PivotCell {
                charged: at.charged(),
                key: number(at.key()),
                charges,
            });
            let mut cells: Vec<PivotCell> = cells.collect();
            cells.sort_unstable_by_key(|cell| (cell.charged, cell.key));
            EventCells { all: all.into_iter().map(|(key, count)| (number(key), count)).collect(), cells }
        });
        Pivoted { keys, events }
    }

    /// Returns the key of a sample; `None` if the sample does not count.
    #[inline]
    fn key(&mut self, sample: &SampleView<'_>, charge: Charge) -> bprec_format::Result<Option<u32>> {
        let key = match &*self.by {
            KeyBy::PayersByInterval { payers, intervals } => {
                let payer = self.keys.payer(self.index, payers, sample)?;
                return Ok(Some(self.keys.number(payer, interval_key(intervals, sample))));
            }
            KeyBy::Payers { payers, .. } => {
                let mut number = self.keys.payer(self.index, payers, sample)?;
                if let Some(codes) = self.codes.as_mut().filter(|_| charge != Charge::Elsewhere)
                    && let Some(leaf) = sample.kernel_ip
                    && is_in_interrupt(
                        self.index,
                        codes,
                        leaf,
                        &sample.callchain()?,
                        sample.time_ns.unwrap_or(u64::MAX),
                    )
                {
                    number = Some(self.keys.number(number, Key::Interrupt));
                }
                return Ok(number);
            }
            KeyBy::Function => match charge {
                Charge::Program { function: Some(function), .. } => Key::Function(function),
                _ => Key::Entry,
            },
            KeyBy::Helper => self.called(charge),
            KeyBy::Intervals(intervals) => interval_key(intervals, sample),
            KeyBy::Moments(moments) => {
                let Some(time_ns) = sample.time_ns else { return Ok(None) };
                let behind = moments.partition_point(|moment| *moment <= time_ns);
                let interval = behind.checked_sub(1).filter(|_| behind < moments.len());
                let Some(interval) = interval else { return Ok(None) };
                Key::Interval(interval as u64)
            }
        };
        Ok(Some(self.keys.number(None, key)))
    }

    /// Returns the key of a charge by the function that the program called.
    fn called(&self, charge: Charge) -> Key {
        match charge {
            Charge::Program { column: ChargeColumn::Own, .. } => Key::Code,
            Charge::Program { column: ChargeColumn::Helper, called: Some(called), .. } => {
                let kernel = &self.index.code.kernel;
                match kernel.find(called) {
                    Some(function) if kernel.role(function) == Role::Interrupt => Key::Interrupt,
                    function => function.map_or(Key::Unknown, Key::Kernel),
                }
            }
            Charge::Program { column: ChargeColumn::Entry, .. } | Charge::SharedEntry { .. } => Key::Entry,
            _ => Key::Unknown,
        }
    }
}

fn interval_key(intervals: &EqualIntervals, sample: &SampleView<'_>) -> Key {
    sample.time_ns.map_or(Key::Unknown, |time_ns| Key::Interval(intervals.at(time_ns)))
}

/// Returns the key of a sample's payer: its task, process, CPU, cgroup or container.
#[inline]
fn payer_key(index: &Index, payer: Payer, sample: &SampleView<'_>) -> bprec_format::Result<Key> {
    Ok(match payer {
        Payer::Comm => sample.comm.map_or(Key::Thread(sample.pid_tid.1), Key::Comm),
        Payer::Pid if sample.pid_tid.0 == u32::MAX => Key::Unknown,
        Payer::Pid => Key::Process(sample.pid_tid.0),
        Payer::Cpu => sample.cpu.map_or(Key::Unknown, Key::Cpu),
        Payer::Cgroup => sample.cgroup()?.map_or(Key::Unknown, Key::Cgroup),
        Payer::Container => match sample.cgroup()? {
            Some(cgroup) => index.workloads().of_cgroup(cgroup).map_or(Key::Cgroup(cgroup), Key::Workload),
            None => Key::Unknown,
        },
    })
}

/// Returns true if a program ran in an interrupt: an interrupt's entry function is further out in the call chain than the innermost BPF code. An
/// interrupt that came while a program ran is further in and does not count.
fn is_in_interrupt(
    index: &Index,
    codes: &mut CodeCache<'_>,
    leaf: u64,
    chain: &Option<Callchain<'_>>,
    time_ns: u64,
) -> bool {
    let (mut is_in_interrupt, mut was_in_bpf) = (false, false);
    for frame in kernel_frames(index, leaf, chain, time_ns) {
        let code = codes.of_frame(frame, time_ns);
        is_in_interrupt |= was_in_bpf && matches!(code, Code::Kernel { role: Role::Interrupt, .. });
        was_in_bpf |= code.is_bpf();
    }
    is_in_interrupt
}

impl Sink for Pivot<'_> {
    fn fork(&self) -> Self {
        let (keys, events) = (KeyNumbers::default(), ByEvent::new(self.events.len()));
        let codes = self.codes.as_ref().map(|_| CodeCache::for_sink(&self.index.code));
        Pivot { index: self.index, by: Arc::clone(&self.by), codes, keys, events }
    }

    #[inline]
    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let (charge, count) = (attribution.charge, sample.count);
        let counts_all = matches!(*self.by, KeyBy::Payers { is_whole: true, .. } | KeyBy::PayersByInterval { .. });
        if charge == Charge::Elsewhere && !counts_all {
            return Ok(());
        }
        let Some(key) = self.key(sample, charge)? else { return Ok(()) };
        let event = self.events.of(sample.event);
        if counts_all {
            event.all.entry(key).or_default().merge(count);
        }
        let charged = match charge {
            Charge::Elsewhere | Charge::UnknownCode => None,
            Charge::Program { program, column, .. } => Some((ChargedRow::Program(program), column)),
            Charge::Entry => Some((ChargedRow::Entry, ChargeColumn::Entry)),
            Charge::Interpreted => Some((ChargedRow::Interpreted, ChargeColumn::Own)),
            Charge::SharedEntry { group, strangers, interval } => {
                event.shared.entry((Sharers { group, strangers, interval }, key)).or_default().merge(count);
                None
            }
        };
        let mut left = charged;
        let mut add = |program: u32, of_program: u32| {
            let cell = event.cells.entry(CellKey::new(ChargedRow::Program(program), of_program)).or_default();
            cell.total.merge(count);
            if let Some((_, column)) = left.take_if(|it| it.0 == ChargedRow::Program(program) && key == of_program) {
                cell.column(column).merge(count);
            }
        };
        match *self.by {
            KeyBy::Helper => {}
            KeyBy::Function => {
                for (program, function) in attribution.functions() {
                    add(*program, self.keys.number(None, Key::Function(*function)));
                }
            }
            _ => attribution.programs().iter().for_each(|program| add(*program, key)),
        }
        if let Some((charged, column)) = left {
            event.cells.entry(CellKey::new(charged, key)).or_default().column(column).merge(count);
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        let numbers = self.keys.merge(other.keys);
        let number = |key: u32| numbers[key as usize];
        self.events.merge(other.events, |mine, theirs| {
            theirs.all.into_iter().for_each(|(key, it)| mine.all.entry(number(key)).or_default().merge(it));
            for (at, charges) in theirs.cells {
                mine.cells.entry(CellKey::new(at.charged(), number(at.key()))).or_default().merge(&charges);
            }
            for ((sharers, key), count) in theirs.shared {
                mine.shared.entry((sharers, number(key))).or_default().merge(count);
            }
        });
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::code::{CodeMap, Range};
    use crate::index::symbols::{KernelMaps, KernelSymbols};
    use crate::input::window::Window;
    use bprec_format::bprec::state::KernelSymbol;
    use bprec_format::{Endian, context};

    const PROG: u64 = 0xffff_c000_0000;
    const TIMER: u64 = 0xffff_0000_1000;
    const SOFTIRQ: u64 = 0xffff_0000_2000;
    const HELPER: u64 = 0xffff_0000_3000;
    const SYSCALL: u64 = 0xffff_0000_4000;

    fn index() -> Index {
        let program = Range::always(PROG, PROG + 0x80, Code::Function { program: 0, function: 0 });
        let symbol = |addr, name: &str| KernelSymbol { addr, len_bytes: 0x100, name: name.into() };
        let symbols = vec![
            symbol(TIMER, "asm_sysvec_apic_timer_interrupt"),
            symbol(SOFTIRQ, "handle_softirqs"),
            symbol(HELPER, "htab_map_lookup_elem"),
            symbol(SYSCALL, "entry_SYSCALL_64_after_hwframe"),
        ];
        let code = CodeMap::new(vec![program], KernelSymbols::new(symbols), KernelMaps::default());
        Index { code, ..Index::default() }
    }

    /// The last frame of each chain is the outermost.
    #[test]
    fn interrupts_further_out_than_the_program_count() {
        let index = index();
        let mut codes = CodeCache::for_sink(&index.code);
        let cases: [(&[u64], bool); 7] = [
            (&[PROG + 8, SYSCALL + 8], false),
            (&[PROG + 8, SOFTIRQ + 8, TIMER + 8, SYSCALL + 8], true),
            (&[HELPER + 8, PROG + 8, SOFTIRQ + 8, TIMER + 8], true),
            // An interrupt occurred while the program ran for a system call.
            (&[HELPER, TIMER + 8, PROG + 8, SYSCALL + 8], false),
            // A program ran in an interrupt that occurred while another program ran.
            (&[PROG + 8, TIMER + 8, PROG + 0x10, SYSCALL + 8], true),
            // A softirq at the end of a system call is the task's own work.
            (&[PROG + 8, SOFTIRQ + 8, SYSCALL + 8], false),
            (&[TIMER + 8, SYSCALL], false),
        ];
        for (frames, expected) in cases {
            let words = [context::KERNEL].iter().chain(frames).chain(&[context::USER, TIMER + 8]);
            let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
            let chain = Some(Callchain::new(&bytes, Endian::Little));
            assert_eq!(is_in_interrupt(&index, &mut codes, frames[0], &chain, 5), expected, "{frames:x?}");
        }
    }

    /// Charges of two threads add up, even if the threads number keys differently.
    #[test]
    fn charges_of_several_threads_are_put_together() {
        let index = index();
        let count = |samples| Count { samples, weight: samples * 10 };
        let by = KeyBy::Payers { payers: vec![Payer::Comm, Payer::Cpu], is_whole: true };
        let of = |payers: &[(Key, Key, u64)]| {
            let mut sink = Pivot::new(&index, by.clone(), 1);
            for (comm, cpu, samples) in payers {
                let comm = sink.keys.number(None, *comm);
                let key = sink.keys.number(Some(comm), *cpu);
                let event = sink.events.of(0);
                event.all.entry(key).or_default().merge(count(*samples));
                event.cells.entry(CellKey::new(ChargedRow::Program(7), key)).or_default().own.merge(count(*samples));
            }
            sink
        };
        let mut sink = of(&[(Key::Comm(2), Key::Cpu(0), 2), (Key::Comm(1), Key::Cpu(0), 1)]);
        sink.merge(of(&[
            (Key::Comm(2), Key::Cpu(1), 4),
            (Key::Comm(2), Key::Cpu(0), 8),
            (Key::Comm(1), Key::Cpu(0), 16),
        ]));
        let window = Window::everything();
        let pivoted = sink.finish(&HookWeights::new(&index, &window));
        let event = &pivoted.events[0];
        let paid = event.of(7).iter().map(|cell| {
            let keys = pivoted.keys[cell.key as usize].as_slice();
            (keys, cell.charges.sum().samples, event.all[&cell.key].samples)
        });
        let expected = [
            (&[Key::Comm(1), Key::Cpu(0)][..], 17, 17),
            (&[Key::Comm(2), Key::Cpu(0)], 10, 10),
            (&[Key::Comm(2), Key::Cpu(1)], 4, 4),
        ];
        assert_eq!(paid.collect::<Vec<_>>(), expected);
        assert_eq!((event.of(6).len(), event.of(8).len(), event.by_charged().count()), (0, 0, 1));
    }
}
