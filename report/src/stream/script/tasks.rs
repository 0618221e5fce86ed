//! Names of tasks, mappings and kernel code, updated as records are read in order.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use bprec_format::records::{Mmap2File, Payload};
use bprec_format::{Record, RecordType, misc};

use crate::index::file_functions::Mapped;
use crate::index::stream_symbols::{SectionSymbols, StreamSymbols};
use crate::index::symbols::SymbolAndOffset;

use super::mappings::{Mappings, TaskMapping};

/// Limit on tasks; beyond it, all are forgotten. A machine has at most 4 Mi pids, and an endless stream meets them all.
const TASKS_MAX: usize = 1 << 17;
/// Limit on mappings per process.
const MAPS_MAX: usize = 1 << 15;
/// Limit on cgroups.
const CGROUPS_MAX: usize = 1 << 17;
/// Process id used for kernel mappings.
const KERNEL_PID: u32 = u32::MAX;
/// Name of the kernel's own mapping.
const KERNEL_NAME: &[u8] = b"[kernel.kallsyms]";

/// Mappings of a process.
#[derive(Debug, Clone, Default)]
struct TaskSpace {
    maps: Mappings,
    /// Version: equal versions mean equal mappings.
    version: u32,
}

/// Names that lines need besides their samples.
#[derive(Debug, Default)]
pub(crate) struct StreamTasks {
    comms: FxHashMap<u32, Arc<[u8]>>,
    spaces: FxHashMap<u32, TaskSpace>,
    cgroups: FxHashMap<u64, Arc<[u8]>>,
    symbols: StreamSymbols,
    /// True if tasks, mappings or cgroups were dropped because of a limit.
    forgot: bool,
    /// Version of the kernel's mappings.
    kernel_version: u32,
    /// Last assigned version.
    newest_version: u32,
}

/// Name of the code at an address.
pub(crate) struct NamedAddress<'t> {
    /// Symbol and offset from its start.
    pub(crate) symbol: Option<SymbolAndOffset<'t>>,
    /// Mapped file.
    pub(crate) dso: Option<&'t [u8]>,
}

impl StreamTasks {
    /// Updates names from a record.
    pub(crate) fn learn(&mut self, record: &Record<'_>, payload: &Payload<'_>) {
        match payload {
            // Only the first name of task 0 is kept: the idle task never changes its name and is never started. Later names and starts belong to
            // tasks of other pid namespaces, which also appear as task 0.
            Payload::Comm(comm) if comm.tid == 0 && self.comms.contains_key(&0) => {}
            Payload::Fork(task) if task.tid == 0 => {}
            Payload::Comm(comm) => {
                self.make_room();
                self.comms.insert(comm.tid, comm.comm.into());
                if record.misc & misc::COMM_EXEC != 0 {
                    self.spaces.remove(&comm.pid);
                }
            }
            Payload::Fork(task) => {
                self.make_room();
                if task.ptid == 0 || self.comms.contains_key(&task.ptid) {
                    self.comms.insert(task.tid, self.comm(task.ptid));
                }
                if task.pid != task.ppid
                    && record.misc & misc::FORK_EXEC == 0
                    && let Some(space) = self.spaces.get(&task.ppid).cloned()
                {
                    self.spaces.insert(task.pid, space);
                }
            }
            Payload::Mmap(map) if record.misc & misc::MMAP_DATA == 0 => {
                self.map(record, map.pid, (map.addr, map.len_bytes, map.pgoff), map.filename, None);
            }
            Payload::Mmap2(map) if record.misc & misc::MMAP_DATA == 0 => {
                let range = (map.addr, map.len_bytes, map.pgoff);
                self.map(record, map.pid, range, map.filename, Some(map.file));
            }
            Payload::Ksymbol(symbol) => {
                self.kernel_version = self.next_version();
                self.symbols.announce(symbol);
            }
            Payload::Cgroup(cgroup) => {
                if self.cgroups.len() >= CGROUPS_MAX {
                    self.cgroups.clear();
                    self.forgot = true;
                }
                self.cgroups.insert(cgroup.id, cgroup.path.into());
            }
            _ => {}
        }
    }

