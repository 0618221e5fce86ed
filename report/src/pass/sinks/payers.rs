//! Who pays: the charges of the ledger by what ran, and all samples of whatever ran.

use super::by_event::ByEvent;
use super::ledger::{Key, payer_key};
use super::sharing::{part_of, share_out};
use super::timeline::Charged;
use crate::index::Index;
use crate::index::runners::Group;
use crate::index::symbols::Kind;
use crate::model::Count;
use crate::options::Payer;
use crate::pass::attribution::Attribution;
use crate::pass::{SampleView, Sink};
use bprec_format::{CONTEXT_MAX, Callchain, context};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// What is charged to a payer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Paid {
    /// All of it.
    pub(crate) count: Count,
    /// Of that, in interrupts.
    pub(crate) in_interrupts: Count,
}

impl Paid {
    pub(crate) fn merge(&mut self, other: Paid) {
        self.count.merge(other.count);
        self.in_interrupts.merge(other.in_interrupts);
    }
}

/// Payers by number. Each is one key behind another payer, so that several keys make no longer entries than one.
#[derive(Debug, Clone, Default)]
struct PayerNumbers {
    numbers: FxHashMap<(Option<u32>, Key), u32>,
    keys: Vec<(Option<u32>, Key)>,
}

impl PayerNumbers {
    #[inline]
    fn number(&mut self, before: Option<u32>, key: Key) -> u32 {
        *self.numbers.entry((before, key)).or_insert_with(|| {
            self.keys.push((before, key));
            self.keys.len() as u32 - 1
        })
    }

    /// The keys of a payer, in the order in which they are asked for.
    fn keys_of(&self, payer: u32) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut next = Some(payer);
        while let Some(payer) = next {
            let (before, key) = self.keys[payer as usize];
            keys.push(key);
            next = before;
        }
        keys.reverse();
        keys
    }
}

/// The charges of an event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventPaid {
    /// By payer: all of its samples.
    pub(crate) all: Vec<Count>,
    /// By whom it is charged to, and the payer.
    pub(crate) charges: FxHashMap<(Charged, u32), Paid>,
}

impl EventPaid {
    fn all(&mut self, payer: u32, count: Count) {
        let payer = payer as usize;
        if payer >= self.all.len() {
            self.all.resize(payer + 1, Count::default());
        }
        self.all[payer].merge(count);
    }
}

/// Adds up charges by payer.
#[derive(Debug, Clone)]
pub(crate) struct PayersSink<'i> {
    index: &'i Index,
    keys: &'i [Payer],
    /// Where interrupts enter the kernel, ascending.
    interrupts: &'i [(u64, u64)],
    payers: PayerNumbers,
    pub(crate) events: ByEvent<EventPaid>,
}

/// Where interrupts enter the kernel, ascending.
pub(crate) fn interrupts(index: &Index) -> Vec<(u64, u64)> {
    index.symbols.of_kind(Kind::Interrupt).collect()
}

