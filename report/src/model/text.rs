//! Numbers and names as text, for prose and for renderers.

use std::borrow::Cow;
use std::fmt::Write;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Text of an unknown number.
pub(crate) const UNKNOWN: &str = "n/a";
/// Least share, %, that is not shown as 0.00.
pub(crate) const LEAST_SHOWN_PERCENT: f64 = 0.005;
/// Text in place of a missing program name.
pub(crate) const UNNAMED: &str = "[no name]";

/// Wraps a text by words to `width` columns: the first line begins in column `first`, further lines in column `hanging`. A word is never broken. A
/// line that ends at or before column `hanging` is continued beyond `width`, because a new line would have no more space for the next word.
pub fn wrap(text: &str, width: usize, first: usize, hanging: usize) -> Vec<String> {
    let (mut lines, mut begin, mut end) = (Vec::new(), first, first);
    let mut line = String::new();
    for (nth, word) in text.split(' ').enumerate() {
        let gap = usize::from(nth > 0);
        if end + gap + width_of(word) > width && begin + line.len() > hanging {
            lines.push(std::mem::take(&mut line));
            (begin, end) = (hanging, hanging);
        } else {
            line.push_str(&" "[..gap]);
            end += gap;
        }
        line.push_str(word);
        end += width_of(word);
    }
    lines.push(line);
    lines
}

/// Formats a number with thousands separators: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let mut left = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut text = String::with_capacity(left + left / 3);
    while left > 0 {
        left -= 1;
        push_digit(&mut text, number, left);
        if left > 0 && left.is_multiple_of(3) {
            text.push(',');
        }
    }
    text
}

/// Appends the digit of `number` that has `behind` digits after it.
fn push_digit(text: &mut String, number: u64, behind: usize) {
    const POWERS: [u64; 20] = {
        let mut powers = [1; 20];
        let mut at = 1;
        while at < powers.len() {
            powers[at] = powers[at - 1] * 10;
            at += 1;
        }
        powers
    };
    text.push((b'0' + (number / POWERS[behind] % 10) as u8) as char);
}

/// Formats a number with `decimals` decimals (at least one) as `{:.N}` does, but faster: tables have tens of thousands of numbers.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    /// Upper bound on the rounding error of the product below.
    const UNSURE: f64 = 1e-6;
    let scaled = value * 10f64.powi(decimals as i32);
    let rest = scaled.fract();
    // Large numbers, negative numbers and numbers near a rounding boundary take the exact path.
    let is_sure = value.is_sign_positive() && scaled < 1e9 && (rest - 0.5).abs() > UNSURE;
    if !is_sure {
        return format!("{value:.decimals$}");
    }
    let number = scaled as u64 + u64::from(rest > 0.5);
    let mut left = (number.checked_ilog10().unwrap_or(0) as usize + 1).max(decimals + 1);
    let mut text = String::with_capacity(left + 1);
    while left > 0 {
        left -= 1;
        push_digit(&mut text, number, left);
        if left == decimals {
            text.push('.');
        }
    }
    text
}

/// Number and noun: `1 sample`, `2 samples`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Text of a value, empty if the value is missing.
pub(crate) fn optional<T>(value: &Option<T>, words: impl FnOnce(&T) -> String) -> String {
    value.as_ref().map(words).unwrap_or_default()
}

/// Text of a number, empty if it is 0.
pub(crate) fn some(number: u64, words: impl FnOnce(u64) -> String) -> String {
    if number > 0 { words(number) } else { String::new() }
}

/// Formats ns as seconds.
pub(crate) fn seconds(ns: i64) -> String {
    let ms = (ns.unsigned_abs() + 500_000) / 1_000_000;
    let sign = if ns < 0 && ms > 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", ms / 1000, ms % 1000)
}

/// Escapes control characters, invisible characters and characters that change the text direction, as `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if is_plain(text.as_bytes()) || !text.chars().any(is_steering) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_steering(c) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{{{:x}}}", c as u32);
        } else {
            escaped.push(c);
        }
    }
    escaped.into()
}

