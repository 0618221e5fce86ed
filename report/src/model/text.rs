//! Numbers and names as text, for prose and for renderers.

use std::fmt::Write;

/// What stands for a number that is not known.
pub(crate) const UNKNOWN: &str = "n/a";
/// What stands for a program without a name.
pub(crate) const UNNAMED: &str = "[no name]";

/// Thousands apart: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something: `1 sample`, `2 samples`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// ns as seconds.
pub(crate) fn seconds(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ms = (ns.unsigned_abs() + 500_000) / 1_000_000;
    format!("{sign}{}.{:03}", ms / 1000, ms % 1000)
}

/// A name as a terminal may have it: control characters, and those that change the direction of text, are escaped.
pub(crate) fn clean(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        let hidden =
            matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if c.is_control() || hidden {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\u{{{:x}}}", c as u32);
        } else {
            text.push(c);
        }
    }
    text
}

/// One decimal below 1000, whole thousands apart above; what is whole but for the rounding of a float stays whole.
pub(crate) fn decimal(value: f64) -> String {
    let whole = (value + 1e-6) as u64;
    if whole >= 1000 { grouped(whole) } else { format!("{value:.1}") }
}

/// A few names, and how many more.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// Cuts a text to `width` characters, the last of them `…` when something is missing.
pub(crate) fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
        assert_eq!(seconds(1_234_567_890), "1.235");
        assert_eq!(seconds(-1_500_000), "-0.002");
    }

    #[test]
    fn long_lists_end() {
        let names: Vec<String> = ('a'..='h').map(String::from).collect();
        assert_eq!(listed(&names), "a, b, c, d, e, f and 2 more");
        assert_eq!(listed(&names[..2]), "a, b");
    }

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(clean("a\u{1b}]0;x\u{7}b\u{202e}"), "a\\u{1b}]0;x\\u{7}b\\u{202e}");
        assert_eq!(fit("heavy_enter", 6), "heavy…");
        assert_eq!(fit("heavy", 5), "heavy");
    }
}
