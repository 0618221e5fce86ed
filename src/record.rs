//! `bprec record`.

mod summary;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bprec_record::{
    Aggregate, Bounds, Budget, Control, ControlEnd, CounterTarget, Counters, Delay, Exact, Level, ObjectFile, Options,
    Output, Rate, Recovered, RingSize, SamplerFields, SharedOptions, SwitchOutput, Target, UserChains, WantedMap,
};

use crate::{Outcome, say};
use summary::{bytes, closing_line};

/// Record what runs, and every BPF program, into a perf.data file.
///
/// Without a target or a command the whole machine is recorded until Ctrl-C.
#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    /// The whole machine (also without any target and command).
    #[arg(short = 'a', long = "all-cpus", conflicts_with_all = ["cpu", "pid", "tid"])]
    all_cpus: bool,

    /// The whole machine, on these CPUs only: 0,2-5.
    #[arg(short = 'C', long = "cpu", value_name = "LIST", conflicts_with_all = ["pid", "tid"])]
    cpu: Option<String>,

    /// These processes, all their threads and children. Where that would be more than 1024 descriptors for each event, their
    /// cgroup is recorded instead, if it holds nobody else.
    #[arg(short, long, value_name = "PID,…", value_delimiter = ',', conflicts_with = "tid")]
    pid: Vec<u32>,

    /// These threads.
    #[arg(short, long, value_name = "TID,…", value_delimiter = ',')]
    tid: Vec<u32>,

    /// What to sample on: cycles, cpu-clock, L1-dcache-load-misses, r1a8, cpu/event=0x3c/, sched:sched_switch, each with
    /// modifiers like :u :k :p [default: cycles, or cpu-clock where there is no PMU].
    #[arg(short, long = "event", value_name = "EVENT")]
    event: Vec<String>,

    /// Samples per second and CPU, or `max` [default: 4000].
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count")]
    freq: Option<String>,

    /// One sample per so many events.
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,

    /// User call chains too (by frame pointer). Kernel chains are always recorded: a program's cost is in them.
    #[arg(short = 'g')]
    chains: bool,

    /// User call chains: fp, by frame pointer as -g; dwarf, for perf to unwind, with SIZE bytes of the user stack in each
    /// sample (dwarf,16384) [default SIZE: 8192].
    #[arg(long = "call-graph", value_name = "fp|dwarf[,SIZE]", value_parser = call_graph, conflicts_with = "aggregate")]
    call_graph: Option<UserChains>,

    /// Beside the main samples, ones that a BPF program makes on an event of its own, with what it sees there: of
    /// ip,period,addr,task,cgroup,comm,value (of the event),regs=ax,sp,…,stack,ustack, listed or changed as in +addr,-comm
    /// [default: all but addr and regs; ustack with -g]. What falls into kprobe, tracepoint and perf_event programs it cannot
    /// see; the report says how much that is.
    #[arg(long = "bpf-sampler", value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    bpf_sampler: Option<String>,

    /// Samples per second and CPU that the BPF program makes [default: as often as the main event samples].
    #[arg(long = "bpf-sampler-freq", value_name = "HZ", requires = "bpf_sampler")]
    bpf_sampler_freq: Option<u64>,
    /// Run the perf_event programs of this BPF object, or the one named, on events of their own like the ones that are
    /// sampled. What they put out with bpf_perf_event_output is recorded.
    #[arg(long = "bpf-object", value_name = "FILE.o[:PROGRAM]")]
    bpf_object: Vec<String>,

    /// Size of each CPU's ring buffer, in pages or with a unit: 256, 4M.
    #[arg(short, long = "mmap-pages", value_name = "SIZE")]
    mmap_pages: Option<String>,

    /// Keep the newest samples only, in rings of the size -m, and write them into a file of their own on SIGUSR2, when --control says
    /// `snapshot`, where --switch-output says so, and at the end. Files are called NAME.TIME.
    #[arg(long, conflicts_with_all = ["aggregate", "bpf_sampler", "bpf_object"])]
    overwrite: bool,

    /// Where to; `-` is standard output (pipe format). An existing file is kept as NAME.old; one that was cut off as NAME.cut-off if
    /// there is a whole NAME.old.
    ///
    /// Without it, a pipe as standard output gets the recording.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Go on in another file when one has this size (4M, 1G), after this time (30s, 10m, 1h), or on SIGUSR2 (signal). Each file
    /// is complete by itself, and no sample is lost between two. A closed one is called NAME.TIME.
    #[arg(long, value_name = "SIZE|TIME|signal", num_args = 0..=1, require_equals = true, default_missing_value = "signal")]
    switch_output: Vec<String>,

    /// Keep N files of --switch-output: the oldest is deleted when there is one more.
    #[arg(long, alias = "switch-max-files", value_name = "N")]
    max_files: Option<NonZeroUsize>,

    /// Put what was written on the disk every so many seconds, by a thread of its own: what was recorded before stays when the power
    /// fails. off: at the end only, as it always is.
    #[arg(long, value_name = "SECONDS|off", default_value = "1", value_parser = sync)]
    sync: Sync,

    /// Compress records with zstd while recording; a higher LEVEL (to 22) makes a smaller file and takes longer [default LEVEL: 1].
    /// `-z3` is `-z=3`.
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=22))]
    pub(crate) compression_level: Option<u8>,

    /// Start sampling so many milliseconds after the command; -1: when --control says `enable`.
    #[arg(short = 'D', long, value_name = "MS", allow_negative_numbers = true)]
    delay: Option<i64>,

    /// Take commands from another process, one a line: `enable` and `disable` sampling, `snapshot` (end the file of
    /// --switch-output and go on in another), `stop`, `ping`, `evlist`. After each, `ack` and a newline go to ACK.
    #[arg(long, value_name = "fifo:CTL[,ACK]|fd:N[,N]", value_parser = control)]
    control: Option<Control>,

    /// Stop after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,

    /// Where counts of programs come from. `stats`: the kernel's run statistics, switched on while recording. `exact`: those,
    /// and programs put around each program (fsession, or fentry and fexit) that count its runs, their times and events in them;
    /// `exact=NAME,…` only around programs of these names or ids, `exact=NAME:FUNC` around a function of theirs, with * and
    /// ? as in a shell. That rewrites the first instruction of running programs. `off`: none [default: stats].
    #[arg(long, value_name = "stats|exact[=NAME]|off", value_parser = tier)]
    counters: Option<Counters>,

    /// Count events of what is recorded (the machine, -C, -p, -t, the command) as well, exactly: they are read at each context
    /// switch, once for all sessions on this machine, perf's `stat --bpf-counters` too. `bprec report --counters` shows them.
    #[arg(long)]
    bpf_counters: bool,

    /// What --bpf-counters counts beside that: these cgroups, each with all below it.
    #[arg(long, value_name = "CGROUP,…", value_delimiter = ',', requires = "bpf_counters")]
    counter_cgroup: Vec<PathBuf>,

    /// Where --bpf-counters finds other sessions, and they it [default: /sys/fs/bpf/perf_attr_map, which is perf's].
    #[arg(long, value_name = "PATH", requires = "bpf_counters")]
    bpf_attr_map: Option<PathBuf>,

    /// What exact counters count in each run, and --bpf-counters in each target, as for -e; {a,b} are counted together in
    /// runs, or neither [default: {cycles,instructions} where there is a PMU; --bpf-counters cpu-clock, too].
    #[arg(long = "counter-event", value_name = "EVENT")]
    counter_event: Vec<String>,

    /// What counting runs may take, in percent of the machine. Where programs run so often that run statistics would take more,
    /// these are on for a part of the time, and runs are estimates; exact counters, which have half of it, measure only some runs.
    /// 100 counts all runs [default: 0.5].
    #[arg(long, value_name = "PERCENT")]
    budget: Option<f64>,

    /// Milliseconds between two snapshots of the run counts.
    #[arg(short = 'I', long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
    interval: u64,

    /// Record what this map holds when sampling has ended: an id, or a name with * and ?, at most 15 characters as the
    /// kernel has it. May be given several times. `bprec report --maps` prints it.
    #[arg(long, value_name = "ID|NAME")]
    dump_map: Vec<WantedMap>,

    /// Of each such map at most so many entries.
    #[arg(long, value_name = "N", default_value_t = Bounds::default().entries)]
    dump_entries: u64,

    /// Of each such map at most so many bytes of keys and values: 512K, 64M.
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    dump_bytes: String,

    /// Count samples in the kernel, by thread, CPU and call chain, and write weighted ones at each interval (-I): a small
    /// file for always-on use. Blind to kprobe, tracepoint and perf_event programs; the report says how much that may be.
    #[arg(long, conflicts_with = "bpf_sampler")]
    aggregate: bool,

    /// What --aggregate tells samples in user mode apart by when there is no -g: the thread, or the address too.
    #[arg(long, value_name = "WHAT", default_value = "thread", value_parser = ["thread", "ip"])]
    aggregate_by: String,

    /// Stacks that --aggregate counts per interval and event; samples beyond go to one `[overflow]` row. 1.2 kB each, twice.
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    aggregate_entries: u32,

    /// Say only what went wrong, and what the recording lacks of what was asked for.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// Say what is done, and how.
    #[arg(short, long)]
    verbose: bool,

    /// Command to run; the recording ends with it.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Messages above this level are not shown. A plain function takes them, so that it is kept here.
