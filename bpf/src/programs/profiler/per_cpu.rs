//! What the programs around one function count: `struct account` of profiler.bpf.c, one for each CPU.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Error, Object, Result};
use crate::sys::load::{self, SharedWords};

/// `EVENTS_MAX`: events that one profiler counts at most.
pub const EVENTS_MAX: usize = 8;
/// `SUB_BITS`: the bits of [`bprec_format::state::Histogram`] that [`Counted::buckets`] are divided by.
pub const HISTOGRAM_SUB_BITS: u8 = 2;

// Words of `struct account`.
const EVERY: usize = 0;
const RUNS: usize = 1;
const NEXT: usize = 2;
const OPENED: usize = 3;
const CLOSED: usize = 4;
const EXIT_ACTIVE: usize = 5;
const ENDED: usize = 6;
const NESTING_OVERFLOW: usize = 7;
const DISCARDED: [usize; 2] = [8, 9];
const MEASURED: usize = 10;
const TIME_NS: usize = 11;
const READINGS: usize = 12;
const BUCKETS: usize = READINGS + 3 * EVENTS_MAX;
const BUCKETS_LEN: usize = 156;
const OPEN: usize = BUCKETS + BUCKETS_LEN;
const OPEN_LEN: usize = 4;
/// Whole cache lines of 64 bytes.
const WORDS: usize = (OPEN + OPEN_LEN * (2 + 3 * EVENTS_MAX) + 1).next_multiple_of(8);
const _: () = assert!(WORDS == 304);

/// How often numbers that move while they are read are read again.
const READ_AGAIN: usize = 4;

/// Bytes of `accounts` for each CPU.
pub(super) const BYTES: u32 = 8 * WORDS as u32;

/// The accounts of one function, mapped.
#[derive(Debug)]
pub(super) struct PerCpuStats {
    map: OwnedFd,
    words: SharedWords,
    cpus: usize,
}

/// What has been counted since a pair or a session was attached, on one CPU or several. Readings are in the order of the events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// Runs that began.
    pub runs: u64,
    /// Runs that were measured to their end.
    pub measured: u64,
    /// Runs that began while there was no room for another open one on that CPU.
    pub too_deep: u64,
    /// Runs of which only the begin or the end was seen.
    pub discarded: u64,
    /// Runs that are being measured.
    pub open: u64,
    /// Time of the measured runs.
    pub time_ns: u64,
    /// Value, time enabled and time running of each event over the measured runs.
    pub readings: Vec<[u64; 3]>,
    /// Bucket and measured runs in it, ascending.
    pub buckets: Vec<(u16, u64)>,
}

impl PerCpuStats {
    /// Accounts for this many CPUs, of which one in `every` runs is measured.
    ///
    /// # Errors
    /// When the kernel refuses the map.
    pub(super) fn new(cpus: u32, every: u64) -> Result<PerCpuStats> {
        let refused =
            |call| move |errno| Error::Syscall { call, object: Object::Named("accounts"), errno, remedy: None };
        let map = load::create_array("accounts", BYTES * cpus, 1).map_err(refused("bpf(BPF_MAP_CREATE)"))?;
        let words = NonZeroUsize::MIN.saturating_add((cpus as usize * WORDS).saturating_sub(1));
        let words = SharedWords::map(map.as_fd(), words).map_err(refused("mmap"))?;
        let stats = PerCpuStats { map, words, cpus: cpus as usize };
        stats.set_every(every);
        Ok(stats)
    }

    pub(super) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Has one in `every` runs measured from here on.
    pub(super) fn set_every(&self, every: u64) {
        // Twice of it is what is drawn from, among numbers of 32 bits.
        let every = every.clamp(1, 1 << 30);
        let before = self.every();
        for cpu in 0..self.cpus {
            self.words.set(cpu * WORDS + EVERY, every);
            if every < before {
                // Else the change would wait until the old number of runs is skipped.
                self.words.set(cpu * WORDS + NEXT, 0);
            }
        }
    }

    pub(super) fn every(&self) -> u64 {
        self.words.get(EVERY).max(1)
    }

    /// Runs that began, on all CPUs.
    pub(super) fn begun(&self) -> u64 {
        self.on_all_cpus(RUNS)
    }

    /// Runs whose end a session saw, on all CPUs.
    pub(super) fn ended(&self) -> u64 {
        self.on_all_cpus(ENDED)
    }

    fn on_all_cpus(&self, word: usize) -> u64 {
        (0..self.cpus).map(|cpu| self.words.get(cpu * WORDS + word)).sum()
    }

    /// The numbers of one CPU. What comes after another in a run is read before it, so that no run is seen to have ended
    /// that has not been seen to begin.
    fn words_of(&self, cpu: usize) -> [u64; OPEN] {
        let mut words = [0; OPEN];
        for (index, word) in words.iter_mut().enumerate().rev() {
            *word = self.words.get(cpu * WORDS + index);
        }
        words
    }

    /// What each CPU has counted, by its number. A CPU that measures one run after the other may have counted one and not
    /// yet its time.
    pub(super) fn read(&self, events: usize) -> Vec<Counted> {
        (0..self.cpus).map(|cpu| self.read_cpu(cpu, events.min(EVENTS_MAX))).collect()
    }

    fn read_cpu(&self, cpu: usize, events: usize) -> Counted {
        let mut words = self.words_of(cpu);
        for _ in 0..READ_AGAIN {
            let again = self.words_of(cpu);
            let settled = again[CLOSED] == words[CLOSED] && again[EXIT_ACTIVE] == 0;
            words = again;
            if settled {
                break;
            }
        }
        let readings = words[READINGS..BUCKETS].chunks_exact(3).take(events);
        let taken = words[BUCKETS..][..BUCKETS_LEN].iter().enumerate().filter(|(_, runs)| **runs != 0);
        Counted {
            runs: words[RUNS],
            measured: words[MEASURED],
            too_deep: words[NESTING_OVERFLOW],
            discarded: DISCARDED.map(|index| words[index]).iter().sum(),
            open: words[OPENED].saturating_sub(words[CLOSED]),
            time_ns: words[TIME_NS],
            readings: readings.map(|reading| [reading[0], reading[1], reading[2]]).collect(),
            buckets: taken.map(|(bucket, runs)| (bucket as u16, *runs)).collect(),
        }
    }
}

impl Counted {
    /// What several CPUs have counted.
    pub fn sum(cpus: &[Counted]) -> Counted {
        let mut sum = Counted::default();
        let mut buckets = [0u64; BUCKETS_LEN];
        for cpu in cpus {
            sum.runs += cpu.runs;
            sum.measured += cpu.measured;
            sum.too_deep += cpu.too_deep;
            sum.discarded += cpu.discarded;
            sum.open += cpu.open;
            sum.time_ns += cpu.time_ns;
            sum.readings.resize(sum.readings.len().max(cpu.readings.len()), [0; 3]);
            for (sum, reading) in sum.readings.iter_mut().zip(&cpu.readings) {
                sum.iter_mut().zip(reading).for_each(|(sum, part)| *sum += part);
            }
            for (bucket, runs) in &cpu.buckets {
                if let Some(sum) = buckets.get_mut(usize::from(*bucket)) {
                    *sum += runs;
                }
            }
        }
        let taken = buckets.iter().enumerate().filter(|(_, runs)| **runs != 0);
        sum.buckets = taken.map(|(bucket, runs)| (bucket as u16, *runs)).collect();
        sum
    }
}
