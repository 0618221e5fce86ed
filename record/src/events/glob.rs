//! Shell patterns for names: `*`, `?`, `[a-z]`, `[!a-z]`.

/// Whether `text` as a whole matches `pattern`. What is no pattern, such as `a[`, is a name.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    glob::Pattern::new(pattern).map_or(pattern == text, |pattern| pattern.matches(text))
}
