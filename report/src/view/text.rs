//! Numbers and names as text.

use crate::{Origin, Program, Runs};
use std::fmt::Write;
use std::io;

/// What stands for a number that is not known.
pub(super) const UNKNOWN: &str = "n/a";

/// A share as a percentage with two decimals; `n/a` of nothing.
pub(super) fn percent(part: u64, whole: Option<u64>) -> String {
    match share(part, whole) {
        Some(percent) => format!("{percent:.2}"),
        None => UNKNOWN.into(),
    }
}

/// A share in per cent.
pub(super) fn share(part: u64, whole: Option<u64>) -> Option<f64> {
    whole.filter(|whole| *whole > 0).map(|whole| part as f64 * 100.0 / whole as f64)
}

/// Thousands apart: `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
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
pub(super) fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A line of comma-separated values.
pub(super) fn csv_line(cells: impl IntoIterator<Item = String>, out: &mut dyn io::Write) -> io::Result<()> {
    let quoted = cells.into_iter().map(|cell| {
        if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
    });
    writeln!(out, "{}", quoted.collect::<Vec<_>>().join(","))
}

/// ns as seconds.
pub(super) fn seconds(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ms = (ns.unsigned_abs() + 500_000) / 1_000_000;
    format!("{sign}{}.{:03}", ms / 1000, ms % 1000)
}

/// Time per run.
pub(super) fn per_run(runs: &Runs) -> String {
    match runs.time_ns.checked_div(runs.count) {
        None => UNKNOWN.into(),
        Some(ns) if ns >= 1000 => grouped(ns),
        Some(_) => format!("{:.1}", runs.time_ns as f64 / runs.count as f64),
    }
}

/// A moment since the start.
pub(super) fn moment(origin: Option<Origin>) -> String {
    match origin {
        None => String::new(),
        Some(Origin::At(time)) => seconds(time),
        Some(Origin::Between(_, before)) => format!("≤{}", seconds(before)),
    }
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

/// What a program is called where there is no name.
pub(super) fn program_name(program: &Program) -> String {
    if !program.name.is_empty() {
        return clean(&program.name);
    }
    match program.tag {
        Some(tag) => format!("[{tag}]"),
        None => "[no name]".into(),
    }
}

/// Where a program is attached, each place once.
pub(super) fn attachments(program: &Program) -> String {
    let mut places: Vec<(String, usize)> = Vec::new();
    for attachment in program.attachments.iter().map(|attachment| clean(attachment)) {
        match places.iter_mut().find(|(place, _)| *place == attachment) {
            Some((_, times)) => *times += 1,
            None => places.push((attachment, 1)),
        }
    }
    let places = places.into_iter().map(|(place, times)| if times > 1 { format!("{place} ×{times}") } else { place });
    places.collect::<Vec<_>>().join(" ")
}

/// Who holds a program.
pub(super) fn owners(program: &Program) -> String {
    let mut names: Vec<String> = Vec::new();
    for owner in &program.owners {
        names.push(format!("{}/{}", clean(&String::from_utf8_lossy(&owner.comm)), owner.pid));
    }
    names.extend(program.pins.iter().map(|pin| clean(pin)));
    names.join(" ")
}

/// Cuts a text to `width` characters, the last of them `…` when something is missing.
pub(super) fn fit(text: &str, width: usize) -> String {
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
        assert_eq!(percent(1, Some(3)), "33.33");
        assert_eq!(percent(0, Some(0)), "n/a");
        assert_eq!(percent(5, None), "n/a");
        assert_eq!(seconds(1_234_567_890), "1.235");
        assert_eq!(seconds(-1_500_000), "-0.002");
        assert_eq!(per_run(&Runs { count: 3, time_ns: 100, misses: None, span: None }), "33.3");
        assert_eq!(per_run(&Runs { count: 0, time_ns: 0, misses: None, span: None }), "n/a");
    }

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(clean("a\u{1b}]0;x\u{7}b\u{202e}"), "a\\u{1b}]0;x\\u{7}b\\u{202e}");
        assert_eq!(fit("heavy_enter", 6), "heavy…");
        assert_eq!(fit("heavy", 5), "heavy");
    }
}
