//! `bprec top`.

mod live;
#[cfg(feature = "tui")]
mod watch;

use std::fs::Permissions;
#[cfg(feature = "tui")]
use std::io::IsTerminal;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bprec_record::{Budget, Counters, Exact, Level, Options, Rate, Target};
use bprec_report::{FunctionFilter, Metrics, Options as Query, Redactor, Sort};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::{OUTPUT, ProgramArgs, RUNNING, SELECTION};
use crate::draft::directory;
use crate::opening::RedactArgs;
use crate::record::{BudgetArgs, COUNTERS, frequency};
#[cfg(feature = "tui")]
use crate::screen::Terminal;
use crate::terminal::{is_verbose, style};
use crate::values::{display_interval, kept_time, positive};
use crate::view::FormatArgs;
use crate::{Outcome, say};
use live::Live;

/// Show what BPF programs cost while they run.
///
/// Samples all CPUs and reads the kernel's run statistics; attaches to programs only with --exact.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Length of an interval: seconds, or 500ms.
    #[arg(short = 'd', long, visible_alias = "delay", value_name = "SECONDS", default_value = "1", value_parser = display_interval, help_heading = RUNNING)]
    interval: Duration,

    /// Stop after N intervals.
    #[arg(short = 'n', long, value_name = "N", value_parser = positive, help_heading = RUNNING)]
    iterations: Option<u64>,

    /// Show one interval, as -n 1.
    #[arg(long, conflicts_with = "iterations", help_heading = RUNNING)]
    once: bool,

    /// Print one table per interval. Without -b, --json, --csv, --markdown, --openmetrics, -n or --once, top is interactive on a
    /// terminal (docs/top.md).
    #[arg(short = 'b', long, conflicts_with_all = ["json", "csv", "markdown"], help_heading = OUTPUT)]
    batch: bool,

    #[command(flatten)]
    format: FormatArgs,

    /// Write counters for Prometheus after each interval: to a file that is replaced, or to standard output (-) (docs/top.md).
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    openmetrics: Option<PathBuf>,

    #[command(flatten)]
    redact: RedactArgs,

    #[command(flatten)]
    programs: ProgramArgs,

    /// Sort rows by cost, samples, self, helper, entry, total, runs, ns/run, cpu, misses, id, name or type.
    #[arg(short, long, value_name = "COLUMN", default_value_t = Sort::Cpu, help_heading = OUTPUT)]
    sort: Sort,

    /// Event to sample. With the default, costs are shares of CPU time.
    #[arg(short, long, value_name = "EVENT", default_value = "cpu-clock", help_heading = SELECTION)]
    event: String,

    /// Samples per second per CPU, or `max`.
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value = "99", value_parser = frequency, help_heading = SELECTION)]
    freq: Rate,

    /// Count events in each run of these programs (names with * and ?), or of all programs. Attaches counting programs to them.
    #[arg(long, value_name = "PROG,…", num_args = 0..=1, value_delimiter = ',', help_heading = COUNTERS)]
    exact: Option<Vec<FunctionFilter>>,

    #[command(flatten)]
    budget: BudgetArgs,

    /// Keep samples of at least the last SECONDS (or 5m); the key w saves them as a recording.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = kept_time, help_heading = RUNNING)]
    keep: Duration,
}