/// Owned result of [`printable`].
pub(crate) fn clean(text: &str) -> String {
    printable(text).into_owned()
}

/// Returns true for a character that controls a terminal or misleads a reader. Names of programs, tasks and files never need such characters.
pub(crate) fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Direction marks, embeddings, overrides and isolates; line separators; zero-width characters; tags.
            '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns true if the text is printable ASCII.
#[inline]
pub(crate) fn is_plain(text: &[u8]) -> bool {
    // No early exit within a chunk, so that the compiler checks several bytes at once.
    text.chunks(64).all(|chunk| chunk.iter().fold(true, |plain, byte| plain & (b' '..=b'~').contains(byte)))
}

/// Formats a number: with one decimal below 1000, otherwise as a whole number with thousands separators.
pub(crate) fn decimal(value: f64) -> String {
    // From 999.95 on, one decimal would give `1000.0` or more: such numbers are formatted as whole numbers.
    if value >= 999.95 { grouped(value.round() as u64) } else { fixed(value, 1) }
}

/// Formats an estimated count with its precision: `≈80k ±40%`, or `≈80k ≤200k` if the margin reaches the count. `margin` is half of the
/// confidence interval; `None` if it is unknown.
pub(crate) fn estimated(count: u64, margin: Option<u64>) -> String {
    let Some(margin) = margin else { return format!("≈{}", rounded(count as f64, 3)) };
    if margin >= count {
        let most = count.saturating_add(margin);
        return format!("≈{} ≤{}", rounded(count as f64, 2), rounded(most as f64, 2));
    }
    let percent = margin as f64 * 100.0 / count as f64;
    let (digits, percent) = match percent {
        10.0.. => (2, format!("{percent:.0}")),
        1.0.. => (3, fixed(percent, 1)),
        0.05.. => (4, fixed(percent, 1)),
        _ => (5, "<0.1".into()),
    };
    format!("≈{} ±{percent}%", rounded(count as f64, digits))
}

/// Rounds to `digits` significant digits: `1.23M`.
fn rounded(number: f64, digits: i32) -> String {
    // `size` is the number of digits before the decimal point. The result is a multiple of `unit`, so that `digits` digits remain.
    let size =
        std::iter::successors(Some(1.0), |power| Some(power * 10.0)).take_while(|power| *power <= number).count();
    let unit = 10f64.powi((size as i32 - digits).max(0));
    let number = (number / unit).round() * unit;
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let Some((scale, name)) = units.into_iter().find(|(scale, _)| number >= *scale) else {
        return format!("{number:.0}");
    };
    // Three decimals may be more than the significant digits: the rest are zeros and are removed.
    let text = format!("{:.3}", number / scale);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{name}")
}

/// Lists the first six names, and counts the other names.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// Cuts a text to `width` columns; the last column is `…` if text is cut.
pub(crate) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if width_of(text) <= width {
        return text.into();
    }
    let mut cut: String = head(text.chars(), width.saturating_sub(1));
    if width > 0 {
        cut.push('…');
    }
    cut.into()
}

/// Shortens a text to `width` columns by cutting out its middle: names often differ only at their ends.
pub fn fit_middle(text: &str, width: usize) -> Cow<'_, str> {
    if width_of(text) <= width {
        return text.into();
    }
    let kept = width.saturating_sub(1);
    let tail = head(text.chars().rev(), kept / 2);
    let ellipsis = (width > 0).then_some('…');
    head(text.chars(), kept.div_ceil(2)).chars().chain(ellipsis).chain(tail.chars().rev()).collect::<String>().into()
}

/// Longest prefix of `chars` that fits into `width` columns.
fn head(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut left = width;
    chars
        .take_while(|c| {
            let fitting = left.checked_sub(c.width().unwrap_or(0));
            left = fitting.unwrap_or(0);
            fitting.is_some()
        })
        .collect()
}

