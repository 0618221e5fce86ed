//! Options of a recording: target, events, rate, output.

pub(crate) mod caller;
mod stat;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::events::machine;
use crate::{SamplerFields, SharedOptions, sys};
use bprec_bpf::Bounds;
use bprec_filter::{FunctionFilter, MapFilter};

pub use stat::{StatOptions, StatTarget};

/// Complete settings for [`record`](crate::record).
#[derive(Debug, Clone)]
pub struct Options {
    /// Tasks or CPUs to record.
    pub target: Target,
    /// Events as the user wrote them (`-e`); each string may be a list with commas. Empty means cycles, or a clock on a
    /// machine without hardware counters.
    pub events: Vec<String>,
    /// Sampling rate or period.
    pub rate: Rate,
    /// Fields of the samples that the recorder's BPF program takes in addition to the samples of `events`; `None` takes no such samples.
    pub bpf_sampler: Option<SamplerFields>,
    /// Rate of the BPF sampler; `None` means the rate of the event in `events` that the BPF sampler copies.
    pub bpf_sampler_rate: Option<Rate>,
    /// Method of recording user call chains; kernel call chains are always recorded.
    pub user_chains: UserChains,
    /// True to name the user functions that samples hit, when a file ends.
    pub user_symbols: bool,
    /// True to name kernel functions as soon as samples hit them, for readers of a file that is still being written.
    /// False to name kernel functions when the file ends.
    pub early_symbols: bool,
    /// BPF objects of the user; their perf_event programs run on events of their own, which are copies of the sampling events.
    pub objects: Vec<ObjectFile>,
    /// Size of each CPU's ring buffer.
    pub ring: RingSize,
    /// True to let new samples overwrite the oldest samples in the rings; the recorder writes the rings when a file ends.
    pub overwrite: bool,
    /// Destination of the recording.
    pub output: Output,
    /// Conditions that end one file and start the next; `None` writes a single file.
    pub switch_output: Option<SwitchOutput>,
    /// Time between two syncs to the disk; `None` syncs only at the end.
    pub sync: Option<Duration>,
    /// Level of zstd compression of the records, 1 to 22.
    pub compression_level: Option<u8>,
    /// Command to run; the recording ends with it.
    pub command: Option<Vec<OsString>>,
    /// Maximum duration of the recording.
    pub duration: Option<Duration>,
    /// Delay between the start of the command and the start of sampling.
    pub delay: Option<Duration>,
    /// Descriptor that ends the recording when it becomes readable or its other end closes.
    pub stop: Option<Arc<OwnedFd>>,
    /// Source of run counts of programs.
    pub counters: Counters,
    /// Limit on the cost of run statistics and, if requested, exact counters.
    pub budget: Budget,
    /// CPU time that run statistics have taken; readers can watch it during the recording.
    pub taken: Taken,
    /// Counters that other sessions can share, read at context switches: for the recorded target, and for the additional targets named here.
    pub shared: Option<SharedOptions>,
    /// Time between two snapshots of the counters.
    pub interval: Duration,
    /// Maps to read when sampling has ended.
    pub dump_maps: Vec<MapFilter>,
    /// Limits on the data read from each map.
    pub dump_bounds: Bounds,
    /// Settings for counting samples in the kernel; the recorder then writes weighted samples at each interval. `None`
    /// records each sample.
    pub aggregate: Option<Aggregate>,
    /// Command line, for the CMDLINE feature of the file.
    pub argv: Vec<OsString>,
    /// Callback that receives messages as they arise.
    pub notify: fn(Level, &str),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            target: Target::System,
            events: Vec::new(),
            rate: Rate::Default,
            bpf_sampler: None,
            bpf_sampler_rate: None,
            user_chains: UserChains::None,
            user_symbols: true,
            early_symbols: false,
            objects: Vec::new(),
            ring: RingSize::Default,
            overwrite: false,
            output: Output::File(PathBuf::from("perf.data")),
            switch_output: None,
            sync: Some(Duration::from_secs(1)),
            compression_level: None,
            command: None,
            duration: None,
            delay: None,
            stop: None,
            counters: Counters::Stats,
            budget: Budget::default(),
            taken: Taken::default(),
            shared: None,
            interval: Duration::from_secs(1),
            dump_maps: Vec::new(),
            dump_bounds: Bounds::default(),
            aggregate: None,
            argv: Vec::new(),
            notify: |_, _| (),
        }
    }
}

/// Options for counting samples in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregate {
    /// Stacks to count per event and interval; `None` derives the number from the number of CPUs, because each CPU
    /// has its own stacks.
    pub entries: Option<u32>,
    /// True to distinguish user-mode samples by address, even without user call chains.
    pub user_addresses: bool,
}

