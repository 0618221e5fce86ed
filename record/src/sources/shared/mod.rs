//! Shared counters: events read once at each context switch for all sessions on the machine, with their counts on CPUs, in tasks and
//! in cgroups.
//!
//! Counting starts and ends in the middle of time slices. Every leader (the BPF program that reads an event) is
//! therefore asked to read at the start, at each snapshot and at the end, on every CPU: counts from before the start
//! are charged to no target, and slices in progress are counted.

mod leaders;
mod targets;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bprec_bpf::{AttrMap, EventReading, FOLLOWED_MAX, Follower};
use bprec_format::bprec::state::{
    CounterEvents, CounterTier, Reading, SharedCounters as Snapshot, SharedTarget, State,
};

use super::{Context, Source, Tick};
use crate::events::{Wanted, machine};
use crate::{Error, Level, Options, Result, Target, sys};

use leaders::{Leading, read_now};
use targets::{Place, TargetPlan};

pub use targets::CounterTarget;

/// Default events; events that the machine lacks are left out.
const DEFAULT_EVENTS: &str = "cpu-clock,cycles,instructions";

/// Events and targets of shared counters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharedOptions {
    /// Lists of events. Empty means the default: CPU time, cycles and instructions.
    pub events: Vec<String>,
    /// CPUs, tasks or cgroups that are counted.
    pub targets: Vec<CounterTarget>,
    /// Path of the map by which sessions find each other's leaders; `None` means perf's path.
    pub attr_map: Option<PathBuf>,
}

/// Shared counters as a source.
#[derive(Debug)]
pub(crate) struct SharedCounters {
    asked: SharedOptions,
    /// Process of the command, and its name after the exec: until then, the process waits and has the recorder's name.
    command: Option<(u32, Vec<u8>)>,
    /// True if a recording continues without shared counters.
    is_optional: bool,
    counting: Option<Shared>,
}

impl SharedCounters {
    /// Makes the counters of a recording: for the target of the recording, then for the further targets of `asked`.
    pub(crate) fn of_recording(options: &Options, asked: &SharedOptions, command: Option<u32>) -> SharedCounters {
        let mut asked = asked.clone();
        let recorded = match &options.target {
            Target::System => vec![CounterTarget::Machine],
            Target::Cpus(cpus) => cpus.iter().map(|cpu| CounterTarget::Cpu(*cpu)).collect(),
            Target::Processes(ids) => ids.iter().map(|id| CounterTarget::Process { id: *id, children: true }).collect(),
            Target::Threads(ids) => ids.iter().map(|id| CounterTarget::Thread(*id)).collect(),
            Target::Command => command.into_iter().map(|id| CounterTarget::Process { id, children: true }).collect(),
        };
        asked.targets.splice(0..0, recorded);
        let words = options.command.as_deref().filter(|_| options.target == Target::Command);
        SharedCounters { is_optional: true, ..SharedCounters::new(asked, command, words) }
    }

    /// Makes counters outside of a recording: there, unavailable counters are an error. `words` are the command and its arguments.
    pub(crate) fn new(asked: SharedOptions, command: Option<u32>, words: Option<&[OsString]>) -> SharedCounters {
        let name = words.and_then(|words| Path::new(words.first()?).file_name());
        let command = command.zip(name.map(|name| name.as_encoded_bytes().to_vec()));
        SharedCounters { asked, command, is_optional: false, counting: None }
    }
}

