//! Counts of an event that is aggregated in the kernel: a BPF program counts its samples per stack.

use crate::layout::{Optional, Plain, layout};

/// Process id and thread id of the weighted samples (see `Aggregation`) for all samples that did not fit into the kernel's table. No task has this
/// id.
pub const OVERFLOW_PID: u32 = 0x7fff_fffe;

layout! {
    /// Event with samples that an attached BPF program counts in the kernel. The recorder writes the counts as weighted samples: PERIOD is the sum of
    /// the periods, WEIGHT the count of samples. This state is written at the start and with each interval. All counts run from the start of the
    /// file, so the last payload of a file holds its totals.
    #[derive(Copy, Default)]
    pub struct Aggregation {
        /// Time of the reading, ns of the recording's clock.
        pub time_ns: u64,
        /// One of the event's ids.
        pub event_id: u64,
        /// Limit on the stacks in the table.
        pub entries: u32,
        /// Time between two drains of the table.
        pub interval_ns: u64,
        /// Samples that the program saw.
        pub samples: u64,
        /// Sum of the periods of `samples`.
        pub period: u64,
        /// Samples that did not fit into the table; they are written with [`OVERFLOW_PID`].
        pub overflow_samples: u64,
        /// Sum of the periods of `overflow_samples`.
        pub overflow_period: u64,
        /// Count of the event's own counter, which also counts events without a sample. `None` if it could not be read.
        pub counted: Option<u64> as Optional<Plain>,
    }
}
