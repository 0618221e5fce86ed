//! Owners of programs, and the tasks of each owner.
//!
//! All processes that hold the same program belong to one owner, which also has the other programs of these processes. A process in a container, a
//! pod or a service represents the whole container, pod or service; any other process represents itself and the processes that it started.

use super::Index;
use super::programs::IndexedProgram;
use super::runners::at;
use super::workload::of_path;
use crate::model::{OwnerKind, RECORDER, Workload};
use bprec_format::bprec::state;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Process id of init, which adopts processes that it did not start.
const INIT_PID: u32 = 1;
/// Limit on the chain of parents of a process: hostile recordings may have endless chains.
const MAX_ANCESTORS: usize = 64;

/// Number of the owner of removed programs in [`Owners::without`].
pub(crate) const REMOVED: u32 = 0;

/// Owner of programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BpfOwner {
    pub(crate) name: String,
    pub(crate) kind: OwnerKind,
    /// Processes that hold the programs, ascending.
    pub(crate) pids: Vec<u32>,
}

/// Owners of a recording's programs.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Owners by name.
    pub(crate) list: Vec<BpfOwner>,
    /// Number of the owner of each program.
    of_program: Vec<u32>,
    /// Owners of each process as (time, ns, from which the process belongs to the owner; the owner or `None`), ascending by time. Has only processes
    /// that belong to an owner at some time.
    of_process: FxHashMap<u32, Vec<(u64, Option<u32>)>>,
    /// Owner of each workload.
    of_workload: FxHashMap<u32, u32>,
}

/// Holder of programs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Workload(Workload),
    Process(u32, String),
    PinDirectory(String),
    /// The recorder of another recording, which uses the program to measure.
    OtherRecorder,
    /// The program is held by its attachments alone.
    Attachments,
    /// The recording does not say who holds the program.
    Unknown,
}

impl Holder {
    /// Returns the holder that a process represents: its container, pod or service, or else the process itself.
    fn of_owner(owner: &state::Owner) -> Holder {
        let workload = of_path(&String::from_utf8_lossy(&owner.cgroup));
        let is_service = workload.unit.as_ref().is_some_and(|unit| unit.ends_with(".service"));
        match workload.id.is_some() || workload.pod.is_some() || is_service {
            true => Holder::Workload(workload),
            false => Holder::Process(owner.pid, String::from_utf8_lossy(&owner.comm).into_owned()),
        }
    }

    fn name(&self) -> String {
        match self {
            Holder::Workload(workload) => workload.name.clone(),
            Holder::Process(pid, comm) => format!("{comm}/{pid}"),
            Holder::PinDirectory(path) => path.clone(),
            Holder::OtherRecorder => RECORDER.to_owned(),
            Holder::Attachments => "(no process)".to_owned(),
            Holder::Unknown => "(unknown)".to_owned(),
        }
    }

    fn kind(&self) -> OwnerKind {
        match self {
            Holder::Workload(workload) if workload.unit.is_some() => OwnerKind::Unit,
            Holder::Workload(_) => OwnerKind::Container,
            Holder::Process(..) | Holder::OtherRecorder => OwnerKind::Process,
            Holder::PinDirectory(_) => OwnerKind::Pins,
            Holder::Attachments => OwnerKind::Attachments,
            Holder::Unknown => OwnerKind::Unknown,
        }
    }
}

/// Sets of holders that own programs together.
#[derive(Default)]
struct HolderSets {
    numbers: BTreeMap<Holder, usize>,
    /// Another member of each holder's set, or the holder itself if it represents the set.
    parents: Vec<usize>,
}

impl HolderSets {
    fn number(&mut self, holder: Holder) -> usize {
        let next = self.parents.len();
        let number = *self.numbers.entry(holder).or_insert(next);
        if number == next {
            self.parents.push(next);
        }
        number
    }

    fn set(&mut self, mut holder: usize) -> usize {
        while self.parents[holder] != holder {
            self.parents[holder] = self.parents[self.parents[holder]];
            holder = self.parents[holder];
        }
        holder
    }

    fn unite(&mut self, one: usize, other: usize) {
        let (one, other) = (self.set(one), self.set(other));
        self.parents[one.max(other)] = one.min(other);
    }
}

