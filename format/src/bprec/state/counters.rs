//! Exact counters: events (kind 12), counts per program (13) and counts per shared target (14).
//!
//! Bodies, in the notation of the parent module. Fields in brackets follow if the `u8` before them is 1. `sized` is
//! `length u32` and that many bytes, to which later versions may append fields:
//!
//! ```text
//! 12  tier u8 · time_ns u64 · list of event · list of (name text · reason text) · calibration u8 [runs u64 ·
//!     inside_ns u64 · list of u64 · measured_ns optional · skipped_ns optional] · budget_ppm optional · note text
//!     event: sized (name text · attr_type u32 · config u64 · group u32 · unit u8 · software u8)
//! 13  time_ns u64 · list of target
//!     target: sized (id u32 · load_time_ns u64 · function u32 · name text · since_ns u64 · reason text · counts u8
//!     [runs u64 · measured u64 · too_deep u64 · discarded u64 · misses optional · every u64 · time_ns u64 ·
//!     list of reading · sub_bits u8 · list of (bucket u16 · runs u64)] · cpu optional)
//! 14  time_ns u64 · list of target
//!     target: sized (scope u8 · id u64 · name text · children u8 · since_ns u64 · reason text · list of reading)
//!     reading: value u64 · enabled_ns u64 · running_ns u64
//! ```
//!
//! Counts are totals since counting of the target began (`since_ns`), for all CPUs or for the one in `cpu`. The count between two snapshots is their
//! difference. The recorder writes raw counts; the reader subtracts overhead and scales. A snapshot with many targets is written as several payloads
//! of the same time.

use crate::layout::meaning::{self, CommOrCgroup, Event, Message};
use crate::layout::{CountedText, Framed, List, Optional, Pair, Plain, Wide, layout};