impl Aggregate {
    /// Stacks per CPU.
    const ENTRIES_PER_CPU: u32 = 1024;
    /// Minimum of the stacks of all CPUs together, because even a machine with few CPUs has many tasks.
    const ENTRIES_MIN: u32 = 8192;
    /// Maximum of the stacks of all CPUs together, because the kernel allocates their memory in advance.
    const ENTRIES_MAX: u32 = 1 << 16;

    /// Returns the number of stacks to count per event and interval on this number of CPUs.
    pub(crate) fn entries_on(self, cpus: usize) -> u32 {
        let of_cpus = u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(Aggregate::ENTRIES_PER_CPU);
        self.entries.unwrap_or(of_cpus.clamp(Aggregate::ENTRIES_MIN, Aggregate::ENTRIES_MAX))
    }
}

/// Level of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The recording lacks something that the user requested.
    Warning,
    /// Useful information.
    Notice,
    /// Progress of a long recording, for a terminal.
    Progress,
    /// Details of a step, for `-v`.
    Detail,
}

/// Target of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The whole machine (`-a`).
    System,
    /// These CPUs (`-C`).
    Cpus(Vec<u32>),
    /// These processes with all their threads and future children (`-p`).
    Processes(Vec<u32>),
    /// These threads (`-t`).
    Threads(Vec<u32>),
    /// The command and its children.
    Command,
}

impl Target {
    /// Describes the target in words: a command by its name and arguments.
    pub(crate) fn in_words(&self, command: Option<&[OsString]>) -> String {
        let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        match self {
            Target::System => "system wide".to_owned(),
            Target::Cpus(cpus) => format!("cpu {}", list(cpus)),
            Target::Processes(pids) => format!("pid {}", list(pids)),
            Target::Threads(tids) => format!("tid {}", list(tids)),
            Target::Command => {
                let words = command.into_iter().flatten().map(|word| word.to_string_lossy());
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// BPF object of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFile {
    /// Path of the object file.
    pub path: PathBuf,
    /// Name of the one program to use; `None` uses all perf_event programs.
    pub program: Option<String>,
}

/// Rate or period of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// 4000 Hz; for a tracepoint, each occurrence.
    Default,
    /// Samples per second (`-F`).
    Frequency(u64),
    /// The highest rate that the kernel allows (`-F max`).
    MaxFrequency,
    /// One sample per this number of events (`-c`).
    Period(u64),
}

/// Size of a ring buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingSize {
    /// The largest power of two that needs no privilege, as in perf.
    Default,
    /// Pages, rounded up to a power of two.
    Pages(u64),
    /// Bytes, rounded up to a power of two.
    Bytes(u64),
}

/// Maximum size of a ring.
const RING_MAX_BYTES: usize = 1 << 30;

impl RingSize {
    /// Returns true if the size is at most 1 GiB, and the rings of all CPUs together take at most half of the machine's memory. Always true for the
    /// default.
    pub fn is_possible(self) -> bool {
        let wanted = match self {
            RingSize::Default => return true,
            RingSize::Pages(pages) => pages.saturating_mul(sys::page_bytes() as u64),
            RingSize::Bytes(bytes) => bytes,
        };
        let all = wanted.saturating_mul(machine::online_cpus().len() as u64);
        wanted <= RING_MAX_BYTES as u64 && sys::memory_bytes().is_none_or(|memory| all <= memory / 2)
    }

    /// Size of a ring's data in bytes: a power of two from one page to 1 GiB.
    pub(crate) fn bytes(self) -> usize {
        let page = sys::page_bytes();
        let wanted = match self {
            RingSize::Pages(pages) => usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(page),
            RingSize::Bytes(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            RingSize::Default => {
                let locked = machine::kernel_sysctl("perf_event_mlock_kb").and_then(|kb| usize::try_from(kb).ok());
                let usable = locked.unwrap_or(516).saturating_mul(1024).saturating_sub(page).max(page);
                // Largest power of two within the limit.
                1 << usable.ilog2()
            }
        };
        wanted.clamp(page, RING_MAX_BYTES).next_power_of_two()
    }
}

/// Output of the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A file; an existing file is kept as `<name>.old`.
    File(PathBuf),
    /// Standard output, in pipe format.
    Stdout,
}

/// Filters as the user typed them, separated by commas.
pub(crate) fn listed(filters: &[FunctionFilter]) -> String {
    filters.iter().map(FunctionFilter::to_string).collect::<Vec<_>>().join(",")
}

/// Source of run counts of programs.
#[derive(Debug, Clone, PartialEq)]
pub enum Counters {
    /// No run counts.
    Off,
    /// The kernel's run statistics, switched on during the recording.
    Stats,
    /// Run statistics, and exact counts by BPF programs that the recorder attaches to the counted programs. If the kernel
    /// refuses the recorder's programs, run statistics alone.
    Exact(Exact),
}

/// Options of exact counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exact {
    /// Functions to count; a filter without a function selects the entry function. Empty selects the entry function of
    /// every program.
    pub functions: Vec<FunctionFilter>,
    /// Lists of events, groups in braces. Empty means the events of the PMU: cycles and instructions.
    pub events: Vec<String>,
    /// Limit on the cost of counting.
    pub budget: Budget,
    /// True to report counts of each CPU beside the totals.
    pub per_cpu: bool,
}

