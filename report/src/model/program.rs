//! Programs, and facts about the recording.

use super::known::{Known, known_members};
use super::text::UNNAMED;
use super::{Exact, ExactMembers, as_text};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use bprec_format::bprec::state::{self, AttachTarget};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A time with a lower and an upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TimeBound {
    /// Lower bound, ns since the recording's start.
    pub after_ns: i64,
    /// Upper bound, ns since the recording's start.
    pub before_ns: i64,
}

impl TimeBound {
    /// Makes both bounds equal to an exactly known time.
    pub fn at(time_ns: i64) -> TimeBound {
        TimeBound { after_ns: time_ns, before_ns: time_ns }
    }

    /// Returns true if the time is exact.
    pub fn is_exact(&self) -> bool {
        self.after_ns == self.before_ns
    }
}

/// Runs of a program in the selected time, by run statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Runs {
    /// Number of runs.
    pub count: u64,
    /// Runs per second; `null` if the time between the snapshots is unknown.
    pub per_second: Option<f64>,
    /// Time in the runs, ns.
    pub time_ns: u64,
    /// Mean time per run, ns; `null` without runs.
    pub ns_per_run: Option<f64>,
    /// Time in the runs, % of one CPU; `null` if the time between the snapshots is unknown.
    pub cpu_percent: Option<f64>,
    /// Time in the runs, % of the machine; `null` if `cpu_percent` is `null` or the number of CPUs is unknown.
    pub machine_percent: Option<f64>,
    /// Runs that the kernel's recursion guard refused; `null` when unknown.
    pub misses: Option<u64>,
    /// Basis of the estimate; `null` if the kernel counted all of the time. Otherwise, `count` and `time_ns` are scaled up to all of the time.
    pub estimate: Option<RunsEstimate>,
    /// Start and end of the counts, ns of the recording's clock.
    #[serde(skip)]
    pub span: Option<(u64, u64)>,
}

/// Basis of an estimate of runs: the windows of time in which the kernel counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunsEstimate {
    /// Time for which the kernel counted, ns.
    pub counted_for_ns: u64,
    /// Half of the 95 % confidence interval of the count; `null` with too few windows.
    pub count_margin: Option<u64>,
    /// Half of the 95 % confidence interval of the time in the runs, ns; `null` with too few windows, or if no time was counted.
    pub time_margin_ns: Option<u64>,
}

impl Runs {
    /// Returns true if the kernel counted for less than half of the time: it then counted in short windows. Counting that only began late or ended
    /// early covers more than half.
    pub(crate) fn is_from_windows(&self) -> bool {
        let length_ns = self.span.map(|(from_ns, to_ns)| to_ns.saturating_sub(from_ns));
        self.estimate.zip(length_ns).is_some_and(|(estimate, length_ns)| estimate.counted_for_ns < length_ns / 2)
    }

    /// Makes runs with rates over `span`. [`Runs::on`] adds the share of the machine.
    pub(crate) fn new(count: u64, time_ns: u64, misses: Option<u64>, span: Option<(u64, u64)>) -> Runs {
        let ns_per_run = (count > 0).then(|| time_ns as f64 / count as f64);
        let length_ns = span.map(|(from_ns, to_ns)| to_ns.saturating_sub(from_ns)).filter(|ns| *ns > 0);
        let per_second = length_ns.map(|length_ns| count as f64 * 1e9 / length_ns as f64);
        let cpu_percent = length_ns.map(|length_ns| time_ns as f64 * 100.0 / length_ns as f64);
        Runs {
            count,
            per_second,
            time_ns,
            ns_per_run,
            cpu_percent,
            machine_percent: None,
            misses,
            estimate: None,
            span,
        }
    }

    /// Returns the runs with their share of a machine that has `cpus` CPUs.
    pub(crate) fn on(self, cpus: Option<u32>) -> Runs {
        let machine_percent = self.cpu_percent.zip(cpus).map(|(percent, cpus)| percent / f64::from(cpus));
        Runs { machine_percent, ..self }
    }

