//! Counting without a recording: what is counted is set up, and read at the beginning, at each interval and at the end.
//!
//! Sources of counts yield states, as they do for recordings; what these come to is the work of whoever takes them.

mod programs;
mod targets;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use bprec_format::state::{Session, State};

use crate::options::Budget;
use crate::shared::{self, Shared, SharedOptions, Whose};
use crate::sys::{self, Signals};
use crate::workload::Workload;
use crate::{Error, Level, machine};

use programs::Programs;
use targets::Targets;

/// The longest time between two readings, so that what a gate lets pass is estimated second by second.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The shortest.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Everything that [`stat`] needs to know.
#[derive(Debug, Clone)]
pub struct StatOptions {
    /// What to count.
    pub what: Counted,
    /// Which events, as the user wrote them: lists with groups in braces. Empty means the usual ones.
    pub events: Vec<String>,
    /// Command to run; counting ends with it.
    pub command: Option<Vec<OsString>>,
    /// Longest time to count.
    pub duration: Option<Duration>,
    /// Time between two readings that are of interest by themselves.
    pub interval: Option<Duration>,
    /// Counts of each CPU, too.
    pub per_cpu: bool,
    /// What counting of programs may take; `None` is all of the machine.
    pub budget: Option<Budget>,
    /// Count events of targets at context switches, shared with other sessions. Programs are not concerned.
    pub shared: bool,
    /// Where such sessions find each other; `None` is where perf does.
    pub attr_map: Option<PathBuf>,
    /// Takes messages as they arise.
    pub notify: fn(Level, &str),
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    /// BPF programs and their functions, by patterns as in [`Exact::pattern`](crate::Exact::pattern); `None` is all of them.
    Programs(Option<String>),
    /// Events of the whole machine.
    System,
    /// Events on each of these CPUs.
    Cpus(Vec<u32>),
    /// Events of each of these processes, with all threads and their children to come.
    Processes(Vec<u32>),
    /// Events of each of these threads.
    Threads(Vec<u32>),
    /// Events of each of these cgroups, with those below.
    Cgroups(Vec<PathBuf>),
    /// Events of the command and its children.
    Command,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        match self {
            Counted::Programs(None) => f.write_str("BPF programs"),
            Counted::Programs(Some(pattern)) => write!(f, "BPF programs {pattern}"),
            Counted::System => f.write_str("system wide"),
            Counted::Cpus(cpus) => write!(f, "cpu {}", list(cpus)),
            Counted::Processes(pids) => write!(f, "pid {}", list(pids)),
            Counted::Threads(tids) => write!(f, "tid {}", list(tids)),
            Counted::Cgroups(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
                write!(f, "cgroup {}", paths.join(","))
            }
            Counted::Command => f.write_str("command"),
        }
    }
}

/// What is new at a reading.
#[derive(Debug)]
pub struct Readings {
    /// What it is.
    pub moment: Moment,
    /// When, ns of the clock of the states.
    pub time_ns: u64,
    /// Programs that were not among those before.
    pub programs: Vec<ProgramName>,
    /// Counts and what there is to say about them, as recordings have them; the first is the session.
    pub states: Vec<State>,
}

/// What a reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The first, or one between others.
    Between,
    /// The end of an interval that was asked for.
    Interval,
    /// The last; an interval may end with it as well.
    End,
}

/// What a program is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramName {
    /// Its id.
    pub id: u32,
    /// When it was loaded, ns since boot; with the id its key.
    pub load_time_ns: u64,
    /// Full name of its entry function.
    pub name: String,
    /// Its type.
    pub prog_type: String,
}

/// How counting ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// How the command ended, if there was one and it has.
    pub command: Option<ExitStatus>,
    /// CPU time of the command in user mode and in the kernel, once it has ended.
    pub command_time: Option<(Duration, Duration)>,
    /// There was something to count.
    pub matched: bool,
}

/// Where counts come from.
enum Source {
    Programs(Box<Programs>),
    Targets(Targets),
    /// `None` once it has ended.
    Shared(Option<Box<Shared>>),
}

