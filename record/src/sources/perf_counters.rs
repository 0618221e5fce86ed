//! Counts of what is not a program: perf events of the machine, of CPUs, tasks and cgroups.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use bprec_format::bprec::state::{
    AbsentEvent, CounterEvent, CounterEvents, CounterTier, Reading, SharedCounters, SharedScope, SharedTarget, State,
};
use bprec_format::{AttrFlags, EventAttr, ReadFormat};

use super::shared::find_cgroup;
use super::{Context, Source};
use crate::events::syntax::EventSpec;
use crate::events::syntax::groups::{Wanted, described, refusal};
use crate::events::{machine, task_number, threads};
use crate::options::{StatOptions, StatTarget};
use crate::{Error, Level, Result, sys};

/// Default events: in tasks, and on CPUs.
const OF_TASKS: &str =
    "task-clock,context-switches,cpu-migrations,page-faults,{cycles,instructions},{branches,branch-misses}";
const OF_CPUS: &str =
    "cpu-clock,context-switches,cpu-migrations,page-faults,{cycles,instructions},{branches,branch-misses}";
/// Number of readings of counters if one took much longer than it can.
const READ_AGAIN: usize = 4;

/// Open events of some targets.
#[derive(Debug)]
pub(crate) struct PerfCounters {
    targets: Vec<SharedTarget>,
    /// By event of each target: its descriptors.
    open: Vec<Vec<Vec<Counter>>>,
    /// A target for each CPU of the only one, which is the machine.
    per_cpu: bool,
    /// They are switched on by the command's exec.
    enabled_by_exec: bool,
    /// The shortest time that a reading took.
    usual: Option<Duration>,
    /// Events that are counted.
    described: CounterEvents,
}

/// One event at one place.
#[derive(Debug)]
struct Counter {
    fd: OwnedFd,
    cpu: i32,
    /// Index of the place among its target's.
    place: usize,
    is_leader: bool,
}

/// Tasks and CPUs on which one target's events are opened.
struct EventPlaces {
    /// Tasks, or the descriptor of a cgroup, or −1; with a CPU, or −1.
    places: Vec<(i32, i32)>,
    cgroup: Option<File>,
    inherit: bool,
}

impl PerfCounters {
    /// Opens events of the targets, off.
    ///
    /// # Errors
    /// When no event can be counted, or a target does not exist.
    pub(crate) fn open(target: &StatTarget, options: &StatOptions, command: Option<i32>) -> Result<PerfCounters> {
        let online = machine::online_cpus();
        let of_tasks = matches!(target, StatTarget::Processes(_) | StatTarget::Threads(_) | StatTarget::Command);
        let wanted = Wanted::parse(&options.events, if of_tasks { OF_TASKS } else { OF_CPUS })?;
        let (targets, places): (Vec<SharedTarget>, Vec<EventPlaces>) =
            chosen(target, options, &online, command)?.into_iter().unzip();
        let enabled_by_exec = *target == StatTarget::Command;
        let (mut events, mut absent) = (Vec::new(), Vec::new());
        let mut open: Vec<Vec<Vec<Counter>>> = targets.iter().map(|_| Vec::new()).collect();
        for group in &wanted.groups {
            let number = events.len() as u32;
            let mut leaders: Vec<Option<usize>> = vec![None; targets.len()];
            for spec in group {
                match open_everywhere(spec, &places, &open, &leaders, enabled_by_exec) {
                    Ok((name, counters)) => {
                        let index = events.len();
                        events.push(CounterEvent { name, ..described(spec, number) });
                        for ((all, own), leader) in open.iter_mut().zip(counters).zip(&mut leaders) {
                            leader.get_or_insert(index);
                            all.push(own);
                        }
                    }
                    Err(reason) => absent.push(AbsentEvent { name: spec.name.clone(), reason }),
                }
            }
        }
        if events.is_empty() {
            let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
            for it in &absent {
                match reasons.iter_mut().find(|(reason, _)| *reason == it.reason) {
                    Some((_, names)) => names.push(&it.name),
                    None => reasons.push((&it.reason, vec![&it.name])),
                }
            }
            let reasons: Vec<String> =
                reasons.iter().map(|(reason, names)| format!("{}: {reason}", names.join(", "))).collect();
            return Err(Error::Other(format!("nothing can be counted: {}", reasons.join("; "))));
        }
        if !wanted.is_default {
            for event in &absent {
                (options.notify)(Level::Warning, &format!("{} is not counted: {}", event.name, event.reason));
            }
        }
        let described = CounterEvents {
            tier: CounterTier::SHARED,
            time_ns: sys::monotonic_ns(),
            events,
            absent,
            calibration: None,
            budget_ppm: None,
            note: String::new(),
        };
        let per_cpu = options.per_cpu && *target == StatTarget::System;
        Ok(PerfCounters { described, targets, open, per_cpu, enabled_by_exec, usual: None })
    }

