//! Counts without samples: STAT_CONFIG, STAT, STAT_ROUND (since perf 4.6), SCHEDSTAT_CPU and SCHEDSTAT_DOMAIN (since
//! perf 7.0).

use crate::layout::{LongList, Padded, Pair, Plain, Rest};

record! {
    /// STAT_CONFIG (since perf 4.6): tags 0 aggregation mode, 1 interval, 2 scale, 3 aggregation level.
    pub struct StatConfig {
        /// `nr u64`, then tags and values.
        pub entries: Vec<(u64, u64)> as LongList<Pair<Plain, Plain>>,
    }

    /// STAT (since perf 4.6): `id u64, cpu u32, thread u32, val u64, ena u64, run u64`.
    #[derive(Copy)]
    pub struct Stat {
        /// Id of the event.
        pub id: u64,
        /// Index of the CPU.
        pub cpu: u32,
        /// Index of the thread in the THREAD_MAP.
        pub thread: u32,
        /// Count, not scaled.
        pub value: u64,
        /// Time for which the event was enabled, ns.
        pub time_enabled_ns: u64,
        /// Time for which the event was counting, ns.
        pub time_running_ns: u64,
    }

    /// STAT_ROUND (since perf 4.6): `type u64, time u64`: end of the counts of an interval.
    #[derive(Copy)]
    pub struct StatRound {
        /// Type of the round: 0 for an interval, 1 for the end of the recording.
        pub kind: u64,
        /// End of the interval, ns since the start.
        pub time_ns: u64,
    }

    /// SCHEDSTAT_CPU.
    #[derive(Copy)]
    #[expect(missing_docs, reason = "the fields of /proc/schedstat under the same names")]
    pub struct SchedstatCpu {
        pub timestamp: u64,
        pub cpu: u32,
        pub version: u16 as Padded<2>,
        pub yld_count: u32,
        pub array_exp: u32,
        pub sched_count: u32,
        pub sched_goidle: u32,
        pub ttwu_count: u32,
        pub ttwu_local: u32,
        pub rq_cpu_time: u64,
        pub run_delay: u64,
        pub pcount: u64,
    }

    /// SCHEDSTAT_DOMAIN: versions 15 and 16 have 36 counts, version 17 has 45.
    pub struct SchedstatDomain {
        /// Time of the reading, jiffies.
        pub timestamp: u64,
        /// Number of the CPU.
        pub cpu: u32,
        /// Version of /proc/schedstat, which defines the counts.
        pub version: u16,
        /// Number of the domain.
        pub domain: u16,
        /// Counts, including unused fields at the end of the record.
        pub counts: Vec<u32> as Rest<36>,
    }
}
