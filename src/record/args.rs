//! Options of `bprec record`. `-h` shows the first paragraph of each option; `--help` and the manual page show all.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use bprec_record::{
    Bounds, Budget, Counters, Exact, MapFilter, Rate, RingSize, SamplerFields, SwitchOutput, Target, UserChains,
};
use bprec_report::CpuList;

use crate::args::{OUTPUT, RUNNING, SELECTION};
use crate::values::{
    bytes, compression_level, files, interval, milliseconds, percent, positive, seconds, size, stacks, task_id,
    time_with_unit,
};

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
    /// Measure all CPUs.
    #[arg(short = 'a', long = "all-cpus", conflicts_with_all = ["cpu", "pid", "tid"], help_heading = SELECTION)]
    pub(crate) all_cpus: bool,

    /// Measure these CPUs only: 0,2-5.
    #[arg(short = 'C', long = "cpu", value_name = "LIST", conflicts_with_all = ["pid", "tid"], help_heading = SELECTION)]
    pub(crate) cpu: Option<CpuList>,

    /// Measure these processes, with their threads and children.
    #[arg(short, long, value_name = "PID,…", value_parser = task_id, value_delimiter = ',', conflicts_with = "tid", help_heading = SELECTION)]
    pub(crate) pid: Vec<u32>,

    /// Measure these threads.
    #[arg(short, long, value_name = "TID,…", value_parser = task_id, value_delimiter = ',', help_heading = SELECTION)]
    pub(crate) tid: Vec<u32>,

    /// Count events of the target with a BPF program, shared with other sessions.
    ///
    /// The counts are exact, for the machine, -C, -p, -t or the command. A BPF program reads the counters at each context switch, once for
    /// all sessions, including those of perf's `stat --bpf-counters`.
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
    pub(crate) command: Option<Vec<OsString>>,
}

impl MeasureArgs {
    /// Target of the measurement. Without an option that names a target: the command, or all CPUs if there is no command.
    pub(crate) fn target(&self) -> Target {
        match self {
            MeasureArgs { cpu: Some(cpus), .. } => Target::Cpus(cpus.clone().into()),
            MeasureArgs { pid, .. } if !pid.is_empty() => Target::Processes(pid.clone()),
            MeasureArgs { tid, .. } if !tid.is_empty() => Target::Threads(tid.clone()),
            MeasureArgs { all_cpus: false, command: Some(_), .. } => Target::Command,
            _ => Target::System,
        }
    }
}

/// CPU limit of commands that count runs.
#[derive(clap::Args)]
pub(crate) struct BudgetArgs {
    /// CPU limit for counting runs, in percent of the machine [default: 2].
    ///
    /// Below the limit, bprec counts all runs. If run statistics would cost more, bprec switches them on in short windows only and estimates the
    /// runs. The default is 0.5 for exact counters, which measure only some runs to stay below it, and for record with --aggregate or
    /// --switch-output. If you set a limit, it holds for run statistics and exact counters together. 100 counts all runs.
    #[arg(long, value_name = "PERCENT", value_parser = budget, help_heading = COUNTERS)]
    pub(crate) budget: Option<Budget>,
}

