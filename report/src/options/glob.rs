//! Shell patterns for names: `*`, `?`, `[a-z]`, `[!a-z]`.

/// Whether `text` as a whole matches `pattern`. What is no pattern, such as `a[`, is a name.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    ::glob::Pattern::new(pattern).map_or(pattern == text, |pattern| pattern.matches(text))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text) in [
            ("*", ""),
            ("tp_*", "tp_heavy"),
            ("*heavy*", "tp_heavy_enter"),
            ("a*b*c", "axxbyybzc"),
            ("cb?", "cb1"),
            ("x[0-9]*", "x7y"),
            ("x[!0-9]", "xa"),
            ("[a]", "a"),
            ("[", "["),
            ("a/*", "a/b/c"),
            ("*", "\u{1b}]0;ü"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("tp_", "tp_heavy"),
            ("?", ""),
            ("x[!0-9]", "x7"),
            ("*a", "ab"),
            ("", "a"),
            ("a*b*c", "acb"),
            ("A", "a"),
            ("*[b", "a[b"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
