//! Options of all commands that show a recording: the part of it, and the form of the output.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use bprec_report::{CpuList, Document, Header, TextStyle, TimeRange};

use crate::args::{OUTPUT, SELECTION};
use crate::pager::{Output, PagerArgs};
use crate::terminal::ColorArgs;
use crate::terminal::{is_ascii_only, to_ascii};

/// Part of the samples.
#[derive(clap::Args)]
pub(crate) struct PartArgs {
    /// Use only this time range: START,STOP in seconds from the start, @START,STOP in seconds of the recording's clock, or 10%-20%.
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true, help_heading = SELECTION)]
    pub(crate) time: Option<TimeRange>,

    /// Use only samples on these CPUs: 0,2-5.
    #[arg(short = 'C', long, value_name = "LIST", help_heading = SELECTION)]
    pub(crate) cpu: Option<CpuList>,

    /// Use only samples of tasks with these names (with * and ?).
    #[arg(
        short,
        long,
        alias = "comm",
        value_name = "NAME",
        value_delimiter = ',',
        conflicts_with = "redact",
        help_heading = SELECTION
    )]
    pub(crate) comms: Vec<String>,
}

/// The form of what is shown.
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
    color: ColorArgs,

    #[command(flatten)]
    pager: PagerArgs,
}

impl FormArgs {
    /// A table on standard output, `width` columns wide where that is possible.
    pub(crate) fn style(&self, width: usize) -> TextStyle {
        TextStyle { width, paint: self.color.paint(&io::stdout()) }
    }

    /// Output for it. To be called before the command is confined.
    pub(crate) fn output(&self) -> Output {
        self.pager.output()
    }

    /// Shows it, as a table `width` columns wide where that is possible; in ASCII, where a terminal shows nothing else.
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
        if self.markdown { document.write_markdown(out) } else { document.write_table(out, self.style(width)) }
    }

    /// The same with a table that looks otherwise, and with the header of the recording in JSON.
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
