//! Wall-clock times of `--since` and `--until`. A command gives the same result on any machine and day: a time without a zone is UTC, and a time
//! without a date is relative to the end of the recording.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;

/// A wall-clock time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WallTime {
    /// Time before the end of the recording, ns. Written as `-10m`.
    BeforeEnd(u64),
    /// Time of a day without a date, ns since midnight UTC. Written as `03:00`.
    OfDay(u64),
    /// Date and time, ns since 1970-01-01 00:00 UTC. Written as `2026-11-25 03:00`.
    Unix(u64),
}

/// A range of wall-clock time.
#[derive(Debug, Clone, Default)]
pub struct WallRange {
    /// Start; `None` for the start of the recording.
    pub since: Option<WallTime>,
    /// End; `None` for the end of the recording.
    pub until: Option<WallTime>,
}

impl WallRange {
    /// Returns true if the range is unlimited.
    pub fn is_all(&self) -> bool {
        self.since.is_none() && self.until.is_none()
    }

    /// Resolves the range to ns since 1970. A time of day is its last occurrence before the end of the recording. If both ends are given, a time of
    /// day in `--until` is its first occurrence from `--since` on.
    ///
    /// # Errors
    /// Fails if the range ends before it starts.
    pub(crate) fn resolve(&self, end_ns: u64) -> Result<(Option<u64>, Option<u64>)> {
        let last = |of_day_ns: u64| {
            let of_same_day = end_ns / DAY_NS * DAY_NS + of_day_ns;
            if of_same_day <= end_ns { of_same_day } else { of_same_day.saturating_sub(DAY_NS) }
        };
        let at = |time: WallTime| match time {
            WallTime::BeforeEnd(before_ns) => end_ns.saturating_sub(before_ns),
            WallTime::OfDay(of_day_ns) => last(of_day_ns),
            WallTime::Unix(unix_ns) => unix_ns,
        };
        let since_ns = self.since.map(at);
        let until_ns = self.until.map(|until| match (until, since_ns) {
            (WallTime::OfDay(of_day_ns), Some(since_ns)) => {
                let of_same_day = since_ns / DAY_NS * DAY_NS + of_day_ns;
                if of_same_day >= since_ns { of_same_day } else { of_same_day.saturating_add(DAY_NS) }
            }
            _ => at(until),
        });
        match (since_ns, until_ns) {
            (Some(since), Some(until)) if until < since => {
                Err(Error::option("--since/--until", self.to_string(), "the range ends before it starts"))
            }
            times => Ok(times),
        }
    }
}

impl fmt::Display for WallRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: Option<WallTime>| match time {
            None => String::new(),
            Some(WallTime::BeforeEnd(before_ns)) => format!("-{}s", before_ns as f64 / SECOND_NS as f64),
            Some(WallTime::OfDay(of_day_ns)) => of_day(of_day_ns),
            Some(WallTime::Unix(unix_ns)) => text(unix_ns),
        };
        write!(f, "{}/{}", time(self.since), time(self.until))
    }
}

impl FromStr for WallTime {
    type Err = Error;

    fn from_str(text: &str) -> Result<WallTime> {
        let bad = || {
            let problem = "expected a time in UTC or with its zone: 03:00, 03:00:30, 03:00+01:00, 2026-11-25, \
                           '2026-11-25 03:00'; or -10m, before the end of the recording";
            Error::option("time", text, problem)
        };
        parse(text.trim()).ok_or_else(bad)
    }
}

fn parse(text: &str) -> Option<WallTime> {
    if let Some(before) = text.strip_prefix('-') {
        let number = before.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit_seconds = match &before[number.len()..] {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let seconds = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)? * unit_seconds;
        return Some(WallTime::BeforeEnd((seconds * SECOND_NS as f64) as u64));
    }
    let is_date = text.get(4..5) == Some("-");
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (Some(date), time),
        None if is_date => (Some(text), "00:00"),
        None => (None, text),
    };
    let (time, east_ns) = zone(time)?;
    let of_day_ns = time_of_day(time)?;
    match date {
        Some(date) => {
            let unix_ns = i128::from(day(date)?) * i128::from(DAY_NS) + i128::from(of_day_ns) - east_ns;
            Some(WallTime::Unix(u64::try_from(unix_ns).ok()?))
        }
        None => {
            let of_day_ns = (i128::from(of_day_ns) - east_ns).rem_euclid(i128::from(DAY_NS));
            Some(WallTime::OfDay(u64::try_from(of_day_ns).ok()?))
        }
    }
}