impl<'i> PayersSink<'i> {
    pub(crate) fn new(
        index: &'i Index,
        keys: &'i [Payer],
        interrupts: &'i [(u64, u64)],
        events: usize,
    ) -> PayersSink<'i> {
        PayersSink { index, keys, interrupts, payers: PayerNumbers::default(), events: ByEvent::new(events) }
    }

    /// The keys of a payer, in the order in which they are asked for.
    pub(crate) fn keys_of(&self, payer: u32) -> Vec<Key> {
        self.payers.keys_of(payer)
    }

    /// Shares what hooks of several programs cost between those, by the weights of each group in each interval; without weights it is nobody's.
    pub(crate) fn share_entry(&mut self, groups: &[Group], weights: impl Fn(&Group, Option<u32>) -> Option<Vec<u64>>) {
        let payers = &self.payers;
        for event in self.events.iter_mut() {
            let charges = &mut event.charges;
            let (mut parts, mut shares) = (Vec::new(), BTreeMap::new());
            charges.retain(|(charged, payer), paid| {
                let Charged::Sharers(sharers) = charged else { return true };
                // Numbers of payers depend on the order of samples, their keys do not.
                parts.push((*sharers, (payers.keys_of(*payer), *payer, *sharers, paid.in_interrupts), paid.count));
                false
            });
            share_out(parts, groups, &weights, |program, (_, payer, sharers, in_interrupts), share| {
                let of_part: &mut Vec<_> = shares.entry((*sharers, *payer, *in_interrupts)).or_default();
                of_part.push((program.map_or(Charged::Entry, Charged::Program), share));
            });
            for ((_, payer, in_interrupts), shares) in shares {
                let counts: Vec<Count> = shares.iter().map(|(_, share)| *share).collect();
                for ((charged, count), in_interrupts) in shares.into_iter().zip(part_of(&counts, in_interrupts)) {
                    charges.entry((charged, payer)).or_default().merge(Paid { count, in_interrupts });
                }
            }
        }
    }

    /// Whether the program that a sample is charged to ran in an interrupt.
    fn is_in_interrupt(&self, sample: &SampleView<'_>) -> bprec_format::Result<bool> {
        if self.interrupts.is_empty() {
            return Ok(false);
        }
        let chain = sample.callchain()?;
        let time_ns = sample.time_ns.unwrap_or(u64::MAX);
        Ok(chain.is_some_and(|chain| is_in_interrupt(self.index, self.interrupts, &chain, time_ns)))
    }
}

/// Whether an interrupt entered the kernel further out than the innermost BPF code of a call chain. One that came while a program ran is
/// further in.
fn is_in_interrupt(index: &Index, interrupts: &[(u64, u64)], chain: &Callchain<'_>, time_ns: u64) -> bool {
    let frames = || {
        let words = chain.iter().skip_while(|word| *word != context::KERNEL).skip(1);
        let frames = words.take_while(|word| *word < CONTEXT_MAX);
        // All but the leaf are return addresses, which are behind the call.
        frames.enumerate().map(|(nth, addr)| if nth == 0 { addr } else { addr.wrapping_sub(1) })
    };
    let is_interrupt = |addr: u64| {
        let at = interrupts.partition_point(|(start, _)| *start <= addr);
        at.checked_sub(1).is_some_and(|at| addr < interrupts[at].1)
    };
    let Some(outermost) = frames().enumerate().filter(|(_, addr)| is_interrupt(*addr)).map(|(nth, _)| nth).last()
    else {
        return false;
    };
    frames().take(outermost).any(|addr| index.map.find(addr, time_ns).is_some())
}

