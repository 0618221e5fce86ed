//! Records other than samples, one line each.

use std::fmt::Write;

use bprec_format::records::user::UserPayload;
use bprec_format::records::{Mmap2File, Payload};
use bprec_format::{Record, RecordType, misc};

use super::text::{Plain, Text};

/// Selection of records other than samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Show {
    /// COMM, FORK, EXIT.
    pub task: bool,
    /// MMAP, MMAP2.
    pub mmap: bool,
    /// SWITCH, SWITCH_CPU_WIDE.
    pub switch: bool,
    /// NAMESPACES.
    pub namespace: bool,
    /// CGROUP.
    pub cgroup: bool,
    /// LOST and LOST_SAMPLES.
    pub lost: bool,
    /// THROTTLE, UNTHROTTLE.
    pub throttle: bool,
    /// KSYMBOL, BPF_EVENT, BPF_METADATA.
    pub bpf: bool,
}

impl Show {
    /// All records.
    pub const ALL: Show = Show {
        task: true,
        mmap: true,
        switch: true,
        namespace: true,
        cgroup: true,
        lost: true,
        throttle: true,
        bpf: true,
    };

    /// Returns true if records of this type are shown.
    pub(crate) fn shows(&self, kind: RecordType) -> bool {
        match kind {
            RecordType::COMM | RecordType::FORK | RecordType::EXIT => self.task,
            RecordType::MMAP | RecordType::MMAP2 => self.mmap,
            RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE => self.switch,
            RecordType::NAMESPACES => self.namespace,
            RecordType::CGROUP => self.cgroup,
            RecordType::LOST | RecordType::LOST_SAMPLES => self.lost,
            RecordType::THROTTLE | RecordType::UNTHROTTLE => self.throttle,
            RecordType::KSYMBOL | RecordType::BPF_EVENT | RecordType::BPF_METADATA => self.bpf,
            _ => false,
        }
    }
}

/// Process and thread that a record is about.
pub(crate) fn subject(payload: &Payload<'_>) -> Option<(u32, u32)> {
    Some(match payload {
        Payload::Comm(comm) => (comm.pid, comm.tid),
        Payload::Fork(task) | Payload::Exit(task) => (task.pid, task.tid),
        Payload::Mmap(map) => (map.pid, map.tid),
        Payload::Mmap2(map) => (map.pid, map.tid),
        Payload::Namespaces(namespaces) => (namespaces.pid, namespaces.tid),
        _ => return None,
    })
}

/// Appends `PERF_RECORD_<TYPE>` and the record's content.
pub(crate) fn describe(out: &mut Text, record: &Record<'_>, payload: &Payload<'_>) {
    let _ = write!(out, "PERF_RECORD_{}", record.kind);
    let _ = write_payload(out, record, payload);
}

fn write_payload(out: &mut Text, record: &Record<'_>, payload: &Payload<'_>) -> std::fmt::Result {
    match payload {
        Payload::Comm(comm) => {
            let exec = if record.misc & misc::COMM_EXEC != 0 { " exec" } else { "" };
            write!(out, "{exec}: {}:{}/{}", Plain(comm.comm), comm.pid, comm.tid)
        }
        Payload::Fork(task) | Payload::Exit(task) => {
            write!(out, "({}:{}):({}:{})", task.pid, task.tid, task.ppid, task.ptid)
        }
        Payload::Mmap(map) => {
            let kind = if record.misc & misc::MMAP_DATA != 0 { 'r' } else { 'x' };
            let (pid, tid) = (map.pid as i32, map.tid as i32);
            write!(
                out,
                " {pid}/{tid}: [{}({}) @ {}]: {kind} {}",
                hex(map.addr),
                hex(map.len_bytes),
                hex(map.pgoff),
                Plain(map.filename)
            )
        }
        Payload::Mmap2(map) => {
            let (pid, tid) = (map.pid as i32, map.tid as i32);
            write!(out, " {pid}/{tid}: [{}({}) @ {}", hex(map.addr), hex(map.len_bytes), hex(map.pgoff))?;
            match map.file {
                Mmap2File::Inode { major, minor, inode, generation } => {
                    write!(out, " {major:02x}:{minor:02x} {inode} {generation}]")?;
                }
                Mmap2File::BuildId(id) => {
                    out.push_str(" <");
                    id.as_bytes().iter().try_for_each(|b| write!(out, "{b:02x}"))?;
                    out.push_str(">]");
                }
            }
            const MAP_SHARED: u32 = 1;
            let letter = |set: bool, letter: char| if set { letter } else { '-' };
            let (r, w, x) =
                (letter(map.prot & 1 != 0, 'r'), letter(map.prot & 2 != 0, 'w'), letter(map.prot & 4 != 0, 'x'));
            let shared = if map.flags & MAP_SHARED != 0 { 's' } else { 'p' };
            write!(out, ": {r}{w}{x}{shared} {}", Plain(map.filename))
        }
        Payload::Switch(switch) => {
            let way = match (switch.out, switch.preempted) {
                (false, _) => "IN         ",
                (true, false) => "OUT        ",
                (true, true) => "OUT preempt",
            };
            write!(out, " {way}")?;
            match switch.other {
                None => Ok(()),
                Some((pid, tid)) => {
                    let side = if switch.out { "next" } else { "prev" };
                    write!(out, "  {side} pid/tid: {:5}/{:<5}", pid as i32, tid as i32)
                }
            }
        }
        Payload::Namespaces(namespaces) => {
            const NAMES: [&str; 7] = ["net", "uts", "ipc", "pid", "user", "mnt", "cgroup"];
            write!(out, " {}/{} - nr_namespaces: {}", namespaces.pid, namespaces.tid, namespaces.links.len())?;
            out.push_str("\n\t\t[");
            for (index, link) in namespaces.links.iter().enumerate() {
                if index > 0 {
                    out.push_str(if index % 4 == 0 { ", \n\t\t " } else { ", " });
                }
                let name = NAMES.get(index).unwrap_or(&"unknown");
                write!(out, "{index}/{name}: {}/{}", link.dev, hex(link.ino))?;
            }
            out.push(']');
            Ok(())
        }
        Payload::Cgroup(cgroup) => write!(out, " cgroup: {} {}", cgroup.id, Plain(cgroup.path)),
        Payload::Ksymbol(symbol) => write!(
            out,
            " addr {:x} len {} type {} flags {:#x} name {}",
            symbol.addr,
            symbol.len_bytes,
            symbol.kind.0,
            symbol.flags,
            Plain(symbol.name)
        ),
        Payload::BpfEvent(event) => write!(out, " type {}, flags {}, id {}", event.kind.0, event.flags, event.id),
        Payload::Lost(lost) => write!(out, " lost {}", lost.lost),
        Payload::LostSamples(lost) => {
            write!(out, " lost {}{}", lost.lost, if lost.by_bpf { " (BPF)" } else { "" })
        }
        Payload::Throttle(throttle) | Payload::Unthrottle(throttle) => {
            write!(out, " time {} id {} stream id {}", throttle.time_ns, throttle.id, throttle.stream_id)
        }
        Payload::User(UserPayload::BpfMetadata(metadata)) => {
            write!(out, " prog {}", Plain(metadata.prog_name))?;
            let mut pairs = metadata.entries.iter();
            pairs.try_for_each(|(key, value)| {
                out.push('\n');
                write!(out, "  entry: {:>20} = {}", Plain(key), Plain(value))
            })
        }
        _ => Ok(()),
    }
}

/// Formats as C's `%#x`: zero without `0x`.
fn hex(number: u64) -> String {
    if number == 0 { "0".into() } else { format!("{number:#x}") }
}
