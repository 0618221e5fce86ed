//! Targets of events: tasks and CPUs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bprec_format::{AttrFlags, EventAttr, event_type, software};
use bprec_host::{Cgroup, Process, thread_ids};

use crate::{Error, Level, Options, Result, Target, sys};

/// Limit on descriptors per event. Above it, processes are recorded through their cgroup, if the cgroup contains no
/// other process.
const PLACES_MAX: usize = 1024;

/// Effects of the target on the attributes of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding {
    /// True if the event is bound to tasks, false if to CPUs.
    pub(crate) tasks: bool,
    /// True if children and new threads inherit the event.
    pub(crate) inherit: bool,
    /// True if the exec of the command enables the event.
    pub(crate) enable_on_exec: bool,
}

/// Tasks and CPUs on which events are opened.
#[derive(Debug, Clone)]
pub(crate) struct CpuThreadTargets {
    /// Tasks, or −1 alone for all tasks.
    pub(crate) tasks: Vec<i32>,
    /// CPUs on which events are opened.
    pub(crate) cpus: Vec<u32>,
    /// Effects of the target on the attributes of events.
    pub(crate) binding: Binding,
    /// Cgroup that contains only the tasks, if events are opened for the cgroup instead of for each task.
    cgroup: Option<Arc<OwnedFd>>,
}

impl CpuThreadTargets {
    /// Tasks and CPUs of the target. `command` is the process id of the command, if there is a command.
    ///
    /// # Errors
    /// Fails if a process does not exist, a CPU is not online, or there is no command to record.
    pub(crate) fn of(options: &Options, online: &[u32], command: Option<i32>) -> Result<CpuThreadTargets> {
        let everyone = Binding { tasks: false, inherit: false, enable_on_exec: false };
        let bound = Binding { tasks: true, inherit: true, enable_on_exec: false };
        Ok(match &options.target {
            Target::System => {
                CpuThreadTargets { tasks: vec![-1], cpus: online.to_vec(), binding: everyone, cgroup: None }
            }
            Target::Cpus(asked) => {
                if let Some(cpu) = asked.iter().find(|cpu| !online.contains(cpu)) {
                    let online: Vec<String> = online.iter().map(u32::to_string).collect();
                    return Err(Error::Other(format!(
                        "-C: CPU {cpu} is not online; online CPUs: {}",
                        online.join(",")
                    )));
                }
                let mut cpus = asked.clone();
                cpus.sort_unstable();
                cpus.dedup();
                CpuThreadTargets { tasks: vec![-1], cpus, binding: everyone, cgroup: None }
            }
            Target::Processes(pids) => {
                let mut tasks = Vec::new();
                for pid in pids {
                    tasks.extend(threads(*pid)?);
                }
                tasks.sort_unstable();
                tasks.dedup();
                let cgroup = if tasks.len() * online.len() > PLACES_MAX { own_cgroup(pids) } else { None };
                let binding = match &cgroup {
                    Some((path, _)) => {
                        let text = format!(
                            "bprec records the {} threads through their cgroup {path}, because events of single threads \
                             would need too many descriptors",
                            tasks.len()
                        );
                        (options.notify)(Level::Detail, &text);
                        everyone
                    }
                    None => bound,
                };
                let cgroup = cgroup.map(|(_, directory)| Arc::new(directory));
                CpuThreadTargets { tasks, cpus: online.to_vec(), binding, cgroup }
            }
            Target::Threads(tids) => {
                let tasks = tids.iter().map(|tid| task_number(*tid)).collect::<Result<_>>()?;
                let binding = Binding { inherit: false, ..bound };
                CpuThreadTargets { tasks, cpus: online.to_vec(), binding, cgroup: None }
            }
            Target::Command => {
                let Some(pid) = command else {
                    return Err(Error::Other("no command to record: give a command, or -a".to_owned()));
                };
                let binding = Binding { enable_on_exec: options.delay.is_none(), ..bound };
                CpuThreadTargets { tasks: vec![pid], cpus: online.to_vec(), binding, cgroup: None }
            }
        })
    }

    /// Tasks, or the cgroup descriptor, for which an event is opened on each CPU. Passed to
    /// [`CpuThreadTargets::open_event`].
    pub(crate) fn places(&self) -> Vec<i32> {
        self.cgroup.as_ref().map_or_else(|| self.tasks.clone(), |directory| vec![directory.as_raw_fd()])
    }

    /// Opens an event on a CPU for one of [`CpuThreadTargets::places`].
    pub(crate) fn open_event(&self, attr: &EventAttr, place: i32, cpu: i32) -> io::Result<OwnedFd> {
        sys::open_counter_at(attr, place, cpu, None, self.cgroup.is_some())
    }

    /// Process ids of the tasks; `None` if all tasks are recorded.
    pub(crate) fn processes(&self) -> Option<Vec<u32>> {
        if self.tasks == [-1] {
            return None;
        }
        let mut processes: Vec<u32> = self.tasks.iter().filter_map(|task| process_of(*task)).collect();
        processes.sort_unstable();
        processes.dedup();
        Some(processes)
    }
}

/// Path and directory of the cgroup that contains exactly these processes, and no child cgroups. `None` if there is no such
/// cgroup, or it cannot be recorded.
fn own_cgroup(pids: &[u32]) -> Option<(String, OwnedFd)> {
    let path_of = |pid: &u32| String::from_utf8(Process::of(*pid)?.cgroup).ok();
    let path = path_of(pids.first()?)?;
    if path == "/" || !pids.iter().all(|pid| path_of(pid).as_ref() == Some(&path)) {
        return None;
    }
    let directory = Cgroup::find(Path::new(&path)).ok()?.directory;
    let members = fs::read_to_string(directory.join("cgroup.procs")).ok()?;
    let members: BTreeSet<u32> = members.lines().filter_map(|line| line.parse().ok()).collect();
    let has_children = fs::read_dir(&directory).ok()?.flatten().any(|it| it.file_type().is_ok_and(|it| it.is_dir()));
    if members != pids.iter().copied().collect() || has_children {
        return None;
    }
    let directory = OwnedFd::from(File::open(directory).ok()?);
    // Opens an event as a test: a cgroup event needs the same rights as a whole CPU, and the kernel and the mount of
    // this cgroup must have the perf_event controller.
    let dummy = EventAttr {
        kind: event_type::SOFTWARE,
        config: software::DUMMY,
        flags: AttrFlags::DISABLED,
        ..EventAttr::default()
    };
    sys::open_counter_at(&dummy, directory.as_raw_fd(), 0, None, true).ok()?;
    Some((path, directory))
}

/// Process id of a thread.
fn process_of(thread: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

pub(crate) fn task_number(pid: u32) -> Result<i32> {
    i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or_else(|| Error::Other(format!("{pid} is not a process id")))
}

/// Thread ids of a process.
pub(crate) fn threads(pid: u32) -> Result<Vec<i32>> {
    task_number(pid)?;
    let threads = thread_ids(pid);
    if threads.is_empty() {
        return Err(Error::Other(format!("no process with pid {pid}: it may have ended; `pgrep NAME` finds ids")));
    }
    threads.into_iter().map(task_number).collect()
}
