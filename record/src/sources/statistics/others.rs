//! Statistics that somebody else has on: another recorder, `kernel.bpf_stats_enabled`, bpftop. We never hold them on; how long they were on is
//! known where two looks that follow each other have found them on.

use std::time::Instant;

/// Findings of looks while ours are off.
#[derive(Debug)]
pub(super) struct Others {
    looked_at: Instant,
    /// When they were found on, if the last look did, ns of the recording's clock.
    on_at_ns: Option<u64>,
}

impl Default for Others {
    fn default() -> Others {
        Others { looked_at: Instant::now(), on_at_ns: None }
    }
}

impl Others {
    /// A look has found them on, or off. Returns for how long they have been on since the last one, if both say so.
    pub(super) fn seen(&mut self, are_on: bool, now_ns: u64) -> Option<u64> {
        self.looked_at = Instant::now();
        let before = std::mem::replace(&mut self.on_at_ns, are_on.then_some(now_ns));
        before.filter(|_| are_on).map(|before_ns| now_ns.saturating_sub(before_ns))
    }

    /// Ours are on from here on: the next look does not follow the last one.
    pub(super) fn forget(&mut self) {
        self.on_at_ns = None;
    }

    pub(super) fn looked_at(&self) -> Instant {
        self.looked_at
    }
}

#[cfg(test)]
mod tests {
    use super::Others;

    #[test]
    fn time_counts_between_two_looks_that_agree() {
        let mut others = Others::default();
        assert_eq!(others.seen(true, 100), None);
        assert_eq!(others.seen(true, 150), Some(50));
        assert_eq!(others.seen(false, 200), None);
        assert_eq!(others.seen(true, 250), None);
        others.forget();
        assert_eq!(others.seen(true, 300), None);
        assert_eq!(others.seen(true, 310), Some(10));
    }
}