    /// Half of the 95 % confidence interval of the count: 0 if all runs were counted, `None` when unknown.
    pub(crate) fn count_margin(&self) -> Option<u64> {
        self.estimate.map_or(Some(0), |estimate| estimate.count_margin)
    }

    /// Half of the 95 % confidence interval of the time, ns: 0 if all runs were counted, `None` when unknown.
    pub(crate) fn time_margin_ns(&self) -> Option<u64> {
        self.estimate.map_or(Some(0), |estimate| estimate.time_margin_ns)
    }
}

known_members!(RunsMembers { runs, runs_unknown, runs_reason }: Box<Runs>);
known_members!(MapMemoryMembers { map_memory_bytes, map_memory_unknown, map_memory_reason }: u64);

/// A process that holds a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Owner {
    /// Id of the process.
    pub pid: u32,
    /// Name of the process.
    pub comm: String,
    /// User of the process.
    pub uid: u32,
    /// Cgroup path; empty when unknown.
    pub cgroup: String,
}

/// A `bpf_metadata_*` value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Metadata {
    /// Name without `bpf_metadata_`.
    pub key: String,
    /// Value as text.
    pub value: String,
}

/// Work of the kernel for the load of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProgramLoad {
    /// Machine code of the program, bytes; `null` when unknown.
    pub jited_bytes: Option<u32>,
    /// Instructions that the verifier processed, those of all paths; `null` when unknown and before Linux 5.16.
    pub verified_insns: Option<u32>,
    /// Time from the load time to the announcement of the program, in which the kernel verified and compiled it, ns; `null` if the program was not
    /// loaded during the recording, and when unknown.
    pub load_duration_ns: Option<u64>,
}

/// Serializes a load without known facts as one whose facts are all unknown.
fn load_members<S: Serializer>(load: &Option<Box<ProgramLoad>>, serializer: S) -> Result<S::Ok, S::Error> {
    load.as_deref().copied().unwrap_or_default().serialize(serializer)
}

/// Attach point of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attachment {
    /// Kind of attachment, such as `xdp` or `kprobe`.
    pub kind: String,
    /// Target, with the kinds of the names in it; empty if the recording has none.
    pub target: AttachTarget,
}

impl From<&state::Attachment> for Attachment {
    fn from(recorded: &state::Attachment) -> Attachment {
        Attachment { kind: recorded.kind.clone(), target: recorded.target.clone() }
    }
}

/// `kind:target`, or `kind` without a target.
impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match String::from_utf8_lossy(self.target.text()) {
            target if target.is_empty() => f.write_str(&self.kind),
            target => write!(f, "{}:{target}", self.kind),
        }
    }
}