/// Limit on the cost of counting runs of programs, as a fraction of the time of all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Budget {
    /// 2 % for run statistics, and 0.5 % for exact counters.
    #[default]
    Usual,
    /// This fraction of the machine for run statistics and exact counters together. If exact counters are on, run statistics may take half of it.
    Part(f64),
    /// No limit: all runs are counted.
    Unlimited,
}

impl Budget {
    /// Budget for continuous recordings.
    pub const LOW: Budget = Budget::Part(0.005);

    /// Fraction of the time that run statistics may take; `None` means no limit.
    fn of_statistics(self, with_exact: bool) -> Option<f64> {
        match self {
            Budget::Usual => Some(0.02),
            Budget::Part(part) => Some(if with_exact { part / 2.0 } else { part }),
            Budget::Unlimited => None,
        }
    }

    /// Fraction of the time that exact counters may take; `None` means no limit.
    pub(crate) fn of_exact(self) -> Option<f64> {
        match self {
            Budget::Usual => Some(0.005),
            Budget::Part(part) => Some(part),
            Budget::Unlimited => None,
        }
    }

    /// Limit on run statistics, ns of each second.
    pub(crate) fn statistics_ns(self, with_exact: bool) -> Option<f64> {
        self.of_statistics(with_exact).map(ns_per_second)
    }

    /// Limit on exact counters, ns of each second; includes run statistics if [`Budget::is_shared`] returns true.
    pub(crate) fn exact_ns(self) -> Option<f64> {
        self.of_exact().map(ns_per_second)
    }

    /// Returns true for [`Budget::Part`]: exact counters get the part of the limit that run statistics leave.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Budget::Part(_))
    }
}

/// CPU time that run statistics have taken so far, all CPUs together; all clones share the same value.
#[derive(Debug, Clone, Default)]
pub struct Taken(Arc<AtomicU64>);

impl Taken {
    /// CPU time, ns.
    pub fn ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, ns: u64) {
        self.0.store(ns, Ordering::Relaxed);
    }
}

/// Converts a fraction of the time of all CPUs to ns of each second.
fn ns_per_second(part: f64) -> f64 {
    part * machine::online_cpus().len() as f64 * 1e9
}

/// Conditions that end one file of a recording and start the next. Each file is complete, and no sample is lost
/// between two files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwitchOutput {
    /// Size limit of a file, bytes.
    pub size_bytes: Option<u64>,
    /// Time limit of a file.
    pub every: Option<Duration>,
    /// True to start the next file on SIGUSR2.
    pub on_signal: bool,
    /// Number of files to keep; the recorder deletes the oldest file beyond it.
    pub max_files: Option<NonZeroUsize>,
}

/// Method of recording user call chains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UserChains {
    /// No user call chains.
    #[default]
    None,
    /// The kernel records user call chains by frame pointer.
    FramePointers,
    /// User registers and a part of the user stack; a reader unwinds the stack by DWARF, as perf does.
    Dwarf {
        /// Bytes of the user stack: a multiple of 8, at most [`UserChains::STACK_BYTES_MAX`].
        stack_bytes: u32,
    },
}

impl UserChains {
    /// Default size of the stack copy in perf, bytes.
    pub const STACK_BYTES: u32 = 8192;
    /// Maximum size of the stack copy that fits into a record, as in perf.
    pub const STACK_BYTES_MAX: u32 = 65528;

    /// Returns true if the kernel records the user call chains.
    pub(crate) fn are_by_kernel(self) -> bool {
        self == UserChains::FramePointers
    }
}

#[cfg(test)]
mod tests {
    use super::Aggregate;

    #[test]
    fn stacks_are_counted_by_the_number_of_cpus() {
        let of = |entries| Aggregate { entries, user_addresses: false };
        assert_eq!([1, 8, 24, 64, 500].map(|cpus| of(None).entries_on(cpus)), [8192, 8192, 24_576, 65_536, 65_536]);
        assert_eq!(of(Some(100)).entries_on(64), 100);
    }
}
