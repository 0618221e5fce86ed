//! Options of a recording: target, events, rate, output.

pub(crate) mod caller;
mod stat;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::events::machine;
use crate::{SamplerFields, SharedOptions, sys};
use bprec_bpf::Bounds;

pub use stat::{StatOptions, StatTarget};

/// Everything [`record`](crate::record) needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Target of the events.
    pub target: Target,
    /// Events as the user wrote them (`-e`), each possibly a list with commas. Empty means cycles, or the nearest thing.
    pub events: Vec<String>,
    /// Rate.
    pub rate: Rate,
    /// Samples that a BPF program of ours makes, beside the others.
    pub bpf_sampler: Option<SamplerFields>,
    /// Rate of its samples; `None`: as the main event.
    pub bpf_sampler_rate: Option<Rate>,
    /// Method of recording user call chains; kernel ones always are recorded.
    pub user_chains: UserChains,
    /// Name the functions of user space that samples hit when a file ends.
    pub user_symbols: bool,
    /// Name the kernel functions that samples hit as they do, for whoever reads a file while it is written; otherwise when it ends.
    pub early_symbols: bool,
    /// Objects whose perf_event programs run on events of their own, like those that sample.
    pub objects: Vec<ObjectFile>,
    /// Size of each CPU's ring buffer.
    pub ring: RingSize,
    /// Samples overwrite the oldest ones in the rings. What is there is written when a file ends.
    pub overwrite: bool,
    /// Output.
    pub output: Output,
    /// When one file ends and the next begins; `None`: everything goes into one.
    pub switch_output: Option<SwitchOutput>,
    /// Time between two syncs to the disk; `None`: at the end only.
    pub sync: Option<Duration>,
    /// Compress records with zstd, at a level of 1 to 22.
    pub compression_level: Option<u8>,
    /// Command to run; the recording ends with it.
    pub command: Option<Vec<OsString>>,
    /// Longest time to record.
    pub duration: Option<Duration>,
    /// Time from the start of the command to that of sampling.
    pub delay: Option<Duration>,
    /// Ends the recording when it becomes readable, or its other end is closed.
    pub stop: Option<Arc<OwnedFd>>,
    /// Source of run counts of programs.
    pub counters: Counters,
    /// Limit on run statistics, with exact counters where these are asked for.
    pub budget: Budget,
    /// CPU time that they have taken, for readers while the recording goes on.
    pub taken: Taken,
    /// Count events of what is recorded at context switches, and of the targets that this names beside it.
    pub shared: Option<SharedOptions>,
    /// Time between two snapshots of the counters.
    pub interval: Duration,
    /// Maps whose contents are read when sampling has ended.
    pub dump_maps: Vec<WantedMap>,
    /// Limits on what is read of each map.
    pub dump_bounds: Bounds,
    /// Count samples in the kernel, and write weighted ones at each interval.
    pub aggregate: Option<Aggregate>,
    /// The command line, for the file's CMDLINE.
    pub argv: Vec<OsString>,
    /// Takes messages as they arise.
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

/// Options of counting samples in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregate {
    /// Stacks that are counted per event and interval; `None`: by the number of CPUs, as each has its own.
    pub entries: Option<u32>,
    /// Tell samples in user mode apart by their addresses, also without user call chains.
    pub user_addresses: bool,
}

impl Aggregate {
    /// Stacks of each CPU, and limits on those of all: a small machine has many tasks, too, and memory is taken at once.
    const ENTRIES_PER_CPU: u32 = 1024;
    const ENTRIES_MIN: u32 = 8192;
    const ENTRIES_MAX: u32 = 1 << 16;

    /// Stacks that are counted per event and interval on so many CPUs.
    pub(crate) fn entries_on(self, cpus: usize) -> u32 {
        let of_cpus = u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(Aggregate::ENTRIES_PER_CPU);
        self.entries.unwrap_or(of_cpus.clamp(Aggregate::ENTRIES_MIN, Aggregate::ENTRIES_MAX))
    }
}

/// Level of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The recording is less than what was asked for.
    Warning,
    /// Good to know.
    Notice,
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
    /// These processes with all threads and their children to come (`-p`).
    Processes(Vec<u32>),
    /// These threads (`-t`).
    Threads(Vec<u32>),
    /// The command and its children.
    Command,
}

/// A map, or several of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedMap {
    /// The map with this id.
    Id(u32),
    /// All maps with such a name, as the kernel has it: `*`, `?`, `[a-z]`.
    Name(String),
}

impl FromStr for WantedMap {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<WantedMap, Infallible> {
        Ok(text.parse().map_or_else(|_| WantedMap::Name(text.to_owned()), WantedMap::Id))
    }
}

impl fmt::Display for WantedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WantedMap::Id(id) => write!(f, "{id}"),
            WantedMap::Name(name) => f.write_str(name),
        }
    }
}

/// A BPF object of the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFile {
    /// Its file.
    pub path: PathBuf,
    /// The one program that is meant; all perf_event programs otherwise.
    pub program: Option<String>,
}

/// Rate or period of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// 4000 Hz; each occurrence of a tracepoint.
    Default,
    /// Times per second (`-F`).
    Frequency(u64),
    /// The highest rate that the kernel allows (`-F max`).
    MaxFrequency,
    /// Once per so many events (`-c`).
    Period(u64),
}

