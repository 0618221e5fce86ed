//! Programs, and what a recording says about itself.

use super::known::{Known, known_members};
use super::{Exact, ExactMembers, as_text};
use bprec_format::bpf::Tag;
use bprec_format::bpf::names::ProgType;
use schemars::JsonSchema;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write;

/// A moment of which the recording knows a lower and an upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TimeBound {
    /// Not before, ns since the recording's start.
    pub after_ns: i64,
    /// Not after.
    pub before_ns: i64,
}

impl TimeBound {
    /// Exactly then.
    pub fn at(time_ns: i64) -> TimeBound {
        TimeBound { after_ns: time_ns, before_ns: time_ns }
    }

    /// True if both bounds are the same moment.
    pub fn is_exact(&self) -> bool {
        self.after_ns == self.before_ns
    }
}

/// Runs of a program in the window, by the kernel's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Runs {
    /// Number of runs.
    pub count: u64,
    /// Runs per second; `null` when the time between the snapshots is not known.
    pub per_second: Option<f64>,
    /// Time in it, ns.
    pub time_ns: u64,
    /// Mean of a run; `null` when there was none.
    pub ns_per_run: Option<f64>,
    /// Time in it of one CPU's time; `null` when the time between the snapshots is not known.
    pub cpu_percent: Option<f64>,
    /// The same of the machine's time; `null` also when the number of its CPUs is not known.
    pub machine_percent: Option<f64>,
    /// Runs that the recursion guard refused; `null` when the kernel does not tell.
    pub misses: Option<u64>,
    /// Set where the kernel counted for a part of the time only: count and time are estimates for all of it.
    pub estimate: Option<RunsEstimate>,
    /// From when to when, ns of the recording's clock.
    #[serde(skip)]
    pub span: Option<(u64, u64)>,
}

/// Basis of an estimate of runs: the windows of time in which the kernel counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunsEstimate {
    /// Time for which the kernel counted, ns.
    pub counted_for_ns: u64,
    /// Half of the 95 % confidence interval of the count; `null` when there were too few windows to tell.
    pub count_margin: Option<u64>,
    /// The same of the time in the runs, ns; `null` also where none was counted.
    pub time_margin_ns: Option<u64>,
}

impl Runs {
    /// True if the kernel counted in windows; false if it lacks an edge of the time alone.
    pub(crate) fn is_from_windows(&self) -> bool {
        let length_ns = self.span.map(|(from_ns, to_ns)| to_ns.saturating_sub(from_ns));
        self.estimate.zip(length_ns).is_some_and(|(estimate, length_ns)| estimate.counted_for_ns < length_ns / 2)
    }

    /// Rates are of the time `span`, shares of the machine of all of its CPUs, which [`Runs::on`] tells.
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

    /// The same on a machine of so many CPUs.
    pub(crate) fn on(self, cpus: Option<u32>) -> Runs {
        let machine_percent = self.cpu_percent.zip(cpus).map(|(percent, cpus)| percent / f64::from(cpus));
        Runs { machine_percent, ..self }
    }

    /// Half of the 95 % confidence interval of the count: 0 where all runs were counted, `None` where it is not known.
    pub(crate) fn count_margin(&self) -> Option<u64> {
        self.estimate.map_or(Some(0), |estimate| estimate.count_margin)
    }

    /// The same of the time, ns.
    pub(crate) fn time_margin_ns(&self) -> Option<u64> {
        self.estimate.map_or(Some(0), |estimate| estimate.time_margin_ns)
    }
}

known_members!(RunsMembers { runs, runs_unknown, runs_reason }: Box<Runs>);
known_members!(MapMemoryMembers { map_memory_bytes, map_memory_unknown, map_memory_reason }: u64);

/// A process that holds a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Owner {
    /// Process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its user.
    pub uid: u32,
    /// Its cgroup path; empty when not known.
    pub cgroup: String,
}

/// A `bpf_metadata_*` value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Metadata {
    /// Name without the prefix.
    pub key: String,
    /// Value.
    pub value: String,
}