static SHOWN: AtomicU8 = AtomicU8::new(Level::Notice as u8);

pub(crate) fn run(args: Args) -> anyhow::Result<Outcome> {
    show(args.quiet, args.verbose);
    let quiet = args.quiet;
    let options = options(args)?;
    let summary = bprec_record::record(&options)?;
    if !quiet {
        say(&closing_line(&summary));
    }
    Ok(match summary.command.map(exit_code) {
        None | Some(0) => Outcome::Done,
        Some(code) => Outcome::Command(code),
    })
}

/// The exit code that stands for how a command ended, as shells have it: 128 and the signal that killed it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Where to. As with perf, a pipe as standard output is where the recording goes when nothing is said.
fn output(asked: Option<PathBuf>) -> anyhow::Result<Output> {
    match asked {
        Some(path) if path.as_os_str() != "-" => Ok(Output::File(path)),
        Some(_) if io::stdout().is_terminal() => {
            bail!("-o -: standard output is a terminal; give it a pipe or a file, or -o FILE")
        }
        Some(_) => Ok(Output::Stdout),
        None if is_pipe(&io::stdout()) => Ok(Output::Stdout),
        None => Ok(Output::File(PathBuf::from("perf.data"))),
    }
}

fn is_pipe(of: &impl AsFd) -> bool {
    let file = of.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|about| about.file_type().is_fifo())
}

