//! Target and clock of the recording: ID_INDEX (since perf 3.18), THREAD_MAP and CPU_MAP (since perf 4.4), TIME_CONV (since
//! perf 3.17).

use crate::layout::meaning::Comm;
use crate::layout::{Codec, Fixed, List, LongList, Padded, Plain, Rest, layout};
use crate::{Error, Reader, Result, Writer};

/// ID_INDEX (since perf 3.18): `nr u64`, `nr` × [`IdIndexEntry`], then, if the record is long enough (since perf 6.0),
/// `nr` × [`IdIndexGuest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdIndex {
    /// Ids of the events.
    pub entries: Vec<IdIndexEntry>,
    /// Guest of each entry; empty if the record has no guests.
    pub guests: Vec<IdIndexGuest>,
}

layout! {
    /// Origin of an event's id.
    #[derive(Copy, Default)]
    pub struct IdIndexEntry {
        /// Id of the event.
        pub id: u64,
        /// Index of the ring; AUX data of the event has the same index.
        pub idx: u64,
        /// Number of the CPU; all ones for any CPU.
        pub cpu: u64,
        /// Thread id; all ones for any thread.
        pub tid: u64,
    }

    /// Guest that an event counts in.
    #[derive(Copy, Default)]
    pub struct IdIndexGuest {
        /// Id of the process that runs the guest; 0 for the host.
        pub machine_pid: u64,
        /// CPU of the guest.
        pub vcpu: u64,
    }

    /// A task of a THREAD_MAP.
    pub struct ThreadMapEntry<'a> {
        /// Thread id.
        pub tid: u64,
        /// Name of the thread, possibly empty; cut to 15 bytes.
        pub comm: &'a [u8] as Fixed<Comm, 16>,
    }

    /// Fields of TIME_CONV for cycle counters that wrap (since perf 5.10).
    #[derive(Copy)]
    #[expect(missing_docs, reason = "the fields of the control page under the same names, perf_event_open(2)")]
    pub struct TimeConvCycles {
        pub time_cycles: u64,
        pub time_mask: u64,
        pub cap_user_time_zero: bool,
        pub cap_user_time_short: bool as Padded<6>,
    }
}

record! {
    /// THREAD_MAP (since perf 4.4): the recorded tasks; one entry with pid −1 for all tasks.
    pub struct ThreadMap<'a> {
        /// `nr u64`, then the tasks.
        pub entries: Vec<ThreadMapEntry<'a>> as LongList,
    }

    /// TIME_CONV (since perf 3.17): converts the CPU's cycle counter to the recording's clock by
    /// `time = time_zero + (cycles × time_mult >> time_shift)`.
    #[derive(Copy)]
    #[expect(missing_docs, reason = "the fields of the control page under the same names, perf_event_open(2)")]
    pub struct TimeConv {
        pub time_shift: u64,
        pub time_mult: u64,
        pub time_zero: u64,
        pub cycles: Option<TimeConvCycles> as Rest,
    }
}

impl IdIndex {
    const GUEST_BYTES: usize = <Plain as Codec<'_, IdIndexGuest>>::MIN_BYTES;

    pub(super) fn parse(r: &mut Reader<'_>) -> Result<IdIndex> {
        let entries: Vec<IdIndexEntry> = LongList::<Plain>::get(r, "ID_INDEX entries")?;
        let has_guests = r.remaining() >= entries.len() * Self::GUEST_BYTES;
        let guests = entries.iter().filter(|_| has_guests).map(|_| Plain::get(r, "ID_INDEX guests"));
        Ok(IdIndex { guests: guests.collect::<Result<_>>()?, entries })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        LongList::<Plain>::put(&self.entries, w);
        self.guests.iter().for_each(|guest| Plain::put(guest, w));
    }
}

/// `count u16`, then that many elements.
type ShortList = List<Plain, u16>;

/// Set of CPUs: CPU_MAP, and the body of an EVENT_UPDATE. The layout is packed: fields are not aligned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuMap {
    /// `type u16 = 0, nr u16, cpu u16[]`; 0xffff means any CPU.
    Cpus(Vec<u16>),
    /// `type u16 = 1, nr u16, long_size u16`, then words of `long_size` bytes: words of 4 bytes from byte 6 on, words of 8
    /// bytes from byte 10 on.
    Mask {
        /// Bytes of each word.
        word_bytes: u16,
        /// Bit n of word m is CPU `m × word bits + n`.
        words: Vec<u64>,
    },
    /// `type u16 = 2, any_cpu u8, pad u8, start u16, end u16` (since perf 6.0).
    Range {
        /// True if the set also has the entry "any CPU".
        any_cpu: bool,
        /// First CPU.
        start: u16,
        /// Last CPU.
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

    /// CPUs in the order of the record; `None` means any CPU.
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
