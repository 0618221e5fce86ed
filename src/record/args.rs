//! Options of `bprec record`. `-h` shows the first paragraph of each option; `--help` and the manual page show all.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use bprec_record::{Bounds, Budget, Counters, Exact, Rate, RingSize, Target, UserChains, WantedMap};

use super::values::{bytes_with_unit, interval, milliseconds, positive, seconds};
use crate::args::{OUTPUT, RUNNING, SELECTION, task_id, time_with_unit};

/// Heading of options that choose events, rates and call chains.
const SAMPLING: &str = "Sampling";
/// Heading of options for samples that BPF programs take or count.
const IN_KERNEL: &str = "Sampling in the kernel";
/// Heading of options for counters of programs and events.
pub(crate) const COUNTERS: &str = "Counters";
/// Heading of options that record contents of maps.
const MAPS: &str = "Maps";

/// Options of commands that measure a target or a command.
#[derive(clap::Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Count events of the target with a BPF program, shared with other sessions.
    ///
    /// Exact counts for the machine, -C, -p, -t or the command: a BPF program reads them at each context switch, once for all
    /// sessions, including perf's `stat --bpf-counters`.
    #[arg(long, help_heading = COUNTERS, hide_short_help = true)]
    pub(crate) bpf_counters: bool,

    /// Pinned map that sessions share for --bpf-counters [default: /sys/fs/bpf/perf_attr_map, as perf].
    #[arg(long, value_name = "PATH", requires = "bpf_counters", help_heading = COUNTERS, hide_short_help = true)]
    pub(crate) bpf_attr_map: Option<PathBuf>,

    /// Stop after this time: seconds, or 500ms, 10s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = RUNNING)]
    pub(crate) duration: Option<Duration>,

    /// Command to run; the measurement ends with it.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl MeasureArgs {
    /// Program and arguments of the command.
    pub(crate) fn command(&self) -> Option<Vec<OsString>> {
        (!self.command.is_empty()).then(|| self.command.clone())
    }
}

/// CPU limit of commands that count runs for a short time.
#[derive(clap::Args)]
pub(crate) struct BudgetArgs {
    /// CPU limit for counting program runs, in percent of the machine; beyond it, runs are estimated. 100 counts all runs
    /// [default: 2; exact counters 0.5].
    #[arg(long, value_name = "PERCENT", value_parser = budget, help_heading = COUNTERS)]
    budget: Option<Budget>,
}

impl From<&BudgetArgs> for Budget {
    fn from(args: &BudgetArgs) -> Budget {
        args.budget.unwrap_or(Budget::Usual)
    }
}

/// Target of a measurement.
#[derive(clap::Args)]
pub(crate) struct TargetArgs {
    /// Measure all CPUs.
    #[arg(short = 'a', long = "all-cpus", conflicts_with_all = ["cpu", "pid", "tid"], help_heading = SELECTION)]
    pub(crate) all_cpus: bool,

    /// Measure these CPUs only: 0,2-5.
    #[arg(short = 'C', long = "cpu", value_name = "LIST", value_parser = cpus, conflicts_with_all = ["pid", "tid"], help_heading = SELECTION)]
    pub(crate) cpu: Option<Cpus>,

    /// Measure these processes, with their threads and children.
    #[arg(short, long, value_name = "PID,…", value_parser = task_id, value_delimiter = ',', conflicts_with = "tid", help_heading = SELECTION)]
    pub(crate) pid: Vec<u32>,

    /// Measure these threads.
    #[arg(short, long, value_name = "TID,…", value_parser = task_id, value_delimiter = ',', help_heading = SELECTION)]
    pub(crate) tid: Vec<u32>,
}

impl From<TargetArgs> for Option<Target> {
    fn from(args: TargetArgs) -> Option<Target> {
        match args {
            TargetArgs { cpu: Some(cpus), .. } => Some(Target::Cpus(cpus)),
            TargetArgs { pid, .. } if !pid.is_empty() => Some(Target::Processes(pid)),
            TargetArgs { tid, .. } if !tid.is_empty() => Some(Target::Threads(tid)),
            TargetArgs { all_cpus, .. } => all_cpus.then_some(Target::System),
        }
    }
}

