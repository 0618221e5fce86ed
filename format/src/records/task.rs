//! Tasks: COMM, FORK, EXIT, NAMESPACES (since 4.12), SWITCH (since 4.3), and CGROUP (since 5.7).

use crate::layout::meaning::{Cgroup as CgroupPath, Comm as CommName};
use crate::layout::{LastText, LongList, NamespaceInode, layout};
use crate::record::misc;
use crate::{Reader, Result, Writer};

record! {
    /// COMM (since 2.6.31): `pid u32, tid u32, comm` (at most 16 bytes with its NUL).
    ///
    /// The kernel writes it when a task execs or is renamed; the header's [`misc::COMM_EXEC`](crate::misc::COMM_EXEC) (since
    /// 3.16) marks an exec. A forked task has the name of its parent and no COMM.
    pub struct Comm<'a> {
        /// Process id.
        pub pid: u32,
        /// Thread id.
        pub tid: u32,
        /// New name of the thread.
        pub comm: &'a [u8] as LastText<CommName>,
    }

    /// FORK and EXIT (since 2.6.31): `pid u32, ppid u32, tid u32, ptid u32, time u64`.
    ///
    /// A new thread has `pid == ppid`. Samples of a task may follow its EXIT. Tools also write FORKs, with time 0, for tasks that exist already. In
    /// these, [`misc::FORK_EXEC`](crate::misc::FORK_EXEC) means that the task does not inherit mappings.
    #[derive(Copy)]
    pub struct Task {
        /// Process id.
        pub pid: u32,
        /// Process id of the parent.
        pub ppid: u32,
        /// Thread id.
        pub tid: u32,
        /// Thread id of the parent.
        pub ptid: u32,
        /// Time of the event, ns; 0 in synthesized records.
        pub time_ns: u64,
    }

    /// NAMESPACES (since 4.12): `pid u32, tid u32, nr u64`, `nr` × `{dev u64, ino u64}`; index 0 net, 1 uts, 2 ipc, 3 pid,
    /// 4 user, 5 mnt, 6 cgroup.
    pub struct Namespaces {
        /// Process id.
        pub pid: u32,
        /// Thread id.
        pub tid: u32,
        /// Namespaces of the thread, by index.
        pub links: Vec<Namespace> as LongList,
    }

    /// CGROUP (since 5.7): `id u64, path` from the root of the hierarchy. The kernel writes it when a cgroup is created;
    /// tools write it for existing cgroups.
    pub struct Cgroup<'a> {
        /// Id in kernfs (the file handle of the cgroup's directory).
        pub id: u64,
        /// Path of the cgroup.
        pub path: &'a [u8] as LastText<CgroupPath>,
    }
}

layout! {
    /// Device and inode of a namespace's file.
    #[derive(Copy, Default)]
    pub struct Namespace {
        /// Device.
        pub dev: u64,
        /// Inode.
        pub ino: u64 as NamespaceInode,
    }
}

/// SWITCH (no payload; events bound to a task) and SWITCH_CPU_WIDE (`next_prev_pid u32, next_prev_tid u32`), since 4.3.
///
/// The trailer names the task. Bits of the header give the direction: [`misc::SWITCH_OUT`](crate::misc::SWITCH_OUT), and
/// since 4.17 [`misc::SWITCH_OUT_PREEMPT`](crate::misc::SWITCH_OUT_PREEMPT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// True if the CPU switched away from the task; false if it switched to the task.
    pub out: bool,
    /// True if the task was runnable when the CPU switched away from it.
    pub preempted: bool,
    /// Process and thread on the other side of the switch, if known.
    pub other: Option<(u32, u32)>,
}

impl Switch {
    pub(super) fn parse(r: &mut Reader<'_>, record_misc: u16, cpu_wide: bool) -> Result<Switch> {
        let other = if cpu_wide { Some((r.u32("SWITCH pid")?, r.u32("SWITCH tid")?)) } else { None };
        Ok(Switch {
            out: record_misc & misc::SWITCH_OUT != 0,
            preempted: record_misc & misc::SWITCH_OUT_PREEMPT != 0,
            other,
        })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        if let Some((pid, tid)) = self.other {
            w.u32(pid).u32(tid);
        }
    }
}
