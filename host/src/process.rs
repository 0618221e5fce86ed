//! Processes: identity, owner, state, descendants.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// Identity of a process. The kernel may reuse the pid after the end of the process; all other fields can change while the process lives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Process {
    /// Process id in this pid namespace.
    pub pid: u32,
    /// Name of the first thread.
    pub comm: Vec<u8>,
    /// Real user id: the owner of the process. The directory `/proc/PID` belongs to the effective user instead. If the process may not be dumped, for
    /// example because it gained privilege by exec, the directory belongs to root.
    pub uid: u32,
    /// Path of the cgroup, see [`Process::of`].
    pub cgroup: Vec<u8>,
}

impl Process {
    /// Identity of the process with this id; `None` if the process has ended.
    ///
    /// The cgroup is that of the unified hierarchy. If the process is in the root of that hierarchy, or the hierarchy is not in use, the longest
    /// path in another hierarchy is used. The path is empty if `/proc/PID/cgroup` cannot be read.
    pub fn of(pid: u32) -> Option<Process> {
        let directory = format!("/proc/{pid}");
        let read = |name: &str| fs::read(Path::new(&directory).join(name)).ok();
        let status = read("status")?;
        let comm = comm(pid)?;
        let cgroup = read("cgroup").map(|text| cgroup_path(&text)).unwrap_or_default();
        Some(Process { pid, comm, uid: real_uid(&status)?, cgroup })
    }
}

/// Ids of all processes, ascending; empty if `/proc` cannot be read.
pub fn process_ids() -> Vec<u32> {
    numbers_in("/proc")
}

/// Ids of the threads of a process, ascending; empty if the process has ended.
pub fn thread_ids(pid: u32) -> Vec<u32> {
    numbers_in(&format!("/proc/{pid}/task"))
}

/// Names in a directory that are numbers, ascending.
fn numbers_in(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// The given processes and all their descendants, ascending. Children of a process that has ended count as children of
/// the process to which the kernel reparented them.
pub fn with_descendants(pids: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in process_ids() {
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut all = BTreeSet::new();
    let mut left: Vec<u32> = pids.into_iter().collect();
    while let Some(pid) = left.pop() {
        if all.insert(pid) {
            left.extend(children.get(&pid).into_iter().flatten());
        }
    }
    all.into_iter().collect()
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Name of the task.
    pub comm: &'a [u8],
    /// State letter of the task, such as `R` or `Z`.
    pub state: u8,
    /// Process id of the parent.
    pub parent: u32,
    /// True for a kernel thread.
    pub is_kernel_thread: bool,
    /// Count of threads in the process.
    pub threads: u64,
    /// Start time in 1/100 s since boot, including suspend.
    pub start_ticks: u64,
}

impl<'a> Stat<'a> {
    /// `PF_KTHREAD` in the flags of a task.
    const KERNEL_THREAD: u64 = 0x0020_0000;

    /// Parses `pid (comm) state ppid …`; the name may contain blanks and parentheses.
    pub fn parse(text: &'a [u8]) -> Option<Stat<'a>> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let fields: Vec<&str> = std::str::from_utf8(text.get(close + 1..)?).ok()?.split_ascii_whitespace().collect();
        // proc(5) counts fields from 1; the state is field 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            comm: text.get(open + 1..close)?,
            state: fields.first()?.bytes().next()?,
            parent: u32::try_from(field(4)?).ok()?,
            is_kernel_thread: field(9)? & Stat::KERNEL_THREAD != 0,
            threads: field(20)?,
            start_ticks: field(22)?,
        })
    }
}

fn stat(task: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{task}/stat")).ok()
}

/// Parent of a running process.
fn parent(pid: u32) -> Option<u32> {
    Stat::parse(&stat(pid)?).map(|stat| stat.parent)
}

/// Start time of a process in 1/100 s since boot, including suspend; `None` if the process has ended.
pub fn start_ticks(pid: u32) -> Option<u64> {
    Stat::parse(&stat(pid)?).map(|stat| stat.start_ticks)
}

