//! Colours of what a command prints.

use std::io::IsTerminal;

use bprec_report::Paint;
use clap::ValueEnum;

use crate::headings::OUTPUT;

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
    /// Whether what goes there has colours.
    pub(crate) fn paint(&self, out: &impl IsTerminal) -> Paint {
        let has_colors = match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => out.is_terminal() && !is_refused(),
        };
        if has_colors { Paint::Ansi } else { Paint::Plain }
    }
}

/// Whether the environment says that there are none: <https://no-color.org>, and a terminal without escape sequences.
fn is_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}
