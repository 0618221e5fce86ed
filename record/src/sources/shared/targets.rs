//! Targets of shared counters: CPUs, tasks, cgroups.

use std::path::{Path, PathBuf};

use bprec_bpf::{Follower, Inherit, Targets};
use bprec_format::bprec::state::{SharedScope, SharedTarget};
use bprec_host::Cgroup;

use crate::{Error, Result};

/// CPUs, tasks or cgroup for which events are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CounterTarget {
    /// All CPUs, with all tasks.
    Machine,
    /// One CPU.
    Cpu(u32),
    /// One thread.
    Thread(u32),
    /// One process with its threads.
    Process {
        /// Process id.
        id: u32,
        /// Counts all descendants of the process as well.
        children: bool,
    },
    /// A cgroup (v2) with its descendants: a directory, or a path relative to the mount point of the hierarchy.
    Cgroup(PathBuf),
}

/// Source of a target's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Readings of all CPUs.
    Machine,
    /// Readings of one CPU.
    Cpu(u32),
    /// Account with this index, in which the follower sums up the counts of the target.
    Account(u32),
}

/// Target and the source of its counts.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) place: Place,
    /// Description of the target, without counts.
    pub(super) told: SharedTarget,
    inherit: Inherit,
}

/// Reason for a task that is not counted because it does not exist.
const NO_TASK: &str = "the task has ended or never existed";

/// All targets.
#[derive(Debug)]
pub(super) struct TargetPlan {
    each: Vec<Planned>,
    /// Settings of the follower; `None` if no target needs a follower.
    targets: Option<Targets>,
}

impl TargetPlan {
    /// Looks up the targets.
    ///
    /// # Errors
    /// Fails if a cgroup does not exist, or if a task is requested outside of the initial pid namespace.
    pub(super) fn of(targets: &[CounterTarget], online: &[u32]) -> Result<TargetPlan> {
        let mut plan = TargetPlan { each: Vec::new(), targets: None };
        for (at, target) in targets.iter().enumerate() {
            if targets[..at].contains(target) {
                continue;
            }
            let planned = match target {
                CounterTarget::Machine => planned(Place::Machine, SharedScope::MACHINE, 0),
                CounterTarget::Cpu(cpu) => {
                    let mut planned = planned(Place::Cpu(*cpu), SharedScope::CPU, u64::from(*cpu));
                    if !online.contains(cpu) {
                        planned.told.reason = format!("CPU {cpu} is not online");
                    }
                    planned
                }
                CounterTarget::Thread(id) => plan.task(*id, SharedScope::PID, Inherit::Nothing)?,
                CounterTarget::Process { id, children } => {
                    plan.task(*id, SharedScope::TGID, if *children { Inherit::All } else { Inherit::Threads })?
                }
                CounterTarget::Cgroup(path) => plan.cgroup(path)?,
            };
            plan.each.push(planned);
        }
        Ok(plan)
    }

    fn account(&mut self) -> (u32, &mut Targets) {
        let targets = self.targets.get_or_insert_default();
        targets.accounts += 1;
        (targets.accounts - 1, targets)
    }

    fn task(&mut self, id: u32, scope: SharedScope, inherit: Inherit) -> Result<Planned> {
        if bprec_host::is_initial_pid_namespace() == Some(false) {
            let text =
                "tasks can be counted only from the initial pid namespace: in this namespace they have other ids";
            return Err(Error::Other(text.to_owned()));
        }
        let (account, targets) = self.account();
        targets.tasks = true;
        let mut planned = planned(Place::Account(account), scope, u64::from(id));
        planned.inherit = inherit;
        planned.told.children = inherit == Inherit::All;
        planned.told.name = bprec_host::comm(id).unwrap_or_default();
        Ok(planned)
    }

    fn cgroup(&mut self, asked: &Path) -> Result<Planned> {
        let found = find_cgroup(asked)?;
        let (account, targets) = self.account();
        targets.cgroups.push((found.id, account));
        targets.cgroup_levels |= found.levels;
        let mut planned = planned(Place::Account(account), SharedScope::CGROUP, found.id);
        planned.told.name = found.name;
        planned.told.children = true;
        Ok(planned)
    }

