//! Losses: LOST, LOST_SAMPLES (since 4.2), THROTTLE and UNTHROTTLE.

use crate::layout::HeaderBit;
use crate::record::misc;

record! {
    /// LOST (since 2.6.31): `id u64, lost u64`. The count covers all records of the ring, also those of other events and side-band records.
    #[derive(Copy)]
    pub struct Lost {
        /// Id of the event that wrote the next record.
        pub id: u64,
        /// Count of records dropped since the last LOST.
        pub lost: u64,
    }

    /// THROTTLE and UNTHROTTLE (since 2.6.31): `time u64, id u64, stream_id u64`. The event did not sample between the two
    /// records. In a group, only the leader writes them.
    #[derive(Copy)]
    pub struct Throttle {
        /// Time of the change, ns.
        pub time_ns: u64,
        /// Id of the event.
        pub id: u64,
        /// Id of the event's own instance.
        pub stream_id: u64,
    }

    /// LOST_SAMPLES (since 4.2): `lost u64`; the id in the trailer names the event. Records that a tool wrote from
    /// `PERF_FORMAT_LOST` count the same losses as LOST records: do not add the two.
    #[derive(Copy)]
    pub struct LostSamples {
        /// Count of dropped samples.
        pub lost: u64,
        /// True if a BPF filter dropped the samples; false if the ring was full.
        pub by_bpf: bool as HeaderBit<{ misc::LOST_SAMPLES_BPF }>,
    }
}
