//! Losses: LOST, LOST_SAMPLES (since 4.2), THROTTLE and UNTHROTTLE.

use crate::record::misc;
use crate::{Reader, Result, Writer};

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
}

/// LOST_SAMPLES (since 4.2): `lost u64`; the id in the trailer names the event. Records that a tool wrote from
/// `PERF_FORMAT_LOST` count the same losses as LOST records: do not add the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSamples {
    /// Count of dropped samples.
    pub lost: u64,
    /// True if a BPF filter dropped the samples; false if the ring was full.
    pub by_bpf: bool,
}

impl LostSamples {
    pub(super) fn parse(r: &mut Reader<'_>, record_misc: u16) -> Result<LostSamples> {
        Ok(LostSamples { lost: r.u64("LOST_SAMPLES lost")?, by_bpf: record_misc & misc::LOST_SAMPLES_BPF != 0 })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.lost);
    }
}
