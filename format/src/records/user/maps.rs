//! Target of the recording: ID_INDEX (since perf 3.18), THREAD_MAP and CPU_MAP (since perf 4.4), TIME_CONV (since
//! perf 3.17).

use crate::layout::{Codec, Fixed, List, LongList, Padded, Plain, Rest, layout};
use crate::{Error, Reader, Result, Writer};

/// ID_INDEX (since perf 3.18): `nr u64`, `nr` × `{id, idx, cpu, tid: u64}`, then, where the record is long enough (since perf 6.0),
/// `nr` × `{machine_pid, vcpu: u64}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdIndex {
    /// The ids.
    pub entries: Vec<IdIndexEntry>,
    /// The second table is there.
    pub has_guests: bool,
}

/// Origin of an event's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdIndexEntry {
    /// The id.
    pub id: u64,
    /// Index of the ring, by which AUX data is found.
    pub idx: u64,
    /// CPU; all ones for any.
    pub cpu: u64,
    /// Thread; all ones for any.
    pub tid: u64,
    /// Process that runs the guest; 0 for the host.
    pub machine_pid: u64,
    /// The guest's CPU.
    pub vcpu: u64,
}

impl IdIndex {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<IdIndex> {
        let nr = r.u64("ID_INDEX nr")?;
        let nr = r.count(nr, 32, "ID_INDEX entries")?;
        let mut entries = Vec::with_capacity(nr);
        for _ in 0..nr {
            entries.push(IdIndexEntry {
                id: r.u64("ID_INDEX id")?,
                idx: r.u64("ID_INDEX idx")?,
                cpu: r.u64("ID_INDEX cpu")?,
                tid: r.u64("ID_INDEX tid")?,
                ..IdIndexEntry::default()
            });
        }
        let has_guests = nr > 0 && r.remaining() >= nr * 16;
        if has_guests {
            for entry in &mut entries {
                entry.machine_pid = r.u64("ID_INDEX machine_pid")?;
                entry.vcpu = r.u64("ID_INDEX vcpu")?;
            }
        }
        Ok(IdIndex { entries, has_guests })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.entries.len() as u64);
        for entry in &self.entries {
            w.u64(entry.id).u64(entry.idx).u64(entry.cpu).u64(entry.tid);
        }
        for entry in self.entries.iter().filter(|_| self.has_guests) {
            w.u64(entry.machine_pid).u64(entry.vcpu);
        }
    }
}

record! {
    /// THREAD_MAP (since perf 4.4): the tasks that were recorded; one with pid −1 for all.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ThreadMap {
        /// The tasks: `nr u64`, then these.
        pub entries: Vec<ThreadMapEntry> as LongList,
    }
}

layout! {
    /// A task of a THREAD_MAP.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ThreadMapEntry {
        /// Thread id.
        pub tid: u64,
        /// Its name, possibly empty; cut to 15 bytes.
        pub comm: Vec<u8> as Fixed<16>,
    }
}

/// `count u16`, and so many elements.
type ShortList = List<Plain, u16>;

/// A set of CPUs: CPU_MAP, and the body of an EVENT_UPDATE. Packed: offsets are odd multiples of 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuMap {
    /// `type u16 = 0, nr u16, cpu u16[]`; 0xffff stands for any CPU.
    Cpus(Vec<u16>),
    /// `type u16 = 1, nr u16, long_size u16`, then words of `long_size` bytes: 4, at byte 6; or 8, at byte 10.
    Mask {
        /// Bytes of each word.
        word_bytes: u16,
        /// The words; bit n of word m is CPU `m × word bits + n`.
        words: Vec<u64>,
    },
    /// `type u16 = 2, any_cpu u8, pad u8, start u16, end u16` (since perf 6.0).
    Range {
        /// Any CPU is in the set, too.
        any_cpu: bool,
        /// First.
        start: u16,
        /// Last.
        end: u16,
    },
}

impl CpuMap {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<CpuMap> {
        let offset = r.offset();
        match r.u16("CPU_MAP type")? {
            0 => Ok(CpuMap::Cpus(ShortList::get(r, "CPU_MAP cpus")?)),
            1 => {
                let nr = r.u16("CPU_MAP nr")?;
                let word_bytes = r.u16("CPU_MAP long_size")?;
                if word_bytes != 4 && word_bytes != 8 {
                    return Err(Error::value(offset + 4, "CPU_MAP long_size", word_bytes.into(), "4 or 8"));
                }
                if word_bytes == 8 {
                    r.take(4, "CPU_MAP padding")?;
                }
                let nr = r.count(nr.into(), word_bytes.into(), "CPU_MAP mask")?;
                let mut word =
                    || if word_bytes == 8 { r.u64("CPU_MAP mask") } else { r.u32("CPU_MAP mask").map(u64::from) };
                let words = (0..nr).map(|_| word()).collect::<Result<_>>()?;
                Ok(CpuMap::Mask { word_bytes, words })
            }
            2 => {
                let any_cpu = r.u8("CPU_MAP any_cpu")? != 0;
                r.u8("CPU_MAP padding")?;
                Ok(CpuMap::Range { any_cpu, start: r.u16("CPU_MAP start")?, end: r.u16("CPU_MAP end")? })
            }
            kind => Err(Error::value(offset, "CPU_MAP type", kind.into(), "0, 1 or 2")),
        }
    }

    /// The CPUs, in the order of the record; `None` stands for any CPU.
    pub fn cpus(&self) -> Vec<Option<u32>> {
        match self {
            CpuMap::Cpus(cpus) => cpus.iter().map(|cpu| (*cpu != u16::MAX).then_some(u32::from(*cpu))).collect(),
            CpuMap::Mask { word_bytes, words } => {
                let bits = u32::from(*word_bytes) * 8;
                let numbered = (0u32..).zip(words);
                let set = |(m, word): (u32, &u64)| {
                    let word = *word;
                    (0..bits).filter(move |n| word >> n & 1 != 0).map(move |n| Some(m * bits + n))
                };
                numbered.flat_map(set).collect()
            }
            CpuMap::Range { any_cpu, start, end } => {
                any_cpu.then_some(None).into_iter().chain((*start..=*end).map(|cpu| Some(cpu.into()))).collect()
            }
        }
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            CpuMap::Cpus(cpus) => {
                w.u16(0);
                ShortList::put(cpus, w);
            }
            CpuMap::Mask { word_bytes, words } => {
                w.u16(1).u16(words.len() as u16).u16(*word_bytes);
                if *word_bytes == 8 {
                    w.zeros(4);
                }
                for word in words {
                    if *word_bytes == 8 {
                        w.u64(*word)
                    } else {
                        w.u32(*word as u32)
                    };
                }
            }
            CpuMap::Range { any_cpu, start, end } => {
                w.u16(2).u8(u8::from(*any_cpu)).u8(0).u16(*start).u16(*end);
            }
        }
    }
}

record! {
    /// TIME_CONV (since perf 3.17). From the CPU's cycle counter to the recording's clock:
    /// `time = time_zero + (cycles × time_mult >> time_shift)`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the fields of the control page under the same names, perf_event_open(2)")]
    pub struct TimeConv {
        pub time_shift: u64,
        pub time_mult: u64,
        pub time_zero: u64,
        pub cycles: Option<TimeConvCycles> as Rest,
    }
}

layout! {
    /// For counters that wrap, since perf 5.10.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the fields of the control page under the same names, perf_event_open(2)")]
    pub struct TimeConvCycles {
        pub time_cycles: u64,
        pub time_mask: u64,
        pub cap_user_time_zero: bool,
        pub cap_user_time_short: bool as Padded<6>,
    }
}
