//! Options of `bprec record`. The first paragraph of each is what `-h` shows; `--help` and the manual page have all.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use bprec_record::{Bounds, Control, ControlEnd, Counters, Exact, UserChains, WantedMap};

use crate::headings::{OUTPUT, RUNNING, SELECTION};
use crate::values::{duration, task_id};

/// What takes samples, and how often.
const SAMPLING: &str = "Sampling";
/// Samples that BPF programs make or count.
const IN_KERNEL: &str = "Sampling in the kernel";
/// Counters of programs and of events.
pub(crate) const COUNTERS: &str = "Counters";
/// Contents of maps.
const MAPS: &str = "Maps";

/// Record what runs, and every BPF program, into a perf.data file.
///
/// Without a target or a command the whole machine is recorded until Ctrl-C.
#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    /// The whole machine (also without any target and command).
    #[arg(short = 'a', long = "all-cpus", conflicts_with_all = ["cpu", "pid", "tid"], help_heading = SELECTION)]
    pub(super) all_cpus: bool,

    /// The whole machine, on these CPUs only: 0,2-5.
    #[arg(short = 'C', long = "cpu", value_name = "LIST", conflicts_with_all = ["pid", "tid"], help_heading = SELECTION)]
    pub(super) cpu: Option<String>,

    /// These processes, all their threads and children.
    ///
    /// Where that would be more than 1024 descriptors for each event, their cgroup is recorded instead, if it holds nobody else.
    #[arg(short, long, value_name = "PID,…", value_parser = task_id, value_delimiter = ',', conflicts_with = "tid", help_heading = SELECTION)]
    pub(super) pid: Vec<u32>,

    /// These threads.
    #[arg(short, long, value_name = "TID,…", value_parser = task_id, value_delimiter = ',', help_heading = SELECTION)]
    pub(super) tid: Vec<u32>,

    /// What to sample on [default: cycles, or cpu-clock where there is no PMU].
    ///
    /// cycles, cpu-clock, L1-dcache-load-misses, r1a8, cpu/event=0x3c/, sched:sched_switch, each with modifiers like :u :k :p.
    #[arg(short, long = "event", value_name = "EVENT", help_heading = SAMPLING)]
    pub(super) event: Vec<String>,

    /// Samples per second and CPU, or `max` [default: 4000].
    #[arg(short = 'F', long = "freq", value_name = "HZ", conflicts_with = "count", help_heading = SAMPLING)]
    pub(super) freq: Option<String>,

    /// Sample every N events.
    #[arg(short, long, value_name = "N", help_heading = SAMPLING)]
    pub(super) count: Option<u64>,

    /// User call chains too, by frame pointer.
    ///
    /// Kernel chains are always recorded: a program's cost is in them.
    #[arg(short = 'g', help_heading = SAMPLING)]
    pub(super) chains: bool,

    /// User call chains: fp as -g, or dwarf for perf to unwind.
    ///
    /// fp: by frame pointer as -g; dwarf: for perf to unwind, with SIZE bytes of the user stack in each sample (dwarf,16384)
    /// [default SIZE: 8192].
    #[arg(long = "call-graph", value_name = "fp|dwarf[,SIZE]", value_parser = call_graph, conflicts_with = "aggregate", help_heading = SAMPLING,
        hide_short_help = true)]
    pub(super) call_graph: Option<UserChains>,

    /// Name the functions of user space that samples hit [default: on].
    ///
    /// They are looked up in the files that were mapped when a file of the recording ends, for a second at most (docs/symbols.md).
    /// off: the recording has their addresses only.
    #[arg(long, value_name = "on|off", default_value = "on", hide_default_value = true, value_parser = on_off, help_heading = SAMPLING,
        action = clap::ArgAction::Set, hide_short_help = true)]
    pub(super) user_symbols: bool,

    /// Size of each CPU's ring buffer, in pages or with a unit: 256, 4M.
    #[arg(short, long = "mmap-pages", value_name = "SIZE", help_heading = SAMPLING, hide_short_help = true)]
    pub(super) mmap_pages: Option<String>,

    /// Keep the newest samples only, and write them on SIGUSR2 and at the end.
    ///
    /// They are kept in rings of the size -m, and written into a file of their own on SIGUSR2, when --control says `snapshot`, where
    /// --switch-output says so, and at the end. Files are called NAME.TIME.
    #[arg(long, conflicts_with_all = ["aggregate", "bpf_sampler", "bpf_object"], help_heading = SAMPLING)]
    pub(super) overwrite: bool,

    /// Count samples by call chain in the kernel: small files, always on.
    ///
    /// Samples are counted by thread, CPU and call chain, and weighted ones written at each interval (-I). Blind to kprobe, tracepoint and
    /// perf_event programs; the report says how much that may be.
    #[arg(long, conflicts_with = "bpf_sampler", help_heading = SAMPLING)]
    pub(super) aggregate: bool,

    /// By what --aggregate counts samples in user mode without -g: by thread, or by thread and address.
    #[arg(long, value_name = "WHAT", default_value = "thread", value_parser = ["thread", "ip"], help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) aggregate_by: String,

    /// Stacks that --aggregate counts per interval and event, 2.4 kB each; further samples go to one `[overflow]` row.
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=1 << 20), help_heading = IN_KERNEL,
        hide_short_help = true)]
    pub(super) aggregate_entries: u32,

    /// Let a BPF program take samples too, beside the main ones.
    ///
    /// The program is on an event of its own and records what it sees there: of ip,period,addr,task,cgroup,comm,value (of the
    /// event),regs=ax,sp,…,stack,ustack, listed or changed as in +addr,-comm [default: all but addr and regs; ustack with -g]. What
    /// falls into kprobe, tracepoint and perf_event programs it cannot see; the report says how much that is.
    #[arg(long = "bpf-sampler", value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "",
        help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) bpf_sampler: Option<String>,

    /// Samples per second and CPU of the BPF program [default: those of the main event].
    #[arg(long = "bpf-sampler-freq", value_name = "HZ", requires = "bpf_sampler", help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) bpf_sampler_freq: Option<u64>,

    /// Run the perf_event programs of this BPF object on events of their own.
    ///
    /// All of them or the one named, on events like the ones that are sampled. What they put out with bpf_perf_event_output is recorded.
    #[arg(long = "bpf-object", value_name = "FILE.o[:PROGRAM]", help_heading = IN_KERNEL, hide_short_help = true)]
    pub(super) bpf_object: Vec<String>,

    /// Counts of programs: stats, exact[=NAME,…] or off [default: stats].
    ///
    /// `stats`: the kernel's run statistics, switched on while recording. `exact`: those, and programs put around each program
    /// (fsession, or fentry and fexit) that count its runs, their times and events in them; `exact=NAME,…` only around programs of
    /// these names or ids, `exact=NAME:FUNC` around a function of theirs, with * and ? as in a shell. That rewrites the first
    /// instruction of running programs. `off`: none.
    #[arg(long, value_name = "TIER", value_parser = tier, help_heading = COUNTERS)]
    pub(super) counters: Option<Counters>,

    /// What exact counters and --bpf-counters count, as for -e.
    ///
    /// Exact counters count it in each run, --bpf-counters in each target; {a,b} are counted together in runs, or neither [default:
    /// {cycles,instructions} where there is a PMU; --bpf-counters cpu-clock, too].
    #[arg(long = "counter-event", value_name = "EVENT", help_heading = COUNTERS)]
    pub(super) counter_event: Vec<String>,

    /// Milliseconds between two snapshots of the run counts.
    #[arg(short = 'I', long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..), help_heading = COUNTERS)]
    pub(super) interval: u64,

    /// Limit for counting runs, in percent of the machine [default: 0.5].
    ///
    /// 100 counts all runs. Where programs run so often that run statistics would take more, these are on for a part of the time, and runs are estimates;
    /// exact counters, which have half of it, measure only some runs.
    #[arg(long, value_name = "PERCENT", help_heading = COUNTERS)]
    pub(super) budget: Option<f64>,

    /// Count events of what is recorded too, shared with other sessions.
    ///
    /// Of the machine, -C, -p, -t or the command, exactly: they are read at each context switch, once for all sessions on this
    /// machine, perf's `stat --bpf-counters` too. `bprec report --counters` shows them.
    #[arg(long, help_heading = COUNTERS, hide_short_help = true)]
    pub(super) bpf_counters: bool,

    /// Cgroups that --bpf-counters counts too, each with all below it.
    #[arg(long, value_name = "CGROUP,…", value_delimiter = ',', requires = "bpf_counters", help_heading = COUNTERS, hide_short_help = true)]
    pub(super) counter_cgroup: Vec<PathBuf>,

    /// Map through which sessions share --bpf-counters [default: /sys/fs/bpf/perf_attr_map, which perf uses].
    #[arg(long, value_name = "PATH", requires = "bpf_counters", help_heading = COUNTERS, hide_short_help = true)]
    pub(super) bpf_attr_map: Option<PathBuf>,

    /// Record what this map holds when sampling has ended; * and ? in a name.
    ///
    /// An id, or a name with * and ?, at most 15 characters as the kernel has it. May be given several times. `bprec report --maps`
    /// prints it.
    #[arg(long, value_name = "ID|NAME", help_heading = MAPS, hide_short_help = true)]
    pub(super) dump_map: Vec<WantedMap>,

    /// Record at most N entries of each such map.
    #[arg(long, value_name = "N", default_value_t = Bounds::default().entries, help_heading = MAPS, hide_short_help = true)]
    pub(super) dump_entries: u64,

    /// Record at most this many bytes of keys and values of each such map: 512K, 64M.
    #[arg(long, value_name = "SIZE", default_value = "64M", help_heading = MAPS, hide_short_help = true)]
    pub(super) dump_bytes: String,

    /// Write to FILE; `-` is standard output [default: perf.data].
    ///
    /// `-` writes the pipe format. An existing file is kept as NAME.old, one that was cut off as NAME.cut-off if there is a whole NAME.old. Without this
    /// option, a pipe as standard output gets the recording.
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) output: Option<PathBuf>,

    /// Go on in another file: 100M, 10m, signal.
    ///
    /// At this size (4M, 1G), after this time (30s, 10m, 1h, 1d), or on SIGUSR2 (signal). Each file is complete by itself, and no sample is lost between two. A closed one is called
    /// NAME.TIME.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "signal", help_heading = OUTPUT)]
    pub(super) switch_output: Vec<String>,

    /// Keep N files of --switch-output: the oldest is deleted when there is one more.
    #[arg(long, alias = "switch-max-files", value_name = "N", help_heading = OUTPUT, hide_short_help = true)]
    pub(super) max_files: Option<NonZeroUsize>,

    /// Sync what was written to the disk every SECONDS; off: at the end only.
    ///
    /// A thread of its own does it: what was recorded before stays when the power fails. At the end it is always done.
    #[arg(long, value_name = "SECONDS|off", default_value = "1", value_parser = sync, help_heading = OUTPUT, hide_short_help = true)]
    pub(super) sync: Sync,

    /// Compress records with zstd, 1 to 22 [default LEVEL: 1].
    ///
    /// A higher LEVEL makes a smaller file and takes longer. `-z3` is `-z=3`.
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=22), help_heading = OUTPUT)]
    pub(crate) compression_level: Option<u8>,

    /// Start sampling MS milliseconds after the command.
    ///
    /// -1: when --control says `enable`.
    #[arg(short = 'D', long, value_name = "MS", allow_negative_numbers = true, help_heading = RUNNING)]
    pub(super) delay: Option<i64>,

    /// Stop after this time: seconds, or 500ms, 10s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = RUNNING)]
    pub(super) duration: Option<Duration>,

    /// Take commands from another process, one a line.
    ///
    /// They are `enable` and `disable` sampling, `snapshot` (end the file of --switch-output and go on in another), `stop`, `ping`,
    /// `evlist`. After each, `ack` and a newline go to ACK.
    #[arg(long, value_name = "fifo:CTL[,ACK]|fd:N[,N]", value_parser = control, help_heading = RUNNING, hide_short_help = true)]
    pub(super) control: Option<Control>,

    /// Print warnings and errors only.
    ///
    /// And what the recording lacks of what was asked for.
    #[arg(short, long, conflicts_with = "verbose", help_heading = RUNNING)]
    pub(super) quiet: bool,

    /// Print what is done, and how.
    #[arg(short, long, help_heading = RUNNING)]
    pub(super) verbose: bool,

    /// Command to run; the recording ends with it.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
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

/// How often what was written is put on the disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sync {
    pub(super) every: Option<Duration>,
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

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
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
}
