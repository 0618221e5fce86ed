//! `bprec top`.

mod live;
#[cfg(feature = "tui")]
mod watch;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bprec_record::{Budget, Counters, Exact, Options, Rate, Target};
use bprec_report::{Options as Query, ProgFilter, Redactor, Sort, TextStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Outcome;
use crate::args::{OUTPUT, RUNNING, SELECTION};
use crate::opening::RedactArgs;
use crate::record::values::seconds;
use crate::record::{COUNTERS, budget, notify, show};
#[cfg(feature = "tui")]
use crate::screen::Terminal;
use crate::terminal::ColorArgs;
use live::Live;

/// Show what BPF programs cost while they run.
///
/// Samples all CPUs and reads the kernel's run statistics; attaches to no program unless --exact is given.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Length of an interval: seconds, or 500ms.
    #[arg(short = 'd', long, visible_alias = "delay", value_name = "SECONDS", default_value = "1", value_parser = seconds, help_heading = RUNNING)]
    interval: Duration,

    /// Stop after N intervals.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = RUNNING)]
    iterations: Option<u64>,

    /// Show one interval, as -n 1.
    #[arg(long, conflicts_with = "iterations", help_heading = RUNNING)]
    once: bool,

    /// Print one table per interval. Without -b, --json, -n or --once, top is interactive on a terminal (docs/top.md).
    #[arg(short = 'b', long, help_heading = OUTPUT)]
    batch: bool,

    /// Print one line of JSON per interval (docs/top.md).
    #[arg(long, help_heading = OUTPUT)]
    json: bool,

    #[command(flatten)]
    color: ColorArgs,

    #[command(flatten)]
    redact: RedactArgs,

    /// Show only these programs: a name (with * and ?), an id or a tag.
    #[arg(long, value_name = "PROG", value_delimiter = ',', help_heading = SELECTION)]
    prog: Vec<ProgFilter>,

    /// Sort rows by cost, samples, self, helper, entry, total, runs, ns/run, cpu, misses, id, name or type.
    #[arg(short, long, value_name = "COLUMN", default_value_t = Sort::Cpu, help_heading = OUTPUT)]
    sort: Sort,

    /// Show at most N programs.
    #[arg(long, value_name = "N", help_heading = OUTPUT)]
    limit: Option<usize>,

    /// Also show programs without samples and runs.
    #[arg(long, help_heading = OUTPUT)]
    all: bool,

    /// Event to sample. With the default, costs are shares of CPU time.
    #[arg(short, long, value_name = "EVENT", default_value = "cpu-clock", help_heading = SELECTION)]
    event: String,

    /// Samples per second per CPU.
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u64).range(1..), help_heading = SELECTION)]
    freq: u64,

    /// Count events in runs of these programs (names with * and ?), or of all: attaches counting programs to them.
    #[arg(long, value_name = "PROG,…", num_args = 0..=1, require_equals = true, default_missing_value = "", help_heading = COUNTERS)]
    exact: Option<String>,

    /// CPU limit for counting program runs, in percent of the machine; beyond it, runs are estimated. 100 counts all runs
    /// [default: 2; exact counters 0.5].
    #[arg(long, value_name = "PERCENT", value_parser = budget, help_heading = COUNTERS)]
    budget: Option<Budget>,

    /// Keep at least the last SECONDS (or 5m), to be saved as a recording.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, help_heading = RUNNING)]
    keep: Duration,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    show(true, false);
    let interval = within("-d", args.interval, 0.1)?;
    // One file has an interval at least.
    let keep = within("--keep", args.keep, 1.0)?.max(interval * 3);
    let asked = !args.prog.is_empty();
    let query = Query {
        programs: args.prog.clone(),
        sort: args.sort,
        limit: args.limit,
        all: args.all,
        // One thread reads so little sooner.
        threads: Some(1),
        ..Query::default()
    };
    #[cfg(feature = "tui")]
    if !(args.batch || args.json || args.once || args.iterations.is_some()) && io::stdout().is_terminal() {
        let options = recording(&args, interval)?;
        let terminal = Terminal::take("the screen of bprec top (there is --batch)")?;
        watch::watch(terminal, options, keep, query, args.redact.redact)?;
        return Ok(Outcome::Done);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over)).context("handle signals")?;
    }
    let mut live = Live::start(recording(&args, interval)?, keep, args.redact.redact.map(Redactor::new))?;
    let mut out = BufWriter::new(io::stdout());
    let width = match io::stdout().is_terminal() {
        true => terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0)),
        false => usize::MAX,
    };
    let style = TextStyle { width, paint: args.color.paint(&io::stdout()) };
    let iterations = if args.once { Some(1) } else { args.iterations };
    let (mut shown, mut has_matched) = (0, !asked);
    while iterations.is_none_or(|iterations| shown < iterations) {
        let Some(interval) = live.next(&query, || is_over.load(Ordering::Relaxed))? else { break };
        match args.json {
            true => interval.write_json_line(&mut out)?,
            false => interval.write_table(&mut out, style)?,
        }
        out.flush()?;
        shown += 1;
        has_matched |= interval.report.matched_programs() > 0;
    }
    live.end()?;
    Ok(if has_matched { Outcome::Done } else { Outcome::NothingMatched })
}

/// Options of the recording.
fn recording(args: &Args, interval: Duration) -> anyhow::Result<Options> {
    let budget = args.budget.unwrap_or(Budget::Usual);
    let counters = match &args.exact {
        None => Counters::Stats,
        Some(pattern) => {
            let pattern = (!pattern.is_empty()).then(|| pattern.clone());
            Counters::Exact(Exact { pattern, budget, ..Exact::default() })
        }
    };
    Ok(Options {
        target: Target::System,
        events: vec![args.event.clone()],
        rate: Rate::Frequency(args.freq),
        // User space is shown by names of tasks alone.
        user_symbols: false,
        early_symbols: true,
        counters,
        budget,
        interval,
        argv: std::env::args_os().collect(),
        notify,
        ..Options::default()
    })
}

/// A time that is neither too short nor longer than a day.
fn within(option: &str, time: Duration, least: f64) -> anyhow::Result<Duration> {
    match time.as_secs_f64() {
        seconds if seconds >= least && seconds <= 86_400.0 => Ok(time),
        seconds => bail!("{option} {seconds}: expected {least} to 86400 seconds"),
    }
}