impl Owners {
    /// Finds the owners of all programs.
    pub(crate) fn new(index: &Index) -> Owners {
        let mut sets = HolderSets::default();
        let mut pids: BTreeMap<u32, usize> = BTreeMap::new();
        let held: Vec<usize> =
            index.programs.list.iter().map(|program| hold(program, index, &mut sets, &mut pids)).collect();
        let holders = std::mem::take(&mut sets.numbers).into_iter();
        let holders: Vec<(Holder, usize)> = holders.map(|(holder, number)| (holder, sets.set(number))).collect();
        let mut named: BTreeMap<usize, Vec<&Holder>> = BTreeMap::new();
        holders.iter().for_each(|(holder, set)| named.entry(*set).or_default().push(holder));
        let mut list: Vec<(usize, BpfOwner)> = named.into_iter().map(|(set, holders)| (set, owner(&holders))).collect();
        list.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        let numbers: FxHashMap<usize, u32> = list.iter().map(|(set, _)| *set).zip(0..).collect();
        let workloads = index.workloads();
        let of_workload = holders.iter().filter_map(|(holder, set)| match holder {
            Holder::Workload(workload) => Some((workloads.number(workload)?, numbers[set])),
            _ => None,
        });
        let of_workload = of_workload.collect();
        let mut number = |holder: usize| numbers[&sets.set(holder)];
        let of_program = held.into_iter().map(&mut number).collect();
        let holders: BTreeMap<u32, u32> = pids.into_iter().map(|(pid, holder)| (pid, number(holder))).collect();
        let mut list: Vec<BpfOwner> = list.into_iter().map(|(_, owner)| owner).collect();
        holders.iter().for_each(|(pid, owner)| list[*owner as usize].pids.push(*pid));
        let of_process = processes(index, &list, &holders);
        Owners { list, of_program, of_process, of_workload }
    }

