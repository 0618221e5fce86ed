//! `bprec stat`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bprec_record::{Budget, Moment, StatOptions, StatTarget, Target, stat};
use bprec_report::model::StatSnapshot;
use bprec_report::{FunctionFilter, StatAccumulator, StatFormat, StatWriter, TextStyle};

use crate::args::{OUTPUT, RUNNING, SELECTION};
use crate::draft::sync_directory;
use crate::record::{BudgetArgs, COUNTERS, MeasureArgs, exit_code, notify};
use crate::terminal::{UNBOUNDED, style};
use crate::values::interval;
use crate::{Outcome, say};

/// Count runs of BPF programs, or with --bpf-counters events of tasks, CPUs and cgroups, without recording.
///
/// Without options, counts all BPF programs until Ctrl-C or until the command ends. The table goes to standard output, or with a command
/// to standard error. To count events without BPF, use perf stat.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Count these BPF programs: names (with * and ?), ids, tags, or all; PROG:FUNC counts one function. Can be repeated. -a has no effect.
    #[arg(short, long = "bpf-prog", visible_alias = "prog", value_name = "PROG,…", value_delimiter = ',', help_heading = SELECTION)]
    bpf_prog: Vec<FunctionFilter>,

    #[command(flatten)]
    measure: MeasureArgs,

    /// Count all events in each of these cgroups and their descendants, as perf's --for-each-cgroup, with --bpf-counters; paths
    /// as in /proc/PID/cgroup.
    #[arg(short = 'G', long, visible_alias = "for-each-cgroup", value_name = "PATH,…", value_delimiter = ',',
        conflicts_with_all = ["all_cpus", "cpu", "pid", "tid"], help_heading = SELECTION)]
    cgroup: Vec<PathBuf>,

    /// Event to count, as for bprec record; {a,b} are counted together or not at all. Default for programs:
    /// {cycles,instructions} in their runs; otherwise: cpu-clock,cycles,instructions.
    #[arg(short, long = "event", value_name = "EVENT", help_heading = COUNTERS)]
    event: Vec<String>,

    /// Print counts every MS milliseconds (or 1s), and totals at the end.
    #[arg(short = 'I', long = "interval-print", value_name = "MS", value_parser = interval, help_heading = OUTPUT)]
    interval: Option<Duration>,

    /// Print one line per value, fields separated by SEP (docs/stat.md).
    #[arg(short = 'x', long = "field-separator", value_name = "SEP", conflicts_with = "json", help_heading = OUTPUT)]
    separator: Option<String>,

    /// Print one JSON object per line (docs/stat.md).
    #[arg(short, long = "json-output", visible_alias = "json", help_heading = OUTPUT)]
    json: bool,

    /// Print CSV: as -x, below a line of field names.
    #[arg(long, conflicts_with_all = ["json", "separator"], help_heading = OUTPUT)]
    csv: bool,

    /// Print the tables as Markdown, for issues and pull requests.
    #[arg(long, conflicts_with_all = ["json", "separator", "csv"], help_heading = OUTPUT)]
    markdown: bool,

    /// Also count per CPU; programs need exact counters for this.
    #[arg(short = 'A', long = "no-aggr", help_heading = OUTPUT)]
    per_cpu: bool,

    /// Stop after MS milliseconds, as perf stat.
    #[arg(long, value_name = "MS", value_parser = interval, conflicts_with = "duration", help_heading = RUNNING)]
    timeout: Option<Duration>,

    /// Write to FILE; `-` is standard output.
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    output: Option<PathBuf>,

    #[command(flatten)]
    budget: BudgetArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    let (out, style) = output(args.output.as_deref(), args.measure.command.is_some())?;
    let mut out = BufWriter::new(out);
    let format = match (&args.separator, args.json) {
        (Some(separator), _) if separator.is_empty() => bail!("-x: a separator cannot be empty"),
        (Some(separator), _) => StatFormat::Csv(if separator == "\\t" { "\t".to_owned() } else { separator.clone() }),
        (None, true) => StatFormat::Json,
        (None, false) if args.csv => StatFormat::NamedCsv,
        (None, false) if args.markdown => StatFormat::Markdown,
        (None, false) => StatFormat::Text(style),
    };
    let mut writer = StatWriter::new(format, args.interval.is_some(), args.per_cpu);
    let mut meter = StatAccumulator::new(!args.bpf_prog.is_empty());
    let asked = args.bpf_prog.iter().map(FunctionFilter::to_string).collect::<Vec<_>>().join(",");
    let output = args.output.clone();
    let options = options(args)?;
    let mut total: Option<StatSnapshot> = None;
    let counts = stat(&options, |readings| {
        for program in readings.programs {
            meter.name(program.id, program.load_time_ns, program.name, program.prog_type);
        }
        readings.states.into_iter().for_each(|state| meter.add(state));
        match readings.moment {
            Moment::Between if options.interval.is_none() => meter.skip(),
            Moment::Between => {}
            Moment::Interval | Moment::End => {
                if options.interval.is_some() {
                    writer.interval(&meter.interval(readings.time_ns), &mut out)?;
                    out.flush()?;
                }
                if readings.moment == Moment::End {
                    total = Some(meter.total(readings.time_ns));
                }
            }
        }
        anyhow::Ok(())
    })?;
    if let Some(total) = &total {
        writer.total(total, counts.command_time, &mut out)?;
        out.flush()?;
    }
    if let Some(path) = output.as_deref().filter(|path| path.is_file()) {
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.with_context(|| format!("sync {}", path.display()))?;
        sync_directory(path)?;
    }
    if !counts.matched {
        let what = if asked.is_empty() { " to count".to_owned() } else { format!(" matches {asked}") };
        say(&format!("bprec: no BPF program{what}"));
    }
    match counts.command {
        Some(status) if !status.success() => {
            if let Some(signal) = status.signal() {
                let name =
                    options.command.iter().flatten().next().map(|name| name.to_string_lossy()).unwrap_or_default();
                say(&format!("bprec: {name} was killed by signal {signal}"));
            }
            Ok(Outcome::Command(exit_code(status)))
        }
        _ if !counts.matched => Ok(Outcome::NothingMatched),
        _ => Ok(Outcome::Done),
    }
}

