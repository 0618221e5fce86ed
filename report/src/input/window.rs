//! The selected part of the recording's time.

use std::ops::RangeInclusive;

use crate::input::recording::OpenRecording;
use crate::options::PARTS;
use crate::{Error, Result, TimeRange};

/// Selected time: parts as (from, to), both inclusive, ns of the recording's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    parts: Vec<(u64, u64)>,
    /// True if all of the recording is selected.
    pub(crate) whole: bool,
}

impl Window {
    /// Selects all of the time.
    pub(crate) fn everything() -> Window {
        Window { parts: vec![(0, u64::MAX)], whole: true }
    }

    /// Resolves `range` to times of a recording that started at `start_ns`, or at its first sample if `start_ns` is `None`. Removes `gaps`, the times
    /// between the end of a file and the start of the next file.
    ///
    /// # Errors
    /// Fails if `range` is in percentages and the recording has no times, or if `range` lies outside the recording.
    pub(crate) fn of(
        range: &TimeRange,
        recording: &OpenRecording<'_>,
        start_ns: Option<u64>,
        gaps: &[(u64, u64)],
    ) -> Result<Window> {
        let span = match range {
            TimeRange::Percent(_) | TimeRange::Absolute(..) | TimeRange::Plain(..) => recording.sampled_span(),
            TimeRange::All => None,
        };
        let window = match (range, span) {
            (TimeRange::Absolute(..) | TimeRange::Plain(..), Some((first, last))) => {
                Window::new(&anchored(range, (start_ns.unwrap_or(first), first, last))?, span)
            }
            _ => Window::new(range, span),
        };
        window.map(|window| window.without(gaps))
    }

    /// Removes gaps, which must be in ascending order. The two ends of a gap stay, as ends of the parts before and after the gap.
    fn without(self, gaps: &[(u64, u64)]) -> Window {
        let cut = |parts: Vec<(u64, u64)>, (gap_from, gap_to): &(u64, u64)| {
            let beside = |(from, to): (u64, u64)| [(from, to.min(*gap_from)), (from.max(*gap_to), to)];
            let is_part = |(from, to): &(u64, u64)| from <= to;
            parts.into_iter().flat_map(beside).filter(is_part).collect()
        };
        Window { parts: gaps.iter().fold(self.parts, cut), ..self }
    }

    /// Resolves `range` in a recording with samples in `span`: the times of the first and last sample, ns.
    ///
    /// # Errors
    /// Fails if `range` is in percentages and the recording has no times.
    pub(crate) fn new(range: &TimeRange, span: Option<(u64, u64)>) -> Result<Window> {
        let parts = match range {
            TimeRange::All => return Ok(Window::everything()),
            TimeRange::Absolute(from, to) | TimeRange::Plain(from, to) => {
                vec![(from.unwrap_or(0), to.unwrap_or(u64::MAX))]
            }
            TimeRange::Percent(parts) => {
                let Some((first, last)) = span else {
                    return Err(Error::option("--time", "%", "the samples of this recording have no time"));
                };
                let at = |part: u64| {
                    let length = u128::from(last.saturating_sub(first)) * u128::from(part) / u128::from(PARTS);
                    first.saturating_add(length as u64)
                };
                // A part ends 1 ns before the next begins, so that parts add up; the last part includes the last sample.
                let end = |to: u64| if to == PARTS { at(to) } else { at(to).saturating_sub(1) };
                parts.iter().map(|(from, to)| (at(*from), end(*to))).collect()
            }
        };
        Ok(Window { parts: merged(parts), whole: false })
    }

    /// Returns true if a time is selected.
    #[inline]
    pub(crate) fn contains(&self, time_ns: u64) -> bool {
        self.whole || self.parts.iter().any(|(from, to)| (*from..=*to).contains(&time_ns))
    }

    /// Selected parts in order: from and to, both inclusive.
    pub(crate) fn parts(&self) -> &[(u64, u64)] {
        &self.parts
    }