layout! {
    /// Tier of counters: the way in which they count, `EXACT` or `SHARED`.
    #[derive(Copy, Hash, PartialOrd, Ord)]
    pub struct CounterTier(pub u8);

    /// Events of the counters of one tier; this state comes before the first counts of the tier.
    pub struct CounterEvents {
        /// Tier of the events.
        pub tier: CounterTier,
        /// Time when counting was set up, ns of the recording's clock.
        pub time_ns: u64,
        /// The events, in the order of the readings. If empty, only runs and times are counted.
        pub events: Vec<CounterEvent> as List<Framed>,
        /// Requested events that are not counted.
        pub absent: Vec<AbsentEvent> as List,
        /// Overhead of counting, if it was measured.
        pub calibration: Option<Calibration> as Optional<Plain>,
        /// Share of the machine's CPU time that counting may take, in millionths; `None` without a budget.
        pub budget_ppm: Option<u32> as Optional<Wide>,
        /// Remark on the counting, or the reason why nothing is counted; may be empty.
        pub note: String as CountedText<Message>,
    }

    /// One event that is counted.
    #[derive(Default)]
    pub struct CounterEvent {
        /// Name of the event, as perf names it: `cycles`, `instructions:k`, `cpu/event=0x3c/`.
        pub name: String as CountedText<Event>,
        /// `perf_event_attr.type` of the event.
        pub attr_type: u32,
        /// `perf_event_attr.config` of the event.
        pub config: u64,
        /// Number of the event's group. The hardware counts all events of a group at the same time, so ratios are valid only within a group.
        pub group: u32,
        /// Unit of the value.
        pub unit: CounterUnit,
        /// True if the kernel counts the event, not the hardware.
        pub software: bool,
    }

    /// Unit of a value.
    #[derive(Copy, Default, Hash)]
    pub struct CounterUnit(pub u8);

    /// A requested event that is not counted.
    #[derive(Default)]
    pub struct AbsentEvent {
        /// Name of the event, as requested.
        pub name: String as CountedText<Event>,
        /// Reason why the event is not counted.
        pub reason: String as CountedText<Message>,
    }

    /// Overhead of counting, measured with a program that does nothing. All fields are totals over [`Calibration::runs`] runs, so that no fraction is
    /// lost.
    #[derive(Default)]
    pub struct Calibration {
        /// Count of runs in the totals. Interrupted runs may have been left out.
        pub runs: u64,
        /// Overhead contained in [`RunCounts::time_ns`]: the part of the measured time that the two readings themselves
        /// take.
        pub inside_ns: u64,
        /// Overhead counted by each event, scaled if the event was multiplexed, in the order of
        /// [`CounterEvents::events`].
        pub inside: Vec<u64> as List,
        /// Time that counting adds to a measured run, seen from outside the run.
        pub measured_ns: Option<u64> as Optional<Plain>,
        /// Time that counting adds to a run that is not chosen for measurement, see `RunCounts::every`.
        pub skipped_ns: Option<u64> as Optional<Plain>,
    }

    /// Counts of programs and their functions, at one moment.
    #[derive(Default)]
    pub struct ProgramCounters {
        /// Time of the reading, ns of the recording's clock.
        pub time_ns: u64,
        /// Counts per target.
        pub targets: Vec<TargetCounters> as List<Framed>,
    }

    /// Counts of one function of a program, or the reason why the function is not counted.
    #[derive(Default)]
    pub struct TargetCounters {
        /// Program id.
        pub id: u32,
        /// Load time of the program, ns since boot; id and load time together identify it.
        pub load_time_ns: u64,
        /// Index of the function in the order of `func_info`; 0 is the entry.
        pub function: u32,
        /// Name of the function; empty for the entry.
        pub name: Vec<u8> as Short<meaning::Program>,
        /// Time when counting of the function began, ns of the recording's clock. If the function never was counted: time of the refusal.
        pub since_ns: u64,
        /// Reason why counting of the function was refused or has ended; empty while the function is counted.
        pub reason: String as Short<Message>,
        /// Counts; `None` if the function never was counted.
        pub counts: Option<RunCounts> as Optional<Plain>,
        late:
        /// CPU of the counts; `None` for the total of all CPUs.
        pub cpu: Option<u32> as Optional<Wide>,
    }

    /// Counts of one function since [`TargetCounters::since_ns`]. Each run that is chosen for measurement (one in `every`) is in exactly one of
    /// `measured`, `too_deep` and `discarded`.
    #[derive(Default)]
    pub struct RunCounts {
        /// Runs with an observed begin, measured or not.
        pub runs: u64,
        /// Runs that were measured from begin to end; times, readings and histogram cover these runs.
        pub measured: u64,
        /// Runs that began when the limit of nested runs on the CPU was reached.
        pub too_deep: u64,
        /// Runs that were chosen for measurement, but only their begin or only their end was observed.
        pub discarded: u64,
        /// Runs that the probe missed, because the kernel's recursion guard kept the probe from running; `None` if unknown, and for the counts of
        /// one CPU.
        pub misses: Option<u64> as Optional<Plain>,
        /// Sampling interval at the time of the snapshot: one run in `every` is measured; 1 means all runs.
        pub every: u64,
        /// Time of the measured runs, ns.
        pub time_ns: u64,
        /// Readings of the measured runs, in the order of [`CounterEvents::events`].
        pub readings: Vec<Reading> as List,
        /// Histogram of the durations of the measured runs.
        pub histogram: Histogram,
    }

    /// Counter value with the fields of `bpf_perf_event_value`.
    #[derive(Copy, Default)]
    pub struct Reading {
        /// Count while the event was scheduled on the PMU.
        pub value: u64,
        /// Time for which the event was enabled.
        pub enabled_ns: u64,
        /// Time for which the event was on the hardware; less than `enabled_ns` if events are multiplexed.
        pub running_ns: u64,
    }

    /// Histogram of run durations. Buckets double in width every `2^sub_bits` buckets, see [`Histogram::bucket`].
    #[derive(Default)]
    pub struct Histogram {
        /// Each power of two is divided into `2^sub_bits` buckets; at most [`Histogram::SUB_BITS_MAX`]. The bit
        /// [`Histogram::NET`] may be set in addition.
        pub sub_bits: u8,
        /// Pairs of (bucket, count of runs), ascending, without empty buckets.
        pub buckets: Vec<(u16, u64)> as List<Pair<Plain, Plain>>,
    }

    /// Counts of shared targets (the machine, CPUs, tasks, cgroups) at one moment.
    #[derive(Default)]
    pub struct SharedCounters {
        /// Time of the reading, ns of the recording's clock.
        pub time_ns: u64,
        /// Counts per target.
        pub targets: Vec<SharedTarget> as List<Framed>,
    }

    /// Kind of target of a shared counter.
    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    pub struct SharedScope(pub u8);

    /// One target of shared counters.
    #[derive(Default)]
    pub struct SharedTarget {
        /// Kind of the target.
        pub scope: SharedScope,
        /// Number of the CPU, thread or process, id of the cgroup; 0 for the machine.
        pub id: u64,
        /// Name of the task or path of the cgroup; empty if the target has none.
        pub name: Vec<u8> as Short<CommOrCgroup>,
        /// True if tasks that the target creates are counted, too.
        pub children: bool,
        /// Time when counting of the target began, ns of the recording's clock.
        pub since_ns: u64,
        /// Reason why counting of the target was refused or has ended; empty while the target is counted.
        pub reason: String as Short<Message>,
        /// Readings, in the order of [`CounterEvents::events`]; empty if the target never was counted.
        pub readings: Vec<Reading> as List,
    }
}