/// Record samples and every BPF program into a perf.data file.
///
/// Without a target or a command, records the whole machine until Ctrl-C. If -p needs more than 1024 descriptors per event, records the
/// cgroup of the processes instead, if it holds no other process.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) measure: MeasureArgs,

    /// Event to sample [default: cycles, or cpu-clock without a PMU].
    ///
    /// Examples: cycles, cpu-clock, L1-dcache-load-misses, r1a8, cpu/event=0x3c/, sched:sched_switch, each with modifiers like :u :k :p.
    #[arg(short, long = "event", value_name = "EVENT", help_heading = SAMPLING)]
    pub(super) event: Vec<String>,

    /// Samples per second per CPU, or `max` [default: 4000].
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = frequency, conflicts_with = "count", help_heading = SAMPLING)]
    pub(super) freq: Option<Rate>,

    /// Sample every N events.
    #[arg(short, long, value_name = "N", value_parser = positive, help_heading = SAMPLING)]
    pub(super) count: Option<u64>,

    /// Record user call chains too, by frame pointer.
    ///
    /// Kernel call chains are always recorded: they attribute cost to programs.
    #[arg(short = 'g', help_heading = SAMPLING)]
    pub(super) chains: bool,

    /// Record user call chains: fp (as -g), or dwarf (unwound by perf).
    ///
    /// fp: by frame pointer, as -g; perf's fp,defer is recorded as fp. dwarf: SIZE bytes of the user stack in each sample (dwarf,16384), for perf to unwind [default
    /// SIZE: 8192].
    #[arg(long = "call-graph", value_name = "fp|dwarf[,SIZE]", value_parser = call_graph, conflicts_with = "aggregate", help_heading = SAMPLING,
        hide_short_help = true)]
    pub(super) call_graph: Option<UserChains>,

    /// Record the names of sampled user functions [default: on].
    ///
    /// bprec looks them up in the mapped files when it closes a recording file, for at most one second (docs/symbols.md). off:
    /// record addresses only.
    #[arg(long, value_name = "on|off", default_value = "on", hide_default_value = true, value_parser = on_off, help_heading = SAMPLING,
        action = clap::ArgAction::Set, hide_short_help = true)]
    pub(super) user_symbols: bool,

    /// Size of each CPU's ring buffer, in pages or with a unit: 256, 4M.
    #[arg(short, long = "mmap-pages", value_name = "SIZE", value_parser = ring_size, help_heading = SAMPLING, hide_short_help = true)]
    pub(super) mmap_pages: Option<RingSize>,

    /// Keep only the newest samples; write them on SIGUSR2 and at the end.
    ///
    /// Ring buffers of size -m hold them. bprec writes them to a new file on SIGUSR2, as --switch-output says, and
    /// at the end. Files are named NAME.TIME.
    #[arg(long, conflicts_with_all = ["aggregate", "bpf_sampler", "bpf_object"], help_heading = SAMPLING,
        hide_short_help = true)]
    pub(super) overwrite: bool,

    /// Count samples by call chain in the kernel: small files, for always-on use.
    ///
    /// A BPF program counts samples by thread, CPU and call chain; bprec writes weighted samples at each interval (-I). It cannot
    /// see kprobe, tracepoint and perf_event programs; the report says how much that can hide.
    #[arg(long, conflicts_with = "bpf_sampler", help_heading = SAMPLING)]
    pub(super) aggregate: bool,

    /// Key of user-mode samples for --aggregate without -g: thread, or thread and address.
    #[arg(long, value_name = "WHAT", default_value = "thread", value_parser = ["thread", "ip"], requires = "aggregate", conflicts_with = "chains", help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) aggregate_by: String,

    /// Stacks that --aggregate keeps per interval and event, 2.4 kB each; samples of other stacks go to `[overflow]` [default: 1024
    /// per CPU, from 8192 to 65536].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20), requires = "aggregate", help_heading = IN_KERNEL,
        hide_short_help = true)]
    pub(super) aggregate_entries: Option<u32>,

    /// Also take samples with a BPF program, beside the main ones.
    ///
    /// The program has its own event. FIELDS: ip,period,addr,task,cgroup,comm,value (of the event),regs=ax,sp,…,stack,ustack, or
    /// changes to the default as in +addr,-comm [default: all but addr and regs; ustack with -g]. It cannot sample kprobe,
    /// tracepoint and perf_event programs; the report says how many samples that hides.
    #[arg(long = "bpf-sampler", value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "",
        help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) bpf_sampler: Option<String>,

    /// Samples per second per CPU of the BPF program [default: as the main event].
    #[arg(long = "bpf-sampler-freq", value_name = "HZ", value_parser = positive, requires = "bpf_sampler", help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) bpf_sampler_freq: Option<u64>,

    /// Run the perf_event programs of this BPF object, each on its own event.
    ///
    /// Runs all of its programs, or PROGRAM, on events of the same kind as -e. bprec records the data that they write with
    /// bpf_perf_event_output.
    #[arg(long = "bpf-object", value_name = "FILE.o[:PROGRAM]", help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) bpf_object: Vec<String>,

    /// Counting of runs: stats, exact[=NAME,…] or off [default: stats].
    ///
    /// `stats`: the kernel's run statistics, switched on while recording. `exact`: also attaches counting programs (fsession, or
    /// fentry and fexit) to each program, for its runs, their times and events; `exact=NAME,…`: only to programs with these names
    /// or ids; `exact=NAME:FUNC`: to functions with this name. * and ? match as in a shell. Attaching rewrites the first instruction
    /// of running programs. `off`: no counts.
    #[arg(long, value_name = "TIER", value_parser = tier, help_heading = COUNTERS)]
    pub(super) counters: Option<Counters>,

    /// Event for exact counters and --bpf-counters, as for -e.
    ///
    /// Exact counters count it in each run, --bpf-counters in each target. In runs, {a,b} are counted together or not at all
    /// [default: {cycles,instructions} with a PMU; --bpf-counters also cpu-clock].
    #[arg(long = "counter-event", value_name = "EVENT", help_heading = COUNTERS, hide_short_help = true)]
    pub(super) counter_event: Vec<String>,

    /// Milliseconds (or 1s) between snapshots of run counts.
    #[arg(short = 'I', long, value_name = "MS", default_value = "1000", value_parser = interval, help_heading = COUNTERS)]
    pub(super) interval: Duration,

    /// CPU limit for counting runs, in percent of the machine [default: 2].
    ///
    /// Below it, all runs are counted. If run statistics would cost more, bprec switches them on in short windows only and estimates the
    /// runs. The default is 0.5 with --aggregate or --switch-output, and for exact counters, which measure only some runs to stay below
    /// it. A given limit is for statistics and exact counters together. 100 counts all runs.
    #[arg(long, value_name = "PERCENT", value_parser = budget, help_heading = COUNTERS)]
    pub(super) budget: Option<Budget>,

    /// Cgroups that --bpf-counters also counts, with their descendants.
    #[arg(long, value_name = "CGROUP,…", value_delimiter = ',', requires = "bpf_counters", help_heading = COUNTERS, hide_short_help = true)]
    pub(super) counter_cgroup: Vec<PathBuf>,

    /// Record the contents of this map when sampling ends.
    ///
    /// An id, or a name (with * and ?) of at most 15 characters, as in the kernel. Can be repeated. `bprec report --maps` prints
    /// the contents.
    #[arg(long, value_name = "ID|NAME", help_heading = MAPS, hide_short_help = true)]
    pub(super) dump_map: Vec<WantedMap>,

    /// Record at most N entries of each dumped map.
    #[arg(long, value_name = "N", default_value_t = Bounds::default().entries, requires = "dump_map", help_heading = MAPS, hide_short_help = true)]
    pub(super) dump_entries: u64,

    /// Record at most SIZE bytes of keys and values of each dumped map: 512K, 64M.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size, requires = "dump_map", help_heading = MAPS, hide_short_help = true)]
    pub(super) dump_bytes: u64,

    /// Write to FILE; `-` is standard output [default: perf.data].
    ///
    /// `-` writes the pipe format. An existing file is kept as NAME.old, or as NAME.cut-off if it was cut off and NAME.old is
    /// complete. Without -o, the recording goes to standard output if that is a pipe.
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) output: Option<PathBuf>,

    /// Start a new file: at 100M, after 10m, on a signal.
    ///
    /// At this size (4M, 1G), after this time (30s, 10m, 1h, 1d), or on SIGUSR2 (signal). Each file is complete, and no sample is
    /// lost between files. Closed files are named NAME.TIME.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "signal", value_parser = switch, help_heading = OUTPUT)]
    pub(super) switch_output: Vec<Switch>,

    /// Keep the newest N files of --switch-output, delete older ones.
    ///
    /// Files of earlier recordings to the same name count, too. While the disk is full, the oldest is deleted as well, with a message.
    #[arg(long, alias = "switch-max-files", value_name = "N", help_heading = OUTPUT, hide_short_help = true)]
    pub(super) max_files: Option<NonZeroUsize>,

    /// Sync the file to disk every SECONDS; off: only at the end.
    ///
    /// A separate thread does this; synced data survives a power failure. bprec always syncs at the end.
    #[arg(long, value_name = "SECONDS|off", default_value = "1", value_parser = sync, help_heading = OUTPUT, hide_short_help = true)]
    pub(super) sync: Sync,

    /// Compress records with zstd, 1 to 22 [default LEVEL: 1].
    ///
    /// A higher LEVEL makes a smaller file and takes longer. `-z3` means `-z=3`.
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=22), help_heading = OUTPUT)]
    pub(crate) compression_level: Option<u8>,

    /// Start sampling MS milliseconds (or 2s) after the command starts.
    #[arg(short = 'D', long, value_name = "MS", value_parser = delay, allow_negative_numbers = true, help_heading = RUNNING)]
    pub(super) delay: Option<Duration>,
}

