//! Hits of kprobes that ran no program, in each file of a recording.

use std::collections::BTreeMap;

use bprec_bpf::probe_misses;
use bprec_format::bpf::names::ProgType;
use bprec_format::bprec::state::{LinkMisses, ProbeMisses, State};

use super::Programs;
use crate::sys;

/// Readings of the links to kprobes, at the start and at the end of each file.
#[derive(Debug)]
pub(super) struct Probes {
    /// Reads the count of each link since its attachment.
    read: fn() -> Result<Vec<LinkMisses>, bprec_bpf::Error>,
    /// Counts at the last reading, by link id. `None` if that reading failed: the next file then has no counts at its
    /// start.
    last: Option<BTreeMap<u32, LinkMisses>>,
}

impl Probes {
    pub(super) fn new() -> Probes {
        Probes { read: probe_misses, last: None }
    }

    /// Reads the counts at the start of the first file. The counts at the start of a later file are those at the end of
    /// the file before.
    ///
    /// # Errors
    /// Fails if links cannot be read. The hits are unknown then.
    pub(super) fn begin(&mut self) -> Result<(), bprec_bpf::Error> {
        // The links are read even if no program of type kprobe is known: a program that could not be captured may have hits from before the
        // recording.
        self.advance((self.read)()?);
        Ok(())
    }

    /// Reads the counts at the end of a file. Returns each link with its counts at the start and at the end of the
    /// file.
    ///
    /// # Errors
    /// Fails if links cannot be read. The hits in this file are unknown then.
    pub(super) fn end(&mut self, programs: &Programs) -> Result<Option<State>, bprec_bpf::Error> {
        if self.last.as_ref().is_some_and(BTreeMap::is_empty) && !has_kprobes(programs) {
            return Ok(None);
        }
        let links = (self.read)().inspect_err(|_| self.last = None)?;
        let links = self.advance(links);
        Ok(Some(State::ProbeMisses(ProbeMisses { time_ns: sys::monotonic_ns(), links })))
    }

    /// Replaces the last reading by `now`. Returns the links of `now` with their counts at the last reading, and the links that were removed since
    /// the last reading. Returns nothing if there is no last reading.
    fn advance(&mut self, now: Vec<LinkMisses>) -> Vec<LinkMisses> {
        let last = now.iter().map(|link| (link.link_id, *link)).collect();
        let Some(mut before) = self.last.replace(last) else { return Vec::new() };
        // A link that is not in the last reading was attached since, and its count began with 0.
        let first = |link: &LinkMisses| link.last.unwrap_or(0);
        let there = now.into_iter().map(|link| {
            let before = before.remove(&link.link_id);
            LinkMisses { first: before.as_ref().map_or(0, first), ..link }
        });
        let mut links: Vec<LinkMisses> = there.collect();
        links.extend(before.into_values().map(|link| LinkMisses { first: first(&link), last: None, ..link }));
        links
    }
}

/// Returns true if a program of type kprobe is loaded. Only such programs have links to kprobes.
fn has_kprobes(programs: &Programs) -> bool {
    programs.snapshots().any(|snapshot| snapshot.info.view().prog_type() == Some(ProgType::KPROBE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program of a kprobe is not known at the start: it could not be captured, or its load was announced late.
    #[test]
    fn hits_before_the_recording_do_not_count_even_if_the_program_is_unknown_at_the_start() {
        const LINK: LinkMisses = LinkMisses { link_id: 1, prog_id: 5, first: 0, last: Some(100) };
        let mut probes = Probes { read: || Ok(vec![LINK]), last: None };
        probes.begin().unwrap();
        let at_the_end = probes.advance(vec![LinkMisses { last: Some(130), ..LINK }]);
        assert_eq!(at_the_end, [LinkMisses { first: 100, last: Some(130), ..LINK }]);
    }

    #[test]
    fn a_file_counts_from_the_end_of_the_file_before() {
        let read = |links: &[(u32, u64)]| -> Vec<LinkMisses> {
            let link = |(link_id, last)| LinkMisses { link_id, prog_id: 5, first: 0, last: Some(last) };
            links.iter().copied().map(link).collect()
        };
        let mut probes = Probes::new();
        let mut advance = |links: &[(u32, u64)]| -> Vec<(u32, u64, Option<u64>)> {
            let links = probes.advance(read(links));
            assert!(links.iter().all(|link| link.prog_id == 5));
            links.iter().map(|link| (link.link_id, link.first, link.last)).collect()
        };
        advance(&[(1, 100), (2, 7)]);
        // The first link goes on, the second was removed, the third is new.
        assert_eq!(advance(&[(1, 130), (3, 4)]), [(1, 100, Some(130)), (3, 0, Some(4)), (2, 7, None)]);
        assert_eq!(advance(&[(3, 4)]), [(3, 4, Some(4)), (1, 130, None)]);
        assert_eq!(advance(&[]), [(3, 4, None)]);
        assert_eq!(advance(&[]), []);
        // After a failed reading, the next reading only gives the counts at the start: the 1000 hits may be older than
        // the file.
        probes.last = None;
        assert!(probes.advance(read(&[(7, 1000)])).is_empty());
        assert_eq!(probes.advance(read(&[(7, 1003)]))[0].first, 1000);
    }
}