impl Serialize for Attachment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A program of the recording. Its key is `(id, load_time_ns)`; across recordings its key is type, name and attach points.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Program {
    /// Id of the program; `null` when unknown.
    pub id: Option<u32>,
    /// Load time, ns since boot.
    pub load_time_ns: Option<u64>,
    /// Full name of the entry function, from BTF.
    pub name: String,
    /// Type.
    #[serde(rename = "type", serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub prog_type: Option<ProgType>,
    /// Tag.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub tag: Option<Tag>,
    /// Names of the functions, the entry first.
    pub functions: Box<[String]>,
    /// Attach points, `kind:target`.
    #[serde(rename = "attached")]
    #[schemars(with = "Vec<String>")]
    pub attachments: Vec<Attachment>,
    /// Base name of the source file, from the line information; `None` without line information. Without headers, and without names that
    /// redaction replaced.
    #[serde(skip)]
    pub source_file: Option<Box<str>>,
    /// Processes that hold the program.
    pub owners: Vec<Owner>,
    /// Paths of bpffs pins.
    pub pins: Box<[String]>,
    /// User who loaded the program.
    pub uid: Option<u32>,
    /// `bpf_metadata_*` values.
    pub metadata: Box<[Metadata]>,
    /// Memory of the program's maps, bytes. A shared map counts fully for each of its programs.
    #[serde(flatten, serialize_with = "MapMemoryMembers::serialize")]
    #[schemars(with = "MapMemoryMembers")]
    pub map_memory_bytes: Known<u64>,
    /// Facts of the program's load; `None` if none is known.
    #[serde(flatten, serialize_with = "load_members")]
    #[schemars(with = "ProgramLoad")]
    pub load: Option<Box<ProgramLoad>>,
    /// Load time, if the program was loaded during the recording.
    pub loaded: Option<TimeBound>,
    /// Unload time, if the program was unloaded during the recording.
    pub unloaded: Option<TimeBound>,
    /// True if the interpreter runs the program: no sample can be in its code.
    pub interpreted: bool,
    /// True if the addresses of the code are known: without them, no sample can be assigned.
    #[serde(skip)]
    pub addressed: bool,
    /// True if the recording has the `bpf_prog_info` of the program.
    pub captured: bool,
    /// True for the recorder's programs that count other programs.
    pub counts_others: bool,
    /// True for programs with which a recorder measures.
    #[serde(skip)]
    pub of_recorder: bool,
    /// Runs in the selected time, by run statistics.
    #[serde(flatten, serialize_with = "RunsMembers::serialize")]
    #[schemars(with = "RunsMembers")]
    pub runs: Known<Box<Runs>>,
    /// Hits of the program's kprobes that ran no program, because their CPU ran another kprobe, or a return probe had too many open calls. They are
    /// neither in `runs.count` nor in `runs.misses`. `null` for programs without kprobes, if only a part of the time is selected, and when unknown.
    pub probe_misses: Option<u64>,
    /// Exact counts in the selected time.
    #[serde(flatten, serialize_with = "ExactMembers::serialize")]
    #[schemars(with = "ExactMembers")]
    pub exact: Known<Box<Exact>>,
    /// Exact counts of functions other than the entry.
    pub exact_functions: Box<[Exact]>,
}

#[cfg(test)]
impl Default for Program {
    /// Returns a program without known facts. `captured` and `addressed` are true.
    fn default() -> Program {
        Program {
            id: None,
            load_time_ns: None,
            name: String::new(),
            tag: None,
            prog_type: None,
            functions: Box::default(),
            map_memory_bytes: Known::Unknown(super::Reason::NoProgInfo),
            load: None,
            loaded: None,
            unloaded: None,
            attachments: Vec::new(),
            source_file: None,
            owners: Vec::new(),
            pins: Box::default(),
            uid: None,
            metadata: Box::default(),
            interpreted: false,
            addressed: true,
            captured: true,
            counts_others: false,
            of_recorder: false,
            runs: Known::Unknown(super::Reason::NoRunStatistics),
            probe_misses: None,
            exact: Known::Unknown(super::Reason::NoExactCounters),
            exact_functions: Box::default(),
        }
    }
}

/// Owner of the programs with which a recorder measures.
pub(crate) const RECORDER: &str = "(bprec)";

/// Identity of a program across recordings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Full name.
    pub name: String,
    /// Type; empty when unknown.
    pub prog_type: String,
    /// Attach points, sorted.
    pub attached: Vec<String>,
}

/// Returns true if kernels of this release compute tags with SHA-256 (Linux 6.18 and later), false for SHA-1. A SHA-256 tag cannot be compared with a
/// SHA-1 tag. `None` for releases that are not Linux versions.
pub fn has_sha256_tags(release: &str) -> Option<bool> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let number = |text: Option<&str>| text?.parse::<u32>().ok();
    let version = (number(numbers.next())?, number(numbers.next())?);
    Some(version >= (6, 18))
}

/// Label for people: the name, or the tag of a program without a name; followed by the id if given.
pub(crate) fn program_label(name: &str, id: Option<u32>, tag: Option<Tag>) -> String {
    let label = match tag {
        _ if !name.is_empty() => name.to_owned(),
        Some(tag) => format!("[{tag}]"),
        None => UNNAMED.into(),
    };
    id.map_or_else(|| label.clone(), |id| format!("{label} ({id})"))
}

impl Program {
    /// Facts of the program's load.
    pub(crate) fn load(&self) -> ProgramLoad {
        self.load.as_deref().copied().unwrap_or_default()
    }

