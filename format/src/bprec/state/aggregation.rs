//! Counts of an event whose samples were counted in the kernel.

use crate::layout::{Optional, Plain, layout};

/// The process and thread id that weighted samples carry for which the table in the kernel had no room: more than any
/// kernel gives to a process.
pub const OVERFLOW_PID: u32 = 0x7fff_fffe;

layout! {
    /// An event whose samples were counted in the kernel, by a program that it carries, and written as weighted ones: PERIOD is
    /// the sum of the periods, WEIGHT the number of samples. Told at the start and with each interval; everything counts from the
    /// start of the recording, so that the last one says it all.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Aggregation {
        /// When it was read, ns of the recording's clock.
        pub time_ns: u64,
        /// An id of the event.
        pub event_id: u64,
        /// Most stacks that are counted at a time.
        pub entries: u32,
        /// Time between two drains.
        pub interval_ns: u64,
        /// Samples that the program saw.
        pub samples: u64,
        /// The sum of their periods.
        pub period: u64,
        /// Samples for which there was no room: they are written with [`OVERFLOW_PID`].
        pub overflow_samples: u64,
        /// The sum of their periods.
        pub overflow_period: u64,
        /// Count of the event itself, samples included that the program did not see. `None` if it could not be read.
        pub counted: Option<u64> as Optional<Plain>,
    }
}