/// Refuses two outputs on standard output, and `--all` if the output includes all programs anyway.
pub(crate) fn refuse_idle(args: &Args) -> anyhow::Result<()> {
    let Some(path) = &args.openmetrics else { return Ok(()) };
    if path.as_os_str() == "-"
        && let Some(other) = args.format.given().or(args.batch.then_some("--batch"))
    {
        bail!("--openmetrics - with {other}: both would write to standard output; write the counters to a file");
    }
    if args.programs.all && !args.batch {
        bail!("--all with --openmetrics: the counters already include all programs; omit --all");
    }
    Ok(())
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    refuse_idle(&args)?;
    // A file is at least three intervals long, so that it holds whole intervals.
    let keep = args.keep.max(args.interval * 3);
    let asked = !args.programs.select.prog.is_empty();
    let options = recording(&args);
    // An interval has too few samples for a second thread to pay off.
    let query = Query { sort: args.sort, threads: Some(1), ..args.programs.into() };
    #[cfg(feature = "tui")]
    if io::stdout().is_terminal()
        && !(args.batch
            || args.format.given().is_some()
            || args.once
            || args.iterations.is_some()
            || args.openmetrics.is_some())
    {
        let terminal = Terminal::take("the screen of bprec top (use --batch without a terminal)")?;
        watch::watch(terminal, options, keep, query, args.redact.redact)?;
        return Ok(Outcome::Done);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over)).context("handle signals")?;
    }
    let mut live = Live::start(options, keep, args.redact.redact.map(Redactor::new))?;
    let mut metrics = args.openmetrics.map(|path| (path, Metrics::default()));
    live.has_ends_of_files = metrics.is_some();
    let has_tables = metrics.is_none() || args.batch;
    // Without tables, programs without samples are included. A rate in Prometheus leaves out the first value of a counter, so the counter must exist
    // before the first sample of its program.
    let query = Query { all: query.all || !has_tables, ..query };
    let mut out = BufWriter::new(io::stdout());
    let style = style(&io::stdout());
    let iterations = if args.once { Some(1) } else { args.iterations };
    let (mut shown, mut has_matched) = (0, !asked);
    while iterations.is_none_or(|iterations| shown < iterations) {
        let Some(interval) = live.next(&query, || is_over.load(Ordering::Relaxed))? else { break };
        if args.format.json {
            interval.write_json_line(&mut out)?;
        } else if args.format.csv {
            interval.write_csv(shown == 0, &mut out)?;
        } else if args.format.markdown {
            interval.write_markdown(&mut out)?;
        } else if has_tables {
            interval.write_table(&mut out, style)?;
        }
        if let Some((path, metrics)) = &mut metrics {
            metrics.add(&interval);
            match path.as_os_str() == "-" {
                true => metrics.write(&mut out)?,
                false => replace(path, metrics)?,
            }
        }
        out.flush()?;
        shown += 1;
        has_matched |= interval.report.matched_programs() > 0;
    }
    live.end()?;
    Ok(if has_matched { Outcome::Done } else { Outcome::NothingMatched })
}

/// Replaces the file `path` by the current counters, in one step: a scraper reads the old or the new file, never a partial one.
fn replace(path: &Path, metrics: &Metrics) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(READABLE_BY_ALL))
            .tempfile_in(directory(path))?;
        let mut out = BufWriter::new(&mut file);
        metrics.write(&mut out)?;
        out.flush()?;
        drop(out);
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("write {}", path.display()))
}

/// Mode of the file of counters: the collector that reads it usually runs as another user.
const READABLE_BY_ALL: u32 = 0o644;

/// Converts the options into those of the recorder.
fn recording(args: &Args) -> Options {
    let budget = args.budget.budget.unwrap_or(Budget::Usual);
    let counters = match &args.exact {
        None => Counters::Stats,
        Some(functions) => Counters::Exact(Exact { functions: functions.clone(), budget, ..Exact::default() }),
    };
    Options {
        target: Target::System,
        events: vec![args.event.clone()],
        rate: args.freq,
        // `top` shows no symbols of user space, only names of tasks.
        user_symbols: false,
        early_symbols: true,
        counters,
        budget,
        interval: args.interval,
        argv: std::env::args_os().collect(),
        notify,
        ..Options::default()
    }
}

/// Prints warnings of the recorder. With `--verbose`, prints all its messages, which appear between the tables.
fn notify(level: Level, message: &str) {
    if level == Level::Warning || is_verbose() {
        say(&format!("bprec: {message}"));
    }
}

/// Functions that `--exact` names, as text; `None` without `--exact`.
#[cfg(test)]
pub(crate) fn counted(args: &Args) -> Option<String> {
    args.exact.as_ref().map(|functions| functions.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}
