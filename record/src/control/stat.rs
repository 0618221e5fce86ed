//! Counting without a recording: what is counted is set up, and read at the beginning, at each interval and at the end.
//!
//! The sources are those of recordings; what their states come to is the work of whoever takes them.

use std::collections::HashSet;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bprec_bpf::{BtfCache, Refs};
use bprec_format::state::{Session, State};

use super::command::Workload;
use super::liveness::{Liveness, are_gone};
use super::sources::Sources;
use crate::drain::CodeRings;
use crate::events::{Abilities, machine, refused};
use crate::options::caller;
use crate::options::{self, StatOptions, StatTarget};
use crate::sources::Outlet;
use crate::sources::boot_clock::BootTimeOffset;
use crate::sources::exact::{self, ExactCounters, Pattern};
use crate::sources::inventory::{Holding, Inventory, LoadWatcher, Programs, Purpose};
use crate::sources::perf_counters::PerfCounters;
use crate::sources::shared::{CounterTarget, SharedCounters, SharedOptions};
use crate::sources::statistics::RunStatistics;
use crate::sys::{self, Inherited, Signals};
use crate::{Error, Level, Taken};

/// The longest time between two readings, so that what a gate lets pass is estimated second by second.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The shortest.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Time between two looks at targets that cannot be waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// News of a reading.
#[derive(Debug)]
pub struct Readings {
    /// Kind of moment.
    pub moment: Moment,
    /// When, ns of the clock of the states.
    pub time_ns: u64,
    /// Programs that were not among those before.
    pub programs: Vec<ProgramName>,
    /// Counts and what there is to say about them, as recordings have them; the first is the session.
    pub states: Vec<State>,
}

/// Kind of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The first, or one between others.
    Between,
    /// The end of an interval that was asked for.
    Interval,
    /// The last; an interval may end with it as well.
    End,
}

/// Name of a program.
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

/// Result of counting.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Exit status of the command, if there was one and it has ended.
    pub command: Option<ExitStatus>,
    /// CPU time of the command in user mode and in the kernel, once it has ended.
    pub command_time: Option<(Duration, Duration)>,
    /// There was something to count.
    pub matched: bool,
}

/// States as the sources hand them over.
#[derive(Debug, Default)]
struct Collected(Vec<State>);

impl Outlet for Collected {
    fn state(&mut self, state: State) -> Result<(), Error> {
        self.0.push(state);
        Ok(())
    }
}

/// Counting that is under way.
struct Counting {
    sources: Sources,
    collected: Collected,
    /// Set when programs are counted.
    wanted: Option<WantedPrograms>,
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
    caller::check(&[("--bpf-attr-map", options.attr_map.is_some())])?;
    caller::respect_processes()?;
    let open_files = sys::raise_open_files();
    let signals = Signals::block(false)?;
    let inherited = Inherited { open_files, ignores_children: signals.ignores_children() };
    let mut workload =
        options.command.as_deref().map(|command| Workload::hold(command, false, inherited)).transpose()?;
    let mut counting = Counting::start(options, workload.as_ref().map(Workload::pid))?;
    let started = Instant::now();
    take(counting.reading(Moment::Between, sys::monotonic_ns()))?;
    if let Some(workload) = &mut workload {
        workload.start()?;
    }

    let every = options.interval.map(|interval| interval.max(INTERVAL_MIN));
    let end = options.duration.map(|duration| started + duration);
    let (mut next_interval, mut next_read) = (every.map(|every| started + every), started + READ_EVERY);
    let mut liveness = match &options.target {
        StatTarget::Processes(ids) | StatTarget::Threads(ids) if workload.is_none() => Some(Liveness::watch(ids)),
        _ => None,
    };
    let mut was_asked = false;
    loop {
        let look_at = Instant::now() + LOOK_EVERY;
        let wakes = [Some(look_at), Some(next_read), next_interval, end, counting.sources.poll_at()];
        let wake_at = wakes.into_iter().flatten().min().unwrap_or(look_at);
        counting.sources.wait(wake_at, &signals, workload.as_ref(), liveness.as_ref(), &[])?;
        let mut stop = false;
        if let Some(asked) = signals.take().end {
            // A signal from the terminal reaches the command too.
            match &mut workload {
                Some(workload) if !was_asked => workload.signal(asked),
                _ => stop = true,
            }
            was_asked = true;
        }
        let now = Instant::now();
        stop |= end.is_some_and(|end| end <= now);
        stop |= are_gone(workload.as_mut(), liveness.as_mut());
        counting.poll(now)?;
        if stop {
            break;
        }
        let interval_ends = next_interval.is_some_and(|at| at <= now);
        if interval_ends || next_read <= now {
            counting.sources.read(&mut counting.collected)?;
            next_read = now + READ_EVERY;
        }
        let moment = if interval_ends { Moment::Interval } else { Moment::Between };
        if let (Some(at), Some(every), true) = (&mut next_interval, every, interval_ends) {
            // Intervals keep to the clock; those that were slept through are left out.
            while *at <= now {
                *at += every;
            }
        }
        let readings = counting.reading(moment, sys::monotonic_ns());
        if interval_ends || !readings.states.is_empty() || !readings.programs.is_empty() {
            take(readings)?;
        }
    }
    let ended = workload.as_mut().and_then(Workload::ended);
    let readings = counting.finish()?;
    // A command that has not ended is not waited for before the numbers are out.
    take(readings)?;
    let matched = counting.wanted.is_none_or(|wanted| wanted.has_matched);
    Ok(Counts { command: ended, command_time: ended.map(|_| sys::children_usage()), matched })
}

