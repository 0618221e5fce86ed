//! Counting without a recording: counters are set up, then read at the beginning, at each interval and at the end.
//!
//! The sources are the same as in recordings. The caller of [`stat`] turns the states of the sources into totals.

use std::collections::HashSet;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bprec_bpf::{BtfCache, Refs};
use bprec_filter::FunctionFilter;
use bprec_format::bprec::state::{Session, State};

use super::command::Workload;
use super::liveness::Liveness;
use super::run::{self, Ends, Purpose, Turn};
use super::sources::Sources;
use crate::drain::CodeRings;
use crate::events::{Abilities, machine, refused};
use crate::options::caller;
use crate::options::{self, StatOptions, StatTarget, Target};
use crate::sources::Outbox;
use crate::sources::boot_clock::BootTimeOffset;
use crate::sources::exact::{self, ExactCounters, WantedFunctions};
use crate::sources::inventory::{self, Holding, Inventory, LoadWatcher, Programs};
use crate::sources::shared::{CounterTarget, SharedCounters, SharedOptions};
use crate::sources::statistics::{RunStatistics, Statistics};
use crate::sys::{self, Inherited, Signals, Waker};
use crate::{Error, Level, Taken};

/// The longest time between two readings. Programs that are counted for only a part of the time get a new estimate at
/// least this often.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The shortest interval between two readings.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Counts and programs that are new in one reading.
#[derive(Debug)]
pub struct Readings {
    /// Position of the reading in the run.
    pub moment: Moment,
    /// Time of the reading, ns, by the same clock as the times in `states`.
    pub time_ns: u64,
    /// Programs that were not in an earlier reading.
    pub programs: Vec<ProgramName>,
    /// Counts, and notes on the counts, as in a recording. The states of the first reading begin with `State::Session`.
    pub states: Vec<State>,
}

/// Position of a reading in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The first reading, or a reading inside an interval.
    Between,
    /// The end of an interval that the user requested.
    Interval,
    /// The last reading, which may also end an interval.
    End,
}

/// Name of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramName {
    /// Id of the program.
    pub id: u32,
    /// Load time, in nanoseconds since boot. The id and the load time identify the program.
    pub load_time_ns: u64,
    /// Full name of the entry function of the program.
    pub name: String,
    /// Type of the program.
    pub prog_type: String,
}

/// Result of counting.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Exit status of the command, if there was one and it has ended.
    pub command: Option<ExitStatus>,
    /// CPU time of the command in user mode and in the kernel, once it has ended.
    pub command_time: Option<(Duration, Duration)>,
    /// True if a program matched the request. Always true if the target is not programs.
    pub matched: bool,
}

/// A count in progress; `take` receives each reading.
struct Counting<F> {
    sources: Sources,
    /// Filter on the counted programs; `None` if the target is not programs.
    wanted: Option<WantedPrograms>,
    take: F,
}

/// Counts as `options` request, until the command ends, the duration is over, all targets have ended, or a signal (SIGINT,
/// SIGTERM, SIGHUP) arrives. `take` receives each reading.
///
/// With a command, the first signal does not end counting, but the end of the command does. bprec passes a signal of another
/// process on to the command; a signal of the terminal has already reached the command. A second signal ends counting.
///
/// # Errors
/// Fails if nothing can be counted, the command cannot be run, or `take` fails.
pub fn stat<E: From<Error>>(options: &StatOptions, take: impl FnMut(Readings) -> Result<(), E>) -> Result<Counts, E> {
    caller::check(&[("--bpf-attr-map", options.attr_map.is_some())])?;
    caller::respect_processes()?;
    let open_files = sys::raise_open_files();
    let signals = Signals::block(false)?;
    let inherited = Inherited { open_files, ignores_children: signals.ignores_children() };
    let mut workload =
        options.command.as_deref().map(|command| Workload::hold(command, false, inherited)).transpose()?;
    let (sources, wanted) = start(options, workload.as_ref().map(Workload::pid))?;
    let mut counting = Counting { sources, wanted, take };
    let first = counting.readings(Moment::Between);
    (counting.take)(first)?;
    if let Some(workload) = &mut workload {
        workload.start()?;
    }
    let liveness = match &options.target {
        StatTarget::Events(Target::Processes(ids) | Target::Threads(ids)) if workload.is_none() => {
            Some(Liveness::watch(ids))
        }
        _ => None,
    };
    let ends = Ends {
        signals: &signals,
        workload: workload.as_mut(),
        passes_signals: true,
        liveness,
        duration: options.duration,
        stop: None,
        failed: None,
    };
    let interval = options.interval.map(|interval| interval.max(INTERVAL_MIN));
    ends.run(&mut counting, run::ReadingSchedule { every: READ_EVERY, interval })?;
    let ended = workload.as_mut().and_then(Workload::ended);
    let last = counting.finish()?;
    // Delivers the last counts without waiting for a command that still runs.
    (counting.take)(last)?;
    let matched = counting.wanted.is_none_or(|wanted| wanted.has_matched);
    Ok(Counts { command: ended, command_time: ended.map(|_| sys::children_usage()), matched })
}