/// Parses `--counters`.
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

/// Parses `--call-graph`.
fn call_graph(text: &str) -> Result<UserChains, String> {
    let stack_bytes = match text.split_once(',') {
        None if text == "fp" => return Ok(UserChains::FramePointers),
        // The same chains. With `defer`, the kernel would collect them later, on return to user space.
        Some(("fp", "defer")) => return Ok(UserChains::FramePointers),
        None if text == "dwarf" => UserChains::STACK_BYTES,
        Some(("dwarf", size)) => {
            size.parse::<u32>().ok().filter(|size| *size > 0).ok_or("SIZE is a number of bytes")?
        }
        _ if text == "lbr" => return Err("bprec does not record lbr; use fp or dwarf, or perf record".to_owned()),
        _ => return Err("expected fp or dwarf[,SIZE]".to_owned()),
    };
    match stack_bytes.checked_next_multiple_of(8).unwrap_or(u32::MAX) {
        stack_bytes @ ..=UserChains::STACK_BYTES_MAX => Ok(UserChains::Dwarf { stack_bytes }),
        _ => Err(format!("SIZE is at most {}", UserChains::STACK_BYTES_MAX)),
    }
}

/// Value of `--sync`: the time between two syncs, or `None` for a sync at the end only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sync {
    pub(super) every: Option<Duration>,
}

