//! Losses: LOST, LOST_SAMPLES (since 4.2), THROTTLE and UNTHROTTLE.

use crate::record::misc;
use crate::{Reader, Result, Writer};

record! {
    /// LOST (since 2.6.31): `id u64, lost u64`. The count is the ring buffer's, whichever event's id stands beside it; side-band records
    /// are in it too.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Lost {
        /// Id of the event that wrote next.
        pub id: u64,
        /// Records dropped since the last LOST.
        pub lost: u64,
    }
}

/// LOST_SAMPLES (since 4.2): `lost u64`; the trailer's id says of which event. Counts the same losses as LOST when a tool wrote it
/// from `PERF_FORMAT_LOST`: never add the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSamples {
    /// Samples dropped.
    pub lost: u64,
    /// Dropped by a BPF filter rather than for want of room.
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

record! {
    /// THROTTLE and UNTHROTTLE (since 2.6.31): `time u64, id u64, stream_id u64`. Between the two the event did not sample;
    /// of a group only the leader says so.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Throttle {
        /// When, ns.
        pub time_ns: u64,
        /// The event.
        pub id: u64,
        /// The event's own instance.
        pub stream_id: u64,
    }
}
