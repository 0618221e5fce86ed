//! Shell patterns for names: `*`, `?`, `[a-z]`, `[!a-z]`.

/// A compiled pattern. Text that is no valid pattern, such as `a[`, matches itself.
#[derive(Debug, Clone)]
pub(crate) struct Glob(Result<::glob::Pattern, String>);

impl Glob {
    pub(crate) fn new(pattern: &str) -> Glob {
        Glob(::glob::Pattern::new(pattern).map_err(|_| pattern.to_owned()))
    }

    /// Returns true if `text` as a whole matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.0.as_ref().map_or_else(|name| name == text, |pattern| pattern.matches(text))
    }
}

/// Returns true if `text` as a whole matches `pattern`.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    Glob::new(pattern).matches(text)
}

/// Patterns compiled for repeated use.
pub(crate) struct Patterns(Vec<Result<::glob::Pattern, String>>);

impl Patterns {
    pub(crate) fn new(patterns: &[String]) -> Patterns {
        Patterns(patterns.iter().map(|text| ::glob::Pattern::new(text).map_err(|_| text.clone())).collect())
    }

    /// Returns true if one of the patterns matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| match pattern {
            Ok(pattern) => pattern.matches(text),
            Err(name) => name == text,
        })
    }
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