    /// Counts as of now.
    fn read_all(&mut self) -> Vec<State> {
        // A reading that is interrupted has counters of different times in it, which intervals would show.
        let mut targets = Vec::new();
        for _ in 0..READ_AGAIN {
            let began = Instant::now();
            targets = self.read_once();
            let took = began.elapsed();
            let usual = *self.usual.get_or_insert(took);
            self.usual = Some(usual.min(took));
            if took <= usual * 2 + Duration::from_micros(50) {
                break;
            }
        }
        let time_ns = sys::monotonic_ns();
        SharedCounters::parts(time_ns, targets).into_iter().map(State::SharedCounters).collect()
    }

    fn read_once(&self) -> Vec<SharedTarget> {
        let mut read = Vec::new();
        for (target, events) in self.targets.iter().zip(&self.open) {
            let values: Vec<Vec<(i32, Reading)>> = events
                .iter()
                .map(|counters| {
                    // A counter that cannot be read any more, of a CPU that went away, stays with what it had: the kernel
                    // answers with that.
                    counters.iter().filter_map(|it| Some((it.cpu, sys::read_reading(it.fd.as_fd()).ok()?))).collect()
                })
                .collect();
            let of = |cpu: Option<i32>| -> Vec<Reading> {
                let sum = |values: &Vec<(i32, Reading)>| {
                    let chosen = values.iter().filter(|(on, _)| cpu.is_none_or(|cpu| cpu == *on));
                    chosen.fold(Reading::default(), |sum, (_, it)| Reading {
                        value: sum.value + it.value,
                        enabled_ns: sum.enabled_ns + it.enabled_ns,
                        running_ns: sum.running_ns + it.running_ns,
                    })
                };
                values.iter().map(sum).collect()
            };
            read.push(SharedTarget { readings: of(None), ..target.clone() });
            if self.per_cpu {
                let mut cpus: Vec<i32> = values.iter().flatten().map(|(cpu, _)| *cpu).collect();
                cpus.sort_unstable();
                cpus.dedup();
                read.extend(cpus.into_iter().map(|cpu| SharedTarget {
                    scope: SharedScope::CPU,
                    id: u64::from(cpu.unsigned_abs()),
                    readings: of(Some(cpu)),
                    ..target.clone()
                }));
            }
        }
        read
    }
}

impl Source for PerfCounters {
    fn start(&mut self, context: &mut Context<'_>) -> Result<()> {
        context.out.state(State::CounterEvents(self.described.clone()))
    }

    /// Events that wait for a command are switched on by its exec. Nothing was counted before.
    fn enable(&mut self, context: &mut Context<'_>) -> Result<()> {
        self.targets.iter_mut().for_each(|target| target.since_ns = context.session.start_ns);
        if self.enabled_by_exec {
            return Ok(());
        }
        let counters = self.open.iter().flatten().flatten().filter(|counter| counter.is_leader);
        for counter in counters {
            sys::enable(counter.fd.as_fd()).map_err(|answer| Error::Syscall {
                call: "ioctl(PERF_EVENT_IOC_ENABLE)",
                object: format!("cpu {}", counter.cpu),
                answer,
                remedy: String::new(),
            })?;
        }
        Ok(())
    }

    fn read(&mut self, context: &mut Context<'_>) -> Result<()> {
        context.out.states(self.read_all())
    }

    fn disable(&mut self) {
        for counter in self.open.iter().flatten().flatten().filter(|counter| counter.is_leader) {
            // Counters that go on are read a little later, no more.
            drop(sys::disable(counter.fd.as_fd()));
        }
    }

    fn finish(&mut self, context: &mut Context<'_>) -> Result<()> {
        self.read(context)
    }
}

/// The targets, and where their events are.
fn chosen(
    asked: &StatTarget,
    options: &StatOptions,
    online: &[u32],
    command: Option<i32>,
) -> Result<Vec<(SharedTarget, EventPlaces)>> {
    let on = |cpus: &[u32]| EventPlaces {
        places: cpus.iter().map(|cpu| (-1, *cpu as i32)).collect(),
        cgroup: None,
        inherit: false,
    };
    let of = |tasks: Vec<i32>, inherit| EventPlaces {
        places: tasks.into_iter().map(|task| (task, -1)).collect(),
        cgroup: None,
        inherit,
    };
    let target = |scope, id: u64| SharedTarget { scope, id, ..SharedTarget::default() };
    match asked {
        StatTarget::Programs(_) | StatTarget::System => Ok(vec![(target(SharedScope::MACHINE, 0), on(online))]),
        StatTarget::Cpus(cpus) => cpus
            .iter()
            .map(|cpu| match online.contains(cpu) {
                true => Ok((target(SharedScope::CPU, (*cpu).into()), on(&[*cpu]))),
                false => Err(Error::Other(format!("cpu {cpu} is not online (online are {online:?})"))),
            })
            .collect(),
        StatTarget::Processes(pids) => pids
            .iter()
            .map(|pid| {
                let target = SharedTarget {
                    name: bprec_host::comm(*pid).unwrap_or_default(),
                    children: true,
                    ..target(SharedScope::TGID, (*pid).into())
                };
                Ok((target, of(threads(*pid)?, true)))
            })
            .collect(),
        StatTarget::Threads(tids) => tids
            .iter()
            .map(|tid| {
                let target = SharedTarget {
                    name: bprec_host::comm(*tid).unwrap_or_default(),
                    ..target(SharedScope::PID, (*tid).into())
                };
                Ok((target, of(vec![task_number(*tid)?], false)))
            })
            .collect(),
        StatTarget::Cgroups(paths) => paths
            .iter()
            .map(|path| {
                let found = find_cgroup(path)?;
                let directory = File::open(&found.directory).map_err(|error| Error::file(&found.directory, error))?;
                let target = SharedTarget { name: found.name, children: true, ..target(SharedScope::CGROUP, found.id) };
                let places = online.iter().map(|cpu| (directory.as_raw_fd(), *cpu as i32)).collect();
                Ok((target, EventPlaces { places, cgroup: Some(directory), inherit: false }))
            })
            .collect(),
        StatTarget::Command => {
            let Some(pid) = command else {
                return Err(Error::Other("no command to count; give one, or -a".to_owned()));
            };
            let name = options.command.iter().flatten().next().map(|name| name.to_string_lossy().into_owned());
            let name = name.unwrap_or_default().into_bytes();
            let id = u64::from(pid.unsigned_abs());
            Ok(vec![(SharedTarget { name, children: true, ..target(SharedScope::TGID, id) }, of(vec![pid], true))])
        }
    }
}