/// Record samples and every BPF program into a perf.data file.
///
/// With neither a target nor a command, records the whole machine until Ctrl-C. If -p needs more than 1024 descriptors per event, and the
/// cgroup of the processes holds no other process, records that cgroup instead.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

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
    /// fp: by frame pointer, as -g; perf's fp,defer is recorded as fp. dwarf: SIZE bytes of the user stack in each sample (dwarf,16384), for
    /// perf to unwind [default SIZE: 8192].
    #[arg(long = "call-graph", value_name = "fp|dwarf[,SIZE]", value_parser = call_graph, conflicts_with = "aggregate", help_heading = SAMPLING,
        hide_short_help = true)]
    pub(super) call_graph: Option<UserChains>,

    /// Record the names of sampled user functions [default: on].
    ///
    /// bprec looks the names up in the mapped files when it closes a recording file, for at most one second (docs/symbols.md). off:
    /// record addresses only.
    #[arg(long, value_name = "on|off", default_value = "on", hide_default_value = true, value_parser = ["on", "off"], help_heading = SAMPLING,
        hide_possible_values = true, hide_short_help = true)]
    pub(super) user_symbols: String,

    /// Size of each CPU's ring buffer, in pages or with a unit: 256, 4M.
    #[arg(short, long = "mmap-pages", value_name = "SIZE", value_parser = ring_size, help_heading = SAMPLING, hide_short_help = true)]
    pub(super) mmap_pages: Option<RingSize>,

    /// Keep only the newest samples; write them on SIGUSR2 and at the end.
    ///
    /// Ring buffers of size -m hold the samples. bprec writes the samples to a new file, NAME.TIME, on SIGUSR2, under the
    /// conditions of --switch-output, and at the end.
    #[arg(long, conflicts_with_all = ["aggregate", "bpf_sampler", "bpf_object"], help_heading = SAMPLING,
        hide_short_help = true)]
    pub(super) overwrite: bool,

    /// Count samples by call chain in the kernel: small files, for always-on use.
    ///
    /// A BPF program counts samples by thread, CPU and call chain; bprec writes weighted samples at each interval (-I). The
    /// program gets no samples of kprobe, tracepoint and perf_event programs; the report says how much cost that can hide.
    #[arg(long, conflicts_with = "bpf_sampler", help_heading = SAMPLING)]
    pub(super) aggregate: bool,

    /// Count user-mode samples of --aggregate by thread, or by thread and address (ip). Only without -g.
    #[arg(long, value_name = "WHAT", default_value = "thread", value_parser = ["thread", "ip"], requires = "aggregate", conflicts_with = "chains", help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) aggregate_by: String,

    /// Maximum number of stacks that --aggregate keeps per interval and event, 2.4 kB each; samples of further stacks go to `[overflow]`
    /// [default: 1024 per CPU, from 8192 to 65536].
    #[arg(long, value_name = "N", value_parser = stacks, requires = "aggregate", help_heading = IN_KERNEL,
        hide_short_help = true)]
    pub(super) aggregate_entries: Option<u32>,

    /// Also take samples with a BPF program, in addition to those of -e.
    ///
    /// The program has its own event. FIELDS: ip,period,addr,task,cgroup,comm,value (of the event),regs=ax,sp,…,stack,ustack, or
    /// changes to the default as in +addr,-comm [default: all but addr and regs; ustack with -g]. The program gets no
    /// samples of kprobe, tracepoint and perf_event programs; the report says how many samples that hides.
    #[arg(long = "bpf-sampler", value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "",
        help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) bpf_sampler: Option<String>,

    /// Samples per second per CPU of the BPF program [default: as the main event].
    #[arg(long = "bpf-sampler-freq", value_name = "HZ", value_parser = frequency, requires = "bpf_sampler", help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) bpf_sampler_freq: Option<Rate>,

    /// Run the perf_event programs of this BPF object, each on its own event.
    ///
    /// Runs all of its programs, or PROGRAM, on events of the same kind as -e. bprec records the data that the programs write with
    /// bpf_perf_event_output.
    #[arg(long = "bpf-object", value_name = "FILE.o[:PROGRAM]", help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) bpf_object: Vec<String>,

    /// Way to count runs of programs: stats, exact[=NAME,…] or off [default: stats].
    ///
    /// `stats`: the kernel's run statistics, switched on while recording. `exact`: also attaches counting programs (fsession, or
    /// fentry and fexit) to each program, for its runs, their times and events; `exact=NAME,…`: only to programs with these names,
    /// ids or tags; `exact=NAME:FUNC`: to functions with this name. * and ? match as in a shell. Attaching rewrites the first instruction
    /// of running programs. `off`: no counts.
    #[arg(long, value_name = "TIER", value_parser = tier, help_heading = COUNTERS)]
    pub(super) counters: Option<Counters>,

    /// Event for exact counters and --bpf-counters, as for -e.
    ///
    /// Exact counters count the event in each run, --bpf-counters in each target. In runs, {a,b} are counted together or not at all
    /// [default: {cycles,instructions} with a PMU; --bpf-counters also cpu-clock].
    #[arg(long = "counter-event", value_name = "EVENT", help_heading = COUNTERS, hide_short_help = true)]
    pub(super) counter_event: Vec<String>,

    /// Milliseconds (or 1s) between snapshots of run counts [default: 1000].
    #[arg(short = 'I', long, value_name = "MS", value_parser = interval, help_heading = COUNTERS)]
    pub(super) interval: Option<Duration>,

    #[command(flatten)]
    pub(super) budget: BudgetArgs,

    /// Cgroups that --bpf-counters also counts, with their descendants.
    #[arg(long, value_name = "CGROUP,…", value_delimiter = ',', requires = "bpf_counters", help_heading = COUNTERS, hide_short_help = true)]
    pub(super) counter_cgroup: Vec<PathBuf>,

    /// Record the contents of this map when sampling ends.
    ///
    /// An id, or a name (with * and ?) of at most 15 characters, as in the kernel. Can be repeated. `bprec report --maps` prints
    /// the contents.
    #[arg(long, value_name = "ID|NAME", help_heading = MAPS, hide_short_help = true)]
    pub(super) dump_map: Vec<MapFilter>,

    /// Record at most N entries of each dumped map.
    #[arg(long, value_name = "N", default_value_t = Bounds::default().entries, value_parser = positive, requires = "dump_map", help_heading = MAPS, hide_short_help = true)]
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
    pub(super) switch_output: Vec<SwitchOutput>,

    /// Keep the newest N files of --switch-output, delete older ones.
    ///
    /// Files of earlier recordings to the same name count, too. While the disk is full, bprec also deletes the oldest file, with a message.
    #[arg(long, alias = "switch-max-files", value_name = "N", value_parser = files, help_heading = OUTPUT, hide_short_help = true)]
    pub(super) max_files: Option<NonZeroUsize>,

    /// Sync the file to disk every SECONDS; off: only at the end [default: 1].
    ///
    /// A separate thread syncs the file; synced data survives a power failure. bprec always syncs at the end.
    #[arg(long, value_name = "SECONDS|off", value_parser = sync, help_heading = OUTPUT, hide_short_help = true)]
    pub(super) sync: Option<Sync>,

    /// Compress records with zstd, 1 to 22 [default LEVEL: 1].
    ///
    /// A higher LEVEL makes a smaller file and takes longer. `-z3` and `-z 3` mean `-z=3`.
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = compression_level, help_heading = OUTPUT)]
    pub(crate) compression_level: Option<u8>,

    /// Start sampling MS milliseconds (or 2s) after the command starts.
    #[arg(short = 'D', long, value_name = "MS", value_parser = delay, allow_negative_numbers = true, help_heading = RUNNING)]
    pub(super) delay: Option<Duration>,
}

