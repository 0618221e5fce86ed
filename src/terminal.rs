//! Terminals: how wide they are, which colours and signs they show.

use std::io::IsTerminal;

use bprec_report::Paint;
use clap::ValueEnum;

use crate::args::OUTPUT;

/// Width of a table that goes to no terminal: every row is whole.
pub(crate) const UNBOUNDED: usize = usize::MAX;
/// Width of a terminal that does not say it.
const USUAL: usize = 80;
/// Width where there is no terminal: of lines that an editor or a web page still shows whole.
const ELSEWHERE: usize = 160;

/// Width of an output: that of a terminal; elsewhere `COLUMNS`, or without it 160.
pub(crate) fn columns(out: &impl IsTerminal) -> usize {
    if out.is_terminal() {
        return terminal_size::terminal_size().map_or(USUAL, |(width, _)| usize::from(width.0));
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.filter(|columns| *columns > 0).unwrap_or(ELSEWHERE)
}

#[derive(clap::Args)]
pub(crate) struct ColorArgs {
    /// Colour output; auto: on a terminal, unless NO_COLOR is set.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Auto, help_heading = OUTPUT)]
    color: When,
}

#[derive(Clone, Copy, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

impl ColorArgs {
    /// Decides whether output has colours.
    pub(crate) fn paint(&self, out: &impl IsTerminal) -> Paint {
        let has_colors = match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => out.is_terminal() && !is_refused(),
        };
        if has_colors { Paint::Ansi } else { Paint::Plain }
    }
}

/// Returns true if the environment refuses colours: <https://no-color.org>, and a terminal without escape sequences.
fn is_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

/// Returns true if the locale says that text is not UTF-8; a locale that is not set says nothing.
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
