//! Run statistics that another tool has on: another recorder, `kernel.bpf_stats_enabled`, bpftop. The other tool may switch statistics off at any
//! time. The recorder therefore counts the time between two checks only if both checks found statistics on and the time is short.

use std::time::Instant;

/// Longest time between two checks that counts, ten times the usual time. If the control thread was busy for longer, another tool may have switched
/// statistics off and on again in between.
const GAP_MAX_NS: u64 = 500_000_000;

/// Results of checks made while the recorder has statistics off.
#[derive(Debug)]
pub(super) struct Others {
    looked_at: Instant,
    /// Time of the last check, ns of the recording's clock, if the check found statistics on.
    on_at_ns: Option<u64>,
    /// Check before the open window.
    before_window: Option<Look>,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at_ns: u64,
    are_on: bool,
}

/// Time for which other tools had statistics on, between the check before a window of the recorder and the check
/// after the window.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// No time.
    Never,
    /// The whole time. The number is the length of this time without the window, ns.
    Always(u64),
    /// A part of the time: statistics were switched on or off between the checks, or may have been because the time is long.
    Partly,
}

impl Default for Others {
    fn default() -> Others {
        Others { looked_at: Instant::now(), on_at_ns: None, before_window: None }
    }
}

impl Others {
    /// Adds a check. Returns the time since the last check, ns, if both checks found statistics on and the time is short.
    pub(super) fn seen(&mut self, are_on: bool, now_ns: u64) -> Option<u64> {
        self.looked_at = Instant::now();
        let before = std::mem::replace(&mut self.on_at_ns, are_on.then_some(now_ns));
        before
            .filter(|_| are_on)
            .map(|before_ns| now_ns.saturating_sub(before_ns))
            .filter(|gap_ns| *gap_ns <= GAP_MAX_NS)
    }

    /// Forgets the last check. Called when the recorder switches statistics on, because checks see them on then.
    pub(super) fn forget(&mut self) {
        self.on_at_ns = None;
    }

    /// Adds the check before a window.
    pub(super) fn window_opens(&mut self, are_on: bool, now_ns: u64) {
        self.before_window = Some(Look { at_ns: now_ns, are_on });
        self.forget();
    }

    /// Adds the check after a window of `on_ns`.
    pub(super) fn beside_window(&mut self, are_on: bool, now_ns: u64, on_ns: u64) -> Beside {
        match self.before_window.take() {
            Some(before) if before.are_on && are_on => {
                match now_ns.saturating_sub(before.at_ns).saturating_sub(on_ns) {
                    gap_ns if gap_ns > GAP_MAX_NS => Beside::Partly,
                    gap_ns => Beside::Always(gap_ns),
                }
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
        // Ten seconds later, another tool may have switched statistics off and on again.
        assert_eq!(others.seen(true, 10_000_000_310), None);
        assert_eq!(others.seen(true, 10_000_000_320), Some(10));
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
        others.window_opens(true, 1_000);
        assert_eq!(others.beside_window(true, 10_000_001_100, 30), Beside::Partly);
    }
}
