//! Run statistics: number and duration of program runs, counted by the kernel while statistics are on.

use crate::layout::{Late, List, Optional, Plain, layout};

layout! {
    /// Run statistics of programs, at one moment.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct RunStats {
        /// Time of the reading, ns of the recording's clock.
        pub time_ns: u64,
        /// Counts per program.
        pub programs: Vec<ProgramRuns> as List,
        late:
        /// Total time for which the recording had statistics on, up to this reading, ns; less than the elapsed time if
        /// they are on in windows. `None` in older recordings, which had statistics on throughout.
        pub on_ns: Option<u64> as Late,
        /// Total time for which another tool is known to have had statistics on while the recording had them off, ns:
        /// two consecutive checks, less than 0.1 s apart, found them on. All runs between two readings were counted if
        /// `on_ns` and this field together grow by the elapsed time. Counts that grow while neither field does were
        /// counted for another tool, for an unknown part of the time. `None` in older recordings.
        pub others_ns: Option<u64> as Late,
    }
}

layout! {
    /// Counts of one program since its load, made by the kernel while statistics were on.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ProgramRuns {
        /// Program id.
        pub id: u32,
        /// Load time, ns since boot.
        pub load_time_ns: u64,
        /// Time in the program, ns.
        pub run_time_ns: u64,
        /// Runs.
        pub run_cnt: u64,
        /// Runs that the recursion guard refused; `None` on kernels before 5.12, which do not count them.
        pub recursion_misses: Option<u64> as Optional<Plain>,
    }
}

impl ProgramRuns {
    /// Maximum number of bytes of an element.
    pub const MAX_BYTES: usize = 37;
}
