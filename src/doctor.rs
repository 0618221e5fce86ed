//! `bprec doctor`.

use std::io::{self, Write};

use anyhow::Result;
use bprec_record::{Finding, Limit, Status, doctor};
use bprec_report::{Paint, TextStyle, Tone, printable, wrap, write_texts};
use serde_json::{Value, json};

use crate::Outcome;
use crate::pager::PagerArgs;
use crate::terminal::{UNBOUNDED, style};
use crate::view::FormatArgs;

/// Check what this machine lets the recorder do, what each limit costs in a report, and which command lifts it.
///
/// Works without privileges and in containers, and changes nothing: each trial is undone at once. Exit code 1 means that nothing
/// can be recorded here.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    pager: PagerArgs,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let findings = doctor();
    let is_impossible = findings.iter().any(|finding| finding.status == Status::Impossible);
    args.pager.output().print(|mut out| {
        if args.format.csv || args.format.markdown {
            write_texts(Finding::COLUMNS, findings.iter().map(Finding::cells), args.format.csv, &mut out)?;
        } else if args.format.json {
            let document = json!({
                "schema_version": 1,
                "recording": if is_impossible { "impossible" } else { "possible" },
                "checks": findings.iter().map(as_json).collect::<Vec<_>>(),
            });
            writeln!(out, "{document:#}")?;
        } else {
            let TextStyle { paint, width, .. } = style(&io::stdout());
            findings.iter().try_for_each(|finding| write(finding, &mut out, paint, width))?;
        }
        Ok(())
    })?;
    Ok(if is_impossible { Outcome::NothingMatched } else { Outcome::Done })
}

/// Tone of a status on a terminal.
fn tone(status: Status) -> Tone {
    match status {
        Status::Fine => Tone::Green,
        Status::Limited => Tone::Yellow,
        Status::Impossible => Tone::Red,
        Status::Unknown => Tone::Dim,
    }
}

fn as_json(finding: &Finding) -> Value {
    let limit = |limit: &Limit| {
        let command = limit.command();
        let hint = command.is_none().then(|| limit.remedy());
        json!({ "id": limit.id(), "cost": limit.cost(), "command": command, "hint": hint })
    };
    json!({
        "check": finding.name,
        "status": finding.status.name(),
        "found": finding.found,
        "limits": finding.limits.iter().map(limit).collect::<Vec<_>>(),
    })
}

/// Column of the findings.
const FOUND: usize = 36;
/// Columns of the first and the further lines of a cost or a remedy.
const LIMIT: [usize; 2] = [4, 6];

/// Writes a finding, and below it the cost and the remedy of each limit.
fn write(finding: &Finding, out: &mut impl Write, paint: Paint, width: usize) -> io::Result<()> {
    // Error messages and paths may contain control characters.
    let found = wrap(&printable(&finding.found), width, FOUND, FOUND).join(&format!("\n{:FOUND$}", ""));
    let state = paint.text(tone(finding.status), &format!("{:<10}", finding.status.name()));
    writeln!(out, "{state}  {:<22}  {found}", finding.name)?;
    let [begin, hanging] = LIMIT;
    let mut line = |text: &str, width| {
        let lines = wrap(text, width, begin, hanging).join(&format!("\n{:hanging$}", ""));
        writeln!(out, "{:begin$}{lines}", "")
    };
    for limit in &finding.limits {
        line(&format!("costs: {}", limit.cost()), width)?;
        match limit.command() {
            // Not wrapped: a shell would read a command on two lines as two commands.
            Some(command) => line(&format!("change with: {command}"), UNBOUNDED)?,
            None => line(&format!("needs: {}", limit.remedy()), width)?,
        }
    }
    Ok(())
}