    /// Returns true if all of the time between two moments is selected.
    pub(crate) fn holds(&self, from_ns: u64, to_ns: u64) -> bool {
        let has_both = |(from, to): &(u64, u64)| (*from..=*to).contains(&from_ns) && (*from..=*to).contains(&to_ns);
        self.parts.iter().any(has_both)
    }

    /// Selected parts between `first` and `last`; empty if all of the time is selected.
    pub(crate) fn selected(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let parts = self.parts.iter().filter(|_| !self.whole);
        parts.map(move |(from, to)| (first.max(*from), last.min(*to))).filter(|(from, to)| from <= to)
    }

    /// Length of the selected time between `first` and `last`.
    pub(crate) fn length_ns(&self, first: u64, last: u64) -> u64 {
        let lengths = self.parts.iter().map(|(from, to)| last.min(*to).saturating_sub(first.max(*from)));
        lengths.fold(0, u64::saturating_add)
    }
}

/// Returns `time_ns - start_ns`. Saturates, because times of a damaged recording may have any value.
pub(crate) fn since(time_ns: u64, start_ns: u64) -> i64 {
    match time_ns.checked_sub(start_ns) {
        Some(after_ns) => i64::try_from(after_ns).unwrap_or(i64::MAX),
        None => i64::try_from(start_ns - time_ns).map_or(i64::MIN, |before_ns| -before_ns),
    }
}

/// Converts a range to ns of the recording's clock. The recording starts at `start`, and has samples from `first` to `last`. Plain seconds count from
/// the start of the recording. If the range is then outside the recording, but inside it as times of the recording's clock, the seconds are clock
/// times.
fn anchored(range: &TimeRange, (start, first, last): (u64, u64, u64)) -> Result<TimeRange> {
    let (from, to, is_of_clock) = match *range {
        TimeRange::Absolute(from, to) => (from, to, true),
        TimeRange::Plain(from, to) => {
            let (elapsed, clock) = (0..=last.saturating_sub(start), start.min(first)..=last);
            let bounds = || from.into_iter().chain(to);
            let is_inside = |span: &RangeInclusive<u64>| bounds().all(|time| span.contains(&time));
            let reaches = |span: &RangeInclusive<u64>| bounds().any(|time| span.contains(&time));
            let is_of_clock = is_inside(&clock) && !is_inside(&elapsed) || reaches(&clock) && !reaches(&elapsed);
            (from, to, is_of_clock && bounds().next().is_some())
        }
        TimeRange::All | TimeRange::Percent(_) => return Ok(range.clone()),
    };
    let at = |time: u64| if is_of_clock { time } else { start.saturating_add(time) };
    let (from_ns, to_ns) = (from.map(at), to.map(at));
    if from_ns.is_some_and(|from| from > last) || to_ns.is_some_and(|to| to < start.min(first)) {
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let asked = [from, to].map(|time| time.map(seconds).unwrap_or_default()).join(",");
        let problem = format!(
            "the range is outside the recording, which has samples from {} s to {} s after its start ({} s to {} s of its \
             clock)",
            seconds(first.saturating_sub(start)),
            seconds(last.saturating_sub(start)),
            seconds(first),
            seconds(last)
        );
        return Err(Error::NoTime { asked, problem });
    }
    Ok(TimeRange::Absolute(from_ns, to_ns))
}

