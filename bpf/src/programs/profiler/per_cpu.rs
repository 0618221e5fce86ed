//! Counts of the programs around one function: `struct per_cpu_stats` of profiler.bpf.c, one for each CPU.
//!
//! The programs write while this is read. What the end of a run adds to stands under a sequence number, and is read again until it did not
//! change meanwhile; what its begin adds to is read after that, so that no run is seen to have ended that has not been seen to begin.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::error::{Error, Object, Result};
use crate::sys::{load, memory::SharedWords};

/// `EVENTS_MAX`: events that one profiler counts at most.
pub const EVENTS_MAX: usize = 8;
/// `SUB_BITS`: the bits of [`bprec_format::bprec::state::Histogram`] that [`ProbeCounts::buckets`] are divided by.
pub const HISTOGRAM_SUB_BITS: u8 = 4;

// Words of `struct per_cpu_stats`.
const EVERY: usize = 0;
const RUNS: usize = 2;
const OPENED: usize = 4;
const CLOSED: usize = 5;
const SEQUENCE: usize = 7;
const ENDED: usize = 8;
const NESTING_OVERFLOW: usize = 9;
const DISCARDED_AT_ENTRY: usize = 10;
const DISCARDED_AT_EXIT: usize = 11;
const MEASURED: usize = 12;
const TIME_NS: usize = 13;
const READINGS: usize = 14;
const BUCKETS: usize = READINGS + 3 * EVENTS_MAX;
const BUCKETS_LEN: usize = 528;
const OPEN: usize = BUCKETS + BUCKETS_LEN;
const OPEN_LEN: usize = 4;
/// Whole cache lines of 64 bytes.
const WORDS: usize = (OPEN + OPEN_LEN * (2 + 3 * EVENTS_MAX) + 1).next_multiple_of(8);

/// Bytes for each CPU.
pub(super) const BYTES: u32 = 8 * WORDS as u32;
/// `KMALLOC_MAX_SIZE`, which a value of an array may not exceed in older kernels.
const OLD_VALUE_MAX_BYTES: u32 = 4 << 20;

/// Limit on the time for which numbers that move while they are read are read again. The programs write for some ten
/// nanoseconds at a time, so that one of a few attempts succeeds.
const PATIENCE: Duration = Duration::from_millis(5);

/// The numbers of one function, mapped.
#[derive(Debug)]
pub(super) struct FunctionStats {
    map: OwnedFd,
    words: SharedWords,
    cpus: usize,
}

/// Counts since a probe was attached, on one CPU or several. Readings are in the order of the events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProbeCounts {
    /// Runs that began.
    pub runs: u64,
    /// Runs that were measured to their end.
    pub measured: u64,
    /// Runs that began while there was no room for another open one on that CPU.
    pub nesting_overflow: u64,
    /// Runs of which only the begin or the end was seen.
    pub discarded: u64,
    /// Runs that are being measured.
    pub open: u64,
    /// Time of the measured runs.
    pub time_ns: u64,
    /// Value, time enabled and time running of each event over the measured runs.
    pub readings: Vec<[u64; 3]>,
    /// Bucket and measured runs in it, ascending; of times from which the calibrated overhead has been taken.
    pub buckets: Vec<(u16, u64)>,
}

impl FunctionStats {
    /// Numbers for this many CPUs, where one in `every` runs is measured.
    ///
    /// # Errors
    /// Fails if the kernel refuses the map.
    pub(super) fn new(cpus: u32, every: u64) -> Result<FunctionStats> {
        let bytes = BYTES * cpus;
        let remedy = (bytes > OLD_VALUE_MAX_BYTES)
            .then_some("the counters of all CPUs are one value of a map, of which older kernels allow 4 MiB: 780 CPUs");
        let refused = |call| move |errno| Error::Syscall { call, object: Object::Named("per_cpu"), errno, remedy };
        let map = load::create_array("per_cpu", bytes, 1).map_err(refused("bpf(BPF_MAP_CREATE)"))?;
        let words = NonZeroUsize::MIN.saturating_add((cpus as usize * WORDS).saturating_sub(1));
        let words = SharedWords::map(map.as_fd(), words).map_err(refused("mmap"))?;
        let stats = FunctionStats { map, words, cpus: cpus as usize };
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
        (0..self.cpus).for_each(|cpu| self.words.set(cpu * WORDS + EVERY, every));
    }

