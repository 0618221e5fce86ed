//! `bprec annotate`.

use std::io;

use bprec_report::{AnnotateOptions, Options, ProgFilter, Session};

use crate::args::{OUTPUT, PartArgs, SELECTION, number, percent};
use crate::opening::ReadFilesArgs;
use crate::progress::with_progress;
use crate::sandbox::Purpose;
use crate::terminal::columns;
use crate::view::FormArgs;
use crate::{Outcome, say};

/// Show the code of BPF programs with the cost of each line and instruction.
///
/// Shows the source lines of each function, the BPF instructions of each line, and their machine instructions (x86-64 and arm64;
/// others as bytes). Needs only the recording: no source, no compiler, no kernel. See docs/annotate.md.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Programs: a name (with * and ?), an id or a tag; :FUNC selects functions by name. Shows programs without samples only if none of
    /// them has samples.
    #[arg(value_name = "PROG[:FUNC]", required = true)]
    program: Target,

    /// Event to show [default: the first that has samples in these programs].
    #[arg(short, long, value_name = "NAME", help_heading = SELECTION)]
    event: Option<String>,

    #[command(flatten)]
    part: PartArgs,

    /// Show only the N hottest lines of each program and their context.
    #[arg(long, value_name = "N", value_parser = number, help_heading = OUTPUT)]
    limit: Option<usize>,

    /// Show only lines with at least this percentage of the program's cost and their context.
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = OUTPUT)]
    percent_limit: Option<f64>,

    #[command(flatten)]
    form: FormArgs,

    /// Number of reading threads; the listing is the same with any number.
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<usize>,

    #[command(flatten)]
    read: ReadFilesArgs,
}

/// Programs to show, and their functions.
#[derive(Clone)]
struct Target {
    program: ProgFilter,
    function: Option<String>,
}

impl std::str::FromStr for Target {
    type Err = bprec_report::Error;

    fn from_str(text: &str) -> Result<Target, Self::Err> {
        // Names of programs and functions have no colon.
        let (program, function) = match text.split_once(':') {
            Some((program, function)) => (program, Some(function.to_owned()).filter(|name| !name.is_empty())),
            None => (text, None),
        };
        Ok(Target { program: program.parse()?, function })
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    let out = args.form.output();
    let (input, time, redacted) = args.read.open(Purpose::Print)?;
    redacted.print();
    let query = Options {
        programs: vec![args.program.program],
        events: args.event.into_iter().collect(),
        limit: args.limit,
        threads: args.threads,
        ..args.part.within(time).into()
    };
    let options = AnnotateOptions { query, function: args.program.function, percent_limit: args.percent_limit };
    let annotation = with_progress(&[&input], || Session::open(&input)?.annotate(&options))?;
    if annotation.programs.is_empty() {
        say("bprec: no program in the recording matches; bprec report --all lists them");
        return Ok(Outcome::NothingMatched);
    }
    if annotation.programs.iter().all(|program| program.functions.is_empty()) {
        say("bprec: no function of the program matches; bprec report --by func lists them");
        return Ok(Outcome::NothingMatched);
    }
    args.form.show(&annotation, columns(&io::stdout()), out)?;
    Ok(Outcome::Done)
}
