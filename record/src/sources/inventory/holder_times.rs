//! CPU time and memory of the processes that hold programs, in each file of a recording.

use std::collections::{BTreeMap, BTreeSet};

use bprec_format::bprec::state::{self, State};
use bprec_host::resident_bytes;

use crate::sys;

/// Readings of the CPU time of the processes that hold programs at the start of a file.
#[derive(Debug, Default)]
pub(super) struct HolderTimes {
    first: Reading,
    /// Reading at the end of sampling, if sampling has ended.
    last: Option<Reading>,
}

/// CPU time, ns, by process.
#[derive(Debug, Default)]
struct Reading {
    time_ns: u64,
    cpu_ns: BTreeMap<u32, u64>,
}

impl Reading {
    fn of(pids: impl Iterator<Item = u32>) -> Reading {
        let cpu_ns = pids.filter_map(|pid| Some((pid, sys::process_time_ns(pid)?))).collect();
        Reading { time_ns: sys::monotonic_ns(), cpu_ns }
    }
}

impl HolderTimes {
    /// Reads the processes `pids` at the start of a file.
    pub(super) fn begin(&mut self, pids: &BTreeSet<u32>) {
        *self = HolderTimes { first: Reading::of(pids.iter().copied()), last: None };
    }

    /// Reads the processes again when sampling starts or ends: the start and the end of a file may be much earlier or later.
    pub(super) fn switch(&mut self, is_on: bool) {
        let reading = Reading::of(self.first.cpu_ns.keys().copied());
        if is_on {
            self.first = reading;
        } else {
            self.last = Some(reading);
        }
    }

    /// Ends a file. Returns the CPU time and memory of the processes that still exist, as a state; `None` if there are none.
    pub(super) fn end(&mut self) -> Option<State> {
        let Reading { time_ns, cpu_ns } = std::mem::take(&mut self.first);
        let last = self.last.take().unwrap_or_else(|| Reading::of(cpu_ns.keys().copied()));
        // A smaller time is that of another process with the same id.
        let used = |(pid, before): (u32, u64)| Some((pid, last.cpu_ns.get(&pid)?.checked_sub(before)?));
        let processes: Vec<(u32, u64)> = cpu_ns.into_iter().filter_map(used).collect();
        let resident = |(pid, _): &(u32, u64)| Some((*pid, resident_bytes(*pid)?));
        let resident_bytes = processes.iter().filter_map(resident).collect();
        let times = state::HolderTimes { from_ns: time_ns, to_ns: last.time_ns, processes, resident_bytes };
        (!times.processes.is_empty()).then_some(State::HolderTimes(times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_between_the_switches() {
        let own = std::process::id();
        let mut times = HolderTimes::default();
        // No process has the second id: it is the kernel's limit.
        times.begin(&BTreeSet::from([own, 1 << 22]));
        let cpu_ns = || sys::process_time_ns(own).unwrap();
        let work = || {
            let until_ns = cpu_ns() + 3_000_000;
            while cpu_ns() < until_ns {}
        };
        work();
        let start_ns = cpu_ns();
        times.switch(true);
        let at_least = cpu_ns();
        work();
        let at_least = cpu_ns() - at_least;
        times.switch(false);
        let at_most = cpu_ns() - start_ns;
        work();
        let Some(State::HolderTimes(state)) = times.end() else { panic!() };
        let [(pid, cpu_ns)] = state.processes[..] else { panic!("{state:?}: has a process that does not exist") };
        assert_eq!(pid, own);
        assert!((at_least..=at_most).contains(&cpu_ns), "{at_least} {cpu_ns} {at_most}");
        assert!(state.from_ns < state.to_ns);
        let [(pid, bytes)] = state.resident_bytes[..] else { panic!("{state:?}") };
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        let expected = pages * rustix::param::page_size() as u64;
        assert!(pid == own && bytes.abs_diff(expected) < 8 << 20, "{bytes} {expected}");
        times.begin(&BTreeSet::from([1 << 22]));
        assert_eq!(times.end(), None);
    }
}
