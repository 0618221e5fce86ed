//! Missed hits of kprobes.

use crate::layout::{List, Optional, Plain, layout};

layout! {
    /// Hits of kprobes that ran no program, by link, for one file of a recording.
    ///
    /// The kernel counts them by link, since Linux 6.7 (`missed` in `bpf_link_info`). A kprobe misses a hit while its CPU
    /// runs another kprobe's handler, a return probe also while too many calls of its function are open. A hit that is not
    /// missed can still be refused by the recursion guard of the program: see [`super::ProgramRuns::recursion_misses`].
    #[derive(Default)]
    pub struct ProbeMisses {
        /// Time of the last reading, ns of the recording's clock.
        pub time_ns: u64,
        /// Links to kprobes, including links that were removed since the start of the file.
        pub links: Vec<LinkMisses> as List,
    }

    /// Missed hits of one link. Both counts begin with the attachment of the link; their difference is the count of this file.
    #[derive(Copy, Default)]
    pub struct LinkMisses {
        /// Link id.
        pub link_id: u32,
        /// Program id.
        pub prog_id: u32,
        /// Count at the start of the file; 0 if the link was attached later.
        pub first: u64,
        /// Count at the end of the file; `None` if the link was removed before.
        pub last: Option<u64> as Optional<Plain>,
    }
}
