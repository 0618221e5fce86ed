//! Form of the output of commands that show a recording.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use bprec_report::{Document, Header, TextStyle};

use crate::args::OUTPUT;
use crate::pager::{Output, PagerArgs};
use crate::terminal::{is_ascii_only, paint, to_ascii};

/// Form of the output.
#[derive(clap::Args)]
pub(crate) struct FormArgs {
    /// Print JSON (docs/json.md).
    #[arg(long, conflicts_with = "csv", help_heading = OUTPUT)]
    pub(crate) json: bool,

    /// Print CSV.
    #[arg(long, help_heading = OUTPUT)]
    csv: bool,

    /// Print the tables as Markdown, for issues and pull requests.
    #[arg(long, conflicts_with_all = ["json", "csv"], help_heading = OUTPUT)]
    pub(crate) markdown: bool,

    #[command(flatten)]
    pager: PagerArgs,
}

impl FormArgs {
    /// Output for it. To be called before the command is confined.
    pub(crate) fn output(&self) -> Output {
        self.pager.output()
    }

    /// Shows a document, as a table of at most `width` columns if possible; in ASCII on terminals that show nothing else.
    pub(crate) fn show(&self, document: &impl Document, width: usize, out: Output) -> Result<()> {
        self.show_under(None, document, out, |out| self.write(document, width, out))
    }

    /// Writes its tables: as text, or as Markdown.
    pub(crate) fn write(
        &self,
        document: &impl Document,
        width: usize,
        out: &mut dyn Write,
    ) -> bprec_report::Result<()> {
        if self.markdown { document.write_markdown(out) } else { document.write_table(out, style(width)) }
    }

    /// The same with a table of its own, and with the header of the recording in JSON.
    pub(crate) fn show_under(
        &self,
        header: Option<&Header>,
        document: &impl Document,
        out: Output,
        table: impl FnOnce(&mut dyn Write) -> bprec_report::Result<()>,
    ) -> Result<()> {
        out.print(|mut out| {
            if self.json {
                document.write_json_under(header, &mut out)?;
            } else if self.csv {
                document.write_csv(&mut out)?;
            } else if io::stdout().is_terminal() && is_ascii_only() {
                let mut text = Vec::new();
                table(&mut text)?;
                out.write_all(to_ascii(&String::from_utf8_lossy(&text)).as_bytes())?;
            } else {
                table(out)?;
            }
            Ok(())
        })
    }
}

/// A table on standard output, `width` columns wide where that is possible.
pub(crate) fn style(width: usize) -> TextStyle {
    TextStyle { width, paint: paint(&io::stdout()) }
}