/// Counts as `options` say, until the command ends, the duration is over, the targets are gone, or a signal (SIGINT, SIGTERM)
/// arrives. A signal that was meant for this process alone is passed on to the command, whose end is waited for; a second
/// one ends counting. `take` is given each reading.
///
/// # Errors
/// When nothing can be counted, or the command cannot be run, or `take` fails.
pub fn stat<E: From<Error>>(
    options: &StatOptions,
    mut take: impl FnMut(Readings) -> Result<(), E>,
) -> Result<Counts, E> {
    sys::raise_open_files();
    let signals = Signals::block()?;
    let mut workload = options.command.as_deref().map(|command| Workload::hold(command, false)).transpose()?;
    let mut session = Session {
        to_boottime_ns: sys::clock_ns(sys::CLOCK_BOOTTIME)
            .wrapping_sub(sys::clock_ns(sys::CLOCK_MONOTONIC))
            .cast_signed(),
        cpus_online: machine::online_cpus().len() as u32,
        target: match (&options.what, &options.command) {
            (Counted::Command, Some(command)) => {
                command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
            }
            (what, _) => what.to_string(),
        },
        interval_ns: u64::try_from(options.interval.unwrap_or(READ_EVERY).as_nanos()).unwrap_or(u64::MAX),
        ..Session::default()
    };
    let mut states = Vec::new();
    let mut source = match &options.what {
        Counted::Programs(pattern) => {
            let programs = Programs::start(pattern.as_deref(), options, &mut session, &mut states)?;
            Source::Programs(Box::new(programs))
        }
        what if options.shared => {
            let shared = start_shared(what, options, workload.as_ref().map(Workload::pid))?;
            states.push(State::CounterEvents(shared.events().clone()));
            Source::Shared(Some(Box::new(shared)))
        }
        what => Source::Targets(Targets::open(what, options, workload.as_ref().map(Workload::pid), &mut states)?),
    };
    session.start_ns = sys::clock_ns(sys::CLOCK_MONOTONIC);
    session.realtime_ns = sys::clock_ns(sys::CLOCK_REALTIME);
    source.enable(session.start_ns)?;
    let started = Instant::now();
    states.insert(0, State::Session(session));
    let programs = source.new_names();
    take(Readings { moment: Moment::Between, time_ns: sys::clock_ns(sys::CLOCK_MONOTONIC), programs, states })?;
    if let Some(workload) = &mut workload {
        workload.start()?;
    }

    let every = options.interval.map(|interval| interval.max(INTERVAL_MIN));
    let end = options.duration.map(|duration| started + duration);
    let (mut next_interval, mut next_read) = (every.map(|every| started + every), started + READ_EVERY);
    let mut fds = [sys::poll_in(signals.fd())];
    let mut asked_before = false;
    loop {
        let wakes = [Some(next_read), next_interval, end, source.tend_at()];
        let wake_at = wakes.into_iter().flatten().min().unwrap_or(next_read);
        sys::poll(&mut fds, Some(wake_at.saturating_duration_since(Instant::now()))).map_err(|answer| {
            Error::Syscall { call: "poll", object: "signals".to_owned(), answer, remedy: String::new() }
        })?;
        let mut stop = false;
        if let Some(asked) = signals.take_asked() {
            // What the terminal sends, it sends to the command too.
            match &workload {
                Some(workload) if !asked_before => workload.signal(asked),
                _ => stop = true,
            }
            asked_before = true;
        }
        let now = Instant::now();
        stop |= end.is_some_and(|end| end <= now);
        stop |= match &mut workload {
            Some(workload) => workload.ended().is_some(),
            None => are_gone(&options.what),
        };
        let mut states = source.tend();
        if stop {
            break;
        }
        let interval_ends = next_interval.is_some_and(|at| at <= now);
        if interval_ends || next_read <= now {
            states.extend(source.read());
            next_read = now + READ_EVERY;
        }
        let moment = if interval_ends { Moment::Interval } else { Moment::Between };
        if let (Some(at), Some(every), true) = (&mut next_interval, every, interval_ends) {
            // Intervals keep to the clock; those that were slept through are left out.
            while *at <= now {
                *at += every;
            }
        }
        let programs = source.new_names();
        if interval_ends || !states.is_empty() || !programs.is_empty() {
            take(Readings { moment, time_ns: sys::clock_ns(sys::CLOCK_MONOTONIC), programs, states })?;
        }
    }
    let ended = workload.as_mut().and_then(Workload::ended);
    let mut states = source.tend();
    states.extend(source.finish());
    // To take everything down takes time, in which nothing is counted any more.
    let read_at = states.iter().filter_map(read_at).max();
    let time_ns = read_at.unwrap_or_else(|| sys::clock_ns(sys::CLOCK_MONOTONIC));
    // A command that has not ended is not waited for before the numbers are out.
    let (programs, matched) = (source.new_names(), source.matched());
    take(Readings { moment: Moment::End, time_ns, programs, states })?;
    Ok(Counts { command: ended, command_time: ended.map(|_| sys::children_usage()), matched })
}