/// A program of the recording. Its key is `(id, load_time_ns)`; across recordings it is known by type, name and what it is
/// attached to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Program {
    /// Its id; `null` for a function whose program is not known.
    pub id: Option<u32>,
    /// When it was loaded, ns since boot.
    pub load_time_ns: Option<u64>,
    /// Full name of its entry function, as BTF has it.
    pub name: String,
    /// Type.
    #[serde(rename = "type", serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub prog_type: Option<ProgType>,
    /// Tag.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub tag: Option<Tag>,
    /// Names of its functions, the entry first.
    pub functions: Vec<String>,
    /// Attach points, `kind:target`.
    #[serde(rename = "attached")]
    pub attachments: Vec<String>,
    /// Processes that hold it.
    pub owners: Vec<Owner>,
    /// Paths at which it is pinned.
    pub pins: Vec<String>,
    /// The user who loaded it.
    pub uid: Option<u32>,
    /// `bpf_metadata_*` values.
    pub metadata: Vec<Metadata>,
    /// Memory that the kernel has charged for the maps it uses, bytes; a map that several programs use is in the number of each.
    #[serde(flatten, serialize_with = "MapMemoryMembers::serialize")]
    #[schemars(with = "MapMemoryMembers")]
    pub map_memory_bytes: Known<u64>,
    /// When it was loaded, if during the recording.
    pub loaded: Option<TimeBound>,
    /// When it was unloaded, if during the recording.
    pub unloaded: Option<TimeBound>,
    /// The interpreter runs it: it has no code that samples could be in.
    pub interpreted: bool,
    /// The recording knows where its code was: without that, samples in it cannot be told.
    #[serde(skip)]
    pub addressed: bool,
    /// Its `bpf_prog_info` is in the recording.
    pub captured: bool,
    /// It is one of those that the recorder puts around others to count them.
    pub counts_others: bool,
    /// Its runs in the window, by the kernel's statistics.
    #[serde(flatten, serialize_with = "RunsMembers::serialize")]
    #[schemars(with = "RunsMembers")]
    pub runs: Known<Box<Runs>>,
    /// Its exact counts in the window.
    #[serde(flatten, serialize_with = "ExactMembers::serialize")]
    #[schemars(with = "ExactMembers")]
    pub exact: Known<Box<Exact>>,
    /// The same of its functions other than the entry that were counted.
    pub exact_functions: Vec<Exact>,
}

/// Identity of a program, the same in every recording.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Its full name.
    pub name: String,
    /// Its type; empty where that is not known.
    pub prog_type: String,
    /// Attach points, sorted.
    pub attached: Vec<String>,
}

/// True if a kernel of this release makes tags with SHA-256, as from Linux 6.18 on, and not with SHA-1: tags of both
/// kinds cannot be compared. `None` where the release is not one of Linux.
pub fn has_sha256_tags(release: &str) -> Option<bool> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let number = |text: Option<&str>| text?.parse::<u32>().ok();
    let version = (number(numbers.next())?, number(numbers.next())?);
    Some(version >= (6, 18))
}

/// Name to show, also of a program without a name.
pub(super) fn program_label(name: &str, id: Option<u32>, tag: Option<Tag>) -> String {
    let label = match tag {
        _ if !name.is_empty() => name.to_owned(),
        Some(tag) => format!("[{tag}]"),
        None => "[no name]".into(),
    };
    id.map_or_else(|| label.clone(), |id| format!("{label} ({id})"))
}

impl Program {
    /// Identity across recordings.
    pub fn identity(&self) -> Identity {
        Identity {
            name: self.name.clone(),
            prog_type: self.prog_type.map_or_else(String::new, |prog_type| prog_type.to_string()),
            attached: {
                let mut attached = self.attachments.clone();
                attached.sort();
                attached.dedup();
                attached
            },
        }
    }

    /// Exact counts, unless statistics cover more of the time.
    pub fn exact_throughout(&self) -> Option<&Exact> {
        let exact = self.exact.value()?;
        match self.runs.value().and_then(|runs| runs.span) {
            Some(span) => exact.covers(span).then_some(exact),
            None => exact.ended.is_none().then_some(exact),
        }
    }

    /// Name to show, also of a program without a name.
    pub fn label(&self) -> String {
        program_label(&self.name, None, self.tag)
    }

    /// True if a recorder runs it for itself, or a loader that tries the kernel's abilities: such programs have no
    /// name.
    pub(crate) fn is_of_tools(&self) -> bool {
        self.name.is_empty() || self.name.starts_with("bprec_")
    }