    pub(super) fn every(&self) -> u64 {
        self.words.get(EVERY).max(1)
    }

    /// Runs that began, on all CPUs.
    pub(super) fn begun(&self) -> u64 {
        self.on_all_cpus(RUNS)
    }

    /// Runs whose end a session saw, on all CPUs. What is read after this has seen their begins.
    pub(super) fn ended(&self) -> u64 {
        self.on_all_cpus(ENDED)
    }

    fn on_all_cpus(&self, word: usize) -> u64 {
        (0..self.cpus).map(|cpu| self.words.get(cpu * WORDS + word)).sum()
    }

    /// Counts of each CPU, by its number; `None` if the numbers of one did not keep still for long enough to be read together.
    pub(super) fn read(&self, events: usize) -> Option<Vec<ProbeCounts>> {
        (0..self.cpus).map(|cpu| self.read_cpu(cpu, events.min(EVENTS_MAX))).collect()
    }

    fn read_cpu(&self, cpu: usize, events: usize) -> Option<ProbeCounts> {
        let word = |index| self.words.get(cpu * WORDS + index);
        let mut of_ends = [0; OPEN];
        let ends = [CLOSED].into_iter().chain(DISCARDED_AT_EXIT..READINGS + 3 * events).chain(BUCKETS..OPEN);
        let mut deadline = None;
        // Begins of runs move on their own, but no run of this CPU ends and another begins while the sequence keeps
        // still. Read in between, they are of the same moment: a reader that is interrupted here would have more runs
        // than the measured ones are of.
        let [runs, opened, nesting_overflow, discarded_at_entry] = loop {
            let sequence = word(SEQUENCE);
            ends.clone().for_each(|index| of_ends[index] = word(index));
            // The runs come last: one has begun before anything else is known of it.
            let of_begins = [OPENED, NESTING_OVERFLOW, DISCARDED_AT_ENTRY, RUNS].map(word);
            // Every word is read with acquire semantics: this one after those above.
            if sequence.is_multiple_of(2) && word(SEQUENCE) == sequence {
                let [opened, nesting_overflow, discarded_at_entry, runs] = of_begins;
                break [runs, opened, nesting_overflow, discarded_at_entry];
            }
            if Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + PATIENCE) {
                return None;
            }
            std::hint::spin_loop();
        };
        let readings = of_ends[READINGS..BUCKETS].chunks_exact(3).take(events);
        let taken = of_ends[BUCKETS..].iter().enumerate().filter(|(_, runs)| **runs != 0);
        Some(ProbeCounts {
            measured: of_ends[MEASURED],
            nesting_overflow,
            discarded: discarded_at_entry + of_ends[DISCARDED_AT_EXIT],
            open: opened.saturating_sub(of_ends[CLOSED]),
            time_ns: of_ends[TIME_NS],
            readings: readings.map(|reading| [reading[0], reading[1], reading[2]]).collect(),
            buckets: taken.map(|(bucket, runs)| (bucket as u16, *runs)).collect(),
            runs,
        })
    }
}

impl ProbeCounts {
    /// Counts of several CPUs.
    pub fn sum(cpus: &[ProbeCounts]) -> ProbeCounts {
        let mut sum = ProbeCounts::default();
        let mut buckets = [0u64; BUCKETS_LEN];
        for cpu in cpus {
            sum.runs += cpu.runs;
            sum.measured += cpu.measured;
            sum.nesting_overflow += cpu.nesting_overflow;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::layout::Layout;

    #[test]
    fn the_words_are_those_of_the_programs() {
        let layout = Layout::of(include_bytes!("profiler.bpf.o"), "per_cpu_stats").unwrap();
        let word = |name| layout.offset(name).unwrap() / 8;
        let expected = [
            ("every", EVERY),
            ("runs", RUNS),
            ("opened", OPENED),
            ("closed", CLOSED),
            ("sequence", SEQUENCE),
            ("ended", ENDED),
            ("nesting_overflow", NESTING_OVERFLOW),
            ("discarded_at_entry", DISCARDED_AT_ENTRY),
            ("discarded_at_exit", DISCARDED_AT_EXIT),
            ("measured", MEASURED),
            ("time_ns", TIME_NS),
            ("readings", READINGS),
            ("buckets", BUCKETS),
            ("open", OPEN),
        ];
        for (name, index) in expected {
            assert_eq!(word(name), index, "{name}");
        }
        assert_eq!(layout.bytes(), 8 * WORDS);
    }
}