/// Merges parts that overlap or touch, so that no time counts twice.
fn merged(mut parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    parts.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in parts {
        match merged.last_mut() {
            Some((_, end)) if from <= end.saturating_add(1) => *end = (*end).max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_part_the_time_without_gap_or_overlap() {
        let parts = |text: &str| Window::new(&text.parse().unwrap(), Some((1000, 2000))).unwrap();
        let (head, tail) = (parts("0%-50%"), parts("50%-100%"));
        for time in 1000..=2000 {
            assert!(head.contains(time) != tail.contains(time), "{time}");
        }
        assert!(head.contains(1499) && tail.contains(1500));
        assert!(!head.contains(999) && !tail.contains(2001));
        assert_eq!(parts("10%-20%,50%/2").length_ns(1000, 2000), 99 + 500);
        assert!(Window::new(&"1%".parse().unwrap(), None).is_err());
    }

    #[test]
    fn seconds_count_from_the_start_unless_they_are_of_the_clock() {
        const S: u64 = 1_000_000_000;
        let of = |from, to| anchored(&TimeRange::Plain(from, to), (100 * S, 101 * S, 110 * S));
        let absolute = |from, to| TimeRange::Absolute(Some(from), Some(to));
        assert_eq!(of(Some(S), Some(2 * S)).unwrap(), absolute(101 * S, 102 * S));
        assert_eq!(of(Some(101 * S), Some(102 * S)).unwrap(), absolute(101 * S, 102 * S));
        assert_eq!(of(None, Some(3 * S)).unwrap(), TimeRange::Absolute(None, Some(103 * S)));
        let error = of(Some(10 * S + 1), None).unwrap_err().to_string();
        assert!(error.contains("from 1.000000000 s to 10.000000000 s after its start"), "{error}");
        assert_eq!(of(Some(105 * S), Some(500 * S)).unwrap(), absolute(105 * S, 500 * S));
    }

    /// The machine had been up for 30 s at the start of a recording of one minute: some seconds are valid both as seconds since the start and as
    /// times of the clock.
    #[test]
    fn seconds_that_fit_both_count_from_the_start() {
        const S: u64 = 1_000_000_000;
        let times = (30 * S, 30 * S, 90 * S);
        let of = |range: &str| anchored(&range.parse().unwrap(), times).unwrap();
        let absolute = |from, to| TimeRange::Absolute(Some(from), Some(to));
        assert_eq!(of("40,50"), absolute(70 * S, 80 * S));
        assert_eq!(of("@40,50"), absolute(40 * S, 50 * S));
        assert_eq!(of("70,80"), absolute(70 * S, 80 * S), "only clock times can have these values");
        assert_eq!(of("40,"), TimeRange::Absolute(Some(70 * S), None));
        assert_eq!(of(","), TimeRange::Absolute(None, None));
    }

    #[test]
    fn parts_that_overlap_count_once() {
        let window = Window::new(&"0%-60%,40%-80%".parse().unwrap(), Some((1000, 2000))).unwrap();
        assert_eq!(window.length_ns(1000, 2000), 799);
        assert!(window.contains(1500) && !window.contains(1900));
    }

    #[test]
    fn time_without_a_recording_counts_for_nothing() {
        let gaps = [(1200, 1300), (1500, 1900)];
        let whole = Window::everything().without(&gaps);
        assert_eq!((whole.length_ns(1000, 2000), whole.whole), (500, true));
        assert!(whole.holds(1000, 1200) && whole.holds(1300, 1500) && !whole.holds(1200, 1300));
        let part = Window::new(&TimeRange::Absolute(Some(1250), Some(1950)), None).unwrap().without(&gaps);
        assert_eq!(part.parts(), [(1300, 1500), (1900, 1950)]);
        assert_eq!(Window::everything().without(&[]), Window::everything());
    }

    #[test]
    fn times_that_are_too_far_apart_are_as_far_apart_as_can_be() {
        assert_eq!((since(7, 5), since(5, 7)), (2, -2));
        assert_eq!((since(u64::MAX, 0), since(0, u64::MAX)), (i64::MAX, i64::MIN));
        assert_eq!((since(1 << 63, 0), since(0, 1 << 63)), (i64::MAX, i64::MIN));
        assert_eq!(since(u64::MAX, u64::MAX - 1), 1);
    }

    #[test]
    fn open_ends_reach_to_the_ends() {
        let window = Window::new(&",0.0000015".parse().unwrap(), None).unwrap();
        assert!(window.contains(0) && window.contains(1500) && !window.contains(1501));
        assert_eq!(window.length_ns(1000, 2000), 500);
        assert_eq!(Window::new(&TimeRange::All, None).unwrap().length_ns(1000, 2000), 1000);
    }
}
