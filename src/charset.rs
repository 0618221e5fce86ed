//! What a terminal can show.

/// Whether the locale says that text is not UTF-8. Where none is set, nothing is known of it.
pub(crate) fn is_ascii_only() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}

/// The same in ASCII: bars by signs that grow, other signs by what looks like them, letters of names escaped.
pub(crate) fn to_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_ascii() => ascii.push(c),
            '▁' => ascii.push('_'),
            '▂' => ascii.push('-'),
            '▃' => ascii.push(':'),
            '▄' => ascii.push('='),
            '▅' => ascii.push('+'),
            '▆' => ascii.push('*'),
            '▇' => ascii.push('#'),
            '█' => ascii.push('@'),
            '·' => ascii.push('.'),
            '≈' | '…' => ascii.push('~'),
            '±' => ascii.push_str("+-"),
            'Δ' => ascii.push('d'),
            'µ' => ascii.push('u'),
            '×' => ascii.push('x'),
            '→' => ascii.push_str("->"),
            '←' => ascii.push_str("<-"),
            '≤' => ascii.push_str("<="),
            '≥' => ascii.push_str(">="),
            c => ascii.extend(c.escape_unicode()),
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::to_ascii;

    #[test]
    fn bars_grow_and_names_are_escaped() {
        assert_eq!(to_ascii("a ▁▂▃▄▅▆▇█·"), "a _-:=+*#@.");
        assert_eq!(to_ascii("≈5±2 µs é"), "~5+-2 us \\u{e9}");
        assert_eq!(to_ascii("a → b ← c"), "a -> b <- c");
    }
}
