//! Text for terminals that show ASCII only.

/// Converts text to ASCII: known bars and signs to similar characters, all other characters to Unicode escapes such as `\u{e9}`.
pub fn to_ascii(text: &str) -> String {
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
            '░' => ascii.push('.'),
            '▒' => ascii.push(':'),
            '▓' => ascii.push('*'),
            '─' => ascii.push('-'),
            '│' | '▌' => ascii.push('|'),
            '■' | '▲' | '●' => ascii.push('*'),
            '≈' | '…' => ascii.push('~'),
            '±' => ascii.push_str("+-"),
            'Δ' => ascii.push('d'),
            'µ' => ascii.push('u'),
            '×' => ascii.push('x'),
            '↑' => ascii.push_str("Up"),
            '↓' => ascii.push_str("Down"),
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
        assert_eq!(to_ascii("↑ ↓ Tab"), "Up Down Tab");
    }
}