/// When counts were read.
fn read_at(state: &State) -> Option<u64> {
    match state {
        State::RunStats(stats) => Some(stats.time_ns),
        State::ProgramCounters(counters) => Some(counters.time_ns),
        State::SharedCounters(counters) => Some(counters.time_ns),
        _ => None,
    }
}

impl Source {
    /// Lets counting begin, where it has not.
    fn enable(&mut self, start_ns: u64) -> Result<(), Error> {
        match self {
            Source::Targets(targets) => targets.enable(start_ns),
            Source::Programs(_) | Source::Shared(_) => Ok(()),
        }
    }

    fn new_names(&mut self) -> Vec<ProgramName> {
        match self {
            Source::Programs(programs) => programs.new_names(),
            Source::Targets(_) | Source::Shared(_) => Vec::new(),
        }
    }

    /// What came up since the last call and cannot wait for a reading.
    fn tend(&mut self) -> Vec<State> {
        match self {
            Source::Programs(programs) => programs.tend(),
            Source::Targets(_) | Source::Shared(_) => Vec::new(),
        }
    }

    fn tend_at(&self) -> Option<Instant> {
        match self {
            Source::Programs(programs) => Some(programs.tend_at()),
            Source::Targets(_) | Source::Shared(_) => None,
        }
    }

    fn read(&mut self) -> Vec<State> {
        match self {
            Source::Programs(programs) => programs.read(),
            Source::Targets(targets) => targets.read(),
            Source::Shared(counting) => counting.as_mut().map(|it| shared::states(it.snapshot())).unwrap_or_default(),
        }
    }

    fn finish(&mut self) -> Vec<State> {
        match self {
            Source::Programs(programs) => programs.finish(),
            Source::Targets(targets) => targets.finish(),
            Source::Shared(counting) => counting.take().map(|it| shared::states(it.finish())).unwrap_or_default(),
        }
    }

    fn matched(&self) -> bool {
        match self {
            Source::Programs(programs) => programs.matched(),
            Source::Targets(_) | Source::Shared(_) => true,
        }
    }
}

/// Begins to count at context switches.
fn start_shared(what: &Counted, options: &StatOptions, command: Option<i32>) -> Result<Shared, Error> {
    let process = |id: u32| Whose::Process { id, children: true };
    let command = command.map(i32::unsigned_abs);
    let targets = match what {
        Counted::Programs(_) | Counted::System => {
            let each = machine::online_cpus().into_iter().filter(|_| options.per_cpu).map(Whose::Cpu);
            std::iter::once(Whose::Machine).chain(each).collect()
        }
        Counted::Cpus(cpus) => cpus.iter().copied().map(Whose::Cpu).collect(),
        Counted::Processes(ids) => ids.iter().copied().map(process).collect(),
        Counted::Threads(ids) => ids.iter().copied().map(Whose::Thread).collect(),
        Counted::Cgroups(paths) => paths.iter().cloned().map(Whose::Cgroup).collect(),
        Counted::Command => command.into_iter().map(process).collect(),
    };
    let asked = SharedOptions { events: options.events.clone(), targets, attr_map: options.attr_map.clone() };
    let mut shared = Shared::start(&asked, options.notify)?;
    // It is held before its exec, under a name of ours.
    let name = options.command.iter().flatten().next().and_then(|path| Path::new(path).file_name());
    if let (Counted::Command, Some(id), Some(name)) = (what, command, name) {
        shared.name_task(id, name.as_encoded_bytes());
    }
    Ok(shared)
}

/// All tasks that are counted have ended.
fn are_gone(what: &Counted) -> bool {
    match what {
        Counted::Processes(ids) | Counted::Threads(ids) => {
            ids.iter().all(|id| !fs::exists(format!("/proc/{id}")).unwrap_or(true))
        }
        _ => false,
    }
}
