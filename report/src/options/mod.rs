//! Options of a report. Each type parses its command-line text.

mod style;
pub(crate) mod wall_clock;

pub use style::{Paint, TableColumns, TableStyle, TextStyle, Tone};

use crate::{Error, Result};
use bprec_filter::{CpuList, FunctionFilter, ProgFilter};
use std::fmt;
use std::str::FromStr;

/// Options of a report; the default selects everything, by program.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Key that splits each program's cost or groups programs; `None` for one row per program.
    pub by: Option<By>,
    /// Filters of programs: a program is selected if one filter matches; empty selects all.
    pub programs: Vec<ProgFilter>,
    /// Order of the rows.
    pub sort: Sort,
    /// Selected part of the time.
    pub time: TimeRange,
    /// Selected CPUs; `None` selects all.
    pub cpus: Option<CpuList>,
    /// Selected task names (glob patterns); empty selects all.
    pub comms: Vec<String>,
    /// Selected events; empty selects all sampling events.
    pub events: Vec<String>,
    /// Limit on the number of programs, and on the number of parts of each program.
    pub limit: Option<usize>,
    /// Least share of all samples for a row, %. Programs that the event cannot sample are shown in any case.
    pub percent_limit: Option<f64>,
    /// True to show programs without samples and runs.
    pub all: bool,
    /// True to combine in one line the programs of recorders and the unnamed programs. Loaders load unnamed programs for themselves, for instance to
    /// probe the kernel.
    pub folds_tools: bool,
    /// True to keep mangled names of functions in user space.
    pub keep_mangled: bool,
    /// True to fail if no program of the recording matches `programs`, or no task matches `comms`. False for a live recording: a program that
    /// matches can still be loaded.
    pub must_match: bool,
    /// Number of threads that attribute samples; `None` for one per CPU. The report is the same for any number.
    pub threads: Option<usize>,
}

impl Options {
    /// Key that splits the cost of a program, if any.
    pub(crate) fn split(&self) -> Option<Split> {
        match self.by {
            Some(By::Split(split)) => Some(split),
            Some(By::Group(_)) | None => None,
        }
    }

    /// Key that groups programs, if any.
    pub(crate) fn group(&self) -> Option<Group> {
        match self.by {
            Some(By::Group(group)) => Some(group),
            Some(By::Split(_)) | None => None,
        }
    }
}

/// Default threshold of a program's tree, % of [`crate::model::Tree::total`]: smaller parts of the tree are folded.
pub const TREE_PERCENT_LIMIT: f64 = 0.5;

/// Options of [`crate::Session::annotate`].
#[derive(Debug, Clone, Default)]
pub struct AnnotateOptions {
    /// Selection of programs and samples. The first selected event with samples in a program is used. [`Options::limit`] is the number of hottest
    /// lines per program; lines next to them are shown, too.
    pub query: Options,
    /// Filters of functions in the selected programs. They restrict a program only if at least one filter matches the program and all matching
    /// filters name a function. All functions of any other program are shown.
    pub functions: Vec<FunctionFilter>,
    /// Least share of the program's charged samples for a line, %; lines next to such a line are shown, too.
    pub percent_limit: Option<f64>,
}

/// Kind of rows: programs split into parts, or groups of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// The cost of each program in parts.
    Split(Split),
    /// One row for several programs.
    Group(Group),
}

impl By {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            By::Split(split) => split.name(),
            By::Group(group) => group.name(),
        }
    }
}

impl FromStr for By {
    type Err = Error;

    fn from_str(text: &str) -> Result<By> {
        let group = || text.parse().map(By::Group);
        text.parse().map(By::Split).or_else(|_: Error| group()).map_err(|_| {
            let names = Split::NAMES.iter().map(|(_, name)| *name).chain(Group::NAMES.iter().map(|(_, name)| *name));
            Error::option("--by", text, format!("expected one of {}", names.collect::<Vec<_>>().join(" ")))
        })
    }
}

impl From<Split> for By {
    fn from(split: Split) -> By {
        By::Split(split)
    }
}

impl From<Group> for By {
    fn from(group: Group) -> By {
        By::Group(group)
    }
}

impl serde::Serialize for By {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Key that splits the cost of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Functions of the program.
    Func,
    /// Helper or kfunc called by the program.
    Helper,
    /// Payer: context in which the program ran.
    Payer(Payer),
}

/// Kind of payer: context in which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payer {
    /// Tasks of one name.
    Comm,
    /// A process.
    Pid,
    /// A cgroup.
    Cgroup,
    /// A container, pod or systemd unit.
    Container,
    /// A CPU.
    Cpu,
}

