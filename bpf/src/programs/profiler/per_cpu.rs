//! Counts around one function: one `struct per_cpu_stats` of profiler.bpf.c per CPU.
//!
//! The programs write while the recorder reads. A sequence number protects the counts that are written at the end of a run: the recorder repeats the
//! read until the number stays the same. Each attempt reads first the counts of ends, then the counts of begins, so that the recorder never sees an
//! end without its begin.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::error::{Error, Object, Result};
use crate::sys::{load, memory::SharedWords};

/// Limit on the events of one profiler: `EVENTS_MAX` of profiler.bpf.c.
pub const EVENTS_MAX: usize = 8;
/// Sub-bucket bits of [`bprec_format::bprec::state::Histogram`] in [`ProbeCounts::buckets`]: `SUB_BITS` of profiler.bpf.c.
pub const HISTOGRAM_SUB_BITS: u8 = 4;

// Offsets in `struct per_cpu_stats`, in words of 64 bits.
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
/// Size of the structure in words, rounded up to cache lines of 64 bytes.
const WORDS: usize = (OPEN + OPEN_LEN * (2 + 3 * EVENTS_MAX) + 1).next_multiple_of(8);

/// Size of the counts of one CPU, bytes.
pub(super) const BYTES: u32 = 8 * WORDS as u32;
/// Limit on the value size of an array map in older kernels: `KMALLOC_MAX_SIZE`, bytes.
const OLD_VALUE_MAX_BYTES: u32 = 4 << 20;

/// Limit on the time for retries while the programs change the counts being read. The programs write for some ten nanoseconds at a time, so that one
/// of a few attempts succeeds.
const PATIENCE: Duration = Duration::from_millis(5);

/// Counts of one function, in memory that is shared with the programs.
#[derive(Debug)]
pub(super) struct FunctionStats {
    map: OwnedFd,
    words: SharedWords,
    cpus: usize,
}

/// Counts since a probe was attached, on one CPU or several. `readings` are in the order of the events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProbeCounts {
    /// Count of runs that began.
    pub runs: u64,
    /// Count of runs that were measured from begin to end.
    pub measured: u64,
    /// Count of runs that were not measured, because the CPU already had the maximum of open runs.
    pub nesting_overflow: u64,
    /// Count of runs with incomplete measurement: the begin or the end was not seen, or an event could not be read.
    pub discarded: u64,
    /// Count of runs in progress that are being measured.
    pub open: u64,
    /// Total time of the measured runs, ns.
    pub time_ns: u64,
    /// Value, time enabled (ns) and time running (ns) of each event, over the measured runs.
    pub readings: Vec<[u64; 3]>,
    /// Histogram of run times without the calibrated overhead: bucket and count of measured runs, in ascending order.
    pub buckets: Vec<(u16, u64)>,
}

impl FunctionStats {
    /// Creates the counts for `cpus` CPUs; one in `every` runs is measured.
    ///
    /// # Errors
    /// Fails if the kernel refuses the map.
    pub(super) fn new(cpus: u32, every: u64) -> Result<FunctionStats> {
        let bytes = BYTES * cpus;
        let remedy = (bytes > OLD_VALUE_MAX_BYTES).then_some(
            "the counters of all CPUs are one value of a map, and older kernels limit a value to 4 MiB, enough for 780 CPUs",
        );
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

    /// Sets the interval: from now on, one in `every` runs is measured.
    pub(super) fn set_every(&self, every: u64) {
        // The program draws a 32-bit random number below twice this interval, so twice the interval must fit into 32 bits.
        let every = every.clamp(1, 1 << 30);
        (0..self.cpus).for_each(|cpu| self.words.set(cpu * WORDS + EVERY, every));
    }

    pub(super) fn every(&self) -> u64 {
        self.words.get(EVERY).max(1)
    }

    /// Count of runs that began, on all CPUs.
    pub(super) fn begun(&self) -> u64 {
        self.on_all_cpus(RUNS)
    }

    /// Count of run ends that the fsession program saw, on all CPUs. If [`FunctionStats::begun`] is read afterwards, it includes all these runs.
    pub(super) fn ended(&self) -> u64 {
        self.on_all_cpus(ENDED)
    }

    fn on_all_cpus(&self, word: usize) -> u64 {
        (0..self.cpus).map(|cpu| self.words.get(cpu * WORDS + word)).sum()
    }

    /// Reads the counts of each CPU, in the order of CPU numbers. Returns `None` if the counts of a CPU change during every attempt.
    pub(super) fn read(&self, events: usize) -> Option<Vec<ProbeCounts>> {
        (0..self.cpus).map(|cpu| self.read_cpu(cpu, events.min(EVENTS_MAX))).collect()
    }

    fn read_cpu(&self, cpu: usize, events: usize) -> Option<ProbeCounts> {
        let word = |index| self.words.get(cpu * WORDS + index);
        let mut of_ends = [0; OPEN];
        let ends = [CLOSED].into_iter().chain(DISCARDED_AT_EXIT..READINGS + 3 * events).chain(BUCKETS..OPEN);
        let mut deadline = None;
        // The sequence does not cover the counts of begins, but while it is unchanged, no run ends on this CPU. Counts of begins that are read inside
        // the loop therefore belong to the same moment as the counts of ends. If they were read after the loop, the reader could be interrupted before
        // it reads them, and `runs` would include later runs than `measured`.
        let [runs, opened, nesting_overflow, discarded_at_entry] = loop {
            let sequence = word(SEQUENCE);
            ends.clone().for_each(|index| of_ends[index] = word(index));
            // `RUNS` is read last, because a program increments it before all other counts.
            let of_begins = [OPENED, NESTING_OVERFLOW, DISCARDED_AT_ENTRY, RUNS].map(word);
            // Each read is an acquire load, so this read of the sequence comes after the reads above.
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
    /// Adds up the counts of several CPUs.
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