impl Counting {
    /// Sets up what is counted, and begins.
    fn start(options: &StatOptions, command: Option<i32>) -> Result<Counting, Error> {
        let session = Session {
            to_boottime_ns: sys::to_boottime_ns(),
            cpus_online: machine::online_cpus().len() as u32,
            target: match (&options.target, &options.command) {
                (StatTarget::Command, Some(command)) => {
                    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
                }
                (target, _) => target.to_string(),
            },
            interval_ns: u64::try_from(options.interval.unwrap_or(READ_EVERY).as_nanos()).unwrap_or(u64::MAX),
            ..Session::default()
        };
        let mut counting = match &options.target {
            StatTarget::Programs(pattern) => Counting::of_programs(pattern.as_deref(), options, session)?,
            target => {
                let programs = Programs::new(Arc::new(BtfCache::new()), None, Vec::new());
                let mut sources = Sources::new(programs, session, options.notify);
                if options.shared {
                    sources.add(shared(target, options, command));
                } else {
                    sources.add(PerfCounters::open(target, options, command)?);
                }
                Counting { sources, collected: Collected::default(), wanted: None }
            }
        };
        counting.sources.prepare(&mut counting.collected)?;
        if let Some(wanted) = &mut counting.wanted {
            wanted.learn(&counting.sources.programs);
            wanted.check_ids()?;
        }
        counting.sources.start(&mut counting.collected)?;
        let session = &mut counting.sources.session;
        if counting.wanted.is_some() && session.counters.is_empty() {
            return Err(Error::Other(format!("programs cannot be counted: {}", session.counters_note)));
        }
        session.start_ns = sys::monotonic_ns();
        session.realtime_ns = sys::realtime_unix_ns();
        let first = State::Session(session.clone());
        counting.collected.0.insert(0, first);
        counting.sources.enable(&mut counting.collected)?;
        if let Some(wanted) = counting.wanted.as_ref().filter(|wanted| !wanted.has_matched) {
            (options.notify)(Level::Notice, &wanted.nothing_yet());
        }
        Ok(counting)
    }

    fn of_programs(pattern: Option<&str>, options: &StatOptions, session: Session) -> Result<Counting, Error> {
        let asked = options::Exact {
            pattern: pattern.map(str::to_owned),
            events: options.events.clone(),
            budget: options.budget,
            per_cpu: options.per_cpu,
        };
        let abilities = Abilities::probe().map_err(|error| refused("dummy", 0, -1, error))?;
        let refs = Refs::load().ok();
        let online = machine::online_cpus();
        let btfs = Arc::new(BtfCache::new());
        let watcher = if abilities.bpf {
            let missing = |error: &Error| {
                (options.notify)(Level::Warning, &format!("programs loaded while counting are not counted: {error}"));
            };
            CodeRings::unwritten(abilities, &online)
                .and_then(|rings| {
                    LoadWatcher::start(Arc::new(rings), None, Arc::clone(&btfs), Holding::with(refs.as_ref()))
                })
                .inspect_err(missing)
                .ok()
        } else {
            None
        };
        let mut sources = Sources::new(Programs::new(btfs, refs, Vec::new()), session, options.notify);
        sources.add(BootTimeOffset::default());
        sources.add(Inventory::new(watcher, Purpose::Counting));
        let budget_ns = options.budget.statistics_ns(options.exact);
        let interval = options.interval.map_or(READ_EVERY, |it| it.clamp(INTERVAL_MIN, READ_EVERY));
        sources.add(RunStatistics::new(budget_ns, interval, Taken::default()));
        if options.exact {
            let events = exact::open_events(&asked, options.notify, &online);
            sources.add(ExactCounters::new(asked, events, None));
        }
        let wanted = Some(WantedPrograms::new(pattern));
        Ok(Counting { sources, collected: Collected::default(), wanted })
    }

    fn poll(&mut self, now: Instant) -> Result<(), Error> {
        self.sources.poll(now, &mut self.collected)?;
        if let Some(wanted) = &mut self.wanted {
            wanted.learn(&self.sources.programs);
        }
        Ok(())
    }

    /// States that have come since the last reading.
    fn reading(&mut self, moment: Moment, time_ns: u64) -> Readings {
        let mut states = std::mem::take(&mut self.collected.0);
        let mut programs = Vec::new();
        if let Some(wanted) = &mut self.wanted {
            states.retain_mut(|state| wanted.keeps(state));
            programs = std::mem::take(&mut wanted.new);
        }
        Readings { moment, time_ns, programs, states }
    }

