//! Counts without samples: STAT_CONFIG, STAT, STAT_ROUND (since perf 4.6), SCHEDSTAT_CPU and SCHEDSTAT_DOMAIN (since
//! perf 7.0).

use crate::layout::{LongList, Padded, Pair, Plain, Rest};
record! {
    /// STAT_CONFIG (since perf 4.6): tags 0 aggregation mode, 1 interval, 2 scale, 3 aggregation level.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StatConfig {
        /// Tag and value: `nr u64`, then these.
        pub entries: Vec<(u64, u64)> as LongList<Pair<Plain, Plain>>,
    }
}

record! {
    /// STAT (since perf 4.6): `id u64, cpu u32, thread u32, val u64, ena u64, run u64`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Stat {
        /// The event.
        pub id: u64,
        /// Index of the CPU.
        pub cpu: u32,
        /// Index of the thread in the THREAD_MAP.
        pub thread: u32,
        /// The count, not scaled.
        pub value: u64,
        /// Time enabled, ns.
        pub time_enabled_ns: u64,
        /// Time counting, ns.
        pub time_running_ns: u64,
    }
}

record! {
    /// STAT_ROUND (since perf 4.6): `type u64, time u64`: all counts of an interval are written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StatRound {
        /// 0 an interval, 1 the last.
        pub kind: u64,
        /// Its end, ns since the start.
        pub time_ns: u64,
    }
}

record! {
    /// SCHEDSTAT_CPU.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

record! {
    /// SCHEDSTAT_DOMAIN: 36 counts in versions 15 and 16, 45 in version 17; the record has room for the longest.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SchedstatDomain {
        /// Jiffies.
        pub timestamp: u64,
        /// CPU.
        pub cpu: u32,
        /// Version of /proc/schedstat, which says what the counts are.
        pub version: u16,
        /// Number of the domain.
        pub domain: u16,
        /// The counts, those of the record's unused end included.
        pub counts: Vec<u32> as Rest<36>,
    }
}