    /// Returns the version of the address space that an address belongs to. The same address and version mean the same code, until sections add
    /// names.
    pub(crate) fn space(&self, pid: u32, kernel: bool) -> u32 {
        if kernel { self.kernel_version } else { self.spaces.get(&pid).map_or(0, |space| space.version) }
    }

    /// Replaces the names from sections.
    pub(crate) fn set_sections(&mut self, sections: Arc<SectionSymbols>) {
        self.symbols.set_sections(sections);
    }

    /// Returns true if names were dropped because of a limit.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.forgot || self.symbols.has_forgotten
    }

    /// Name of a task.
    pub(crate) fn comm(&self, tid: u32) -> Arc<[u8]> {
        match self.comms.get(&tid) {
            Some(comm) => comm.clone(),
            None if tid == 0 => Arc::from(&b"swapper"[..]),
            None => Arc::from(format!(":{}", tid as i32).as_bytes()),
        }
    }

    /// Path of a cgroup.
    pub(crate) fn cgroup(&self, id: u64) -> Option<&[u8]> {
        self.cgroups.get(&id).map(AsRef::as_ref)
    }

    /// Names the code at an address of a process or of the kernel.
    pub(crate) fn place(&self, pid: u32, ip: u64, kernel: bool) -> NamedAddress<'_> {
        if kernel && let Some((name, offset)) = self.symbols.bpf(ip) {
            return NamedAddress { symbol: Some((name, offset)), dso: Some(name) };
        }
        let pid = if kernel { KERNEL_PID } else { pid };
        let map = self.spaces.get(&pid).and_then(|space| space.maps.before(ip));
        // The kernel's mapping covers only the kernel's main text. Initial code and per-CPU entry code are after its end, so addresses after the end
        // count as the kernel's as well.
        let covers = |map: &TaskMapping| ip < map.end || kernel && &*map.name == KERNEL_NAME;
        let map = map.filter(|map| covers(map));
        let dso = map.map(|map| &*map.name);
        let in_file = map.and_then(|map| {
            self.symbols.file(&map.name, map.file, Mapped { ip, map_start: map.start, pgoff: map.pgoff })
        });
        match in_file {
            None if kernel => match self.symbols.kernel(ip) {
                Some((symbol, module)) => NamedAddress { symbol: Some(symbol), dso: dso.or(module) },
                None => NamedAddress { symbol: None, dso },
            },
            symbol => NamedAddress { symbol, dso },
        }
    }

    fn map(
        &mut self,
        record: &Record<'_>,
        pid: u32,
        (addr, len, pgoff): (u64, u64, u64),
        name: &[u8],
        file: Option<Mmap2File>,
    ) {
        self.make_room();
        let kernel = record.misc & misc::CPUMODE_MASK == misc::KERNEL;
        let pid = if kernel { KERNEL_PID } else { pid };
        // The name of the kernel's mapping ends in the name of a symbol, by which tools measure how far the kernel was relocated. This part is cut
        // off.
        let name = if name.starts_with(KERNEL_NAME) { KERNEL_NAME } else { name };
        let version = self.next_version();
        if kernel {
            self.kernel_version = version;
        }
        let space = self.spaces.entry(pid).or_default();
        space.version = version;
        if space.maps.len() >= MAPS_MAX {
            space.maps.clear();
            self.forgot = true;
        }
        space.maps.insert(TaskMapping { start: addr, end: addr.saturating_add(len), pgoff, name: name.into(), file });
    }

    /// Returns a new version. After four billion changes, versions repeat: no cached text is kept for so long.
    fn next_version(&mut self) -> u32 {
        self.newest_version = (self.newest_version + 1) % u32::MAX;
        self.newest_version
    }

    fn make_room(&mut self) {
        if self.comms.len() >= TASKS_MAX || self.spaces.len() >= TASKS_MAX {
            self.comms.clear();
            self.spaces.retain(|pid, _| *pid == KERNEL_PID);
            self.forgot = true;
        }
    }
}

/// Returns true for records that [`StreamTasks::learn`] uses.
pub(crate) fn is_of_interest(kind: RecordType) -> bool {
    matches!(
        kind,
        RecordType::COMM
            | RecordType::FORK
            | RecordType::MMAP
            | RecordType::MMAP2
            | RecordType::KSYMBOL
            | RecordType::CGROUP
    )
}
