//! `bprec annotate`.

use std::ffi::OsString;
use std::io;

use anyhow::anyhow;
use bprec_report::{AnnotateOptions, FunctionFilter, Options, Session};

use crate::args::{OUTPUT, PartArgs, SELECTION};
use crate::opening::ReadArgs;
use crate::progress::with_progress;
use crate::sandbox::Purpose;
use crate::terminal::style;
use crate::values::{number, percent};
use crate::view::FormArgs;
use crate::{Outcome, found};

/// Show the code of BPF programs with the cost of each line and instruction.
///
/// Shows the source lines of each function, the BPF instructions of each line, and their machine instructions (x86-64 and arm64;
/// others as bytes). Needs only the recording: no source, no compiler, no kernel. See docs/annotate.md.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Programs: a name (with * and ?), an id or a tag; :FUNC selects functions by name. Shows programs without samples only if no
    /// selected program has samples. With --prog, this argument is a recording.
    #[arg(value_name = "PROG[:FUNC]", required_unless_present = "prog")]
    program: Option<OsString>,

    /// Select programs, as the first argument does.
    #[arg(long, value_name = "PROG[:FUNC]", value_delimiter = ',', help_heading = SELECTION)]
    prog: Vec<FunctionFilter>,

    /// Event to show [default: the first that has samples in these programs].
    #[arg(short, long, value_name = "NAME", help_heading = SELECTION)]
    event: Option<String>,

    #[command(flatten)]
    part: PartArgs,

    /// Show only the N hottest lines of each program, and their context.
    #[arg(long, value_name = "N", value_parser = number, help_heading = OUTPUT)]
    limit: Option<usize>,

    /// Show only lines with at least this percentage of the program's cost, and their context.
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = OUTPUT)]
    percent_limit: Option<f64>,

    #[command(flatten)]
    form: FormArgs,

    #[command(flatten)]
    read: ReadArgs,
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<Outcome> {
    match args.program.take() {
        Some(file) if !args.prog.is_empty() => args.read.files.add_first(file.into())?,
        Some(program) => {
            let program = program.to_string_lossy();
            args.prog.push(program.parse().map_err(|problem| anyhow!("'{program}': {problem}"))?);
        }
        None => {}
    }
    let out = args.form.pager.output();
    let (input, time, redacted) = args.read.open(Purpose::Print)?;
    redacted.print();
    let query = Options {
        programs: args.prog.iter().map(|filter| filter.program.clone()).collect(),
        events: args.event.into_iter().collect(),
        limit: args.limit,
        threads: args.form.threads,
        ..args.part.within(time).into()
    };
    let options = AnnotateOptions { query, functions: args.prog, percent_limit: args.percent_limit };
    let annotation = with_progress(&[&input], || Session::open(&input)?.annotate(&options))?;
    if annotation.programs.iter().all(|program| program.functions.is_empty()) {
        return Ok(found(
            false,
            "bprec: no function of the program matches; bprec report --by func lists the functions",
        ));
    }
    args.form.show(&annotation, style(&io::stdout()), out)?;
    Ok(Outcome::Done)
}