/// Size of a ring buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingSize {
    /// The largest power of two that needs no special permission, as perf takes it.
    Default,
    /// Pages, rounded up to a power of two.
    Pages(u64),
    /// Bytes, rounded up to a power of two pages.
    Bytes(u64),
}

/// The largest ring.
const RING_MAX_BYTES: usize = 1 << 30;

impl RingSize {
    /// True if each CPU of this machine can have such a ring: all of them together may have half of the memory.
    pub fn is_possible(self) -> bool {
        let wanted = match self {
            RingSize::Default => return true,
            RingSize::Pages(pages) => pages.saturating_mul(sys::page_bytes() as u64),
            RingSize::Bytes(bytes) => bytes,
        };
        let all = wanted.saturating_mul(machine::online_cpus().len() as u64);
        wanted <= RING_MAX_BYTES as u64 && sys::memory_bytes().is_none_or(|memory| all <= memory / 2)
    }

    /// Bytes of a ring's data, within reason.
    pub(crate) fn bytes(self) -> usize {
        let page = sys::page_bytes();
        let wanted = match self {
            RingSize::Pages(pages) => usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(page),
            RingSize::Bytes(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            RingSize::Default => {
                let locked = machine::kernel_sysctl("perf_event_mlock_kb").and_then(|kb| usize::try_from(kb).ok());
                let usable = locked.unwrap_or(516).saturating_mul(1024).saturating_sub(page).max(page);
                // The largest power of two within it.
                1 << usable.ilog2()
            }
        };
        wanted.clamp(page, RING_MAX_BYTES).next_power_of_two()
    }
}

/// Output of the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A file; one that exists is kept as `<name>.old`.
    File(PathBuf),
    /// Standard output, in pipe format.
    Stdout,
}

/// Source of run counts of programs.
#[derive(Debug, Clone, PartialEq)]
pub enum Counters {
    /// Not counted.
    Off,
    /// The kernel's run statistics, switched on for the time of the recording.
    Stats,
    /// Run statistics, and programs of our own around those of others. Where that is not allowed, run statistics alone.
    Exact(Exact),
}

/// Options of counting by programs around others'.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exact {
    /// Programs, by full name or id, and functions of each: shell patterns `PROGRAM[:FUNCTION]`, several with commas.
    /// `None` is the entry of every program.
    pub pattern: Option<String>,
    /// Lists of events, groups in braces. Empty means what a PMU has: cycles and instructions.
    pub events: Vec<String>,
    /// Limit on counting.
    pub budget: Budget,
    /// Counts of each CPU beside those of all.
    pub per_cpu: bool,
}

/// Limit on counting runs of programs, as a part of the time of all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Budget {
    /// 2 % for run statistics, which count all runs below that, and 0.5 % for exact counters.
    #[default]
    Usual,
    /// This part of 1 for both together; run statistics may have half of it where there are exact counters.
    Part(f64),
    /// All of the machine: all runs are counted.
    Unlimited,
}

impl Budget {
    /// For recordings that go on all the time.
    pub const LOW: Budget = Budget::Part(0.005);

    /// The part of 1 that run statistics may take; `None` without a limit.
    fn of_statistics(self, with_exact: bool) -> Option<f64> {
        match self {
            Budget::Usual => Some(0.02),
            Budget::Part(part) => Some(if with_exact { part / 2.0 } else { part }),
            Budget::Unlimited => None,
        }
    }

    /// The same for exact counters.
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

    /// Limit on exact counters, ns of each second, of which run statistics are paid as well where [`Budget::is_shared`] says so.
    pub(crate) fn exact_ns(self) -> Option<f64> {
        self.of_exact().map(ns_per_second)
    }

    /// Exact counters have what run statistics leave of the limit.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Budget::Part(_))
    }
}

/// CPU time that run statistics have taken so far, all CPUs together: all clones of one are the same.
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

/// A part of 1 of the time of all CPUs, ns of each second.
fn ns_per_second(part: f64) -> f64 {
    part * machine::online_cpus().len() as f64 * 1e9
}

/// When one file of a recording ends and the next one begins. Each is complete by itself, and no sample is lost between two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwitchOutput {
    /// When a file has this many bytes.
    pub size_bytes: Option<u64>,
    /// When it has gone on for this long.
    pub every: Option<Duration>,
    /// On SIGUSR2.
    pub on_signal: bool,
    /// Keep this many files; the oldest is deleted when there is one more.
    pub max_files: Option<NonZeroUsize>,
}

/// User call chains of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UserChains {
    /// None.
    #[default]
    None,
    /// Taken by the kernel, by frame pointer.
    FramePointers,
    /// User registers and so many bytes of the user stack, for a reader to unwind by DWARF as perf does.
    Dwarf {
        /// A multiple of 8, at most [`UserChains::STACK_BYTES_MAX`].
        stack_bytes: u32,
    },
}

impl UserChains {
    /// Bytes of the stack that perf takes by default.
    pub const STACK_BYTES: u32 = 8192;
    /// The most that fits into a record, as perf has it.
    pub const STACK_BYTES_MAX: u32 = 65528;

    /// The kernel takes them.
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
