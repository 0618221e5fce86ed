//! CPU time and memory of the processes that hold programs.

use crate::layout::{List, Pair, Plain, layout};

layout! {
    /// CPU time, by the clock of the scheduler, and memory of processes that hold programs, for one file of a recording.
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
        late:
        /// Process id and resident memory at the end of the file, bytes, of these processes. Empty in older recordings.
        pub resident_bytes: Vec<(u32, u64)> as List<Pair<Plain, Plain>>,
    }
}