impl Args {
    /// Position of the recorded command among `len` arguments; `None` if there is no command.
    pub(crate) fn command_at(&self, len: usize) -> Option<usize> {
        Some(len - self.measure.command.as_ref()?.len())
    }
}

/// Returns true if the word after `option` is its value, false if the word begins the recorded command. Fails if both are possible.
pub(crate) fn is_value(option: &str, word: &str) -> Result<bool, clap::Error> {
    Ok(match option {
        "--switch-output" => switch(word).is_ok(),
        "-z" | "--compression-level" => word.bytes().all(|byte| byte.is_ascii_digit()),
        "--bpf-sampler" if SamplerFields::parse(word).is_err() => false,
        "--bpf-sampler" if word.contains([',', '+', '-', '=']) => true,
        // The word can be a field or a command, such as `ip` and `comm`.
        "--bpf-sampler" => {
            let message = format!(
                "--bpf-sampler {word}: {word} can be fields or a command; write --bpf-sampler={word}, or --bpf-sampler -- {word}\n"
            );
            return Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, message));
        }
        _ => false,
    })
}

/// Parses `--counters`.
fn tier(text: &str) -> Result<Counters, String> {
    match text.split_once('=') {
        None if text == "off" => Ok(Counters::Off),
        None if text == "stats" => Ok(Counters::Stats),
        None if text == "exact" => Ok(Counters::Exact(Exact::default())),
        Some(("exact", functions)) if !functions.is_empty() => {
            let functions = functions.split(',').map(str::parse).collect::<Result<_, _>>()?;
            Ok(Counters::Exact(Exact { functions, ..Exact::default() }))
        }
        _ => Err("expected stats, exact, exact=NAME or off".to_owned()),
    }
}

/// Parses `--call-graph`.
fn call_graph(text: &str) -> Result<UserChains, String> {
    let stack_bytes = match text {
        // `defer` gives the same chains: the kernel would only collect them later, on return to user space.
        "fp" | "fp,defer" => return Ok(UserChains::FramePointers),
        "dwarf" => UserChains::STACK_BYTES,
        "lbr" => return Err("bprec does not record lbr; use fp or dwarf, or perf record".to_owned()),
        _ => match text.strip_prefix("dwarf,") {
            Some(bytes) => u32::try_from(size(bytes)?).unwrap_or(u32::MAX),
            None => return Err("expected fp or dwarf[,SIZE]".to_owned()),
        },
    };
    match stack_bytes.checked_next_multiple_of(8).unwrap_or(u32::MAX) {
        stack_bytes @ ..=UserChains::STACK_BYTES_MAX => Ok(UserChains::Dwarf { stack_bytes }),
        _ => Err(format!("SIZE is at most {}", UserChains::STACK_BYTES_MAX)),
    }
}