    /// Returns two owners for a prediction without some programs: [`REMOVED`] has the programs to remove, the other owner has all other programs.
    /// `owners` selects the owners to remove with all their programs and tasks, `programs` selects further programs to remove. In the result, tasks
    /// of other owners have no owner.
    pub(crate) fn without(&self, programs: impl Fn(u32) -> bool, owners: impl Fn(u32) -> bool) -> Owners {
        let numbered = self.of_program.iter().zip(0..);
        let is_removed = |(owner, program): (&u32, u32)| programs(program) || owners(*owner);
        let task = |owner: Option<u32>| owner.filter(|owner| owners(*owner)).map(|_| REMOVED);
        let of_time =
            |times: &[(u64, Option<u32>)]| times.iter().map(|(since, owner)| (*since, task(*owner))).collect();
        let removed = self.of_workload.iter().filter(|(_, owner)| owners(**owner));
        Owners {
            list: Vec::new(),
            of_program: numbered.map(|program| if is_removed(program) { REMOVED } else { REMOVED + 1 }).collect(),
            of_process: self.of_process.iter().map(|(pid, times)| (*pid, of_time(times))).collect(),
            of_workload: removed.map(|(workload, _)| (*workload, REMOVED)).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn of_programs(of_program: Vec<u32>) -> Owners {
        Owners { of_program, ..Owners::default() }
    }

    #[cfg(test)]
    pub(crate) fn of_processes(owners: &[(u32, u32)]) -> Owners {
        let of_process = owners.iter().map(|(pid, owner)| (*pid, vec![(0, Some(*owner))])).collect();
        Owners { of_process, ..Owners::default() }
    }

    /// Returns the number of the owner of a program.
    pub(crate) fn number_of(&self, program: u32) -> Option<u32> {
        self.of_program.get(program as usize).copied()
    }

    /// Returns true if some owner is a workload, so that the cgroup of a sample can identify its owner.
    pub(crate) fn has_workloads(&self) -> bool {
        !self.of_workload.is_empty()
    }

    /// Returns the owner that a workload belongs to.
    pub(crate) fn of_workload(&self, workload: u32) -> Option<u32> {
        self.of_workload.get(&workload).copied()
    }

    /// Returns the owner that a process belongs to at a time.
    pub(crate) fn of_process(&self, pid: u32, time_ns: u64) -> Option<u32> {
        at(self.of_process.get(&pid)?, time_ns).flatten()
    }
}

/// Adds the holders of a program; returns the number of one of the holders.
fn hold(program: &IndexedProgram, index: &Index, sets: &mut HolderSets, pids: &mut BTreeMap<u32, usize>) -> usize {
    let states = &index.states;
    let Some(state) = program.key().and_then(|key| states.programs.get(&key)) else {
        // The recording has no state of the programs with which its recorder counts other programs.
        let recorder = states.recorder_pid().filter(|_| states.is_loaded_by_recorder(program));
        let holder = match recorder {
            Some(pid) => Holder::Process(pid, "bprec".to_owned()),
            None if states.is_of_recorder(program) => Holder::OtherRecorder,
            None => Holder::Unknown,
        };
        let number = sets.number(holder);
        if let Some(pid) = recorder {
            pids.insert(pid, number);
        }
        return number;
    };
    let mut first = None;
    for owner in &state.owners {
        let number = sets.number(Holder::of_owner(owner));
        // A process that changed its name is a separate holder under each name. These holders belong together.
        if let Some(before) = pids.insert(owner.pid, number) {
            sets.unite(before, number);
        }
        match first {
            None => first = Some(number),
            Some(first) => sets.unite(first, number),
        }
    }
    first.unwrap_or_else(|| {
        let directory = state.pins.first().map(|pin| String::from_utf8_lossy(pin).into_owned());
        let directory =
            directory.map(|pin| pin.rsplit_once('/').map_or(pin.clone(), |(directory, _)| directory.to_owned()));
        sets.number(match directory {
            _ if states.is_of_recorder(program) => Holder::OtherRecorder,
            Some(directory) => Holder::PinDirectory(directory),
            None => Holder::Attachments,
        })
    })
}

/// Makes the owner of a set of holders.
fn owner(holders: &[&Holder]) -> BpfOwner {
    let kind = holders.iter().map(|holder| holder.kind()).min().unwrap_or(OwnerKind::Unknown);
    let names: Vec<String> = holders.iter().map(|holder| holder.name()).collect();
    BpfOwner { name: names.join(", "), kind, pids: Vec::new() }
}

/// Returns the owners of processes by time. A process that holds no programs belongs to the owner of its parent. Processes started by init, by the
/// recorder or by a process of a workload do not inherit an owner: the cgroup identifies the processes of a workload.
fn processes(
    index: &Index,
    list: &[BpfOwner],
    holders: &BTreeMap<u32, u32>,
) -> FxHashMap<u32, Vec<(u64, Option<u32>)>> {
    let recorder = index.states.recorder_pid();
    let mut owners: FxHashMap<u32, Vec<(u64, Option<u32>)>> = FxHashMap::default();
    holders.iter().for_each(|(pid, owner)| drop(owners.insert(*pid, vec![(0, Some(*owner))])));
    let inherited = |owners: &FxHashMap<u32, Vec<(u64, Option<u32>)>>, parent: u32, time_ns: u64| {
        let has_children = parent != INIT_PID && Some(parent) != recorder;
        let owner = owners.get(&parent).filter(|_| has_children).and_then(|owners| at(owners, time_ns)).flatten();
        owner.filter(|owner| list[*owner as usize].kind == OwnerKind::Process)
    };
    let forks = &index.tasks.forks;
    let listed_until = forks.first().map_or(0, |fork| fork.time_ns);
    let listed = forks.partition_point(|fork| fork.time_ns <= listed_until);
    // The forks up to this time list the processes that already ran at the start. The list is not sorted by age: a child may come before its parent.
    let parents: FxHashMap<u32, u32> = forks[..listed].iter().map(|fork| (fork.pid, fork.parent_pid)).collect();
    for pid in parents.keys().filter(|pid| !holders.contains_key(pid)) {
        let ancestors = std::iter::successors(parents.get(pid), |pid| parents.get(pid)).take(MAX_ANCESTORS);
        let mut held = ancestors
            .copied()
            .take_while(|pid| *pid != INIT_PID && Some(*pid) != recorder)
            .skip_while(|pid| !holders.contains_key(pid));
        if let Some(owner) =
            held.next().and_then(|pid| holders.get(&pid)).filter(|it| list[**it as usize].kind == OwnerKind::Process)
        {
            owners.insert(*pid, vec![(0, Some(*owner))]);
        }
    }
    for fork in forks[listed..].iter().filter(|fork| !holders.contains_key(&fork.pid)) {
        let owner = inherited(&owners, fork.parent_pid, fork.time_ns);
        // A new process without an owner gets an entry only if an earlier process with the same id had an owner. The entry ends that ownership.
        if owner.is_some() || owners.contains_key(&fork.pid) {
            owners.entry(fork.pid).or_default().push((fork.time_ns, owner));
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::programs::ProgInfoSummary;
    use crate::index::tasks::{ProcessFork, TasksBuilder};

    fn holder(pid: u32, comm: &str, cgroup: &str) -> state::Owner {
        state::Owner { pid, comm: comm.into(), uid: 0, cgroup: cgroup.into() }
    }

    fn index(programs: Vec<(Vec<state::Owner>, Vec<&str>)>, forks: &[(u64, u32, u32)]) -> Index {
        let mut index = Index::default();
        for (at, (owners, pins)) in programs.into_iter().enumerate() {
            let id = at as u32 + 1;
            let info = ProgInfoSummary { at, load_time_ns: 5, ..ProgInfoSummary::default() };
            index.programs.list.push(IndexedProgram { id: Some(id), info: Some(info), ..IndexedProgram::default() });
            let pins = pins.into_iter().map(|pin| pin.as_bytes().to_vec()).collect();
            index.states.program(state::Program { id, load_time_ns: 5, owners, pins, ..state::Program::default() });
        }
        let mut tasks = TasksBuilder::default();
        for (time_ns, pid, parent_pid) in forks.iter().copied() {
            tasks.forked_process(ProcessFork { time_ns, pid, parent_pid });
        }
        index.tasks = tasks.build();
        index
    }

    #[test]
    fn processes_that_hold_a_program_together_are_one_owner() {
        let (agent, helper) = (holder(10, "agent", "/"), holder(11, "helper", "/"));
        let service = holder(20, "daemon", "/system.slice/daemon.service");
        let index = index(
            vec![
                (vec![agent.clone()], vec![]),
                (vec![agent, helper.clone()], vec![]),
                (vec![helper], vec!["/sys/fs/bpf/a/b"]),
                (vec![service], vec![]),
                (vec![], vec!["/sys/fs/bpf/net/prog"]),
                (vec![], vec![]),
            ],
            &[],
        );
        let owners = Owners::new(&index);
        let names: Vec<&str> =
            owners.of_program.iter().map(|owner| owners.list[*owner as usize].name.as_str()).collect();
        let together = "agent/10, helper/11";
        assert_eq!(names, [together, together, together, "daemon.service", "/sys/fs/bpf/net", "(no process)"]);
        let kinds: Vec<OwnerKind> = owners.of_program.iter().map(|owner| owners.list[*owner as usize].kind).collect();
        assert_eq!(kinds[2..], [OwnerKind::Process, OwnerKind::Unit, OwnerKind::Pins, OwnerKind::Attachments]);
        assert_eq!(owners.list[owners.of_program[0] as usize].pids, [10, 11]);
    }

    #[test]
    fn children_belong_to_the_owner_of_their_parent() {
        let index = index(
            vec![(vec![holder(10, "agent", "/")], vec![]), (vec![holder(1, "systemd", "/init.scope")], vec![])],
            &[(0, 12, 11), (0, 11, 10), (0, 10, 1), (0, 30, 1), (50, 40, 12), (70, 40, 30)],
        );
        let owners = Owners::new(&index);
        let agent = Some(owners.of_program[0]);
        let of = |pid, time_ns| owners.of_process(pid, time_ns);
        assert_eq!([of(10, 5), of(11, 5), of(12, 5)], [agent; 3]);
        assert_eq!(of(1, 5), Some(owners.of_program[1]));
        assert_eq!(of(30, 5), None, "a process that init started does not belong to the owner of init");
        assert_eq!([of(40, 49), of(40, 60), of(40, 80)], [None, agent, None], "the pid was reused");
    }
}
