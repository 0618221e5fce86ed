//! CPU time of the processes that hold programs.

use crate::layout::{List, Pair, Plain, layout};

layout! {
    /// CPU time of processes that hold programs, by the clock of the scheduler, for one file of a recording.
    ///
    /// Samples of a timer show less: a consumer of events often runs for a few microseconds at a time, and the scheduler also charges the process
    /// for its wake-up, which the timer samples in the idle task.
    #[derive(Default)]
    pub struct HolderTimes {
        /// Time of the first reading, ns of the recording's clock.
        pub from_ns: u64,
        /// Time of the last reading, ns of the recording's clock.
        pub to_ns: u64,
        /// Process id and CPU time between the two readings, ns, of each process that held programs at the first reading and exists at the last.
        pub processes: Vec<(u32, u64)> as List<Pair<Plain, Plain>>,
    }
}
