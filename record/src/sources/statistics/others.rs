//! Statistics that somebody else has on: another recorder, `kernel.bpf_stats_enabled`, bpftop. We never hold them on; how long they were on is
//! known where two looks that follow each other have found them on.

use std::time::Instant;

/// Findings of looks while ours are off.
#[derive(Debug)]
pub(super) struct Others {
    looked_at: Instant,
    /// When they were found on, if the last look did, ns of the recording's clock.
    on_at_ns: Option<u64>,
    /// The look before the window that is open.
    before_window: Option<Look>,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at_ns: u64,
    are_on: bool,
}

/// Time that others had statistics on beside a window of ours, from the look before it to the one after.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// No time.
    Never,
    /// The whole time: its length without the window itself, ns.
    Always(u64),
    /// A part: they were switched between the looks.
    Partly,
}

impl Default for Others {
    fn default() -> Others {
        Others { looked_at: Instant::now(), on_at_ns: None, before_window: None }
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

    /// A look has found them on, or off, and a window opens.
    pub(super) fn window_opens(&mut self, are_on: bool, now_ns: u64) {
        self.before_window = Some(Look { at_ns: now_ns, are_on });
        self.forget();
    }

    /// A look has found them on, or off, after a window of `on_ns`.
    pub(super) fn beside_window(&mut self, are_on: bool, now_ns: u64, on_ns: u64) -> Beside {
        match self.before_window.take() {
            Some(before) if before.are_on && are_on => {
                Beside::Always(now_ns.saturating_sub(before.at_ns).saturating_sub(on_ns))
            }
            Some(before) if before.are_on != are_on => Beside::Partly,
            _ => Beside::Never,
        }
    }

    pub(super) fn looked_at(&self) -> Instant {
        self.looked_at
    }
}

#[cfg(test)]
mod tests {
    use super::{Beside, Others};

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

    #[test]
    fn windows_beside_others_are_known_where_both_looks_agree() {
        let mut others = Others::default();
        let mut window = |before, after| {
            others.window_opens(before, 1_000);
            others.beside_window(after, 1_100, 30)
        };
        assert_eq!(window(false, false), Beside::Never);
        assert_eq!(window(true, true), Beside::Always(70));
        assert_eq!(window(true, false), Beside::Partly);
        assert_eq!(window(false, true), Beside::Partly);
    }
}
