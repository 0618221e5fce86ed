//! Output form of commands that show a recording: table, JSON, CSV or Markdown.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use bprec_report::{Document, Header, TextStyle};

use crate::args::OUTPUT;
use crate::pager::{Output, PagerArgs};
use crate::terminal::is_ascii_only;

/// Forms of the output other than a text table.
#[derive(clap::Args)]
pub(crate) struct FormatArgs {
    /// Print JSON (docs/json.md).
    #[arg(long, conflicts_with = "csv", help_heading = OUTPUT)]
    pub(crate) json: bool,

    /// Print CSV.
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) csv: bool,

    /// Print the tables as Markdown, for issues and pull requests.
    #[arg(long, conflicts_with_all = ["json", "csv"], help_heading = OUTPUT)]
    pub(crate) markdown: bool,
}

#[cfg(all(feature = "record", target_os = "linux"))]
impl FormatArgs {
    /// Name of the given option; `None` for a text table.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [("--json", self.json), ("--csv", self.csv), ("--markdown", self.markdown)];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}

/// Form of the output of a recording, its pager, and the threads that make it.
#[derive(clap::Args)]
pub(crate) struct FormArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,

    #[command(flatten)]
    pub(crate) pager: PagerArgs,

    /// Number of reading threads; the output is the same with any number.
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) threads: Option<usize>,
}

impl FormArgs {
    /// Prints a document. On a terminal whose locale is not UTF-8, the table is ASCII.
    pub(crate) fn show(&self, document: &impl Document, style: TextStyle, out: Output) -> Result<()> {
        self.show_under(None, document, out, |out| self.write(document, style, out))
    }

    /// Writes the tables of a document as text or Markdown.
    pub(crate) fn write(
        &self,
        document: &impl Document,
        style: TextStyle,
        out: &mut dyn Write,
    ) -> bprec_report::Result<()> {
        match self.format.markdown {
            true => document.write_markdown(out, style.all_notes),
            false => document.write_table(out, style),
        }
    }

    /// Prints a document; `table` writes the text or Markdown form. JSON includes `header`.
    pub(crate) fn show_under(
        &self,
        header: Option<&Header>,
        document: &impl Document,
        out: Output,
        table: impl FnOnce(&mut dyn Write) -> bprec_report::Result<()>,
    ) -> Result<()> {
        out.print(|mut out| {
            if self.format.json {
                document.write_json_under(header, &mut out)?;
            } else if self.format.csv {
                document.write_csv(&mut out)?;
            } else if io::stdout().is_terminal() && is_ascii_only() {
                let mut text = Vec::new();
                table(&mut text)?;
                out.write_all(bprec_report::to_ascii(&String::from_utf8_lossy(&text)).as_bytes())?;
            } else {
                table(out)?;
            }
            Ok(())
        })?;
        Ok(())
    }
}