    /// Targets of a follower; `None` if CPUs alone are counted.
    pub(super) fn targets(&self) -> Option<&Targets> {
        self.targets.as_ref()
    }

    /// Targets in the requested order.
    pub(super) fn each(&self) -> impl Iterator<Item = &Planned> {
        self.each.iter()
    }

    /// Returns the reason why nothing can be counted, if all targets are tasks that do not exist.
    pub(super) fn nothing_to_count(&self) -> Option<String> {
        let absent = |planned: &&Planned| planned.told.reason == NO_TASK;
        let ids: Vec<String> = self.each.iter().filter(absent).map(|planned| planned.told.id.to_string()).collect();
        (!ids.is_empty() && ids.len() == self.each.len()).then(|| format!("{NO_TASK}: {}", ids.join(", ")))
    }

    /// Sets the name of a task.
    pub(super) fn name_task(&mut self, id: u32, name: &[u8]) {
        let is_task = |planned: &&mut Planned| {
            planned.told.id == u64::from(id) && [SharedScope::PID, SharedScope::TGID].contains(&planned.told.scope)
        };
        self.each.iter_mut().filter(is_task).for_each(|planned| planned.told.name = name.to_owned());
    }

    /// Adds all tasks to the follower; tasks that have ended are not counted.
    ///
    /// # Errors
    /// Fails if the follower has no free entry.
    pub(super) fn add_tasks(&mut self, follower: &Follower) -> Result<()> {
        for planned in &mut self.each {
            let Place::Account(account) = planned.place else { continue };
            let id = planned.told.id as u32;
            let added = match planned.told.scope {
                SharedScope::PID if bprec_host::is_alive(id) => {
                    Some(u32::from(follower.add_task(id, account, planned.inherit)?))
                }
                SharedScope::TGID => add_threads(follower, id, account, planned.inherit)?,
                SharedScope::PID => None,
                _ => continue,
            };
            match added {
                None => planned.told.reason = NO_TASK.to_owned(),
                Some(0) => planned.told.reason = "it is already counted as a part of another target".to_owned(),
                Some(_) => (),
            }
        }
        Ok(())
    }
}

/// Adds the threads of a process. Returns the number of threads that were new to the follower; `None` if the process does not exist. The
/// follower's program adds threads that known threads create meanwhile.
fn add_threads(follower: &Follower, process: u32, account: u32, inherit: Inherit) -> Result<Option<u32>> {
    if !bprec_host::is_alive(process) {
        return Ok(None);
    }
    let mut added = 0;
    loop {
        let threads = bprec_host::thread_ids(process);
        if threads.is_empty() {
            return Ok(None);
        }
        let mut new = 0;
        for tid in threads {
            new += u32::from(follower.add_task(tid, account, inherit)?);
        }
        added += new;
        if new == 0 {
            return Ok(Some(added));
        }
    }
}

fn planned(place: Place, scope: SharedScope, id: u64) -> Planned {
    Planned { place, told: SharedTarget { scope, id, ..SharedTarget::default() }, inherit: Inherit::Nothing }
}

/// Looks up a cgroup: a directory, or a path relative to the mount point of the hierarchy.
///
/// # Errors
/// Fails if the cgroup does not exist.
fn find_cgroup(asked: &Path) -> Result<Cgroup> {
    Cgroup::find(asked).map_err(|problem| Error::Cgroup { path: asked.to_owned(), problem: problem.to_string() })
}

#[cfg(test)]
mod tests {
    use super::{CounterTarget, Place, TargetPlan};

    #[test]
    fn each_target_is_counted_once_and_cpus_alone_need_no_follower() {
        let plan = TargetPlan::of(
            &[CounterTarget::Machine, CounterTarget::Cpu(0), CounterTarget::Machine, CounterTarget::Cpu(9)],
            &[0],
        )
        .unwrap();
        let places: Vec<Place> = plan.each().map(|target| target.place).collect();
        assert_eq!(places, [Place::Machine, Place::Cpu(0), Place::Cpu(9)]);
        assert_eq!(plan.each().last().map(|target| target.told.reason.as_str()), Some("CPU 9 is not online"));
        assert!(plan.targets().is_none());
    }
}