impl Source for SharedCounters {
    fn begin_file(&mut self, is_first: bool, context: &mut Context<'_>) -> Result<()> {
        if let Some(shared) = &mut self.counting {
            context.out.state(State::CounterEvents(shared.events().clone()))?;
            return context.out.state(State::SharedCounters(shared.snapshot()));
        }
        if !is_first {
            return Ok(());
        }
        match Shared::start(&self.asked, context.notify) {
            Ok(mut shared) => {
                if let Some((id, name)) = &self.command {
                    shared.name_task(*id, name);
                }
                context.out.state(State::CounterEvents(shared.events().clone()))?;
                // Counting alone starts at its first reading; a recording sets its own start time later.
                context.out.session.start_ns = shared.since_ns;
                self.counting = Some(shared);
                Ok(())
            }
            // The request itself is invalid, so this is an error even if the counters are optional.
            Err(error @ (Error::Event { .. } | Error::Cgroup { .. })) => Err(error),
            Err(error) if self.is_optional => {
                let text = format!("no shared counters: {error}");
                (context.notify)(Level::Warning, &text);
                context.note_counters(&text);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn tick(&mut self, tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        if let Some(shared) = self.counting.as_mut().filter(|_| tick.is_reading) {
            context.out.state(State::SharedCounters(shared.snapshot()))?;
        }
        Ok(None)
    }

    fn end_file(&mut self, is_last: bool, context: &mut Context<'_>) -> Result<()> {
        let snapshot = match is_last {
            true => self.counting.take().map(Shared::finish),
            false => self.counting.as_mut().map(Shared::snapshot),
        };
        snapshot.map_or(Ok(()), |snapshot| context.out.state(State::SharedCounters(snapshot)))
    }
}

/// Active shared counters. Dropping them unloads the follower and all leaders that no other session uses.
#[derive(Debug)]
pub struct Shared {
    events: CounterEvents,
    // Program of this session that charges the readings of the leaders to tasks and cgroups. `Drop` releases it before
    // the leaders.
    follower: Option<Follower>,
    leading: Vec<Leading>,
    plan: TargetPlan,
    cpus: Vec<u32>,
    /// Readings of each leader when counting began, by CPU.
    base: Vec<Vec<EventReading>>,
    since_ns: u64,
    /// Map in which other sessions find the leaders.
    map: Option<AttrMap>,
    /// Keys of our leaders in the map.
    keys: Vec<Vec<u8>>,
    notify: fn(Level, &str),
    no_room_told: bool,
}

impl Shared {
    /// Starts counting. Unavailable events are reported to `notify` and listed in [`Shared::events`].
    ///
    /// # Errors
    /// Fails if an event or a cgroup is invalid, or if nothing can be counted; everything is unloaded then.
    pub fn start(asked: &SharedOptions, notify: fn(Level, &str)) -> Result<Shared> {
        let wanted = Wanted::parse(&asked.events, DEFAULT_EVENTS)?;
        if wanted.count() > FOLLOWED_MAX {
            let problem =
                format!("shared counters count at most {FOLLOWED_MAX} events, but {} are requested", wanted.count());
            return Err(Error::Event { event: asked.events.join(","), problem });
        }
        let cpus = machine::online_cpus();
        let plan = TargetPlan::of(&asked.targets, &cpus)?;
        let mut found = leaders::find(&wanted, asked.attr_map.as_deref(), &cpus)?;
        let level = if wanted.is_default { Level::Detail } else { Level::Warning };
        for event in &found.absent {
            notify(level, &format!("{} is not counted: {}", event.name, event.reason));
        }
        if let Some(reason) = &found.unshared {
            notify(Level::Notice, &format!("counters are not shared with other sessions: {reason}"));
        }
        let mut shared = Shared {
            events: CounterEvents {
                tier: CounterTier::SHARED,
                time_ns: sys::monotonic_ns(),
                events: found.leading.iter().map(|leading| leading.event.clone()).collect(),
                absent: std::mem::take(&mut found.absent),
                calibration: None,
                budget_ppm: None,
                note: found.note(&wanted, plan.targets().is_some()),
            },
            follower: None,
            leading: found.leading,
            plan,
            cpus,
            base: Vec::new(),
            since_ns: 0,
            map: found.map,
            keys: found.keys,
            notify,
            no_room_told: false,
        };
        if shared.leading.is_empty() {
            let reasons: Vec<String> =
                shared.events.absent.iter().map(|it| format!("{}: {}", it.name, it.reason)).collect();
            return Err(Error::Other(format!("none of the events can be counted: {}", reasons.join("; "))));
        }
        if let Some(targets) = shared.plan.targets() {
            let leaders: Vec<_> = shared.leading.iter().map(|leading| &leading.leader).collect();
            let follower = Follower::load(&leaders, targets)?;
            shared.plan.add_tasks(&follower)?;
            if let Some(reason) = shared.plan.nothing_to_count() {
                return Err(Error::Other(reason));
            }
            shared.follower = Some(follower);
        }
        // Counts cover the time from here to the time of a snapshot. That time is read after the snapshot's last counter.
        shared.since_ns = sys::monotonic_ns();
        shared.read_now()?;
        shared.base = shared.leading.iter().map(|it| it.leader.readings()).collect::<bprec_bpf::Result<_>>()?;
        if let Some(follower) = &shared.follower {
            follower.enable();
        }
        Ok(shared)
    }

    /// Sets the name that a task will have after its exec.
    pub fn name_task(&mut self, id: u32, name: &[u8]) {
        self.plan.name_task(id, name);
    }

    /// Counted events, and absent events with the reason.
    pub fn events(&self) -> &CounterEvents {
        &self.events
    }

    /// Reads the counts of all targets; a target that is not counted has the reason.
    pub fn snapshot(&mut self) -> Snapshot {
        let problem = self.read_now().err();
        let snapshot = self.collect(problem.as_ref());
        let no_room = self.follower.as_ref().map_or(0, Follower::no_room);
        if no_room > 0 && !self.no_room_told {
            self.no_room_told = true;
            (self.notify)(
                Level::Warning,
                &format!("{no_room} tasks are not counted, because the BPF program's table of tasks is full"),
            );
        }
        snapshot
    }

    /// Stops counting and returns the last counts.
    pub fn finish(mut self) -> Snapshot {
        let problem = self.read_now().err();
        if let Some(follower) = &mut self.follower {
            follower.detach();
        }
        self.collect(problem.as_ref())
    }

    /// Counts the slices in progress.
    fn read_now(&self) -> Result<()> {
        read_now(&self.leading, self.follower.as_ref(), &self.cpus)
    }

    fn collect(&self, problem: Option<&Error>) -> Snapshot {
        let now: Result<Vec<Vec<EventReading>>, bprec_bpf::Error> =
            self.leading.iter().map(|leading| leading.leader.readings()).collect();
        let targets = self.plan.each().map(|target| {
            let mut told = SharedTarget { since_ns: self.since_ns, ..target.told.clone() };
            if !told.reason.is_empty() {
                return told;
            }
            let on = |cpu: Option<u32>| match &now {
                Ok(now) => Ok(self.grown(now, cpu)),
                Err(error) => Err(error.to_string()),
            };
            let readings = match target.place {
                Place::Machine => on(None),
                Place::Cpu(cpu) => on(Some(cpu)),
                Place::Account(account) => match &self.follower {
                    Some(follower) => follower.read(account).map(readings_of).map_err(|error| error.to_string()),
                    None => Err("no BPF program counts this target".to_owned()),
                },
            };
            match readings {
                Ok(readings) => told.readings = readings,
                Err(reason) => told.reason = reason,
            }
            if let (Some(problem), true) = (problem, told.reason.is_empty()) {
                told.reason = format!("time slices in progress are not counted: {problem}");
            }
            told
        });
        let targets = targets.collect();
        Snapshot { time_ns: sys::monotonic_ns(), targets }
    }

    /// Counts of the events since counting began, on one CPU or on all.
    fn grown(&self, now: &[Vec<EventReading>], cpu: Option<u32>) -> Vec<Reading> {
        let sum = |(now, base): (&Vec<EventReading>, &Vec<EventReading>)| {
            let mut sum = Reading::default();
            // `now` and `base` hold all possible CPUs, in the same order.
            for (now, base) in now.iter().zip(base).filter(|(now, _)| cpu.is_none_or(|cpu| now.cpu == cpu)) {
                sum.value += now.value.saturating_sub(base.value);
                sum.enabled_ns += now.enabled_ns.saturating_sub(base.enabled_ns);
                sum.running_ns += now.running_ns.saturating_sub(base.running_ns);
            }
            sum
        };
        now.iter().zip(&self.base).map(sum).collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.follower = None;
        self.leading.clear();
        if let Some(map) = &self.map {
            map.leave(&self.keys);
        }
    }
}

fn readings_of(sums: Vec<[u64; 3]>) -> Vec<Reading> {
    sums.into_iter().map(|[value, enabled_ns, running_ns]| Reading { value, enabled_ns, running_ns }).collect()
}
