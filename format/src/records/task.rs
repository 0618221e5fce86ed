//! Tasks: COMM, FORK, EXIT, NAMESPACES (since 4.12), SWITCH (since 4.3), and CGROUP (since 5.7).

use crate::layout::{LastText, LongList, layout};
use crate::record::misc;
use crate::{Reader, Result, Writer};

record! {
    /// COMM (since 2.6.31): `pid u32, tid u32, comm` (at most 16 bytes with its NUL).
    ///
    /// A task keeps the name through fork, so that a new one has a COMM only when it is named or execs; the header's
    /// [`misc::COMM_EXEC`](crate::misc::COMM_EXEC) (since 3.16) tells the two apart.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Comm<'a> {
        /// Process.
        pub pid: u32,
        /// Thread.
        pub tid: u32,
        /// The name.
        pub comm: &'a [u8] as LastText,
    }
}

record! {
    /// FORK and EXIT (since 2.6.31): `pid u32, ppid u32, tid u32, ptid u32, time u64`.
    ///
    /// A new thread has `pid == ppid`. Samples of a task may follow its EXIT. Where a tool lists what was there before, FORKs
    /// have no time, and [`misc::FORK_EXEC`](crate::misc::FORK_EXEC) says that maps are not inherited.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Task {
        /// Process.
        pub pid: u32,
        /// Parent process.
        pub ppid: u32,
        /// Thread.
        pub tid: u32,
        /// Parent thread.
        pub ptid: u32,
        /// When, ns; 0 in synthesized records.
        pub time_ns: u64,
    }
}

layout! {
    /// One namespace: device and inode of its file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Namespace {
        /// Device.
        pub dev: u64,
        /// Inode.
        pub ino: u64,
    }
}

record! {
    /// NAMESPACES (since 4.12): `pid u32, tid u32, nr u64`, `nr` × `{dev u64, ino u64}`; index 0 net, 1 uts, 2 ipc, 3 pid, 4 user, 5 mnt,
    /// 6 cgroup.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Namespaces {
        /// Process.
        pub pid: u32,
        /// Thread.
        pub tid: u32,
        /// By index.
        pub links: Vec<Namespace> as LongList,
    }
}

/// SWITCH (no payload; events bound to a task) and SWITCH_CPU_WIDE (`next_prev_pid u32, next_prev_tid u32`), since 4.3.
///
/// The header says whether the task goes or comes: [`misc::SWITCH_OUT`](crate::misc::SWITCH_OUT), and since 4.17
/// [`misc::SWITCH_OUT_PREEMPT`](crate::misc::SWITCH_OUT_PREEMPT). The task itself is the trailer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// Away from the task, rather than to it.
    pub out: bool,
    /// The task was runnable when it was switched out.
    pub preempted: bool,
    /// Process and thread on the other side of the switch, when known.
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

record! {
    /// CGROUP (since 5.7): `id u64, path` from the hierarchy's root. The kernel writes it when a cgroup is made; existing ones are
    /// synthesized by tools.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Cgroup<'a> {
        /// The kernfs id (the cgroup directory's file handle).
        pub id: u64,
        /// Path.
        pub path: &'a [u8] as LastText,
    }
}
