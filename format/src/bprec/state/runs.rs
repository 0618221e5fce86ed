//! Run statistics: how often programs ran, as the kernel counts while it is told to.

use crate::layout::{Late, List, Optional, Plain, layout};

layout! {
    /// Run statistics of programs, at one moment.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct RunStats {
        /// When they were read, ns of the recording's clock.
        pub time_ns: u64,
        /// Per program.
        pub programs: Vec<ProgramRuns> as List,
        late:
        /// For how long statistics had been on by then, since the recording switched them on first: less than the time that passed
        /// where they are on in windows. None in older recordings, which had them on throughout.
        pub on_ns: Option<u64> as Late,
        /// For how long by then somebody else is known to have had statistics on while the recording had not: they were on at two looks that
        /// follow each other, less than 0.1 s apart. Between two readings in which this grows by as much as time passes, beside `on_ns`, all
        /// runs were counted. Counts that grow while neither does were counted for somebody else, for an unknown part of the time. None in
        /// older recordings.
        pub others_ns: Option<u64> as Late,
    }
}

layout! {
    /// Counts of one program by the kernel since its load, while statistics were on.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ProgramRuns {
        /// Program id.
        pub id: u32,
        /// When it was loaded, ns since boot.
        pub load_time_ns: u64,
        /// Time in the program, ns.
        pub run_time_ns: u64,
        /// Runs.
        pub run_cnt: u64,
        /// Runs that the recursion guard refused; `None` on kernels that do not tell (before 5.12).
        pub recursion_misses: Option<u64> as Optional<Plain>,
    }
}

impl ProgramRuns {
    /// The most bytes an element takes.
    pub const MAX_BYTES: usize = 37;
}