/// Sets up the counters and begins to count.
fn start(options: &StatOptions, command: Option<i32>) -> Result<(Sources, Option<WantedPrograms>), Error> {
    let session = Session {
        to_boottime_ns: sys::to_boottime_ns(),
        cpus_online: machine::online_cpus().len() as u32,
        target: options.target.in_words(options.command.as_deref()),
        interval_ns: u64::try_from(options.interval.unwrap_or(READ_EVERY).as_nanos()).unwrap_or(u64::MAX),
        ..Session::default()
    };
    let out = Outbox::collecting(session);
    let (mut sources, mut wanted) = match &options.target {
        StatTarget::Programs(filters) => {
            let sources = sources_of_programs(filters, options, out)?;
            (sources, Some(WantedPrograms::new(filters)))
        }
        target => {
            let programs = Programs::new(Arc::new(BtfCache::new()), None, Vec::new());
            let mut sources = Sources::new(programs, Statistics::default(), out, Waker::new()?, options.notify);
            sources.add(shared(target, options, command));
            (sources, None)
        }
    };
    if let Some(wanted) = &mut wanted {
        wanted.learn(&sources.programs);
        wanted.check_ids()?;
    }
    sources.begin_file(true)?;
    let out = &mut sources.out;
    if wanted.is_some() && out.session.counters.is_empty() {
        return Err(Error::Other(format!("programs cannot be counted: {}", out.session.counters_note)));
    }
    if out.session.start_ns == 0 {
        out.session.start_ns = sys::monotonic_ns();
    }
    out.session.realtime_ns = sys::realtime_unix_ns();
    let begun = out.collected();
    out.state(State::Session(out.session.clone()))?;
    out.states(begun)?;
    sources.switch(true)?;
    if let Some(wanted) = wanted.as_ref().filter(|wanted| !wanted.has_matched) {
        (options.notify)(Level::Notice, &wanted.wanted.nothing_yet());
    }
    Ok((sources, wanted))
}

fn sources_of_programs(filters: &[FunctionFilter], options: &StatOptions, out: Outbox) -> Result<Sources, Error> {
    let asked = options::Exact {
        functions: filters.to_vec(),
        events: options.events.clone(),
        budget: options.budget,
        per_cpu: options.per_cpu,
    };
    let abilities = Abilities::probe().map_err(|error| refused("dummy", 0, -1, error))?;
    let refs = Refs::load().ok();
    let statistics = Statistics::asked(options.budget.statistics_ns(options.exact));
    let online = machine::online_cpus();
    let (btfs, waker) = (Arc::new(BtfCache::new()), Waker::new()?);
    let watcher = if abilities.bpf {
        let missing = |error: &Error| {
            (options.notify)(Level::Warning, &format!("BPF programs loaded from now on are not counted: {error}"));
        };
        CodeRings::unwritten(abilities, &online)
            .and_then(|rings| {
                let holding = Holding::with(refs.as_ref());
                LoadWatcher::start(Arc::new(rings), None, Arc::clone(&btfs), holding, waker.clone())
            })
            .inspect_err(missing)
            .ok()
    } else {
        None
    };
    let mut programs = Programs::new(btfs, refs, Vec::new());
    let inventory = Inventory::start(watcher, inventory::Purpose::Counting, &mut programs, options.notify)?;
    let mut sources = Sources::new(programs, statistics, out, waker.clone(), options.notify);
    sources.add(BootTimeOffset::read());
    sources.add(inventory);
    if options.exact {
        let events = exact::open_events(&asked, options.notify, &online);
        sources.add(ExactCounters::load(asked, events, None, options.notify));
    }
    let interval = options.interval.map_or(READ_EVERY, |it| it.clamp(INTERVAL_MIN, READ_EVERY));
    sources.add(RunStatistics::new(interval, Taken::default(), waker));
    Ok(sources)
}

impl<E: From<Error>, F: FnMut(Readings) -> Result<(), E>> Purpose for Counting<F> {
    type Error = E;

    fn sources(&mut self) -> &mut Sources {
        &mut self.sources
    }

    fn turn(&mut self, turn: Turn) -> Result<(), E> {
        if turn.is_last {
            return Ok(());
        }
        if let Some(wanted) = &mut self.wanted {
            wanted.learn(&self.sources.programs);
        }
        let moment = if turn.ends_interval { Moment::Interval } else { Moment::Between };
        let readings = self.readings(moment);
        let is_news = turn.ends_interval || !readings.states.is_empty() || !readings.programs.is_empty();
        if is_news { (self.take)(readings) } else { Ok(()) }
    }
}

impl<F> Counting<F> {
    /// Programs and states since the last reading.
    fn readings(&mut self, moment: Moment) -> Readings {
        let mut states = self.sources.out.collected();
        // At the end, the sources are released after their last counts were read, which takes time. That time is not
        // counted, so the last reading has the time of its latest counts, not the current time.
        let read_at_ns = states.iter().filter(|_| moment == Moment::End).filter_map(read_at_ns).max();
        let time_ns = read_at_ns.unwrap_or_else(sys::monotonic_ns);
        let mut programs = Vec::new();
        if let Some(wanted) = &mut self.wanted {
            states.retain_mut(|state| wanted.keeps(state));
            programs = std::mem::take(&mut wanted.new);
        }
        Readings { moment, time_ns, programs, states }
    }

