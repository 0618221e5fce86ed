//! Our sampling program: on which event it is, and what became of its samples.

use crate::bprec::sampler::Parts;
use crate::layout::meaning::Event;
use crate::layout::{CountedText, Optional, Plain, layout};

layout! {
    /// The program that writes [`bprec:sampler`](crate::bprec::sampler): where it is, and what came of it. Told when sampling starts,
    /// and again, with [`counts`](Sampler::counts), at the end.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Sampler {
        /// The program.
        pub prog_id: u32,
        /// Name of the event that it sits on.
        pub event: String as CountedText<Event>,
        /// `perf_event_attr.type` of that event.
        pub event_type: u32,
        /// `perf_event_attr.config` of that event.
        pub event_config: u64,
        /// `rate` is samples per second, not events per sample.
        pub is_frequency: bool,
        /// Rate or period of the event's samples.
        pub rate: u64,
        /// Parts of its samples.
        pub parts: Parts,
        /// Events opened, one per CPU or per task and CPU.
        pub events: u32,
        /// Number of events with the program attached by a link; by ioctl to the others.
        pub links: u32,
        /// Its result.
        pub counts: Option<SamplerCounts> as Optional<Plain>,
    }
}

layout! {
    /// Results of the runs of our sampling program: each was written, or is in one of the other counts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SamplerCounts {
        /// Times that the program ran.
        pub runs: u64,
        /// Samples written.
        pub written: u64,
        /// Samples lost as the ring had no room (ENOSPC).
        pub full: u64,
        /// Samples that the kernel did not take for another reason.
        pub failed: u64,
        /// The last such reason; 0 when there was none.
        pub last_errno: u32,
    }
}