fn options(args: Args) -> anyhow::Result<Options> {
    let command = (!args.command.is_empty()).then_some(args.command);
    let target = if let Some(list) = args.cpu {
        Target::Cpus(cpu_list(&list).with_context(|| format!("-C {list}: expected a list like 0,2-5"))?)
    } else if !args.pid.is_empty() {
        Target::Processes(args.pid)
    } else if !args.tid.is_empty() {
        Target::Threads(args.tid)
    } else if args.all_cpus || command.is_none() {
        Target::System
    } else {
        Target::Command
    };
    let rate = match (args.freq.as_deref(), args.count) {
        (Some("max"), _) => Rate::MaxFrequency,
        (Some(hz), _) => match hz.parse() {
            Ok(hz) if hz > 0 => Rate::Frequency(hz),
            _ => bail!("-F {hz}: expected samples per second, or max"),
        },
        (None, Some(0)) => bail!("-c 0: expected a number of events"),
        (None, Some(period)) => Rate::Period(period),
        (None, None) => Rate::Default,
    };
    if args.bpf_sampler_freq == Some(0) {
        bail!("--bpf-sampler-freq 0: expected samples per second");
    }
    let ring = match args.mmap_pages {
        None => RingSize::Default,
        Some(size) => {
            let ring =
                ring_size(&size).with_context(|| format!("-m {size}: expected pages, or bytes with B, K, M or G"))?;
            if !ring.is_possible() {
                bail!("-m {size}: a ring has at most 1 GiB, and the rings of all CPUs at most half of the memory");
            }
            ring
        }
    };
    let dump_bytes = match ring_size(&args.dump_bytes) {
        Some(RingSize::Bytes(bytes)) => bytes,
        Some(RingSize::Pages(bytes)) => bytes,
        _ => bail!("--dump-bytes {}: expected bytes, or a number with K, M or G", args.dump_bytes),
    };
    let duration = match args.duration {
        None => None,
        Some(seconds) => Some(
            Duration::try_from_secs_f64(seconds).with_context(|| format!("--duration {seconds}: expected seconds"))?,
        ),
    };
    let default = match args.counter_event.is_empty() || args.bpf_counters {
        true => Counters::Stats,
        // Of programs, only exact counters count events.
        false => Counters::Exact(Exact::default()),
    };
    let counters = match args.counters.unwrap_or(default) {
        Counters::Exact(exact) => {
            Counters::Exact(Exact { events: args.counter_event.clone(), budget: budget(args.budget)?, ..exact })
        }
        _ if !args.counter_event.is_empty() && !args.bpf_counters => {
            bail!("--counter-event: counted with --counters exact or --bpf-counters only")
        }
        other => other,
    };
    let shared = args.bpf_counters.then(|| SharedOptions {
        events: args.counter_event,
        targets: args.counter_cgroup.into_iter().map(CounterTarget::Cgroup).collect(),
        attr_map: args.bpf_attr_map,
    });
    Ok(Options {
        target,
        events: args.event,
        rate,
        bpf_sampler: args.bpf_sampler.as_deref().map(SamplerFields::parse).transpose()?,
        bpf_sampler_rate: args.bpf_sampler_freq.map(Rate::Frequency),
        user_chains: args.call_graph.unwrap_or(if args.chains { UserChains::FramePointers } else { UserChains::None }),
        objects: args.bpf_object.iter().map(|text| object_file(text)).collect(),
        ring,
        overwrite: args.overwrite,
        output: output(args.output)?,
        switch_output: switch_output(&args.switch_output, args.max_files, args.overwrite)?,
        sync: args.sync.every,
        compression_level: args.compression_level,
        command,
        duration,
        delay: delay(args.delay, args.control.as_ref())?,
        control: args.control,
        counters,
        budget: budget(args.budget)?,
        shared,
        interval: Duration::from_millis(args.interval),
        dump_maps: args.dump_map,
        dump_bounds: Bounds { entries: args.dump_entries, bytes: dump_bytes },
        aggregate: args
            .aggregate
            .then(|| Aggregate { entries: args.aggregate_entries, user_addresses: args.aggregate_by == "ip" }),
        argv: std::env::args_os().collect(),
        notify,
    })
}