/// Returns true if a task with this id exists and is neither a zombie nor dead.
pub fn is_alive(tid: u32) -> bool {
    stat(tid).is_some_and(|text| Stat::parse(&text).is_none_or(|stat| !matches!(stat.state, b'Z' | b'X' | b'x')))
}

/// Name of a task; `None` if the task has ended.
pub fn comm(task: u32) -> Option<Vec<u8>> {
    let mut comm = fs::read(format!("/proc/{task}/comm")).ok()?;
    comm.pop_if(|byte| *byte == b'\n');
    Some(comm)
}

/// Resident memory of a process, bytes; `None` if the process has ended.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    first_number(&status, b"VmRSS:")?.checked_mul(1024)
}

/// Real user id: the first number after `Uid:` (real, effective, saved, file system).
fn real_uid(status: &[u8]) -> Option<u32> {
    u32::try_from(first_number(status, b"Uid:")?).ok()
}

/// First number in the line of `/proc/PID/status` that begins with `key`.
fn first_number(status: &[u8], key: &[u8]) -> Option<u64> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(key))?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Path of the cgroup from lines `hierarchy:controllers:path`; the line of the unified hierarchy is `0::path`.
fn cgroup_path(text: &[u8]) -> Vec<u8> {
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        Some((fields.next()? == b"0", fields.nth(1)?))
    });
    let unified = lines.clone().find(|(is_unified, _)| *is_unified).map(|(_, path)| path);
    match unified {
        Some(path) if path != b"/" => path.to_vec(),
        _ => lines.map(|(_, path)| path).max_by_key(|path| path.len()).unwrap_or_default().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_cgroup_wins_unless_it_is_not_in_use() {
        assert_eq!(cgroup_path(b"0::/system.slice/agent.service\n"), b"/system.slice/agent.service");
        let hybrid = b"9:name=systemd:/\n4:memory:/pods/a\n0::/\n";
        assert_eq!(cgroup_path(hybrid), b"/pods/a");
        assert_eq!(cgroup_path(b"0::/\n"), b"/");
        assert_eq!(cgroup_path(b"0::/with:colon\n"), b"/with:colon");
        assert_eq!(cgroup_path(b"?"), b"");
    }

    #[test]
    fn the_owner_is_the_real_user() {
        assert_eq!(real_uid(b"Name:\tUid:\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), Some(1000));
        assert_eq!(real_uid(b"Name:\tx\n"), None);
        assert_eq!(real_uid(b"Uid:\n"), None);
    }

    #[test]
    fn stat_with_a_hostile_name() {
        let line = b"42 (a) R 1 (b) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 100 0 0\n";
        let stat = Stat::parse(line).unwrap();
        let comm = b"a) R 1 (b";
        assert_eq!(stat, Stat { comm, state: b'S', parent: 7, is_kernel_thread: false, threads: 3, start_ticks: 100 });
        assert_eq!(Stat::parse(b"42 (a"), None);
        assert_eq!(Stat::parse(b"42 )a("), None);
    }

    #[test]
    fn this_process_is_alive_and_a_zombie_is_not() {
        let own = std::process::id();
        let found = Process::of(own).unwrap();
        assert_eq!((found.pid, found.comm), (own, fs::read("/proc/self/comm").unwrap().trim_ascii_end().to_vec()));
        assert_eq!(found.uid, rustix::process::getuid().as_raw());
        assert!(is_alive(own) && process_ids().contains(&own));
        assert!(with_descendants([1]).contains(&own) || parent(own) == Some(0));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while is_alive(child.id()) {
            std::thread::yield_now();
        }
        assert!(Path::new(&format!("/proc/{}", child.id())).exists(), "an ended child remains until it is waited for");
        assert_eq!(with_descendants([own]).iter().filter(|pid| **pid == own || **pid == child.id()).count(), 2);
        child.wait().unwrap();
        assert_eq!(Process::of(child.id()), None);
    }
}