/// Parses `--sync`.
fn sync(text: &str) -> Result<Sync, &'static str> {
    match text {
        "off" => Ok(Sync { every: None }),
        _ => seconds(text)
            .map(|every| Sync { every: Some(every) })
            .map_err(|_| "expected seconds, a time like 500ms or 10s, or off"),
    }
}

/// CPUs, ascending, each once. An alias, because clap treats the name `Vec` as an option with several values.
type Cpus = Vec<u32>;

/// Parses a list of CPUs.
fn cpus(text: &str) -> Result<Cpus, &'static str> {
    bprec_host::parse_cpu_list(text).filter(|cpus| !cpus.is_empty()).ok_or("expected a list like 0,2-5")
}

/// Parses samples per second; `max` is the kernel's limit.
fn frequency(text: &str) -> Result<Rate, &'static str> {
    match text.parse() {
        _ if text == "max" => Ok(Rate::MaxFrequency),
        Ok(hz) if hz > 0 => Ok(Rate::Frequency(hz)),
        _ => Err("expected samples per second, or max"),
    }
}

/// Parses the size of a ring: a number of pages, or bytes with a unit.
fn ring_size(text: &str) -> Result<RingSize, &'static str> {
    let pages = || text.parse().ok().filter(|pages| *pages > 0).map(RingSize::Pages);
    let ring = bytes_with_unit(text).map(RingSize::Bytes).or_else(pages);
    match ring.ok_or("expected pages, or bytes with B, K, M or G")? {
        ring if ring.is_possible() => Ok(ring),
        _ => Err("the limit is 1 GiB per ring, and half of the memory for the rings of all CPUs"),
    }
}