/// Value of `--sync`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sync {
    /// Time between two syncs; `None` (`off`) syncs only at the end.
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

/// Parses samples per second; `max` is the kernel's limit.
pub(crate) fn frequency(text: &str) -> Result<Rate, &'static str> {
    match text.parse() {
        _ if text == "max" => Ok(Rate::MaxFrequency),
        Ok(hz) if hz > 0 => Ok(Rate::Frequency(hz)),
        _ => Err("expected samples per second, or max"),
    }
}

/// Parses the size of a ring buffer: a count of pages, or bytes with a unit.
fn ring_size(text: &str) -> Result<RingSize, &'static str> {
    let pages = || text.parse().ok().filter(|pages| *pages > 0).map(RingSize::Pages);
    let ring = bytes(text, None).map(RingSize::Bytes).or_else(pages);
    match ring.ok_or("expected pages, or bytes with B, K, M or G")? {
        ring if ring.is_possible() => Ok(ring),
        _ => Err("the limits are 1 GiB per ring, and half of the memory for the rings of all CPUs together"),
    }
}

/// Parses the CPU limit of counting, in percent of the machine; 100 is no limit.
fn budget(text: &str) -> Result<Budget, &'static str> {
    match percent(text)? {
        0.0 => Err("expected a percentage above 0"),
        100.0 => Ok(Budget::Unlimited),
        percent => Ok(Budget::Part(percent / 100.0)),
    }
}

/// Parses a condition of `--switch-output`. As in perf, units of sizes are capital letters and units of times are small: `10M` is a size and
/// `10m` a time.
fn switch(text: &str) -> Result<SwitchOutput, &'static str> {
    let (on_signal, size_bytes, every) = (text == "signal", bytes(text, None), time_with_unit(text).ok());
    match on_signal || size_bytes.is_some() || every.is_some() {
        true => Ok(SwitchOutput { on_signal, size_bytes, every, max_files: None }),
        false => Err("expected a size (4M), a time (30s, 10m, 1h, 1d) or signal"),
    }
}

/// Parses `--delay`.
fn delay(text: &str) -> Result<Duration, &'static str> {
    match text {
        "0" => Ok(Duration::ZERO),
        "-1" => Err("-1 waits for perf's --control, which bprec does not have; start bprec when sampling should begin"),
        _ => milliseconds(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers() {
        let exact = |functions: &[&str]| {
            let functions = functions.iter().map(|text| text.parse().unwrap()).collect();
            Ok(Counters::Exact(Exact { functions, ..Exact::default() }))
        };
        assert_eq!(
            (tier("off"), tier("exact"), tier("exact=a*:b,tag:8b74812dd297655f")),
            (Ok(Counters::Off), exact(&[]), exact(&["a*:b", "8b74812dd297655f"]))
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
        let after = |seconds| Ok(SwitchOutput { every: Some(Duration::from_secs(seconds)), ..SwitchOutput::default() });
        assert_eq!((switch("10m"), switch("1d")), (after(600), after(86_400)));
        assert_eq!(switch("10M"), Ok(SwitchOutput { size_bytes: Some(10 << 20), ..SwitchOutput::default() }));
        assert_eq!(switch("signal"), Ok(SwitchOutput { on_signal: true, ..SwitchOutput::default() }));
        assert!(switch("10").is_err() && switch("soon").is_err());
    }

    #[test]
    fn rings_lists_and_rates() {
        assert_eq!((ring_size("128"), ring_size("4M")), (Ok(RingSize::Pages(128)), Ok(RingSize::Bytes(4 << 20))));
        assert!(ring_size("0").is_err() && ring_size("4X").is_err() && ring_size("2G").is_err());
        assert!(frequency("0").is_err() && frequency("often").is_err());
        assert!(budget("0").is_err() && budget("101").is_err());
        assert_eq!((budget("100%"), budget("0.5")), (Ok(Budget::Unlimited), Ok(Budget::LOW)));
    }
}