impl CounterTier {
    /// Tier of bprec's programs around each target program; its counts are [`ProgramCounters`].
    pub const EXACT: CounterTier = CounterTier(0);
    /// Tier with one reading per context switch, which several recorders share; its counts are [`SharedCounters`].
    pub const SHARED: CounterTier = CounterTier(1);
}

impl CounterUnit {
    /// Events.
    pub const EVENTS: CounterUnit = CounterUnit(0);
    /// Nanoseconds, as `cpu-clock` and `task-clock` count.
    pub const NANOSECONDS: CounterUnit = CounterUnit(1);
}

impl Histogram {
    /// Maximum of `sub_bits`: the finest division.
    pub const SUB_BITS_MAX: u8 = 6;
    /// Bit in `sub_bits`: the overhead of counting was subtracted from a duration before its bucket was chosen. If
    /// clear, durations contain the overhead.
    pub const NET: u8 = 0x80;

    /// Returns true if the durations are without the overhead of counting.
    pub fn is_net(&self) -> bool {
        self.sub_bits & Histogram::NET != 0
    }

    /// Bucket of a duration. Each duration below `2^sub_bits` ns has its own bucket; above, the bucket number consists
    /// of the position of the highest bit and the `sub_bits` bits after it.
    pub fn bucket(time_ns: u64, sub_bits: u8) -> u16 {
        let bits = u32::from((sub_bits & !Histogram::NET).min(Histogram::SUB_BITS_MAX));
        let Some(log2) = time_ns.checked_ilog2().filter(|log2| *log2 >= bits) else {
            return time_ns as u16;
        };
        let shift = log2 - bits;
        // `time_ns >> shift` keeps the highest bit, now `1 << bits`, and the `bits` bits after it. In the sum, the highest bit adds 1 to `shift`.
        ((u64::from(shift) << bits) + (time_ns >> shift)) as u16
    }

    /// Shortest and longest duration in a bucket, ns. `None` for a bucket to which no duration belongs, and for a finer
    /// division than [`Histogram::SUB_BITS_MAX`].
    pub fn bounds(bucket: u16, sub_bits: u8) -> Option<(u64, u64)> {
        let bits = u32::from(sub_bits & !Histogram::NET);
        if bits > u32::from(Histogram::SUB_BITS_MAX) {
            return None;
        }
        let (bucket, per_octave) = (u64::from(bucket), 1u64 << bits);
        if bucket < 2 * per_octave {
            return Some((bucket, bucket));
        }
        let shift = ((bucket >> bits) - 1) as u32;
        let first = bucket - (u64::from(shift) << bits);
        if shift + bits > 63 {
            return None;
        }
        let start = first << shift;
        Some((start, start + ((1 << shift) - 1)))
    }
}

impl SharedScope {
    /// All CPUs.
    pub const MACHINE: SharedScope = SharedScope(0);
    /// One CPU.
    pub const CPU: SharedScope = SharedScope(1);
    /// One thread.
    pub const PID: SharedScope = SharedScope(2);
    /// One process, all of its threads.
    pub const TGID: SharedScope = SharedScope(3);
    /// A cgroup with its descendants.
    pub const CGROUP: SharedScope = SharedScope(4);
}

/// Text of at most 1 KiB.
type Short<K> = CountedText<K, 1024>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two_divided() {
        // The highest bit and the two after it: 1000 = 0b11_1110_1000 is in 0b111 << 7.
        assert_eq!(Histogram::bounds(Histogram::bucket(1000, 2), 2), Some((896, 1023)));
        assert_eq!(Histogram::bounds(Histogram::bucket(1024, 2), 2), Some((1024, 1279)));
        assert_eq!(Histogram::bounds(Histogram::bucket(1000, 0), 0), Some((512, 1023)));
        let times: Vec<u16> = (0..10).map(|time_ns| Histogram::bucket(time_ns, 2)).collect();
        assert_eq!(times, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]);
    }

    #[test]
    fn every_time_is_in_the_bounds_of_its_bucket_and_buckets_join() {
        for sub_bits in 0..=Histogram::SUB_BITS_MAX {
            let last = Histogram::bucket(u64::MAX, sub_bits);
            let mut next = 0u64;
            for bucket in 0..=last {
                let (first, to) = Histogram::bounds(bucket, sub_bits).unwrap();
                assert_eq!(first, next, "bucket {bucket} of {sub_bits}");
                assert_eq!(Histogram::bucket(first, sub_bits), bucket);
                assert_eq!(Histogram::bucket(to, sub_bits), bucket);
                next = to.wrapping_add(1);
            }
            assert_eq!(next, 0, "the last bucket ends at the longest time");
            assert_eq!(Histogram::bounds(last + 1, sub_bits), None);
        }
    }
}
