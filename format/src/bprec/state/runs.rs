//! Run statistics: number and duration of program runs, counted by the kernel while statistics are on.

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
        /// Total time, up to this reading, for which another tool is known to have had statistics on while the
        /// recording had them off, ns. This is known between two consecutive checks, less than 0.1 s apart, that found
        /// statistics on. All runs between two readings were counted if the sum of `on_ns` and `others_ns` grows by the
        /// elapsed time. If counts grow and neither field does, another tool had statistics on for an unknown part of
        /// the time. `None` in older recordings.
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
        /// Runs that the recursion guard refused; `None` on kernels before 5.12, which do not count them.
        pub recursion_misses: Option<u64> as Optional<Plain>,
    }
}

impl ProgramRuns {
    /// Maximum number of bytes of an encoded element.
    pub const MAX_BYTES: usize = 37;
}
