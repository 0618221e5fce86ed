//! `bprec diff`.

use std::io;
use std::path::PathBuf;

use anyhow::{Result, bail};
use bprec_report::model::{Diff, Verdict};
use bprec_report::{Condition, Confidence, DiffOptions, DiffSort, Input, TextStyle, diff};

use crate::args::{OUTPUT, ProgramArgs, SELECTION};
use crate::opening::{Opened, RedactArgs, Redacted};
use crate::progress::with_progress;
use crate::sandbox::{Purpose, Sandbox, SandboxArgs};
use crate::terminal::style;
use crate::view::FormArgs;
use crate::{Outcome, say};

/// Compare recordings from before and after a change.
///
/// For each BPF program, shows the change in cost, runs, time per run and events per run, each with a confidence interval and
/// whether chance explains it. `bprec diff BASE NEW`; several per side: `bprec diff BASE1 BASE2 -- NEW1 NEW2`. With --fail-if,
/// the exit code is 1 if the whole confidence interval of a number is beyond its bound (docs/diff.md).
#[derive(clap::Args)]
#[command(override_usage = "bprec diff [OPTIONS] BASE NEW\n       bprec diff [OPTIONS] BASE... -- NEW...")]
pub(crate) struct Args {
    /// Base recording and new recording; if `--` follows, only base recordings. Can be gzip-compressed.
    #[arg(value_name = "BASE", required = true)]
    base: Vec<PathBuf>,

    /// After `--`: all new recordings.
    #[arg(value_name = "NEW", last = true)]
    new: Vec<PathBuf>,

    /// Fail (exit code 1) if this condition holds, as in 'prog:tcp_* time/run +5%'. Can be repeated.
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,

    /// Also fail if a condition is undecided (`?`).
    #[arg(long, requires = "fail_if")]
    strict: bool,

    /// Confidence level of changes and intervals.
    #[arg(long, value_name = "PERCENT", default_value_t = Confidence::default())]
    confidence: Confidence,

    #[command(flatten)]
    programs: ProgramArgs,

    /// Sort rows by change in cost, share, runs/s or time/run; or by name, type or status.
    #[arg(short, long, value_name = "COLUMN", default_value_t = DiffSort::default(), help_heading = OUTPUT)]
    sort: DiffSort,

    /// Show only these events.
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', help_heading = SELECTION)]
    event: Vec<String>,

    /// Print three lines in place of the tables: all BPF, programs that became more expensive, other changes.
    #[arg(long, conflicts_with_all = ["json", "csv", "markdown", "notes", "sort", "limit", "all"], help_heading = OUTPUT)]
    explain_short: bool,

    /// Show all notes below the tables. By default, the five worst.
    #[arg(long, conflicts_with_all = ["json", "csv"], help_heading = OUTPUT)]
    notes: bool,

    #[command(flatten)]
    form: FormArgs,

    #[command(flatten)]
    redact: RedactArgs,

    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub(crate) fn run(mut args: Args) -> Result<Outcome> {
    if args.new.is_empty() {
        match (args.base.pop(), args.base.len()) {
            (Some(new), 1) => args.new.push(new),
            (_, 0) => bail!("expected two recordings: bprec diff BASE NEW"),
            _ => bail!("separate the two sides with --: bprec diff BASE1 BASE2 -- NEW1 NEW2"),
        }
    }
    let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
    if args.base.iter().chain(&args.new).filter(is_stdin).count() > 1 {
        bail!("only one recording can be standard input");
    }
    let out = args.form.pager.output();
    let sandbox = Sandbox::enter(&args.sandbox, Purpose::Print);
    let open = |paths: &[PathBuf]| paths.iter().map(|path| args.redact.open(path)).collect::<Result<Vec<Opened>, _>>();
    let (base, new) = (open(&args.base)?, open(&args.new)?);
    sandbox.seal(base.iter().chain(&new).any(Opened::needs_files));
    let (mut redactor, mut redacted) = (args.redact.redactor(), Redacted::default());
    let mut inputs = |files: Vec<Opened>| {
        let inputs = files.into_iter().map(|file| file.input(&mut redactor, &mut redacted));
        inputs.collect::<Result<Vec<Input>, _>>()
    };
    let (base, new) = (inputs(base)?, inputs(new)?);
    redacted.print();
    let options = DiffOptions {
        events: args.event,
        sort: args.sort,
        confidence: args.confidence,
        conditions: args.fail_if,
        threads: args.form.threads,
        programs: args.programs.select.prog,
        limit: args.programs.limit,
        all: args.programs.all,
    };
    let inputs: Vec<&Input> = base.iter().chain(&new).collect();
    let made = with_progress(&inputs, || diff(&base, &new, &options))?;
    if args.explain_short {
        out.print(|out| Ok(made.write_short(out)?))?;
    } else {
        let style = TextStyle { all_notes: args.notes, ..style(&io::stdout()) };
        args.form.show(&made, style, out)?;
    }
    say_verdicts(&made);
    if made.failed() > 0 || args.strict && made.undecided() > 0 {
        return Ok(Outcome::ConditionMet);
    }
    Ok(Outcome::Done)
}

/// Prints failed and undecided conditions on standard error, for build logs that keep only standard error.
fn say_verdicts(made: &Diff) {
    for judgment in &made.gate {
        let word = match &judgment.verdict {
            Verdict::Fail => "failed",
            Verdict::Undecided { .. } => "undecided",
            _ => continue,
        };
        let of = judgment.program.as_ref().map_or_else(String::new, |program| format!(" ({program})"));
        say(&format!("bprec: {word}: {}{of}: {}", judgment.condition, judgment.evidence()));
    }
}