/// Property that groups programs. Each program is in one row: a program with several holders or hooks is in the row of the whole combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// Names of the processes that hold the program.
    Owner,
    /// Name of the program.
    Name,
    /// Type of the program.
    Type,
    /// Attach points of the program.
    Hook,
}

/// Declares names of variants for parsing and printing.
///
/// A variant can have further names for parsing (`| "alias"`). A function after `else` can return a hint for the error about a value that is not
/// accepted.
macro_rules! named {
    (
        $type:ident, $option:literal $(else $why:path)?,
        $($variant:ident $(($of:path))? = $name:literal $(| $alias:literal)*,)*
    ) => {
        impl $type {
            /// All variants with their names on the command line.
            pub const NAMES: &'static [($type, &'static str)] = &[$(($type::$variant $(($of))?, $name),)*];

            /// The name on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant $(($of))? => $name,)*
                }
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<$type> {
                match text {
                    $($name $(| $alias)* => Ok($type::$variant $(($of))?),)*
                    _ => {
                        $(if let Some(why) = $why(text) {
                            return Err(Error::option($option, text, why));
                        })?
                        Err(Error::option($option, text, concat!("expected one of" $(, " ", $name)*)))
                    }
                }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

/// Writes variants of enums as the words that they are in JSON.
macro_rules! worded_by_json {
    ($($type:ty),*) => {
        $(impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, f)
            }
        })*
    };
}

pub(crate) use worded_by_json;

pub(crate) mod condition;
// The module uses the macro `named`, so it is declared here.
pub(crate) mod diff;

named! { Split, "--by",
    Func = "func",
    Payer(Payer::Comm) = "comm",
    Payer(Payer::Pid) = "pid",
    Payer(Payer::Cpu) = "cpu",
    Payer(Payer::Cgroup) = "cgroup",
    Payer(Payer::Container) = "container",
    Helper = "helper",
}

named! { Payer, "--payers",
    Comm = "comm",
    Pid = "pid",
    Cgroup = "cgroup",
    Container = "container",
    Cpu = "cpu",
}

impl Payer {
    /// Returns true if the payer needs the names of tasks.
    pub(crate) fn needs_tasks(self) -> bool {
        matches!(self, Payer::Comm | Payer::Pid)
    }
}

named! { Group, "--by",
    Owner = "owner",
    Name = "name",
    Type = "type",
    Hook = "hook",
}

/// Column that orders the rows: numbers descending, names ascending. Ties are ordered by program id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Charged cost.
    #[default]
    Cost,
    /// Charged samples.
    Samples,
    /// Samples in the program's own code.
    SelfTime,
    /// Samples in kernel code that the program calls.
    Helper,
    /// Samples in kernel code that runs the program.
    Entry,
    /// Samples in the program and in programs that it tail-calls or triggers.
    Total,
    /// Runs.
    Runs,
    /// Time per run.
    NsPerRun,
    /// Time of all runs together.
    Cpu,
    /// Runs that the kernel's recursion guard refused.
    Misses,
    /// Id of the program.
    Id,
    /// Name of the program.
    Name,
    /// Type of the program.
    Type,
}

named! { Sort, "--sort" else sorted_elsewhere,
    Cost = "cost" | "overhead" | "period",
    Samples = "samples" | "sample",
    SelfTime = "self",
    Helper = "helper",
    Entry = "entry",
    Total = "total" | "overhead_children",
    Runs = "runs",
    NsPerRun = "ns/run",
    Cpu = "cpu",
    Misses = "misses",
    Id = "id",
    Name = "name",
    Type = "type",
}

/// Returns an explanation of the options to use in place of a key of `perf report --sort` that this table does not have; `None` for any other key.
fn sorted_elsewhere(key: &str) -> Option<String> {
    let answer = match key {
        "comm" | "pid" | "cgroup" => {
            format!("sort by cost, runs or another column; --by {key} splits the cost of each program")
        }
        "sym" | "symbol" => "--by func shows functions, --lines shows source lines".to_owned(),
        _ => return None,
    };
    Some(format!("rows of this table are programs: {answer}"))
}

/// A time range: `START,STOP` in seconds, where either may be empty; `@START,STOP` in seconds of the recording's clock; `A%-B%` of the duration;
/// `A%/N` for the N-th slice of A per cent. Percent forms can be listed with commas.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum TimeRange {
    /// The whole recording.
    #[default]
    All,
    /// Start and end, ns of the recording's clock.
    Absolute(Option<u64>, Option<u64>),
    /// Start and end, ns since the recording's start. Values that can only be times of the recording's clock are clock times, as in perf.
    Plain(Option<u64>, Option<u64>),
    /// Parts of the duration: start and end in millionths of the duration.
    Percent(Vec<(u64, u64)>),
}