    /// The same with the id that tells it from its equals.
    pub fn label_with_id(&self) -> String {
        program_label(&self.name, self.id, self.tag)
    }

    /// Holders: `comm/pid`, then paths at which it is pinned.
    pub fn holders(&self) -> String {
        let mut text = String::new();
        for owner in &self.owners {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}/{} ", owner.comm, owner.pid);
        }
        for pin in &self.pins {
            text.extend([pin.as_str(), " "]);
        }
        text.pop();
        text
    }
}

/// A program that was seen but is not in the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MissedProgram {
    /// Its id.
    pub id: u32,
    /// Its tag.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "Option<String>")]
    pub tag: Option<Tag>,
    /// When it was seen, ns since the recording's start.
    pub time_ns: Option<i64>,
    /// Why, in words.
    pub reason: Cow<'static, str>,
}

/// A CPU that was not sampled for a part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CpuNotSampled {
    /// Its number.
    pub cpu: u32,
    /// Since when, ns of the recording's clock.
    pub from_ns: u64,
    /// The same since the recording's start.
    pub after_ns: u64,
    /// It came online. If not, it went offline.
    pub came_online: bool,
}

/// Cost of the recording itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct RecorderCost {
    /// CPU time in user mode, ns.
    pub user_ns: u64,
    /// CPU time in the kernel, ns.
    pub system_ns: u64,
    /// Largest resident set.
    pub max_rss_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Times the recorder woke up.
    pub wakeups: u64,
    /// Share of the machine that run statistics took for this recording; `null` where it is not known.
    pub run_statistics: Option<StatisticsCost>,
}

/// Time that the kernel's run statistics took, all CPUs together: runs of programs while the recorder had them on,
/// times the time they add to a run. It is in the samples as well, in code that runs programs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct StatisticsCost {
    /// Time, ns.
    pub time_ns: u64,
    /// Share of one CPU, per cent.
    pub cpu_percent: Option<f64>,
    /// Share of the machine, per cent.
    pub machine_percent: Option<f64>,
}

/// Hardware traces in a recording, which are not decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TraceData {
    /// Hardware that made them: Intel PT, Arm SPE and so on; `null` when the recording does not say.
    pub kind: Option<String>,
    /// Size, bytes.
    pub bytes: u64,
}

/// Facts that the recording has about itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Recording {
    /// Machine's name.
    pub hostname: Option<String>,
    /// Kernel release.
    pub os_release: Option<String>,
    /// Architecture.
    pub arch: Option<String>,
    /// Model of its processors.
    pub cpu_model: Option<String>,
    /// CPUs that were online.
    pub cpus: Option<u32>,
    /// When it started, ns of the recording's clock.
    pub start_ns: u64,
    /// When it started, ns since 1970.
    #[serde(rename = "realtime_ns")]
    pub start_unix_ns: Option<u64>,
    /// Time that the report is about, ns.
    pub elapsed_ns: Option<u64>,
    /// Number of its files, where it has several.
    #[serde(skip_serializing_if = "is_one")]
    pub files: usize,
    /// Stretches between its files in which nothing was recorded, from and to, ns since it started. They are not part of `elapsed_ns`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<(i64, i64)>,
    /// The parts of its time that were selected, ns since it started; empty where that is all of it.
    #[serde(skip)]
    pub selected: Vec<(i64, i64)>,
    /// Target that was recorded, in words.
    pub target: Option<String>,
    /// Why the event is not the one that was asked for.
    pub event_note: Option<String>,
    /// Source of run statistics.
    pub counters: Option<String>,
    /// Why not more.
    pub counters_note: Option<String>,
    /// Another tool had run statistics on, at the start or later.
    pub statistics_of_others: bool,
    /// Records of any kind that did not make it into the recording, where losses are not counted by event.
    pub lost_records: u64,
    /// The kernel did not count losses.
    pub loss_not_counted: bool,
    /// CPUs that were not sampled from some time on, as they went offline or came online.
    pub cpus_not_sampled: Vec<CpuNotSampled>,
    /// The recorder did not come to its end.
    pub unfinished: bool,
    /// The recording names kernel functions.
    #[serde(rename = "kernel_symbols")]
    pub has_kernel_symbols: bool,
    /// Hardware traces; `null` where there are none.
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
