//! `bprec report`.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use bprec_report::{By, CpuList, Input, MapFilter, MapsOptions, Options, ProgFilter, Session, Sort, TimeRange};

use crate::sandbox::{Sandbox, SandboxArgs};
use crate::{Outcome, say};

/// Show what each BPF program cost.
///
/// Reads the recording alone: no root, no network, nothing of the machine it runs on. A recording without BPF programs shows
/// its hottest symbols instead.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The recording; `-` is standard input. May be compressed with gzip.
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: PathBuf,

    /// One row per BPF program. This is what is shown without it, too.
    #[arg(long)]
    by_prog: bool,

    /// Counters from snapshot to snapshot, and altogether: runs and time per run, and events where they were counted.
    #[arg(long, conflicts_with_all = ["by", "by_prog", "sort", "cpu", "comm", "event", "maps"])]
    counters: bool,

    /// What each program cost in intervals of this length (100ms, 1s), as bars; without one, of a length that makes some sixty of them.
    #[arg(
        long,
        value_name = "LENGTH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_parser = interval,
        conflicts_with_all = ["by", "by_prog", "sort", "counters", "maps", "all"]
    )]
    over_time: Option<Interval>,

    /// Split each program's cost: func, comm, cpu, cgroup, helper. Or put programs together, one row for each owner, name, type or hook.
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,

    /// Only these programs: a name (with * and ?), an id or a tag.
    #[arg(long, value_name = "PROG", value_delimiter = ',')]
    prog: Vec<ProgFilter>,

    /// Order of the rows: cost, samples, self, helper, entry, total, runs, ns/run, misses, id, name, type.
    #[arg(short, long, value_name = "COLUMN", default_value_t = Sort::default())]
    sort: Sort,

    /// Only this part: START,STOP in seconds from the start (or of the recording's clock), or 10%-20%.
    #[arg(long, value_name = "RANGE", default_value = "", hide_default_value = true, value_parser = time_range, allow_hyphen_values = true)]
    time: TimeRange,

    /// Only these CPUs: 0,2-5.
    #[arg(short = 'C', long, value_name = "LIST")]
    cpu: Option<CpuList>,

    /// Only tasks of these names (with * and ?).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    comm: Vec<String>,

    /// Only these events.
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    event: Vec<String>,

    /// At most so many programs, and so many parts of each; of each map at most so many entries.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Programs without samples and runs, too.
    #[arg(long)]
    all: bool,

    /// As JSON (docs/json.md describes it).
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// As CSV.
    #[arg(long)]
    csv: bool,

    /// Maps instead of costs: type, sizes, memory, who uses them, keys and values as C, and what they held if that was
    /// recorded (bprec record --dump-map). All of them, or those with an id or a name (with * and ?).
    #[arg(
        long,
        value_name = "ID|NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "*",
        conflicts_with_all = ["by", "csv", "time", "cpu", "comm", "event"]
    )]
    maps: Vec<MapFilter>,

    /// What the recording says about its machine and itself, before the table.
    #[arg(long)]
    header: bool,

    /// Only that.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    header_only: bool,

    /// As text; it always is.
    #[arg(long, hide = true)]
    stdio: bool,

    /// Threads to read with; the report does not depend on it.
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<usize>,

    #[command(flatten)]
    sandbox: SandboxArgs,
}

/// Length of an interval, ns; `None`: one that suits the recording.
#[derive(Clone, Copy)]
struct Interval(Option<u64>);

fn interval(text: &str) -> Result<Interval, &'static str> {
    if text.is_empty() {
        return Ok(Interval(None));
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ns = match &text[digits.len()..] {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err("expected a time: 500us, 100ms, 1s"),
    };
    let length_ns = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ns));
    length_ns.filter(|ns| *ns > 0).map(|ns| Interval(Some(ns))).ok_or("expected a time: 500us, 100ms, 1s")
}

/// Columns of a table that goes to no terminal: enough for every row to be whole.
const UNBOUNDED_COLUMNS: usize = usize::MAX;

fn time_range(text: &str) -> Result<TimeRange, bprec_report::Error> {
    if text.is_empty() { Ok(TimeRange::All) } else { text.parse() }
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    let sandbox = Sandbox::enter(&args.sandbox, None);
    let input = Input::open(&args.input)?;
    sandbox.seal(false);
    let stdout = io::stdout();
    let width = if stdout.is_terminal() {
        terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0))
    } else {
        UNBOUNDED_COLUMNS
    };
    let mut out = BufWriter::new(stdout.lock());
    if args.header || args.header_only {
        out.write_all(bprec_report::header(&input)?.as_bytes())?;
        if args.header_only {
            out.flush()?;
            return Ok(Outcome::Done);
        }
    }
    if !args.maps.is_empty() {
        let options = MapsOptions { maps: args.maps, programs: args.prog, limit: args.limit, json: args.json };
        let shown = bprec_report::maps(&input, &options, &mut out)?;
        out.flush()?;
        if shown == 0 {
            say("bprec: the recording has no such map");
            return Ok(Outcome::NothingMatched);
        }
        return Ok(Outcome::Done);
    }
    let wanted = !args.prog.is_empty();
    let options = Options {
        by: args.by,
        programs: args.prog,
        sort: args.sort,
        time: args.time,
        cpus: args.cpu,
        comms: args.comm,
        events: args.event,
        limit: args.limit,
        all: args.all,
        threads: args.threads,
    };
    if let Some(Interval(interval_ns)) = args.over_time {
        let report = Session::open(&input)?.over_time(&options, interval_ns)?;
        if args.json {
            report.write_json(&mut out)?;
        } else if args.csv {
            report.write_csv(&mut out)?;
        } else {
            report.write_table(&mut out, width)?;
        }
        out.flush()?;
        if report.events.iter().all(|event| event.rows.is_empty()) {
            say("bprec: no sample in a BPF program in what is asked for");
            return Ok(Outcome::NothingMatched);
        }
        return Ok(Outcome::Done);
    }
    if args.counters {
        let report = bprec_report::counters(&input, &options)?;
        if args.json {
            report.write_json(&mut out)?;
        } else if args.csv {
            report.write_csv(&mut out)?;
        } else {
            report.write_table(&mut out, width)?;
        }
        out.flush()?;
        if wanted && report.totals.is_empty() {
            say("bprec: no counters of a program in the recording that matches --prog");
            return Ok(Outcome::NothingMatched);
        }
        return Ok(Outcome::Done);
    }
    let is_narrowed = options.cpus.is_some() || !options.comms.is_empty();
    let report = bprec_report::by_prog(&input, &options)?;
    if args.json {
        report.write_json(&mut out)?;
    } else if args.csv {
        report.write_csv(&mut out)?;
    } else {
        report.write_table(&mut out, width)?;
    }
    out.flush()?;
    if wanted && report.matched_programs() == 0 {
        say("bprec: no program in the recording matches --prog");
        return Ok(Outcome::NothingMatched);
    }
    if is_narrowed && report.events.iter().all(|event| event.samples.samples == 0) {
        say("bprec: the recording has no sample that --cpu and --comm let pass");
        return Ok(Outcome::NothingMatched);
    }
    Ok(Outcome::Done)
}
