//! Times since boot with suspends (`CLOCK_BOOTTIME`), which load times of programs are, on the clock of the recording.

use bprec_format::state::BootClock;

/// What lies between the two clocks, while the recording was made. A suspend makes it more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BootTimes {
    /// What is added to a time of the recording, and from when on, ns; the earliest first. The first one holds for all times before, too.
    offsets: Vec<(u64, i64)>,
}

impl BootTimes {
    /// The recording, or this file of it, begins with this offset.
    pub(crate) fn begin(&mut self, to_boottime_ns: i64) {
        self.offsets = vec![(0, to_boottime_ns)];
    }

    /// The offset was found to be another one.
    pub(crate) fn changed(&mut self, to: &BootClock) {
        let at = self.offsets.partition_point(|(from_ns, _)| *from_ns <= to.time_ns);
        self.offsets.insert(at, (to.time_ns, to.to_boottime_ns));
    }

    /// A time since boot on the clock of the recording, ns; `None` when nothing is known of the clocks. A time from before the
    /// recording's clock began is 0.
    ///
    /// A change was noticed a little after the suspend that made it: what happened in between is told by the offset that puts it
    /// before that moment.
    pub(crate) fn to_recording(&self, boottime_ns: u64) -> Option<u64> {
        let (_, first) = self.offsets.first()?;
        let mut time_ns = boottime_ns.saturating_sub_signed(*first);
        for (from_ns, offset) in &self.offsets[1..] {
            if time_ns > *from_ns {
                time_ns = boottime_ns.saturating_sub_signed(*offset);
            }
        }
        Some(time_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recording's clock stood still for 60 s, at its 100th second, which was noticed 0.2 s later; and for 5 s at its 200th.
    #[test]
    fn a_suspend_moves_only_what_comes_after_it() {
        const S: u64 = 1_000_000_000;
        let mut times = BootTimes::default();
        assert_eq!(times.to_recording(7), None);
        times.begin(10 * S.cast_signed());
        times.changed(&BootClock { time_ns: 200 * S, to_boottime_ns: 75 * S.cast_signed() });
        times.changed(&BootClock { time_ns: 100 * S + S / 5, to_boottime_ns: 70 * S.cast_signed() });
        // Boot time = recording time + 10 s, later + 70 s, later + 75 s.
        for (boottime_ns, time_ns) in [
            (5 * S, 0),
            (60 * S, 50 * S),
            (110 * S, 100 * S),
            (170 * S + S / 10, 100 * S + S / 10),
            (171 * S, 101 * S),
            (270 * S, 200 * S),
            (276 * S, 201 * S),
        ] {
            assert_eq!(times.to_recording(boottime_ns), Some(time_ns), "{boottime_ns}");
        }
    }
}
