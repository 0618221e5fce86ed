//! Counting events: opens them on CPUs, alone or in groups, and describes them in states.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bprec_format::bprec::state::{AbsentEvent, CounterEvent, CounterUnit};
use bprec_format::{event_type, software};
use bprec_host::Answer;

use super::syntax::{self, EventSpec};
use crate::{Result, sys};

/// Requested events, one list per group.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) groups: Vec<Vec<EventSpec>>,
    /// True for the default events. A missing default event is not reported as a shortcoming.
    pub(crate) is_default: bool,
}

/// Counters that are open.
#[derive(Debug, Default)]
pub(crate) struct OpenCounters {
    /// Events in the order in which they are read.
    pub(crate) events: Vec<CounterEvent>,
    /// Events that could not be opened, with the reasons.
    pub(crate) absent: Vec<AbsentEvent>,
    /// Event index, CPU and descriptor of each counter. A counter counts as long as its descriptor is open.
    pub(crate) open: Vec<(usize, u32, OwnedFd)>,
    /// Bit mask by event index. Set bits are events that do not count on every CPU.
    pub(crate) partial: u32,
}

impl Wanted {
    /// Parses event lists with groups in braces. Without any list, parses `default`.
    ///
    /// # Errors
    /// Fails if a list has a syntax error or names an unknown event.
    pub(crate) fn parse(lists: &[String], default: &str) -> Result<Wanted> {
        let is_default = lists.is_empty();
        let default = [default.to_owned()];
        let lists = if is_default { &default } else { lists };
        let groups: Vec<_> = lists.iter().map(|list| syntax::parse_groups(list)).collect::<Result<_>>()?;
        Ok(Wanted { groups: groups.concat(), is_default })
    }

    /// Number of events of all groups.
    pub(crate) fn count(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }

    /// Opens the events on the given CPUs; they count at once. If an event of a group cannot be opened, the group
    /// counts without it.
    pub(crate) fn open(&self, cpus: &[u32]) -> OpenCounters {
        let mut counting = OpenCounters::default();
        for group in &self.groups {
            let mut leaders: Vec<(u32, OwnedFd)> = Vec::new();
            let number = counting.events.len() as u32;
            for spec in group {
                let own = cpus_of(spec, cpus);
                match open_on(spec, &own, &leaders) {
                    Ok(fds) => {
                        let index = counting.events.len();
                        if own.len() < cpus.len() {
                            counting.partial |= 1 << index;
                        }
                        counting.events.push(described(spec, number));
                        if leaders.is_empty() {
                            leaders = fds.iter().filter_map(|(cpu, fd)| Some((*cpu, fd.try_clone().ok()?))).collect();
                        }
                        counting.open.extend(fds.into_iter().map(|(cpu, fd)| (index, cpu, fd)));
                    }
                    Err(reason) => counting.absent.push(AbsentEvent { name: spec.name.clone(), reason }),
                }
            }
            // An event that joins a running group may not be scheduled until the group is restarted.
            for (_, leader) in leaders.iter().filter(|_| group.len() > 1) {
                // The kernel does not refuse these calls for our own event; if it did, the event would be shown as not
                // having run.
                drop(sys::disable(leader.as_fd()).and_then(|()| sys::enable(leader.as_fd())));
            }
        }
        counting
    }
}

/// CPUs of the list on which an event can count.
pub(crate) fn cpus_of(spec: &EventSpec, cpus: &[u32]) -> Vec<u32> {
    cpus.iter().copied().filter(|cpu| spec.cpus.as_ref().is_none_or(|on| on.contains(cpu))).collect()
}

/// Opens an event on each of the CPUs, as a member of the leader's group if that CPU has a leader. An error is the
/// reason as text for the user.
pub(crate) fn open_on(
    spec: &EventSpec,
    cpus: &[u32],
    leaders: &[(u32, OwnedFd)],
) -> Result<Vec<(u32, OwnedFd)>, String> {
    if cpus.is_empty() {
        return Err("the event's PMU cannot count on any of the selected CPUs".to_owned());
    }
    let mut attr = spec.attr.clone();
    attr.flags = attr.flags.with_precise_ip(0);
    cpus.iter()
        .map(|cpu| {
            let leader = leaders.iter().find(|(on, _)| on == cpu).map(|(_, fd)| fd.as_fd());
            let opened = sys::open_counter(&attr, *cpu as i32, leader);
            opened.map(|fd| (*cpu, fd)).map_err(|error| refusal(&error, leader.is_some(), &format!("cpu {cpu}")))
        })
        .collect()
}

/// Reason why an event cannot be counted on a CPU or for a task.
fn refusal(error: &io::Error, is_member: bool, place: &str) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENXIO) => {
            "this machine does not offer the event (no hardware PMU, or a virtual machine without it)".to_owned()
        }
        Some(libc::EINVAL) if is_member => {
            "the hardware cannot count all events of the group at once; use a smaller group".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => format!(
            "perf_event_open on {place}: {}; needs root, CAP_PERFMON, or a lower kernel.perf_event_paranoid",
            Answer(error)
        ),
        _ => format!("perf_event_open on {place}: {}", Answer(error)),
    }
}

/// Description of an event, as it is written into states.
pub(crate) fn described(spec: &EventSpec, group: u32) -> CounterEvent {
    let is_clock = spec.attr.kind == event_type::SOFTWARE
        && [software::CPU_CLOCK, software::TASK_CLOCK].contains(&spec.attr.config);
    CounterEvent {
        name: spec.name.clone(),
        attr_type: spec.attr.kind,
        config: spec.attr.config,
        group,
        unit: if is_clock { CounterUnit::NANOSECONDS } else { CounterUnit::EVENTS },
        software: spec.attr.kind == event_type::SOFTWARE,
    }
}
