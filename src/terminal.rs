//! Terminals: how wide they are, which colours and signs they show, and which messages.

use std::io::IsTerminal;
use std::sync::OnceLock;

use bprec_report::Paint;
use clap::ValueEnum;

use crate::say;

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

/// Options of every command, before or after its name.
#[derive(Clone, Copy, Default, clap::Args)]
pub(crate) struct GlobalArgs {
    /// Print warnings and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Print details; commands that read print how they are confined.
    #[arg(short, long, global = true)]
    verbose: bool,

    /// Color output: auto, always or never [default: auto].
    ///
    /// auto: on a terminal, unless NO_COLOR is set.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    color: When,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum When {
    #[default]
    Auto,
    Always,
    Never,
}

/// Options of this process; without them, the defaults. A static, because the recorder passes messages to a plain function.
static GLOBAL: OnceLock<GlobalArgs> = OnceLock::new();

impl GlobalArgs {
    /// Applies the options to this process; only the first call has an effect.
    pub(crate) fn apply(self) {
        let _ = GLOBAL.set(self);
    }

    fn get() -> GlobalArgs {
        GLOBAL.get().copied().unwrap_or_default()
    }
}

/// Returns true if only warnings and errors are printed.
pub(crate) fn is_quiet() -> bool {
    GlobalArgs::get().quiet
}

/// Returns true if details are printed.
pub(crate) fn is_verbose() -> bool {
    GlobalArgs::get().verbose
}

/// Prints a result on standard error, unless --quiet is given.
pub(crate) fn notice(text: &str) {
    if !is_quiet() {
        say(text);
    }
}

/// Decides whether output has colors.
pub(crate) fn paint(out: &impl IsTerminal) -> Paint {
    let has_colors = match GlobalArgs::get().color {
        When::Always => true,
        When::Never => false,
        When::Auto => out.is_terminal() && !is_refused(),
    };
    if has_colors { Paint::Ansi } else { Paint::Plain }
}

/// Returns true if the environment refuses colors: <https://no-color.org>, and a terminal without escape sequences.
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
