//! Names of tasks over time, and starts of processes.

use crate::index::dedup::DedupLog;
use rustc_hash::FxHashMap;

/// Event of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TaskEvent {
    /// The thread takes a name, by its number in [`Tasks::name`].
    Named(u32),
    /// The thread is started by the thread with this id.
    Forked(u32),
}

/// Time (ns), thread id, and event of the thread.
type TaskAt = (u64, u32, TaskEvent);

/// Start of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProcessFork {
    /// Time of the start, ns. For a process that already ran, 0 or the time at which the recorder listed it.
    pub(crate) time_ns: u64,
    pub(crate) pid: u32,
    pub(crate) parent_pid: u32,
}

/// Builder of [`Tasks`]: collects events in any order.
#[derive(Debug)]
pub(crate) struct TasksBuilder {
    names: Vec<String>,
    numbers: FxHashMap<String, u32>,
    events: DedupLog<TaskAt>,
    forks: DedupLog<ProcessFork>,
}

impl Default for TasksBuilder {
    fn default() -> TasksBuilder {
        let events = DedupLog::new(|(time_ns, tid, _): &TaskAt| (*time_ns == 0).then_some((*tid).into()));
        let forks = DedupLog::new(|fork: &ProcessFork| (fork.time_ns == 0).then_some(fork.pid.into()));
        TasksBuilder { names: Vec::new(), numbers: FxHashMap::default(), events, forks }
    }
}

impl TasksBuilder {
    /// Adds a COMM record.
    pub(crate) fn named(&mut self, time_ns: u64, tid: u32, comm: &[u8]) {
        let number = self.number(&String::from_utf8_lossy(comm));
        self.events.push((time_ns, tid, TaskEvent::Named(number)));
    }

    /// Adds a FORK record.
    pub(crate) fn forked(&mut self, time_ns: u64, tid: u32, parent_tid: u32) {
        self.events.push((time_ns, tid, TaskEvent::Forked(parent_tid)));
    }

    /// Adds a FORK record of a new process.
    pub(crate) fn forked_process(&mut self, fork: ProcessFork) {
        self.forks.push(fork);
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Sorts the events by time. A new thread has its parent's name until it gets its own.
    pub(crate) fn build(mut self) -> Tasks {
        let idle = self.number("swapper");
        let mut events = self.events.into_vec();
        events.sort_by_key(|(time, ..)| *time);
        let mut forks = self.forks.into_vec();
        forks.sort_by_key(|fork| fork.time_ns);
        let mut tasks = Tasks { names: Vec::new(), by_tid: FxHashMap::default(), forks };
        tasks.by_tid.insert(0, vec![(0, Some(idle))]);
        for (time_ns, tid, event) in events {
            let name = match event {
                TaskEvent::Named(name) => Some(name),
                TaskEvent::Forked(parent) => tasks.at(parent, time_ns),
            };
            // A new thread without a known name gets an entry only if an earlier thread had the same id. The entry ends the earlier thread's name.
            if name.is_some() || tasks.by_tid.contains_key(&tid) {
                tasks.by_tid.entry(tid).or_default().push((time_ns, name));
            }
        }
        tasks.names = self.names;
        tasks
    }
}

/// Names of threads by time, and starts of processes.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    names: Vec<String>,
    /// Names of each thread with the times from which they hold, ascending; `None` if unknown.
    by_tid: FxHashMap<u32, Vec<(u64, Option<u32>)>>,
    /// Starts of processes, ascending.
    pub(crate) forks: Vec<ProcessFork>,
}

impl Tasks {
    /// Returns the number of a thread's name at a time.
    pub(crate) fn at(&self, tid: u32, time_ns: u64) -> Option<u32> {
        let names = self.by_tid.get(&tid)?;
        let since = names.partition_point(|(since, _)| *since <= time_ns).saturating_sub(1);
        names.get(since).and_then(|(_, name)| *name)
    }

    /// Returns the number of a thread's last name.
    pub(crate) fn last(&self, tid: u32) -> Option<u32> {
        self.at(tid, u64::MAX)
    }

    /// Returns a name by its number.
    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// Number of names.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_inherited_and_change() {
        let mut builder = TasksBuilder::default();
        builder.named(50, 20, b"make");
        builder.named(0, 10, b"sh");
        builder.forked(40, 20, 10);
        builder.forked(90, 20, 99);
        let tasks = builder.build();
        let name = |tid, time| tasks.at(tid, time).map(|n| tasks.name(n));
        assert_eq!(name(10, 5), Some("sh"));
        assert_eq!(name(20, 45), Some("sh"));
        assert_eq!(name(20, 50), Some("make"));
        assert_eq!(name(20, 89), Some("make"));
        assert_eq!(name(20, 95), None, "another task with the same id, whose parent is unknown");
        assert_eq!(name(0, 0), Some("swapper"));
        assert_eq!(name(30, 0), None);
    }
}