/// Splits a time of day into the time without a zone, and the zone's offset east of UTC in ns: 0 for `Z` or without a zone.
fn zone(text: &str) -> Option<(&str, i128)> {
    if let Some(time) = text.strip_suffix('Z') {
        return Some((time, 0));
    }
    let Some(at) = text.find(['+', '-']) else { return Some((text, 0)) };
    let (time, zone) = text.split_at(at);
    let east_ns = i128::from(time_of_day(&zone[1..])?);
    Some((time, if zone.starts_with('-') { -east_ns } else { east_ns }))
}

/// Parses `HH:MM`, `HH:MM:SS` or `HH:MM:SS.sss` to ns.
fn time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let part = |text: &str, limit: u64| {
        let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| is_number && *number < limit)
    };
    let (hours, minutes) = (part(parts.next()?, 24)?, part(parts.next()?, 60)?);
    let seconds_ns = parts
        .next()
        .map_or(Some(0), |text| super::nanoseconds(text).filter(|ns| *ns < 60 * SECOND_NS && !text.is_empty()))?;
    parts.next().is_none().then_some((hours * 3600 + minutes * 60) * SECOND_NS + seconds_ns)
}

/// Parses `YYYY-MM-DD` to days since 1970.
fn day(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let mut part = |digits: usize| {
        let text =
            parts.next().filter(|text| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit()))?;
        text.parse::<i64>().ok()
    };
    let (year, month, day) = (part(4)?, part(2)?, part(2)?);
    let days = days_since_1970(year, month, day);
    // A day that the month does not have, such as February 30, gives days since 1970 that belong to another date.
    ((1..=12).contains(&month) && date_of(days) == (year, month, day)).then_some(days)
}

/// Days since 1970 of a Gregorian date. The algorithm's years begin in March, so that the leap day is the last day.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a number of days since 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * years + years / 4 - years / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (years + era * 400 + i64::from(month <= 2), month, day)
}

fn of_day(of_day_ns: u64) -> String {
    let seconds = of_day_ns / SECOND_NS;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Formats a time in UTC.
pub(crate) fn text(unix_ns: u64) -> String {
    let (year, month, day) = date_of((unix_ns / DAY_NS).cast_signed());
    format!("{year}-{month:02}-{day:02} {}", of_day(unix_ns % DAY_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values come from `date -u -d … +%s`.
    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("2026-11-25 03:00", 1_795_575_600),
            ("2026-11-25T03:00:30Z", 1_795_575_630),
            ("2026-11-25 03:00+01:00", 1_795_572_000),
            ("2024-02-29", 1_709_164_800),
            ("2000-03-01 00:00", 951_868_800),
            ("1970-01-01", 0),
        ] {
            assert_eq!(text.parse::<WallTime>().unwrap(), WallTime::Unix(seconds * SECOND_NS), "{text}");
        }
        assert_eq!(text(1_795_575_630 * SECOND_NS), "2026-11-25 03:00:30 UTC");
        assert_eq!(
            "01:30+02:00".parse::<WallTime>().unwrap(),
            WallTime::OfDay(23 * 3600 * SECOND_NS + 1800 * SECOND_NS)
        );
        assert_eq!("-10m".parse::<WallTime>().unwrap(), WallTime::BeforeEnd(600 * SECOND_NS));
        for bad in ["", "3", "25:00", "03:60", "2026-02-30", "2026-13-01", "2026-11-25x", "-10", "03:00:61", "-xm", "+"]
        {
            assert!(bad.parse::<WallTime>().is_err(), "{bad}");
        }
    }

    /// The recording ends at 02:00.
    #[test]
    fn a_time_of_day_is_of_the_recording() {
        let end_ns = 1_795_572_000 * SECOND_NS;
        let resolve = |since: &str, until: &str| {
            let time = |text: &str| (!text.is_empty()).then(|| text.parse::<WallTime>().unwrap());
            let range = WallRange { since: time(since), until: time(until) };
            let (since_ns, until_ns) = range.resolve(end_ns)?;
            Ok::<_, Error>(
                [since_ns, until_ns].map(|time| time.map(|ns| (end_ns as i64 - ns as i64) / 60 / 1_000_000_000)),
            )
        };
        assert_eq!(resolve("01:00", "01:30").unwrap(), [Some(60), Some(30)]);
        assert_eq!(resolve("23:00", "00:30").unwrap(), [Some(180), Some(90)], "over midnight");
        assert_eq!(resolve("01:00", "03:00").unwrap(), [Some(60), Some(-60)]);
        assert_eq!(resolve("-10m", "").unwrap(), [Some(10), None]);
        assert_eq!(resolve("", "03:00").unwrap(), [None, Some(23 * 60)]);
        assert!(resolve("2026-11-25 03:00", "2026-11-25 02:00").unwrap_err().to_string().contains("ends before"));
    }
}