/// Parses a number of bytes.
fn size(text: &str) -> Result<u64, &'static str> {
    let bytes = || text.parse().ok().filter(|bytes| *bytes > 0);
    bytes_with_unit(text).or_else(bytes).ok_or("expected bytes, or a number with K, M or G")
}

/// Parses the CPU limit of counting, in percent of the machine.
fn budget(text: &str) -> Result<Budget, &'static str> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent >= 100.0 => Ok(Budget::Unlimited),
        Ok(percent) if percent > 0.0 => Ok(Budget::Part(percent / 100.0)),
        _ => Err("expected a percentage above 0"),
    }
}

/// Condition of `--switch-output` to begin the next file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    /// SIGUSR2.
    Signal,
    /// Size of the file, bytes.
    Size(u64),
    /// Age of the file.
    Time(Duration),
}

/// Parses `--switch-output`. As in perf, units of sizes are capital letters and units of times are small: `10M` is a size, `10m` a time.
fn switch(text: &str) -> Result<Switch, &'static str> {
    match (text, bytes_with_unit(text), time_with_unit(text)) {
        ("signal", ..) => Ok(Switch::Signal),
        (_, Some(bytes), _) => Ok(Switch::Size(bytes)),
        (_, _, Ok(time)) => Ok(Switch::Time(time)),
        _ => Err("expected a size (4M), a time (30s, 10m, 1h, 1d) or signal"),
    }
}

/// Parses `--delay`.
fn delay(text: &str) -> Result<Duration, &'static str> {
    match text {
        "0" => Ok(Duration::ZERO),
        "-1" => Err("-1 waits for perf's --control, which bprec does not have; start bprec when you want it to sample"),
        _ => milliseconds(text),
    }
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers() {
        let exact = |pattern: Option<&str>| {
            Ok(Counters::Exact(Exact { pattern: pattern.map(str::to_owned), ..Exact::default() }))
        };
        assert_eq!(
            (tier("off"), tier("exact"), tier("exact=a*:b")),
            (Ok(Counters::Off), exact(None), exact(Some("a*:b")))
        );
        assert!(tier("exact=").is_err() && tier("perf").is_err());
    }

    #[test]
    fn call_graphs_are_perfs() {
        assert_eq!(call_graph("fp,defer"), Ok(UserChains::FramePointers));
        assert_eq!(call_graph("dwarf,4095"), Ok(UserChains::Dwarf { stack_bytes: 4096 }));
        assert!(call_graph("fp,4096").is_err() && call_graph("dwarf,defer").is_err() && call_graph("lbr").is_err());
    }

    #[test]
    fn ten_minutes_are_no_ten_megabytes() {
        assert_eq!(switch("10m"), Ok(Switch::Time(Duration::from_secs(600))));
        assert_eq!(switch("10M"), Ok(Switch::Size(10 << 20)));
        assert_eq!(
            (switch("1d"), switch("signal")),
            (Ok(Switch::Time(Duration::from_secs(86_400))), Ok(Switch::Signal))
        );
        assert!(switch("10").is_err() && switch("soon").is_err());
    }

    #[test]
    fn rings_lists_and_rates() {
        assert_eq!((ring_size("128"), ring_size("4M")), (Ok(RingSize::Pages(128)), Ok(RingSize::Bytes(4 << 20))));
        assert!(ring_size("0").is_err() && ring_size("4X").is_err() && ring_size("2G").is_err());
        assert_eq!((cpus("0,2-4,3"), cpus("4-2").is_err(), cpus("").is_err()), (Ok(vec![0, 2, 3, 4]), true, true));
        assert!(frequency("0").is_err() && frequency("often").is_err() && budget("0").is_err());
    }
}
