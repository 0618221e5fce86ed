//! Parsers of option values: one for each kind of value.
#![cfg_attr(
    not(all(feature = "record", target_os = "linux")),
    allow(dead_code, reason = "only commands that measure have options of these kinds")
)]

use std::num::NonZeroUsize;
use std::time::Duration;

/// Splits `1.5ms` into 1.5 and `ms`. `None` if the text does not begin with a finite number above 0.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let value = number.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0)?;
    Some((value, &text[number.len()..]))
}

/// Parses a duration above 0. `bare` is the unit, in seconds, of a number without a unit; if `bare` is `None`, such a number is refused.
fn time(text: &str, bare: Option<f64>) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let unit_seconds = match unit {
        "" => bare?,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit_seconds).ok().filter(|time| !time.is_zero())
}

/// Parses a duration that must have a unit.
pub(crate) fn time_with_unit(text: &str) -> Result<Duration, &'static str> {
    time(text, None).ok_or("expected a time with a unit: 500us, 100ms, 1s")
}

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

/// Parses a size above 0 with the unit B, K, M or G (powers of 1024). `bare` is the unit, in bytes, of a number without a unit; if `bare` is `None`,
/// such a number is refused.
pub(crate) fn bytes(text: &str, bare: Option<u64>) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_bytes = match &text[digits.len()..] {
        "" => bare?,
        "B" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_bytes).filter(|bytes| *bytes > 0)
}

/// Parses a size above 0; a number without a unit is in bytes.
pub(crate) fn size(text: &str) -> Result<u64, &'static str> {
    bytes(text, Some(1)).ok_or("expected bytes, or a number with K, M or G")
}

/// Parses a whole number.
pub(crate) fn number(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "expected a whole number")
}

/// Parses a whole number above 0.
pub(crate) fn positive(text: &str) -> Result<u64, &'static str> {
    text.parse().ok().filter(|number| *number > 0).ok_or("expected a whole number above 0")
}

/// Parses a count of files above 0.
pub(crate) fn files(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "expected a whole number above 0")
}

/// Parses the capacity of the kernel's table of stacks: 1 to 1048576.
pub(crate) fn stacks(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|stacks| (1..=1 << 20).contains(stacks)).ok_or("expected a whole number from 1 to 1048576")
}

/// Parses a compression level of zstd: 1 to 22.
pub(crate) fn compression_level(text: &str) -> Result<u8, &'static str> {
    text.parse().ok().filter(|level| (1..=22).contains(level)).ok_or("expected a whole number from 1 to 22")
}

/// Parses the length of an interval of `top`: from 0.1 s to a day.
pub(crate) fn display_interval(text: &str) -> Result<Duration, &'static str> {
    let is_allowed = |time: &Duration| (0.1..=86_400.0).contains(&time.as_secs_f64());
    Some(seconds(text)?).filter(is_allowed).ok_or("expected 0.1 to 86400 seconds")
}

/// Parses the time for which `top` keeps samples: 1 s to a day. A shorter file might hold no whole interval.
pub(crate) fn kept_time(text: &str) -> Result<Duration, &'static str> {
    let is_allowed = |time: &Duration| (1.0..=86_400.0).contains(&time.as_secs_f64());
    Some(seconds(text)?).filter(is_allowed).ok_or("expected 1 to 86400 seconds")
}

/// Parses a process or thread id.
pub(crate) fn task_id(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "expected a numeric id; `pgrep NAME` finds it by name")
}

/// Parses a percentage from 0 to 100; the sign `%` is optional.
pub(crate) fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text.trim_end_matches('%').parse::<f64>().ok();
    number.filter(|number| (0.0..=100.0).contains(number)).ok_or("expected a percentage from 0 to 100")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for wrong in ["", "0", "-1", "s", "5w", "5 s", "1e99", "nan", "inf", "µs"] {
            assert!(seconds(wrong).is_err() && milliseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_capital_units_as_times_have_small_ones() {
        assert_eq!(
            (bytes("4M", None), bytes("512K", None), bytes("7B", None)),
            (Some(4 << 20), Some(512 << 10), Some(7))
        );
        assert_eq!((bytes("4", None), bytes("4", Some(4096)), size("4")), (None, Some(4 << 12), Ok(4)));
        for wrong in ["4m", "0M", "0", "M", "", "4X", "-1G", "99999999999G"] {
            assert_eq!(bytes(wrong, Some(1)), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!((positive("7"), positive("0").is_err(), positive("-1").is_err()), (Ok(7), true, true));
        assert_eq!(
            (files("7"), files("0").is_err(), files("x").is_err()),
            (Ok(NonZeroUsize::new(7).unwrap()), true, true)
        );
        assert_eq!((stacks("1048576"), stacks("0").is_err(), stacks("1048577").is_err()), (Ok(1 << 20), true, true));
        assert_eq!((compression_level("22"), compression_level("99").is_err()), (Ok(22), true));
        assert_eq!((display_interval("1d").is_ok(), display_interval("9d").is_err()), (true, true));
        assert_eq!((kept_time("1").is_ok(), kept_time("0.5").is_err()), (true, true));
        assert_eq!((percent("0.5%"), percent("100"), percent("101").is_err()), (Ok(0.5), Ok(100.0), true));
    }
}