    /// The last counts; everything is switched off.
    fn finish(&mut self) -> Result<Readings, Error> {
        self.sources.disable();
        self.sources.finish(&mut self.collected)?;
        if let Some(wanted) = &mut self.wanted {
            wanted.learn(&self.sources.programs);
        }
        // To take everything down takes time, in which nothing is counted any more.
        let read_at = self.collected.0.iter().filter_map(read_at_ns).max();
        let time_ns = read_at.unwrap_or_else(sys::monotonic_ns);
        Ok(self.reading(Moment::End, time_ns))
    }
}

/// When counts were read.
fn read_at_ns(state: &State) -> Option<u64> {
    match state {
        State::RunStats(stats) => Some(stats.time_ns),
        State::ProgramCounters(counters) => Some(counters.time_ns),
        State::SharedCounters(counters) => Some(counters.time_ns),
        _ => None,
    }
}

/// Counts at context switches.
fn shared(target: &StatTarget, options: &StatOptions, command: Option<i32>) -> SharedCounters {
    let process = |id: u32| CounterTarget::Process { id, children: true };
    let command = command.map(i32::unsigned_abs);
    let targets = match target {
        StatTarget::Programs(_) | StatTarget::System => {
            let each = machine::online_cpus().into_iter().filter(|_| options.per_cpu).map(CounterTarget::Cpu);
            std::iter::once(CounterTarget::Machine).chain(each).collect()
        }
        StatTarget::Cpus(cpus) => cpus.iter().copied().map(CounterTarget::Cpu).collect(),
        StatTarget::Processes(ids) => ids.iter().copied().map(process).collect(),
        StatTarget::Threads(ids) => ids.iter().copied().map(CounterTarget::Thread).collect(),
        StatTarget::Cgroups(paths) => paths.iter().cloned().map(CounterTarget::Cgroup).collect(),
        StatTarget::Command => command.into_iter().map(process).collect(),
    };
    let asked = SharedOptions { events: options.events.clone(), targets, attr_map: options.attr_map.clone() };
    let words = options.command.as_deref().filter(|_| *target == StatTarget::Command);
    SharedCounters::new(asked, command, words)
}

/// The programs that are asked for.
#[derive(Debug)]
struct WantedPrograms {
    asked: Option<String>,
    pattern: Pattern,
    /// Ids and load times of those that were found and have not gone.
    keys: HashSet<(u32, u64)>,
    /// The same of programs that are not asked for: a name does not change, and it takes the program's BTF to find it.
    others: HashSet<(u32, u64)>,
    /// One was found.
    has_matched: bool,
    /// All of them are asked for by id.
    only_ids: bool,
    /// Found since the last reading.
    new: Vec<ProgramName>,
}

impl WantedPrograms {
    fn new(pattern: Option<&str>) -> WantedPrograms {
        WantedPrograms {
            asked: pattern.map(str::to_owned),
            pattern: Pattern::new(pattern),
            keys: HashSet::new(),
            others: HashSet::new(),
            has_matched: false,
            only_ids: pattern.is_some() && ids(pattern).all(|id| id.is_some()),
            new: Vec::new(),
        }
    }

    /// Looks which of the programs that are known are asked for and new.
    fn learn(&mut self, programs: &Programs) {
        for known in programs.known() {
            let key = known.key();
            if self.keys.contains(&key) || self.others.contains(&key) {
                continue;
            }
            if !self.pattern.matches(known) {
                self.others.insert(key);
            } else {
                self.keys.insert(key);
                self.has_matched = true;
                let (id, load_time_ns) = key;
                let prog_type = known.snapshot.info.view().prog_type();
                let prog_type = prog_type.map(|it| it.to_string()).unwrap_or_default();
                self.new.push(ProgramName { id, load_time_ns, name: known.name(), prog_type });
            }
        }
    }

    /// Ids are of programs that are there: one that is not will not come.
    fn check_ids(&self) -> Result<(), Error> {
        match ids(self.asked.as_deref()).flatten().find(|id| !self.keys.iter().any(|(known, _)| known == id)) {
            Some(id) => {
                Err(Error::Other(format!("there is no BPF program with id {id} (bpftool prog list shows them)")))
            }
            None => Ok(()),
        }
    }

    fn nothing_yet(&self) -> String {
        match &self.asked {
            Some(pattern) => format!("no program matches {pattern} yet"),
            None => "there is no program to count yet".to_owned(),
        }
    }

    /// Leaves of a state what concerns these programs; false when there is nothing of that.
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
            // A program that was gone before it had a name may have been asked for.
            State::Missed(_) => !self.only_ids,
            State::Program(_) => false,
            _ => true,
        }
    }
}

/// The programs of a pattern, as ids where they are.
fn ids(pattern: Option<&str>) -> impl Iterator<Item = Option<u32>> {
    let programs = pattern.into_iter().flat_map(|pattern| pattern.split(','));
    programs.map(|part| part.split(':').next().unwrap_or(part).trim().parse().ok())
}