/// What counting may take, as `--budget` says; `None` without a limit.
pub(crate) fn budget(percent: Option<f64>) -> anyhow::Result<Option<Budget>> {
    Ok(match percent {
        None => Some(Budget::default()),
        Some(percent) if percent.is_nan() || percent <= 0.0 => {
            bail!("--budget {percent}: expected more than 0 percent")
        }
        Some(percent) => (percent < 100.0).then_some(Budget { part: percent / 100.0 }),
    })
}

/// Has messages up to this level shown.
pub(crate) fn show(quiet: bool, verbose: bool) {
    let level = match (quiet, verbose) {
        (true, _) => Level::Warning,
        (_, true) => Level::Detail,
        _ => Level::Notice,
    };
    SHOWN.store(level as u8, Ordering::Relaxed);
}

/// Says it on standard error, if it is to be shown.
pub(crate) fn notify(level: Level, message: &str) {
    if level as u8 <= SHOWN.load(Ordering::Relaxed) {
        say(&format!("bprec: {message}"));
    }
}

/// A tier of counters.
fn tier(text: &str) -> Result<Counters, String> {
    match text.split_once('=') {
        None if text == "off" => Ok(Counters::Off),
        None if text == "stats" => Ok(Counters::Stats),
        None if text == "exact" => Ok(Counters::Exact(Exact::default())),
        Some(("exact", pattern)) if !pattern.is_empty() => {
            Ok(Counters::Exact(Exact { pattern: Some(pattern.to_owned()), ..Exact::default() }))
        }
        _ => Err("expected stats, exact, exact=NAME or off".to_owned()),
    }
}

