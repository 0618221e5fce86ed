//! Shell patterns for names: `*`, `?`, `[a-z]`, `[!a-z]`.

use std::fmt;

/// A compiled pattern. Text that is no valid pattern, such as `a[`, matches itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    /// Compiled pattern; `None` if the text is no valid pattern.
    pattern: Option<glob::Pattern>,
}

impl Glob {
    /// Compiles a pattern.
    pub fn new(text: &str) -> Glob {
        Glob { text: text.to_owned(), pattern: glob::Pattern::new(text).ok() }
    }

    /// Source text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if `name` as a whole matches.
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.as_ref().map_or_else(|| self.text == name, |pattern| pattern.matches(name))
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

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
            assert!(Glob::new(pattern).matches(text), "{pattern} {text}");
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
            assert!(!Glob::new(pattern).matches(text), "{pattern} {text}");
        }
    }
}