    /// Attach points as text.
    pub(crate) fn attached(&self) -> Vec<String> {
        self.attachments.iter().map(Attachment::to_string).collect()
    }

    /// Identity across recordings.
    pub fn identity(&self) -> Identity {
        Identity {
            name: self.name.clone(),
            prog_type: self.prog_type.map_or_else(String::new, |prog_type| prog_type.to_string()),
            attached: {
                let mut attached = self.attached();
                attached.sort();
                attached.dedup();
                attached
            },
        }
    }

    /// Returns the exact counts if they cover the time of the run statistics. If this time is unknown, returns the exact counts unless counting ended
    /// before the end of the recording.
    pub fn exact_throughout(&self) -> Option<&Exact> {
        let exact = self.exact.value()?;
        match self.runs.value().and_then(|runs| runs.span) {
            Some(span) => exact.covers(span).then_some(exact),
            None => exact.ended.is_none().then_some(exact),
        }
    }

    /// Label for people: the name, or the tag of a program without a name.
    pub fn label(&self) -> String {
        program_label(&self.name, None, self.tag)
    }

    /// Returns true for programs of a recorder and for unnamed programs. Loaders load unnamed programs for themselves, for instance to probe the
    /// kernel.
    pub(crate) fn is_of_tools(&self) -> bool {
        self.name.is_empty() || self.of_recorder
    }

    /// Names of the processes that hold the program; `(bprec)` for a program with which a recorder measures.
    pub(crate) fn owner_names(&self) -> impl Iterator<Item = &str> {
        let owners = self.owners.iter().filter(|_| !self.of_recorder).map(|owner| owner.comm.as_str());
        self.of_recorder.then_some(RECORDER).into_iter().chain(owners)
    }

    /// Label with the id: several programs may have the same name.
    pub fn label_with_id(&self) -> String {
        program_label(&self.name, self.id, self.tag)
    }

    /// Holders: `comm/pid`, then bpffs pins. Programs with which a recorder measures have `(bprec)` instead of processes.
    pub fn holders(&self) -> String {
        self.processes().chain(self.pins.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    /// Processes that hold the program, `comm/pid`; `(bprec)` for a program with which a recorder measures.
    pub(crate) fn processes(&self) -> impl Iterator<Item = String> {
        let recorder = self.of_recorder.then(|| RECORDER.to_owned());
        let owners = self.owners.iter().filter(|_| !self.of_recorder);
        recorder.into_iter().chain(owners.map(|owner| format!("{}/{}", owner.comm, owner.pid)))
    }
}

impl Recording {
    /// Returns the length of the selected time before a moment, ns. The moment is in ns since the recording's start. `None` if the moment is not
    /// selected.
    pub(crate) fn selected_before(&self, at_ns: i64) -> Option<i64> {
        if self.selected.is_empty() {
            return Some(at_ns.saturating_sub(length_before(&self.gaps, at_ns)));
        }
        let is_selected = self.selected.iter().any(|(from, to)| (*from..=*to).contains(&at_ns));
        is_selected.then(|| length_before(&self.selected, at_ns))
    }
}

/// Returns the length of all spans up to a moment, ns.
fn length_before(spans: &[(i64, i64)], at_ns: i64) -> i64 {
    let lengths = spans.iter().map(|(from, to)| at_ns.min(*to).saturating_sub(*from).max(0));
    lengths.fold(0, i64::saturating_add)
}

/// A program that was announced but not captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MissedProgram {
    /// Id of the program.
    pub id: u32,
    /// Tag of the program.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub tag: Option<Tag>,
    /// Time of the announcement, ns since the recording's start.
    pub time_ns: Option<i64>,
    /// Reason why the program was not captured, in words.
    pub reason: Cow<'static, str>,
}

/// A CPU that was not sampled for a part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CpuNotSampled {
    /// Index of the CPU.
    pub cpu: u32,
    /// Time when the CPU went offline or came online, ns of the recording's clock.
    pub from_ns: u64,
    /// Time when the CPU went offline or came online, ns since the recording's start.
    pub after_ns: u64,
    /// Time when the CPU was sampled again, ns since the recording's start; `null` if it was not.
    pub until_ns: Option<u64>,
    /// True if the CPU came online, false if it went offline.
    pub came_online: bool,
}

