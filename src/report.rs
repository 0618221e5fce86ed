//! `bprec report`.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::bail;
use bprec_report::{
    By, Document, Header, Input, MapFilter, MapsForm, MapsOptions, MapsSummary, Options, Payer, Session, Sort,
    TableColumns, TableStyle, TextStyle,
};

use crate::args::{OUTPUT, PartArgs, ProgramArgs, SELECTION, VIEWS};
use crate::opening::{ReadArgs, Redacted};
use crate::pager::Output;
use crate::progress::with_progress;
use crate::sandbox::Purpose;
#[cfg(all(feature = "tui", unix))]
use crate::screen::{Terminal, browse_recording};
use crate::terminal::{UNBOUNDED, style};
use crate::values::{percent, time_with_unit};
use crate::view::FormArgs;
use crate::{Outcome, found};

/// Show what each BPF program cost.
///
/// Needs only the recording: no root, no network, nothing from the local machine.
#[derive(clap::Args)]
#[command(mut_arg("limit", |arg| arg.help("Show at most N programs, N parts of each program, and N entries of each map")))]
pub(crate) struct Args {
    /// Show one row per BPF program; the default.
    #[arg(long, conflicts_with_all = OTHER_VIEWS, help_heading = VIEWS)]
    by_prog: bool,

    /// Show counters per interval and in total: runs, time per run, and events if counted.
    #[arg(long, group = VIEW, conflicts_with_all = ["cpu", "comms", "event"], help_heading = VIEWS)]
    counters: bool,

