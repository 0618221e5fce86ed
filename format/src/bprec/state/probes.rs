//! Missed hits of kprobes.

use super::PAYLOAD_MAX_BYTES;
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

impl ProbeMisses {
    /// Splits the readings of any number of links into payloads of at most [`PAYLOAD_MAX_BYTES`] each.
    pub fn parts(time_ns: u64, links: &[LinkMisses]) -> impl Iterator<Item = ProbeMisses> {
        // Bytes of the largest element, and of the headers, the time and the count.
        const LINK_BYTES: usize = 25;
        const FIXED_BYTES: usize = super::HEADER_BYTES + 12;
        let parts = links.chunks((PAYLOAD_MAX_BYTES - FIXED_BYTES) / LINK_BYTES);
        parts.map(move |links| ProbeMisses { time_ns, links: links.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endian;

    #[test]
    fn any_number_of_links_is_divided_into_payloads() {
        let links: Vec<LinkMisses> =
            (0..5000).map(|link_id| LinkMisses { link_id, last: Some(7), ..LinkMisses::default() }).collect();
        let parts: Vec<ProbeMisses> = ProbeMisses::parts(3, &links).collect();
        assert_eq!(parts.iter().flat_map(|part| &part.links).copied().collect::<Vec<_>>(), links);
        for part in parts {
            let mut out = Vec::new();
            super::super::State::ProbeMisses(part).encode(&mut out, Endian::Little);
            assert!(out.len() <= PAYLOAD_MAX_BYTES, "{} bytes", out.len());
        }
    }
}