/// Width of a text in terminal columns: 2 for wide characters, 0 for combining characters.
pub(crate) fn width_of(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
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
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(seconds(1_234_567_890), "1.235");
        assert_eq!(seconds(-1_500_000), "-0.002");
    }

    /// Compares with the standard library, which rounds exactly. Includes values halfway between two decimals.
    #[test]
    fn decimals_are_rounded_exactly() {
        let special = [0.0, -0.0, 0.005, 0.015, 0.125, 0.375, 1.005, 2.675, 99.995, 100.0, 1e7, 1e9, 1e300, -3.75];
        let not_finite = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let shares = (0..4000u64).map(|part| part as f64 * 100.0 / 2777.0);
        let halves = (0..4000u64).map(|part| part as f64 / 1000.0);
        let near = (0..4000u64).flat_map(|part| {
            let half = (part as f64 + 0.5) / 100.0;
            [half.next_down(), half, half.next_up(), half + 2e-8, half - 2e-8]
        });
        for value in special.into_iter().chain(not_finite).chain(shares).chain(halves).chain(near) {
            assert_eq!(fixed(value, 1), format!("{value:.1}"));
            assert_eq!(fixed(value, 2), format!("{value:.2}"));
        }
    }

    #[test]
    fn estimates_are_as_exact_as_they_are_known() {
        assert_eq!(estimated(78_214, Some(32_603)), "≈78k ±42%");
        assert_eq!(estimated(80_000, None), "≈80k");
        assert_eq!(estimated(590_992, Some(9_000)), "≈591k ±1.5%");
        assert_eq!(estimated(748_925, Some(900)), "≈748.9k ±0.1%");
        assert_eq!(estimated(748_925, Some(9)), "≈748.93k ±<0.1%");
        assert_eq!(estimated(1_234_567, Some(123_457)), "≈1.2M ±10%");
        assert_eq!(estimated(999_600, Some(20_000)), "≈1M ±2.0%");
        assert_eq!(estimated(0, None), "≈0");
        assert_eq!(estimated(0, Some(57)), "≈0 ≤57");
        assert_eq!(estimated(120, Some(700)), "≈120 ≤820");
        assert_eq!(estimated(7, Some(2)), "≈7 ±29%");
    }

    #[test]
    fn times_that_round_to_nothing_have_no_sign() {
        assert_eq!([-400_000, -600_000, 400_000].map(seconds), ["0.000", "-0.001", "0.000"]);
    }

    #[test]
    fn long_lists_end() {
        let names: Vec<String> = ('a'..='h').map(String::from).collect();
        assert_eq!(listed(&names), "a, b, c, d, e, f and 2 more");
        assert_eq!(listed(&names[..2]), "a, b");
    }

    #[test]
    fn names_cannot_steer_a_terminal() {
        let hostile = "\0\t\n\r\u{1b}\u{7f}\u{80}\u{9b}\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2028}\u{2066}\u{2069}";
        assert!(hostile.chars().all(is_steering));
        assert!(!"é ñ 日本 … · ≈ ± ×".chars().any(is_steering));
        assert_eq!(clean("a\u{1b}]0;x\u{7}b\u{202e}"), "a\\u{1b}]0;x\\u{7}b\\u{202e}");
        assert_eq!(fit("heavy_enter", 6), "heavy…");
        assert_eq!(fit("heavy", 5), "heavy");
    }

    /// Widths of wcwidth(3): CJK and emoji take two columns, a combining accent none.
    #[test]
    fn texts_are_as_wide_as_a_terminal_shows_them() {
        assert_eq!(["heavy", "日本", "e\u{301}", "🦀", "≈1 ±2 … ·", "▁█"].map(width_of), [5, 4, 1, 2, 9, 2]);
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit_middle("日本語のプログラム", 9), "日本…ラム");
        assert_eq!(fit_middle("a日本語b", 4), "a…b");
    }
}
