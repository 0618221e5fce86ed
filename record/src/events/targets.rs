//! Whose events: tasks and CPUs.

use std::fs;
use std::io;

use super::sampling::Binding;
use crate::{Error, Options, Result, Target};

/// Where events are opened: tasks (−1 for all) and CPUs.
#[derive(Debug, Clone)]
pub(crate) struct CpuThreadTargets {
    /// Tasks, or just −1.
    pub(crate) tasks: Vec<i32>,
    /// CPUs to sample.
    pub(crate) cpus: Vec<u32>,
    /// How that shows in the attrs.
    pub(crate) binding: Binding,
}

impl CpuThreadTargets {
    /// Those of a target. `command` is the command's process, if there is one.
    ///
    /// # Errors
    /// When a target does not exist.
    pub(crate) fn of(options: &Options, online: &[u32], command: Option<i32>) -> Result<CpuThreadTargets> {
        let everyone = Binding { tasks: false, inherit: false, enable_on_exec: false };
        let bound = Binding { tasks: true, inherit: true, enable_on_exec: false };
        Ok(match &options.target {
            Target::System => CpuThreadTargets { tasks: vec![-1], cpus: online.to_vec(), binding: everyone },
            Target::Cpus(asked) => {
                if let Some(cpu) = asked.iter().find(|cpu| !online.contains(cpu)) {
                    return Err(Error::Other(format!("cpu {cpu} is not online (online are {online:?})")));
                }
                let mut cpus = asked.clone();
                cpus.sort_unstable();
                cpus.dedup();
                CpuThreadTargets { tasks: vec![-1], cpus, binding: everyone }
            }
            Target::Processes(pids) => {
                let mut tasks = Vec::new();
                for pid in pids {
                    tasks.extend(threads(*pid)?);
                }
                tasks.sort_unstable();
                tasks.dedup();
                CpuThreadTargets { tasks, cpus: online.to_vec(), binding: bound }
            }
            Target::Threads(tids) => {
                let tasks = tids.iter().map(|tid| task_number(*tid)).collect::<Result<_>>()?;
                CpuThreadTargets { tasks, cpus: online.to_vec(), binding: Binding { inherit: false, ..bound } }
            }
            Target::Command => {
                let Some(pid) = command else {
                    return Err(Error::Other("no command to record; give one, or -a".to_owned()));
                };
                let binding = Binding { enable_on_exec: options.delay.is_none(), ..bound };
                CpuThreadTargets { tasks: vec![pid], cpus: online.to_vec(), binding }
            }
        })
    }

    /// The processes of the tasks; `None` when everyone is meant.
    pub(crate) fn processes(&self) -> Option<Vec<u32>> {
        if !self.binding.tasks {
            return None;
        }
        let mut processes: Vec<u32> = self.tasks.iter().filter_map(|task| process_of(*task)).collect();
        processes.sort_unstable();
        processes.dedup();
        Some(processes)
    }
}

/// The process of a thread.
fn process_of(thread: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

pub(crate) fn task_number(pid: u32) -> Result<i32> {
    i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or_else(|| Error::Other(format!("{pid} is not a process id")))
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> Result<Vec<i32>> {
    let path = format!("/proc/{}/task", task_number(pid)?);
    let entries = fs::read_dir(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Other(format!("no process with pid {pid}")),
        _ => Error::file(&path, error),
    })?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}