    /// Switches everything off and returns the last counts.
    fn finish(&mut self) -> Result<Readings, Error> {
        self.sources.switch(false)?;
        self.sources.end_file(true)?;
        if let Some(wanted) = &mut self.wanted {
            wanted.learn(&self.sources.programs);
        }
        Ok(self.readings(Moment::End))
    }
}

/// Monotonic time at which the counts of a state were read, in nanoseconds.
fn read_at_ns(state: &State) -> Option<u64> {
    match state {
        State::RunStats(stats) => Some(stats.time_ns),
        State::ProgramCounters(counters) => Some(counters.time_ns),
        State::SharedCounters(counters) => Some(counters.time_ns),
        _ => None,
    }
}

/// Source of counts that are read at context switches.
fn shared(target: &StatTarget, options: &StatOptions, command: Option<i32>) -> SharedCounters {
    let process = |id: u32| CounterTarget::Process { id, children: true };
    let command = command.map(i32::unsigned_abs);
    let targets = match target {
        StatTarget::Programs(_) | StatTarget::Events(Target::System) => {
            let each = machine::online_cpus().into_iter().filter(|_| options.per_cpu).map(CounterTarget::Cpu);
            std::iter::once(CounterTarget::Machine).chain(each).collect()
        }
        StatTarget::Events(Target::Cpus(cpus)) => cpus.iter().copied().map(CounterTarget::Cpu).collect(),
        StatTarget::Events(Target::Processes(ids)) => ids.iter().copied().map(process).collect(),
        StatTarget::Events(Target::Threads(ids)) => ids.iter().copied().map(CounterTarget::Thread).collect(),
        StatTarget::Events(Target::Command) => command.into_iter().map(process).collect(),
        StatTarget::Cgroups(paths) => paths.iter().cloned().map(CounterTarget::Cgroup).collect(),
    };
    let asked = SharedOptions { events: options.events.clone(), targets, attr_map: options.attr_map.clone() };
    let words = options.command.as_deref().filter(|_| *target == StatTarget::Events(Target::Command));
    SharedCounters::new(asked, command, words)
}

/// The programs that the user requested.
#[derive(Debug)]
struct WantedPrograms {
    wanted: WantedFunctions,
    /// Ids and load times of matching programs that are loaded.
    keys: HashSet<(u32, u64)>,
    /// Ids and load times of programs that do not match. Names do not change and are costly to find (they need the BTF of
    /// the program), so each program is compared once.
    others: HashSet<(u32, u64)>,
    /// True once a program has matched.
    has_matched: bool,
    /// Matching programs that were found since the last reading.
    new: Vec<ProgramName>,
}

impl WantedPrograms {
    fn new(filters: &[FunctionFilter]) -> WantedPrograms {
        WantedPrograms {
            wanted: WantedFunctions::new(filters),
            keys: HashSet::new(),
            others: HashSet::new(),
            has_matched: false,
            new: Vec::new(),
        }
    }

    /// Compares the programs that were not compared before with the request, and adds those that match.
    fn learn(&mut self, programs: &Programs) {
        for known in programs.known() {
            let key = known.key();
            if self.keys.contains(&key) || self.others.contains(&key) {
                continue;
            }
            if !self.wanted.matches(known) {
                self.others.insert(key);
            } else {
                self.keys.insert(key);
                self.has_matched = true;
                let (id, load_time_ns) = key;
                let prog_type = known.snapshot.info.view().prog_type();
                let prog_type = prog_type.map(|it| it.to_string()).unwrap_or_default();
                self.new.push(ProgramName { id, load_time_ns, name: known.name().into_owned(), prog_type });
            }
        }
    }

    /// Checks that each requested id belongs to a loaded program. Counting does not wait for a program that may get the
    /// id later.
    fn check_ids(&self) -> Result<(), Error> {
        match self.wanted.ids().find(|id| !self.keys.iter().any(|(known, _)| known == id)) {
            Some(id) => Err(Error::Other(format!(
                "there is no BPF program with id {id} (bpftool prog list shows all programs)"
            ))),
            None => Ok(()),
        }
    }

    /// Removes the data of all other programs from a state; returns false if no data of a wanted program remains.
    fn keeps(&mut self, state: &mut State) -> bool {
        match state {
            State::RunStats(stats) => {
                stats.programs.retain(|program| self.keys.contains(&(program.id, program.load_time_ns)));
                !stats.programs.is_empty()
            }
            State::Released(released) => {
                let key = (released.id, released.load_time_ns);
                self.others.remove(&key);
                self.keys.remove(&key)
            }
            // A missed program was unloaded before its name was read. If the request has names, the missed program may have matched, so its state is
            // kept.
            State::Missed(_) => !self.wanted.has_only_ids(),
            State::Program(_) => false,
            _ => true,
        }
    }
}