    /// Show each program's cost over time, as bars of this length (100ms, 1s) or about sixty bars.
    #[arg(
        long,
        value_name = "LENGTH",
        require_equals = true,
        value_parser = time_with_unit,
        group = VIEW,
        conflicts_with_all = ["all", "notes"],
        help_heading = VIEWS
    )]
    over_time: Option<Option<Duration>>,

    /// Show the cost of each source line, over all programs: self, and the helpers it called.
    #[arg(long, group = VIEW, conflicts_with_all = ["all", "notes"], help_heading = VIEWS)]
    lines: bool,

    /// Split each program's cost by func, comm, pid, cpu, cgroup, container or helper; or show one row per owner, name, type or
    /// hook.
    #[arg(long, value_name = "WHAT", conflicts_with_all = OTHER_VIEWS, help_heading = VIEWS)]
    by: Option<By>,

    /// Show who pays for BPF programs: cost by comm, pid, cgroup, container, cpu or several of these [default: comm].
    #[arg(
        long,
        help_heading = VIEWS,
        value_name = "KEYS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "comm",
        value_delimiter = ',',
        group = VIEW,
        conflicts_with = "all"
    )]
    payers: Vec<Payer>,

    /// Show what each owner of programs costs the machine: its own tasks, its programs in other tasks, and the work that its programs cause
    /// elsewhere. With OWNER (with * and ?), also shows the programs of the owner (docs/bill.md).
    #[arg(
        long,
        value_name = "OWNER",
        require_equals = true,
        group = VIEW,
        conflicts_with_all = ["all", "prog"],
        help_heading = VIEWS
    )]
    bill: Option<Option<String>>,

    /// Predict the CPU time of the machine and of each payer without these programs (a name with * and ?, an id or a tag), or without the programs
    /// and tasks of an owner (as for --bill). --payers=KEYS chooses the payers (docs/bill.md).
    #[arg(
        long,
        value_name = "PROG|OWNER",
        value_delimiter = ',',
        conflicts_with_all = WITHOUT_CONFLICTS,
        conflicts_with = "all",
        help_heading = VIEWS
    )]
    without: Vec<String>,

    /// With --without: show the CPU time per operation, for the operations that this event counts, such as a tracepoint of system calls.
    #[arg(long, value_name = "EVENT", requires = "without", help_heading = VIEWS)]
    per: Option<String>,

    /// Show where cost can be saved, how much, and how (docs/advice.md).
    #[arg(long, help_heading = VIEWS, group = VIEW, conflicts_with_all = ["all", "limit", "notes"])]
    advise: bool,

    /// Show each program's cost as a tree: its functions, the helpers and kfuncs they called, and all code below those.
    #[arg(long, help_heading = VIEWS, group = VIEW, conflicts_with = "all")]
    tree: bool,

    /// Browse interactively: programs, their functions, lines and instructions, and who pays (docs/tui.md).
    #[arg(long, help_heading = VIEWS, group = VIEW, conflicts_with_all = ["header", "wide", "json", "csv", "markdown", "notes"], hide = !HAS_SCREENS)]
    tui: bool,

    #[command(flatten)]
    programs: ProgramArgs,

    /// Sort rows by cost, samples, self, helper, entry, total, runs, ns/run, cpu, misses, id, name or type.
    #[arg(
        short,
        long,
        value_name = "COLUMN",
        default_value_t = Sort::default(),
        conflicts_with_all = UNSORTED_VIEWS,
        help_heading = OUTPUT
    )]
    sort: Sort,

    /// Hide programs below this percentage of all samples; with --tree, nodes below this percentage of their program's cost
    /// [default with --tree: 0.5].
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = OUTPUT, conflicts_with_all = UNSORTED_VIEWS)]
    percent_limit: Option<f64>,

    #[command(flatten)]
    part: PartArgs,

    /// Show only these events, named with or without their terms (/period=100/).
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', help_heading = SELECTION)]
    event: Vec<String>,

    /// With --tui: do not demangle names of user functions (Rust, C++) in flame graphs.
    #[arg(long, requires = "tui", help_heading = OUTPUT, hide = !HAS_SCREENS)]
    no_demangle: bool,

    /// Show only these columns of the program table, in this order: program,%machine,ns/run. A leading + adds the columns of LIST to
    /// those that fit: +spark draws the samples of each program over time.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = OTHER_VIEWS, conflicts_with_all = ["json", "csv"], help_heading = OUTPUT)]
    columns: Vec<String>,

    /// Show all columns. By default, shows the columns that fit into the terminal; for a file or pipe, into $COLUMNS or 160 characters.
    #[arg(short = 'W', long, conflicts_with_all = ["json", "csv", "markdown"], help_heading = OUTPUT)]
    wide: bool,

    /// Explain columns and marks below the table. This is the default on a terminal (docs/table.md).
    #[arg(long, conflicts_with_all = OTHER_VIEWS, conflicts_with_all = ["json", "csv"], help_heading = OUTPUT)]
    legend: bool,

    /// Show all notes below the table. By default, the five worst.
    #[arg(long, conflicts_with_all = ["json", "csv"], help_heading = OUTPUT)]
    notes: bool,

    /// Hide TOTAL%, which includes the programs that a program tail-calls or triggers, as perf's Children includes callees.
    #[arg(long, conflicts_with_all = OTHER_VIEWS, conflicts_with_all = ["json", "csv"], help_heading = OUTPUT)]
    no_children: bool,

    #[command(flatten)]
    form: FormArgs,

    /// Show maps instead of costs: type, sizes, memory, users, keys and values as C, and contents if recorded (bprec record
    /// --dump-map). All maps, or those with this id or name (with * and ?).
    #[arg(
        long,
        value_name = "ID|NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "*",
        group = VIEW,
        conflicts_with_all = ["time", "cpu", "comms", "event", "all", "wide", "notes"],
        help_heading = VIEWS
    )]
    maps: Vec<MapFilter>,

    /// Show the header (machine and recording) before the table; in JSON as the member "header".
    #[arg(long, conflicts_with_all = ["csv", "markdown"], help_heading = VIEWS)]
    header: bool,

    /// Show only the header.
    #[arg(long, group = VIEW, conflicts_with_all = ["header", "json", "csv", "markdown", "prog", "time", "cpu", "comms", "event", "limit", "all", "wide", "notes"],
        help_heading = VIEWS)]
    header_only: bool,

    #[command(flatten)]
    read: ReadArgs,
}

/// Group of the views other than the program table; clap accepts at most one of these views.
const VIEW: &str = "view";
/// Members of the group [`VIEW`], and `--without`. Conflicts are declared with each member, because an error about a conflict then names the option;
/// an error about the group would list all members.
const OTHER_VIEWS: [&str; 11] =
    ["counters", "over_time", "lines", "payers", "bill", "without", "advise", "tree", "maps", "header_only", "tui"];
