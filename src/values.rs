//! Values of options that several commands have.

#[cfg(all(feature = "record", target_os = "linux"))]
use std::time::Duration;

/// A length of time: seconds, or a number with a unit.
#[cfg(all(feature = "record", target_os = "linux"))]
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "expected seconds, or a time with a unit: 500ms, 10s, 5m, 1h";
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_seconds = match &text[number.len()..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(EXPECTED),
    };
    let seconds = number.parse::<f64>().map_err(|_| EXPECTED)? * unit_seconds;
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero()).ok_or(EXPECTED)
}

/// The id of a process or of a thread.
pub(crate) fn task_id(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "expected an id, a number; `pgrep NAME` finds those of a name")
}

/// A part of a whole, in percent.
pub(crate) fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text.trim_end_matches('%').parse::<f64>().ok();
    number.filter(|number| (0.0..=100.0).contains(number)).ok_or("expected a number from 0 to 100")
}

#[cfg(all(test, feature = "record", target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, ms) in
            [("5", 5000), ("0.25", 250), ("500ms", 500), ("10s", 10_000), ("1.5m", 90_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for wrong in ["", "0", "-1", "s", "5d", "5 s", "1e99", "nan", "µs"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
