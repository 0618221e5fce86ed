//! Lists of events in which braces hold groups, and what comes of opening them to be counted.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bprec_format::bprec::state::{AbsentEvent, CounterEvent, CounterUnit};
use bprec_format::{event_type, software};

use super::EventSpec;
use super::list::items;
use crate::{Error, Result, sys};

/// Events as they were asked for, one list per group.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) groups: Vec<Vec<EventSpec>>,
    /// True for default events: their absence is no shortcoming.
    pub(crate) is_default: bool,
}

/// Events, opened.
#[derive(Debug, Default)]
pub(crate) struct OpenCounters {
    /// In the order in which they are read.
    pub(crate) events: Vec<CounterEvent>,
    /// Events that could not be opened.
    pub(crate) absent: Vec<AbsentEvent>,
    /// Index of the event, CPU, descriptor. They count as long as they are open.
    pub(crate) open: Vec<(usize, u32, OwnedFd)>,
    /// A bit for each event that is not on every CPU.
    pub(crate) partial: u32,
}

impl Wanted {
    /// Reads lists of events, in which braces hold groups; none at all means `default`.
    ///
    /// # Errors
    /// When a list cannot be understood.
    pub(crate) fn parse(lists: &[String], default: &str) -> Result<Wanted> {
        let is_default = lists.is_empty();
        let default = [default.to_owned()];
        let mut groups = Vec::new();
        for list in if is_default { &default } else { lists } {
            for group in split(list)? {
                groups.push(super::parse(&group)?);
            }
        }
        Ok(Wanted { groups, is_default })
    }

    /// Number of events.
    pub(crate) fn count(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }

    /// Opens the events on these CPUs, counting. A group of which one cannot be opened goes on without it.
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
            // An event that joins a group which counts already may be left out of it until the group starts again.
            for (_, leader) in leaders.iter().filter(|_| group.len() > 1) {
                // Neither is refused for one's own event; if it were, the event would be shown not to have run.
                drop(sys::disable(leader.as_fd()).and_then(|()| sys::enable(leader.as_fd())));
            }
        }
        counting
    }
}

/// CPUs on which an event counts.
pub(crate) fn cpus_of(spec: &EventSpec, cpus: &[u32]) -> Vec<u32> {
    cpus.iter().copied().filter(|cpu| spec.cpus.as_ref().is_none_or(|on| on.contains(cpu))).collect()
}

/// Opens one event on each of the CPUs, behind the leader there. Err says why not.
pub(crate) fn open_on(
    spec: &EventSpec,
    cpus: &[u32],
    leaders: &[(u32, OwnedFd)],
) -> Result<Vec<(u32, OwnedFd)>, String> {
    if cpus.is_empty() {
        return Err("its PMU counts on none of the CPUs".to_owned());
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

/// Why an event is not counted at a place.
pub(crate) fn refusal(error: &io::Error, is_member: bool, place: &str) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENXIO) => {
            "this machine does not offer it (no hardware PMU, or a virtual machine without it)".to_owned()
        }
        Some(libc::EINVAL) if is_member => "it does not fit in its group".to_owned(),
        Some(libc::EACCES | libc::EPERM) => format!(
            "perf_event_open on {place}: {error}; needs root, CAP_PERFMON, or a lower kernel.perf_event_paranoid"
        ),
        _ => format!("perf_event_open on {place}: {error}"),
    }
}

/// An event as the states have it.
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

/// Cuts a list into groups: what braces hold, with the modifiers behind them given to each; everything else alone.
fn split(list: &str) -> Result<Vec<String>> {
    let wrong = |problem: &str| Error::Event { event: list.to_owned(), problem: problem.to_owned() };
    let mut groups = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('{') {
            let (inside, behind) = behind.split_once('}').ok_or_else(|| wrong("the `}` of a group is missing"))?;
            let (modifiers, behind) = match behind.find(',') {
                Some(at) => behind.split_at(at),
                None => (behind, ""),
            };
            let modifiers = modifiers.trim();
            if !modifiers.is_empty() && !modifiers.starts_with(':') {
                return Err(wrong("only `:` with modifiers, or a comma, can follow the `}` of a group"));
            }
            let with: Vec<String> = items(inside).iter().map(|item| format!("{item}{modifiers}")).collect();
            groups.push(with.join(","));
            rest = behind;
        } else {
            let item = items(rest).first().map_or(rest, |item| item);
            groups.push(item.trim().to_owned());
            rest = &rest[item.len()..];
        }
        rest = match rest.strip_prefix(',') {
            Some(behind) if !behind.trim().is_empty() => behind.trim_start(),
            Some(_) => return Err(wrong("an event is missing after the last comma")),
            None => rest,
        };
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn lists_are_cut_at_groups() {
        let cut = |list| split(list).unwrap_or_default();
        assert_eq!(cut("{cycles,instructions}"), ["cycles,instructions"]);
        assert_eq!(cut("{a,b}:k,c,{d}"), ["a:k,b:k", "c", "d"]);
        assert_eq!(cut("cpu/event=1,umask=2/,b"), ["cpu/event=1,umask=2/", "b"]);
        assert!(split("{a,b").is_err() && split("{a}b").is_err() && split("a,").is_err());
    }
}