/// Opens one event at all places of all targets, behind the leader of its group there. Its name, which says so when only user
/// mode may be counted, and its descriptors by target.
fn open_everywhere(
    spec: &EventSpec,
    places: &[EventPlaces],
    open: &[Vec<Vec<Counter>>],
    leaders: &[Option<usize>],
    enabled_by_exec: bool,
) -> Result<(String, Vec<Vec<Counter>>), String> {
    let with = |spec: &EventSpec| -> Result<Vec<Vec<Counter>>, (io::Error, String)> {
        let of_target = |((places, open), leader): ((&EventPlaces, &Vec<Vec<Counter>>), &Option<usize>)| {
            open_at(spec, places, leader.map(|leader| &open[leader][..]), enabled_by_exec)
        };
        places.iter().zip(open).zip(leaders).map(of_target).collect()
    };
    let is_member = leaders.iter().any(Option::is_some);
    match with(spec) {
        Ok(counters) => Ok((spec.name.clone(), counters)),
        Err((error, place)) => {
            let may_not = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
            let user = AttrFlags::EXCLUDE_KERNEL.with(AttrFlags::EXCLUDE_HV);
            if may_not && !spec.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL) {
                let mut user_spec = spec.clone();
                user_spec.attr.flags = user_spec.attr.flags.with(user);
                let separator = if spec.name.contains(':') { "" } else { ":" };
                if let Ok(counters) = with(&user_spec) {
                    return Ok((format!("{}{separator}u", spec.name), counters));
                }
            }
            Err(refusal(&error, is_member, &place))
        }
    }
}

fn open_at(
    spec: &EventSpec,
    places: &EventPlaces,
    leaders: Option<&[Counter]>,
    enabled_by_exec: bool,
) -> Result<Vec<Counter>, (io::Error, String)> {
    let mut attr = EventAttr {
        read_format: ReadFormat::TOTAL_TIME_ENABLED.with(ReadFormat::TOTAL_TIME_RUNNING),
        ..spec.attr.clone()
    };
    attr.flags = attr.flags.with_precise_ip(0);
    // Members follow their leader.
    if leaders.is_none() {
        attr.flags = attr.flags.with(AttrFlags::DISABLED);
        if enabled_by_exec {
            attr.flags = attr.flags.with(AttrFlags::ENABLE_ON_EXEC);
        }
    }
    if places.inherit {
        attr.flags = attr.flags.with(AttrFlags::INHERIT);
    }
    let mut counters: Vec<Counter> = Vec::new();
    let mut last = None;
    for (at, (pid, cpu)) in places.places.iter().enumerate() {
        if spec.cpus.as_ref().is_some_and(|own| *cpu >= 0 && !own.contains(&cpu.unsigned_abs())) {
            continue;
        }
        let leader = match leaders {
            None => None,
            Some(leaders) => match leaders.iter().find(|leader| leader.place == at) {
                Some(leader) => Some(leader.fd.as_fd()),
                // Nothing can be read on a CPU that has no leader.
                None => continue,
            },
        };
        match sys::open_counter_at(&attr, *pid, *cpu, leader, places.cgroup.is_some()) {
            Ok(fd) => counters.push(Counter { fd, cpu: *cpu, place: at, is_leader: leaders.is_none() }),
            // A task that has ended, or a CPU that has gone.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => last = Some((error, format!("task {pid}"))),
            Err(error) => {
                let place = if *cpu >= 0 { format!("cpu {cpu}") } else { format!("task {pid}") };
                return Err((error, place));
            }
        }
    }
    match (counters.is_empty(), last) {
        (false, _) => Ok(counters),
        (true, Some(last)) => Err(last),
        (true, None) => Err((io::Error::from_raw_os_error(libc::ENODEV), "any CPU".to_owned())),
    }
}