/// `0,2-5` as numbers.
pub(crate) fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // More CPUs than any kernel is built for is a slip of the pen.
        if first > last || last >= 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// `FILE.o`, or `FILE.o:PROGRAM`; a file whose own name has a colon is taken as such.
fn object_file(text: &str) -> ObjectFile {
    match text.rsplit_once(':') {
        Some((path, program)) if !program.contains('/') && !Path::new(text).exists() => {
            ObjectFile { path: path.into(), program: Some(program.to_owned()) }
        }
        _ => ObjectFile { path: text.into(), program: None },
    }
}

/// How user call chains are recorded.
fn call_graph(text: &str) -> Result<UserChains, String> {
    let stack_bytes = match text.split_once(',') {
        None if text == "fp" => return Ok(UserChains::FramePointers),
        None if text == "dwarf" => UserChains::STACK_BYTES,
        Some(("dwarf", size)) => {
            size.parse::<u32>().ok().filter(|size| *size > 0).ok_or("SIZE is a number of bytes")?
        }
        _ if text == "lbr" => return Err("lbr is not recorded; use fp or dwarf, or perf record".to_owned()),
        _ => return Err("expected fp or dwarf[,SIZE]".to_owned()),
    };
    match stack_bytes.checked_next_multiple_of(8).unwrap_or(u32::MAX) {
        stack_bytes @ ..=UserChains::STACK_BYTES_MAX => Ok(UserChains::Dwarf { stack_bytes }),
        _ => Err(format!("SIZE is at most {}", UserChains::STACK_BYTES_MAX)),
    }
}

/// What sampling waits for.
fn delay(asked_ms: Option<i64>, control: Option<&Control>) -> anyhow::Result<Option<Delay>> {
    Ok(match (asked_ms, control) {
        (None, _) => None,
        (Some(-1), Some(_)) => Some(Delay::UntilEnabled),
        (Some(-1), None) => bail!("-D -1: sampling begins with `enable` on --control, which was not given"),
        (Some(ms), _) => match u64::try_from(ms) {
            Ok(ms) => Some(Delay::For(Duration::from_millis(ms))),
            Err(_) => bail!("-D {ms}: expected milliseconds, or -1"),
        },
    })
}

/// How often what was written is put on the disk.
#[derive(Debug, Clone, Copy)]
struct Sync {
    every: Option<Duration>,
}

/// `off`, or seconds.
fn sync(text: &str) -> Result<Sync, String> {
    if text == "off" {
        return Ok(Sync { every: None });
    }
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let every = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    every.map(|every| Sync { every: Some(every) }).ok_or_else(|| "expected seconds, or off".to_owned())
}