/// Opens the output, and chooses the style of its tables.
fn output(path: Option<&Path>, has_command: bool) -> anyhow::Result<(Box<dyn Write>, TextStyle)> {
    Ok(match path {
        Some(path) if path != Path::new("-") => {
            let file = bprec_host::create_output(path).with_context(|| format!("open {}", path.display()))?;
            let style = TextStyle { width: UNBOUNDED, ..style(&file) };
            (Box::new(file), style)
        }
        None if has_command => (Box::new(io::stderr()), style(&io::stderr())),
        _ => (Box::new(io::stdout()), style(&io::stdout())),
    })
}

fn options(args: Args) -> anyhow::Result<StatOptions> {
    refuse_other_targets(&args)?;
    // Only -b and -e attach counting programs.
    let exact = !args.bpf_prog.is_empty() || !args.event.is_empty();
    let target = if !args.bpf_prog.is_empty() {
        let is_all = args.bpf_prog.iter().any(|filter| filter.to_string() == "all");
        StatTarget::Programs(if is_all { Vec::new() } else { args.bpf_prog })
    } else if !args.cgroup.is_empty() {
        StatTarget::Cgroups(args.cgroup)
    } else if !args.measure.bpf_counters {
        StatTarget::Programs(Vec::new())
    } else {
        StatTarget::Events(args.measure.target())
    };
    let by_task = !matches!(target, StatTarget::Programs(_) | StatTarget::Events(Target::System | Target::Cpus(_)));
    if args.per_cpu && by_task {
        bail!("-A: events of tasks and cgroups are not counted per CPU; use -a -A or -C");
    }
    if args.per_cpu && !exact && matches!(target, StatTarget::Programs(_)) {
        bail!(
            "-A: the kernel's run statistics do not count per CPU; add -b PROG or -e EVENT, which use exact counters"
        );
    }
    if args.budget.budget.is_some() && args.measure.bpf_counters {
        bail!(
            "--budget limits the counting of program runs, and --bpf-counters counts events instead; omit one of them"
        );
    }
    Ok(StatOptions {
        target,
        events: args.event,
        command: args.measure.command,
        duration: args.measure.duration.or(args.timeout),
        interval: args.interval,
        per_cpu: args.per_cpu,
        attr_map: args.measure.bpf_attr_map,
        exact,
        budget: args.budget.budget.unwrap_or(Budget::Usual),
        notify,
    })
}

/// With `-b`, refuses `-C`, `-p`, `-t`, `-G` and `--bpf-counters`. Without `-b` and `--bpf-counters`, refuses targets and events that need
/// `--bpf-counters`.
fn refuse_other_targets(args: &Args) -> anyhow::Result<()> {
    let (target, has_programs) = (&args.measure, !args.bpf_prog.is_empty());
    let given = [
        ("-a", target.all_cpus && !has_programs),
        ("-C", target.cpu.is_some()),
        ("-p", !target.pid.is_empty()),
        ("-t", !target.tid.is_empty()),
        ("-G", !args.cgroup.is_empty()),
        ("-e with a command", !args.event.is_empty() && args.measure.command.is_some() && !has_programs),
        ("--bpf-counters", args.measure.bpf_counters && has_programs),
    ];
    let Some((other, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    if has_programs {
        let advice = match other {
            "-C" => "-A shows counts per CPU",
            "--bpf-counters" => "Omit -b to count events of tasks, CPUs and cgroups",
            _ => {
                "Omit -b to count events of tasks; bprec record -a and bprec report --by comm show for which tasks programs run"
            }
        };
        bail!("-b with {other}: a BPF program is counted on all CPUs and for all tasks. {advice}");
    }
    if !args.measure.bpf_counters {
        let perf = if other == "-e with a command" { "-e" } else { other };
        bail!(
            "{other}: bprec stat counts BPF programs (-b PROG, or -b all). For events of tasks, CPUs and cgroups add --bpf-counters, \
             or use perf stat {perf}, which counts them without BPF"
        );
    }
    Ok(())
}

/// Settings of the recorder and the form of the output, as text.
#[cfg(test)]
pub(crate) fn settings(args: Args) -> anyhow::Result<String> {
    let form = (args.separator.clone(), args.json, args.csv, args.markdown, args.output.clone());
    Ok(format!("{:?} {form:?}", options(args)?))
}