impl Sink for PayersSink<'_> {
    fn fork(&self) -> Self {
        PayersSink::new(self.index, self.keys, self.interrupts, self.events.len())
    }

    #[inline]
    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let mut payer = None;
        for key in self.keys {
            let key = payer_key(self.index, *key, sample)?;
            payer = Some(self.payers.number(payer, key));
        }
        let Some(payer) = payer else { return Ok(()) };
        let charged = Charged::of(attribution.charge);
        let in_interrupts = match charged {
            Some(_) if self.is_in_interrupt(sample)? => sample.count,
            _ => Count::default(),
        };
        let event = self.events.of(sample.event);
        event.all(payer, sample.count);
        if let Some(charged) = charged {
            event.charges.entry((charged, payer)).or_default().merge(Paid { count: sample.count, in_interrupts });
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        // A payer's number is larger than that of the one it is behind.
        let mut numbers = Vec::with_capacity(other.payers.keys.len());
        for (before, key) in other.payers.keys {
            let before = before.map(|before| numbers[before as usize]);
            numbers.push(self.payers.number(before, key));
        }
        self.events.merge(other.events, |mine, theirs| {
            for (payer, count) in numbers.iter().zip(theirs.all) {
                mine.all(*payer, count);
            }
            for ((charged, payer), paid) in theirs.charges {
                mine.charges.entry((charged, numbers[payer as usize])).or_default().merge(paid);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::address::{AddressMap, Owner, Range};
    use crate::index::symbols::KernelSymbols;
    use bprec_format::Endian;
    use bprec_format::state::KernelSymbol;

    const PROG: u64 = 0xffff_c000_0000;
    const TIMER: u64 = 0xffff_0000_1000;
    const SOFTIRQ: u64 = 0xffff_0000_2000;
    const HELPER: u64 = 0xffff_0000_3000;
    const SYSCALL: u64 = 0xffff_0000_4000;

    fn index() -> Index {
        let owner = Owner::Function { program: 0, function: 0 };
        let range = Range { start: PROG, end: PROG + 0x80, from_ns: 0, to_ns: u64::MAX, owner, announced: true };
        let symbol = |addr, name: &str| KernelSymbol { addr, len_bytes: 0x100, name: name.into() };
        let symbols = vec![
            symbol(TIMER, "asm_sysvec_apic_timer_interrupt"),
            symbol(SOFTIRQ, "handle_softirqs"),
            symbol(HELPER, "htab_map_lookup_elem"),
            symbol(SYSCALL, "entry_SYSCALL_64_after_hwframe"),
        ];
        Index { map: AddressMap::new([range]), symbols: KernelSymbols::new(symbols), ..Index::default() }
    }

    /// The last frame of each is the outermost.
    #[test]
    fn interrupts_further_out_than_the_program_count() {
        let index = index();
        let interrupts = interrupts(&index);
        let cases: [(&[u64], bool); 7] = [
            (&[PROG + 8, SYSCALL + 8], false),
            (&[PROG + 8, SOFTIRQ + 8, TIMER + 8, SYSCALL + 8], true),
            (&[HELPER + 8, PROG + 8, SOFTIRQ + 8, TIMER + 8], true),
            // An interrupt came while the program ran for a system call.
            (&[HELPER, TIMER + 8, PROG + 8, SYSCALL + 8], false),
            // A program in an interrupt that came while another one ran.
            (&[PROG + 8, TIMER + 8, PROG + 0x10, SYSCALL + 8], true),
            // A softirq on the way out of a system call is the task's own work.
            (&[PROG + 8, SOFTIRQ + 8, SYSCALL + 8], false),
            (&[TIMER + 8, SYSCALL], false),
        ];
        for (frames, expected) in cases {
            let words = [context::KERNEL].iter().chain(frames).chain(&[context::USER, TIMER + 8]);
            let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
            let chain = Callchain::new(&bytes, Endian::Little);
            assert_eq!(is_in_interrupt(&index, &interrupts, &chain, 5), expected, "{frames:x?}");
        }
    }

    /// What two threads have seen is one, whatever numbers each gave to payers.
    #[test]
    fn payers_of_several_threads_are_put_together() {
        let index = index();
        let keys = [Payer::Comm, Payer::Cpu];
        let count = |samples| Count { samples, weight: samples * 10 };
        let of = |payers: &[(Key, Key, u64)]| {
            let mut sink = PayersSink::new(&index, &keys, &[], 1);
            for (comm, cpu, samples) in payers {
                let comm = sink.payers.number(None, *comm);
                let payer = sink.payers.number(Some(comm), *cpu);
                sink.events.of(0).all(payer, count(*samples));
                let paid = Paid { count: count(*samples), in_interrupts: Count::default() };
                sink.events.of(0).charges.entry((Charged::Program(7), payer)).or_default().merge(paid);
            }
            sink
        };
        let mut sink = of(&[(Key::Comm(1), Key::Cpu(0), 1), (Key::Comm(2), Key::Cpu(0), 2)]);
        sink.merge(of(&[
            (Key::Comm(2), Key::Cpu(1), 4),
            (Key::Comm(2), Key::Cpu(0), 8),
            (Key::Comm(1), Key::Cpu(0), 16),
        ]));
        let mut paid: Vec<(Vec<Key>, u64, u64)> = sink.events[0]
            .charges
            .iter()
            .map(|((_, payer), paid)| {
                (sink.keys_of(*payer), paid.count.samples, sink.events[0].all[*payer as usize].samples)
            })
            .collect();
        paid.sort();
        let expected = [
            (vec![Key::Comm(1), Key::Cpu(0)], 17, 17),
            (vec![Key::Comm(2), Key::Cpu(0)], 10, 10),
            (vec![Key::Comm(2), Key::Cpu(1)], 4, 4),
        ];
        assert_eq!(paid, expected);
    }
}
