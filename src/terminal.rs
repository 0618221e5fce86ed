//! Width, colors and character set of the terminal, and the global options `--quiet`, `--verbose` and `--color`.

use std::io::IsTerminal;
use std::sync::OnceLock;

use bprec_report::{Paint, TextStyle};
use clap::ColorChoice;

use crate::say;

/// Width of a table whose rows are never shortened.
pub(crate) const UNBOUNDED: usize = usize::MAX;
/// Width of a terminal that does not report its size.
const USUAL: usize = 80;
/// Width of output to a file or pipe: editors and web pages show such lines without wrapping.
const ELSEWHERE: usize = 160;

/// Width of an output, in columns: that of the terminal; for a file or pipe `$COLUMNS`, or 160.
pub(crate) fn columns(out: &impl IsTerminal) -> usize {
    if out.is_terminal() {
        return terminal_size::terminal_size().map_or(USUAL, |(width, _)| usize::from(width.0));
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.filter(|columns| *columns > 0).unwrap_or(ELSEWHERE)
}

/// Options of every command, accepted before and after the command's name.
#[derive(Clone, Copy, Default, clap::Args)]
pub(crate) struct GlobalArgs {
    /// Print warnings and errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Print details.
    ///
    /// Commands that read recordings also print the state of their sandbox.
    #[arg(short, long, global = true)]
    verbose: bool,

    /// Color output: auto, always or never [default: auto].
    ///
    /// auto: on a terminal, if NO_COLOR is not set and TERM is not `dumb`.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    color: ColorChoice,
}

/// Global options of this process. A static, because the recorder passes its messages to a function pointer: a closure cannot hold the options.
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

/// Returns true if `--quiet` is given: only warnings and errors are printed.
pub(crate) fn is_quiet() -> bool {
    GlobalArgs::get().quiet
}

/// Returns true if `--verbose` is given: details are printed, too.
pub(crate) fn is_verbose() -> bool {
    GlobalArgs::get().verbose
}

/// Prints a result on standard error; `--quiet` hides the result.
pub(crate) fn notice(text: &str) {
    if !is_quiet() {
        say(text);
    }
}

/// Returns the colors of an output, as `--color` says.
pub(crate) fn paint(out: &impl IsTerminal) -> Paint {
    let has_colors = match GlobalArgs::get().color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => out.is_terminal() && !is_refused(),
    };
    if has_colors { Paint::Ansi } else { Paint::Plain }
}

/// Style of tables on an output: its width and colors.
pub(crate) fn style(out: &impl IsTerminal) -> TextStyle {
    TextStyle { paint: paint(out), ..columns(out).into() }
}

/// Returns true if the environment refuses colors: NO_COLOR is set and not empty (<https://no-color.org>), or TERM is `dumb`.
fn is_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

/// Returns true if the locale variables name a locale without UTF-8, such as `C`; false if none of the variables is set.
pub(crate) fn is_ascii_only() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}