/// Where commands come from, and answers go to.
fn control(text: &str) -> Result<Control, String> {
    let (kind, ends) = text.split_once(':').ok_or("expected fifo:CTL[,ACK] or fd:N[,N]")?;
    let (commands, answers) =
        ends.split_once(',').map_or((ends, None), |(commands, answers)| (commands, Some(answers)));
    let end = |text: &str| match kind {
        "fifo" if !text.is_empty() => Ok(ControlEnd::Fifo(text.into())),
        "fd" => match text.parse() {
            Ok(fd @ 0..) => Ok(ControlEnd::Descriptor(fd)),
            _ => Err(format!("'{text}' is no number of a descriptor")),
        },
        _ => Err("expected fifo:CTL[,ACK] or fd:N[,N]".to_owned()),
    };
    Ok(Control { commands: end(commands)?, answers: answers.map(end).transpose()? })
}

/// When one file ends and the next begins.
fn switch_output(
    when: &[String],
    max_files: Option<NonZeroUsize>,
    is_overwritten: bool,
) -> anyhow::Result<Option<SwitchOutput>> {
    if when.is_empty() && !is_overwritten {
        if max_files.is_some() {
            bail!("--max-files: one file is written without --switch-output or --overwrite");
        }
        return Ok(None);
    }
    let mut how = SwitchOutput { max_files, on_signal: is_overwritten, ..SwitchOutput::default() };
    for text in when {
        match (text.as_str(), ring_size(text), seconds(text)) {
            ("signal", ..) => how.on_signal = true,
            (_, Some(RingSize::Bytes(size_bytes)), _) => how.size_bytes = Some(size_bytes),
            (_, _, Some(every)) => how.every = Some(every),
            _ => bail!("--switch-output={text}: expected a size (4M), a time (30s, 10m, 1h, 1d) or signal"),
        }
    }
    Ok(Some(how))
}

/// `30s`, `10m`, `1h`, `1d`.
fn seconds(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return None,
    };
    number.parse::<u64>().ok().filter(|number| *number > 0)?.checked_mul(seconds).map(Duration::from_secs)
}

/// `128` pages, or `4M` bytes.
fn ring_size(text: &str) -> Option<RingSize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => return Some(RingSize::Pages(number)),
        "B" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift).map(RingSize::Bytes)
}

/// Writes the end of a recording of ours that lacks nothing else; false for any other.
pub(crate) fn mend(file: &Path) -> anyhow::Result<bool> {
    let path = file.display();
    match bprec_record::recover(file)? {
        Recovered::Unproven => return Ok(false),
        Recovered::Mended { data_bytes, dropped_bytes, programs } => {
            let programs = match programs {
                Some(programs) => format!("{programs} BPF programs from its journal"),
                None => "no journal of it, so no BPF programs but those that its records name".to_owned(),
            };
            say(&format!(
                "bprec: {path} is whole again: {} of records, {dropped_bytes} bytes of a last one dropped; {programs}",
                bytes(data_bytes)
            ));
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_sizes() {
        assert_eq!(cpu_list("0,2-4,3"), Some(vec![0, 2, 3, 4]));
        assert_eq!(cpu_list("4-2"), None);
        assert_eq!(cpu_list("0-99999999"), None);
        assert_eq!(ring_size("128"), Some(RingSize::Pages(128)));
        assert_eq!(ring_size("4M"), Some(RingSize::Bytes(4 << 20)));
        assert_eq!(ring_size("0"), None);
        assert_eq!(ring_size("4X"), None);
        let exact = |pattern: Option<&str>| {
            Ok(Counters::Exact(Exact { pattern: pattern.map(str::to_owned), ..Exact::default() }))
        };
        assert_eq!(
            (tier("off"), tier("exact"), tier("exact=a*:b")),
            (Ok(Counters::Off), exact(None), exact(Some("a*:b")))
        );
        assert!(tier("exact=").is_err() && tier("perf").is_err());
    }
}