/// Cost of the recording itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct RecorderCost {
    /// CPU time in user mode, ns.
    pub user_ns: u64,
    /// CPU time in the kernel, ns.
    pub system_ns: u64,
    /// Largest resident set size.
    pub max_rss_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Wake-ups of the recorder.
    pub wakeups: u64,
    /// Time that counting by run statistics took for this recording; `null` when unknown.
    pub run_statistics: Option<StatisticsCost>,
}

/// Time that counting by run statistics took on all CPUs: the number of runs while the recorder had statistics on, multiplied by the overhead per
/// run. Samples show this time in the kernel code that runs programs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct StatisticsCost {
    /// Time, ns.
    pub time_ns: u64,
    /// Share of one CPU, %.
    pub cpu_percent: Option<f64>,
    /// Share of the machine, %.
    pub machine_percent: Option<f64>,
}

/// Hardware traces in a recording. They are not decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TraceData {
    /// Source of the trace: Intel PT, Arm SPE and so on; `null` when unknown.
    pub kind: Option<String>,
    /// Size of the traces, bytes.
    pub bytes: u64,
}

/// Facts about the recording.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Recording {
    /// Host name of the machine.
    pub hostname: Option<String>,
    /// Id of the machine, 32 hexadecimal digits: the same under every host name and after each boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
    /// Id of the boot, 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Kernel release.
    pub os_release: Option<String>,
    /// Architecture.
    pub arch: Option<String>,
    /// Model of the processors.
    pub cpu_model: Option<String>,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// Start of the recording, ns of its clock.
    pub start_ns: u64,
    /// Start of the recording, ns since 1970.
    #[serde(rename = "realtime_ns")]
    pub start_unix_ns: Option<u64>,
    /// Duration that the report covers, ns.
    pub elapsed_ns: Option<u64>,
    /// Number of files of the recording, if several.
    #[serde(skip_serializing_if = "is_one")]
    pub files: usize,
    /// Gaps between files, start and end in ns since the recording's start. Not part of `elapsed_ns`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<(i64, i64)>,
    /// Selected time ranges, ns since the recording's start; empty if everything is selected.
    #[serde(skip)]
    pub selected: Vec<(i64, i64)>,
    /// Recorded target, in words.
    pub target: Option<String>,
    /// Reason why the recorder replaced the requested event.
    pub event_note: Option<String>,
    /// Source of the counts of runs: `exact`, which includes the counts of `stats`, `stats` or `off`.
    pub counters: Option<String>,
    /// Reasons why counts are missing or limited.
    pub counters_note: Option<String>,
    /// True if another tool had run statistics on at the start or later.
    pub statistics_of_others: bool,
    /// Lost records of any kind, if losses are not counted by event.
    pub lost_records: u64,
    /// True if the kernel does not count losses.
    pub loss_not_counted: bool,
    /// CPUs that went offline or came online during the recording.
    pub cpus_not_sampled: Vec<CpuNotSampled>,
    /// True if the recording was cut off: the recorder did not finish it.
    pub unfinished: bool,
    /// True if the recording has names of kernel functions.
    #[serde(rename = "kernel_symbols")]
    pub has_kernel_symbols: bool,
    /// Hardware traces; `null` if the recording has no traces.
    pub trace_data: Option<TraceData>,
    /// Cost of the recording.
    pub cost: Option<RecorderCost>,
}

fn is_one(files: &usize) -> bool {
    *files <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_tags_changed_with_linux_6_18() {
        for (release, sha256) in [
            ("6.17.9-arch1-1", Some(false)),
            ("6.18.0", Some(true)),
            ("6.18-rc1", Some(true)),
            ("7.0.1-generic", Some(true)),
            ("5.10.0-28-amd64", Some(false)),
            ("6", None),
            ("linux", None),
        ] {
            assert_eq!(has_sha256_tags(release), sha256, "{release}");
        }
    }
}
