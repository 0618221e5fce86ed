//! bprec's sampling program: its event, and the counts of its samples.

use crate::bprec::sampler::Parts;
use crate::layout::meaning::Event;
use crate::layout::{CountedText, Optional, Plain, layout};

layout! {
    /// The program that writes [`bprec:sampler`](crate::bprec::sampler): its event and its counts. Written at
    /// the start of each file and, with [`counts`](Sampler::counts), at its end.
    #[derive(Default)]
    pub struct Sampler {
        /// Program id.
        pub prog_id: u32,
        /// Name of the event that the program is attached to.
        pub event: String as CountedText<Event>,
        /// `perf_event_attr.type` of the event that the program is attached to.
        pub event_type: u32,
        /// `perf_event_attr.config` of the event that the program is attached to.
        pub event_config: u64,
        /// True if `rate` is in samples per second; false if in events per sample.
        pub is_frequency: bool,
        /// Rate or period of the event's samples.
        pub rate: u64,
        /// Parts that the program's samples have.
        pub parts: Parts,
        /// Count of opened events: one per CPU, or per task and CPU.
        pub events: u32,
        /// Count of events to which a link attaches the program. The program is attached to the other events by ioctl.
        pub links: u32,
        /// Counts of the program for this file. `None` in the state at the start of the file, and if they could not be read.
        pub counts: Option<SamplerCounts> as Optional<Plain>,
    }

    /// Results of the runs of bprec's sampling program: each run is in `written` or in one of the loss counts.
    #[derive(Copy, Default)]
    pub struct SamplerCounts {
        /// Times that the program ran.
        pub runs: u64,
        /// Samples written.
        pub written: u64,
        /// Samples lost because the ring was full (ENOSPC).
        pub full: u64,
        /// Samples that the kernel refused for another reason.
        pub failed: u64,
        /// Highest error number among the last failed sample of each CPU; 0 if no sample has failed since the recording began.
        pub last_errno: u32,
    }
}