/// Views that accept neither `--sort` nor `--percent-limit`.
const UNSORTED_VIEWS: [&str; 9] =
    ["counters", "over_time", "lines", "payers", "bill", "without", "advise", "maps", "header_only"];
/// Views and options that `--without` excludes. `--without` is not in the group [`VIEW`], because `--payers` chooses the payers of its table.
const WITHOUT_CONFLICTS: [&str; 10] =
    ["counters", "over_time", "lines", "bill", "advise", "tree", "maps", "header_only", "tui", "prog"];
/// True if this build has interactive screens.
const HAS_SCREENS: bool = cfg!(all(feature = "tui", unix));

/// Minimum width of a terminal, in columns, for bars in the rows.
const BARS_FROM: usize = 120;

/// Message if a view of samples has no sample to show.
const NO_SAMPLE: &str = "bprec: no sample in a BPF program matches the options";
/// Message if `--cpu` and `--comms` leave no sample.
const NO_SUCH_SAMPLE: &str =
    "bprec: no sample in the recording matches the options; --by cpu lists its CPUs, and --by comm its tasks";
/// Message of `--without` for a recording without samples.
const NO_PREDICTION: &str = "bprec: the recording has no samples, so there is no prediction";
/// Message if `--bill` finds no owner.
const NO_OWNER: &str = "bprec: no owner of a BPF program matches --bill; --bill without a name lists all owners";
/// Message of `--bill` for a recording without programs.
const NO_PROGRAM: &str = "bprec: the recording has no BPF program, so there is no owner to show";
/// Message if `--counters` finds no counters.
const NO_COUNTERS: &str =
    "bprec: the recording has no counters of a program that matches --prog; --all without --prog lists programs";

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    if args.tui && !HAS_SCREENS {
        bail!("--tui: this build of bprec has no interactive screens");
    }
    // Must run before the sandbox, which forbids the calls that set up the terminal.
    #[cfg(all(feature = "tui", unix))]
    let terminal = args.tui.then(|| Terminal::take("--tui")).transpose()?;
    let mut out = args.form.pager.output();
    let (input, time, redacted) = args.read.open(if args.tui { Purpose::Browse } else { Purpose::Print })?;
    // With --tui, the problems are printed after the screen has closed.
    let mut redacted = Some(redacted);
    if !args.tui {
        redacted.take().into_iter().for_each(Redacted::print);
    }
    let shown = style(&io::stdout());
    let width = if args.wide { UNBOUNDED } else { shown.width };
    let style = TextStyle { all_notes: args.notes, width, ..shown };
    let mut header = (args.header || args.header_only).then(|| bprec_report::header(&input)).transpose()?;
    if let Some(header) = header.as_ref().filter(|_| !args.form.format.json) {
        out.write_all(header.to_string().as_bytes())?;
    }
    if args.header_only {
        out.print(|_| Ok(()))?;
        return Ok(Outcome::Done);
    }
    if !args.maps.is_empty() {
        if args.programs.limit.is_some() && (args.form.format.csv || args.form.format.markdown) {
            bail!("the argument '--limit <N>' cannot be used with '--maps' and a table, which has no entries");
        }
        let options = MapsOptions {
            maps: args.maps,
            programs: args.programs.select.prog,
            limit: args.programs.limit,
            form: MapsForm::of(args.form.format.json, args.form.format.csv, args.form.format.markdown),
            header: header.take(),
            text: style,
        };
        let summary = out.print(|out| Ok(bprec_report::maps(&input, &options, out)?))?;
        let missing = match summary {
            Some(MapsSummary { programs: 0, recorded: 0, .. }) => "the recording has no BPF programs, and no maps",
            Some(MapsSummary { recorded: 0, .. }) => "the recording has no maps: its BPF programs use none",
            _ => "the recording has no such map; --maps lists all",
        };
        return Ok(found(summary.is_some_and(|maps| maps.written > 0), &format!("bprec: {missing}")));
    }
    let wanted = !args.programs.select.prog.is_empty();
    let options = Options {
        by: args.by,
        programs: args.programs.select.prog,
        sort: args.sort,
        events: args.event,
        limit: args.programs.limit,
        percent_limit: if args.tree { None } else { args.percent_limit },
        all: args.programs.all,
        threads: args.form.threads,
        keep_mangled: args.no_demangle,
        ..args.part.within(time).into()
    };
    #[cfg(all(feature = "tui", unix))]
    if let Some(terminal) = terminal {
        drop(out);
        let path = input.path();
        let title = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        browse_recording(terminal, input, title, Options { must_match: false, ..options })?;
        redacted.into_iter().for_each(Redacted::print);
        return Ok(Outcome::Done);
    }
    let view = Destination { form: &args.form, style, input: &input, header: header.as_ref() };
    if args.advise {
        return view.show(out, || Session::open(&input)?.advice(&options), |_| true, NO_SAMPLE);
    }
    if args.tree {
        let least = args.percent_limit.unwrap_or(bprec_report::TREE_PERCENT_LIMIT);
        let read = || Session::open(&input)?.trees(&options, least);
        return view.show(out, read, |it| it.events.iter().any(|event| !event.trees.is_empty()), NO_SAMPLE);
    }
    if !args.without.is_empty() {
        let read = || Session::open(&input)?.without(&options, &args.without, &args.payers, args.per.as_deref());
        return view.show(out, read, |it| !it.events.is_empty(), NO_PREDICTION);
    }
    if !args.payers.is_empty() {
        let read = || Session::open(&input)?.payers(&options, &args.payers);
        return view.show(out, read, |it| it.events.iter().any(|event| !event.rows.is_empty()), NO_SAMPLE);
    }
    if let Some(owner) = &args.bill {
        let bill = with_progress(&[&input], || Session::open(&input)?.bill(&options, owner.as_deref()))?;
        let has_owners = bill.events.iter().any(|event| !event.owners.is_empty());
        if owner.is_some() && !has_owners {
            return Ok(found(false, NO_OWNER));
        }
        return view.show(out, || Ok(bill), |_| has_owners, NO_PROGRAM);
    }
    if let Some(interval) = args.over_time {
        let interval_ns = interval.and_then(|interval| u64::try_from(interval.as_nanos()).ok());
        let read = || Session::open(&input)?.over_time(&options, interval_ns);
        return view.show(out, read, |it| it.events.iter().any(|event| !event.rows.is_empty()), NO_SAMPLE);
    }
    if args.lines {
        let read = || Session::open(&input)?.lines(&options);
        return view.show(out, read, |it| it.events.iter().any(|event| !event.rows.is_empty()), NO_SAMPLE);
    }
    if args.counters {
        let read = || bprec_report::counters(&input, &options);
        return view.show(out, read, |it| !wanted || !it.totals.is_empty(), NO_COUNTERS);
    }
    let table = TableStyle {
        columns: TableColumns::of(args.columns),
        hides_inclusive: args.no_children,
        bars: io::stdout().is_terminal() && style.width >= BARS_FROM,
        legend: args.legend || io::stdout().is_terminal(),
        width: style.width,
    };
    let mut session = None;
    let report = with_progress(&[&input], || {
        session.insert(Session::open_for(&input, &options)?).by_prog_lazily(&options, table)
    })?;
    let is_narrowed = options.cpus.is_some() || !options.comms.is_empty();
    if is_narrowed && !report.has_samples() {
        return Ok(found(false, NO_SUCH_SAMPLE));
    }
    args.form.show_under(header.as_ref(), &report, out, |out| args.form.write(&report, style, out))?;
    let path = input.path().display();
    let missing = format!("bprec: {path} has no BPF programs: perf report -i {path} shows where its samples are");
    Ok(found(wanted || report.matched_programs() > 0, &missing))
}

/// Form of a view, and its recording.
struct Destination<'a> {
    form: &'a FormArgs,
    style: TextStyle,
    input: &'a Input,
    header: Option<&'a Header>,
}

impl Destination<'_> {
    /// Prints the document that `read` returns. If `has_rows` returns false, then prints `missing` on standard error.
    fn show<D: Document>(
        &self,
        out: Output,
        read: impl FnOnce() -> bprec_report::Result<D>,
        has_rows: impl FnOnce(&D) -> bool,
        missing: &str,
    ) -> anyhow::Result<Outcome> {
        let report = with_progress(&[self.input], read)?;
        self.form.show_under(self.header, &report, out, |out| self.form.write(&report, self.style, out))?;
        Ok(found(has_rows(&report), missing))
    }
}
