//! Run statistics: count and duration of program runs, measured by the kernel while statistics are on.

use crate::layout::{Late, List, Optional, Plain, layout};

layout! {
    /// Run statistics of programs, at one moment.
    #[derive(Default)]
    pub struct RunStats {
        /// Time of the reading, ns of the recording's clock.
        pub time_ns: u64,
        /// Counts per program.
        pub programs: Vec<ProgramRuns> as List,
        late:
        /// Total time for which the recording had statistics on, up to this reading, ns. It is less than the elapsed
        /// time if the recorder has statistics on only for short intervals. `None` in older recordings, which had
        /// statistics on throughout.
        pub on_ns: Option<u64> as Late,
        /// Total time, up to this reading, for which another tool had statistics on while the recording had them off, ns. Only certain time is
        /// included: the time between two consecutive checks that both found statistics on. Checks are about 0.05 s apart, or before and after a
        /// window in which the recorder has statistics on. If the sum of `on_ns` and `others_ns` grows by the elapsed time between two readings, all
        /// runs between them were counted. If counts grow but neither field grows, another tool had statistics on for an unknown part of the time.
        /// `None` in older recordings.
        pub others_ns: Option<u64> as Late,
    }

    /// Counts of one program since its load, made by the kernel while statistics were on.
    #[derive(Copy, Default)]
    pub struct ProgramRuns {
        /// Program id.
        pub id: u32,
        /// Load time, ns since boot.
        pub load_time_ns: u64,
        /// Time in the program, ns.
        pub run_time_ns: u64,
        /// Runs.
        pub run_cnt: u64,
        /// Runs that the kernel skipped because the program was already running on that CPU; `None` before Linux 5.12, which does not count them.
        pub recursion_misses: Option<u64> as Optional<Plain>,
    }
}