/// Units of [`TimeRange::Percent`] in the whole duration.
pub(crate) const PARTS: u64 = 1_000_000;

impl FromStr for TimeRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<TimeRange> {
        let bad = |problem: &str| Error::option("--time", text, problem);
        if text.contains('%') {
            let parts: Option<Vec<_>> = text.split(',').map(percent_part).collect();
            return parts.map(TimeRange::Percent).ok_or_else(|| bad("expected parts like 10%-20% or 10%/2"));
        }
        let (start, stop) = text.split_once(',').ok_or_else(|| bad("expected START,STOP in seconds, or 10%-20%"))?;
        let is_clock = text.contains('@');
        let seconds = |text: &str| match text.trim() {
            "" => Ok(None),
            text => nanoseconds(text.strip_prefix('@').unwrap_or(text))
                .map(Some)
                .ok_or_else(|| bad("expected seconds like 12.345678")),
        };
        let (start, stop) = (seconds(start)?, seconds(stop)?);
        if let (Some(start), Some(stop)) = (start, stop)
            && start > stop
        {
            return Err(bad("the range stops before it starts"));
        }
        Ok(if is_clock { TimeRange::Absolute(start, stop) } else { TimeRange::Plain(start, stop) })
    }
}

/// Parses `10%-20%`, `10%/2`, or `10%`, which means `10%/1`.
fn percent_part(text: &str) -> Option<(u64, u64)> {
    let parts_of = |text: &str| {
        let percent: f64 = text.trim().strip_suffix('%')?.parse().ok()?;
        (0.0..=100.0).contains(&percent).then(|| (percent * PARTS as f64 / 100.0).round() as u64)
    };
    if let Some((from, to)) = text.split_once('-') {
        let (from, to) = (parts_of(from)?, parts_of(to)?);
        return (from <= to).then_some((from, to));
    }
    let (width, nth) = text.split_once('/').unwrap_or((text, "1"));
    let (width, nth) = (parts_of(width)?, nth.trim().parse::<u64>().ok()?);
    let to = width.checked_mul(nth)?;
    (nth > 0 && to <= PARTS).then(|| (to - width, to))
}

/// Returns true if `asked` is the name of an event, with or without the terms that follow a name: `/period=100/`.
pub(crate) fn names_event(asked: &str, event: &str) -> bool {
    event.strip_prefix(asked).is_some_and(|terms| terms.is_empty() || terms.starts_with('/'))
}

/// Parses decimal seconds to ns without float rounding: `12.3` → 12,300,000,000.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds: u64 = seconds.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_their_text() {
        assert_eq!("helper".parse::<By>().unwrap(), By::Split(Split::Helper));
        assert_eq!("owner".parse::<By>().unwrap(), By::Group(Group::Owner));
        let error = "nothing".parse::<By>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "--by nothing: expected one of func comm pid cpu cgroup container helper owner name type hook"
        );
        assert_eq!("ns/run".parse::<Sort>().unwrap(), Sort::NsPerRun);
    }

    #[test]
    fn an_event_is_named_with_or_without_its_terms() {
        for asked in ["sched:sched_switch", "sched:sched_switch/period=10/"] {
            assert!(names_event(asked, "sched:sched_switch/period=10/"));
            assert!(!names_event(asked, "sched:sched_switch_to"));
        }
        assert!(names_event("cycles", "cycles") && !names_event("cycles", "cycles:u"));
    }

    #[test]
    fn times_are_exact() {
        let absolute = |text: &str| match text.parse().unwrap() {
            TimeRange::Plain(from, to) => (from, to),
            other => panic!("{other:?}"),
        };
        assert_eq!(absolute("1.5,2"), (Some(1_500_000_000), Some(2_000_000_000)));
        assert_eq!(absolute(",0.000000001"), (None, Some(1)));
        assert_eq!(absolute("16777217.000000001,"), (Some(16_777_217_000_000_001), None));
        for clock in ["@1.5,2", "@1.5,@2"] {
            let expected = TimeRange::Absolute(Some(1_500_000_000), Some(2_000_000_000));
            assert_eq!(clock.parse::<TimeRange>().unwrap(), expected);
        }
        assert_eq!("10%-20%".parse::<TimeRange>().unwrap(), TimeRange::Percent(vec![(100_000, 200_000)]));
        assert_eq!(
            "10%/2,0%-1%".parse::<TimeRange>().unwrap(),
            TimeRange::Percent(vec![(100_000, 200_000), (0, 10_000)])
        );
        for bad in ["", "5", "2,1", "1.2.3,4", "20%-10%", "60%/2", "x%", "-1,2", "@,", "@@1,2"] {
            assert!(bad.parse::<TimeRange>().is_err(), "{bad}");
        }
    }
}
