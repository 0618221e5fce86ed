//! Parsers of option values of commands that measure.

use std::time::Duration;

use crate::args::time;

/// Parses a duration; a number without a unit is in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, &'static str> {
    time(text, Some(1.0)).ok_or("expected seconds, or a time with a unit: 500ms, 10s, 5m, 1h, 1d")
}

/// Parses a duration; a number without a unit is in milliseconds, as in perf.
pub(crate) fn milliseconds(text: &str) -> Result<Duration, &'static str> {
    time(text, Some(1e-3)).ok_or("expected milliseconds, or a time with a unit: 500ms, 10s")
}

/// Parses the interval between two readings: at least 10 ms. A number without a unit is in milliseconds.
pub(crate) fn interval(text: &str) -> Result<Duration, &'static str> {
    match milliseconds(text)? {
        interval if interval >= Duration::from_millis(10) => Ok(interval),
        _ => Err("expected at least 10 milliseconds"),
    }
}

/// Parses a whole number above 0.
pub(crate) fn positive(text: &str) -> Result<u64, &'static str> {
    text.parse().ok().filter(|number| *number > 0).ok_or("expected a whole number above 0")
}

/// Parses a number of bytes with a unit: B, K, M or G; `None` if the unit or the number is missing.
pub(crate) fn bytes_with_unit(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let shift = match unit {
        "B" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok().filter(|number| *number > 0)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::time_with_unit;

    #[test]
    fn times_have_one_grammar() {
        for (text, ms) in [
            ("5", 5000),
            ("0.25", 250),
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5m", 90_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!((milliseconds("5"), milliseconds("5s")), (Ok(Duration::from_millis(5)), Ok(Duration::from_secs(5))));
        assert_eq!((interval("10"), interval("9").is_err()), (Ok(Duration::from_millis(10)), true));
        assert_eq!((time_with_unit("500us"), time_with_unit("5").is_err()), (Ok(Duration::from_micros(500)), true));
        assert_eq!((positive("7"), positive("0").is_err(), positive("-1").is_err()), (Ok(7), true, true));
        for wrong in ["", "0", "-1", "s", "5w", "5 s", "1e99", "nan", "inf", "µs"] {
            assert!(seconds(wrong).is_err() && milliseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_capital_units_as_times_have_small_ones() {
        assert_eq!((bytes_with_unit("4M"), bytes_with_unit("512K")), (Some(4 << 20), Some(512 << 10)));
        for none in ["4m", "4", "0M", "M", "4X", "-1G", "99999999999G"] {
            assert_eq!(bytes_with_unit(none), None, "{none}");
        }
    }
}
