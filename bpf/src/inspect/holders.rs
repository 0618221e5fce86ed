//! Processes that hold programs, found in one walk over the descriptors of all processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bprec_format::bprec::state::{Attachment, Owner};
use bprec_host::Process;
use rustix::fs::{Dir, Mode, OFlags, readlinkat};

use crate::error::{Error, Result};
use crate::inspect::links::ProbeKind;
use crate::inspect::names::Names;
use crate::sys;
use crate::sys::FdInfo;

/// Processes with BPF descriptors. This process and other recorders are left out: they hold programs only to observe them.
#[derive(Debug, Default)]
pub struct Holders {
    processes: Vec<Holder>,
    /// Programs that are attached to kprobes, uprobes and tracepoints through perf events, with a link or without.
    pub probes: Vec<Attachment>,
    /// Ids of processes with perf events on which a program of type perf_event runs. The kernel does not report the program's id.
    pub perf_event_pids: Vec<u32>,
}

#[derive(Debug)]
struct Holder {
    owner: Owner,
    /// Programs that the process holds by a descriptor of the program, its link or its perf event.
    progs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
}

impl Holders {
    /// Walks `/proc`. A process is left out if it ends during the walk, if its descriptors are hidden from this process, or if it has a descriptor
    /// of one of the programs `recorders`, by which a recorder is recognized.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub fn scan(names: &Names, recorders: &BTreeSet<u32>) -> Result<Holders> {
        let mut holders = Holders::default();
        let own_pid = std::process::id();
        let directory = fs::read_dir("/proc").map_err(|source| Error::file("/proc", source))?;
        for entry in directory.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if pid == own_pid {
                continue;
            }
            let path = entry.path();
            let found = descriptors(&path);
            if !found.is_empty() {
                holders.add(pid, &path, found, names, recorders);
            }
        }
        holders.probes.sort_by(|a, b| (a.prog_id, &a.kind, &a.target).cmp(&(b.prog_id, &b.kind, &b.target)));
        holders.probes.dedup();
        Ok(holders)
    }

    /// Processes with a descriptor of the program, its link or its perf event. If there are none, processes with a descriptor of one of the program's
    /// maps.
    pub fn owners(&self, prog_id: u32, map_ids: &[u32]) -> Vec<Owner> {
        let by = |holds: &dyn Fn(&Holder) -> bool| -> Vec<Owner> {
            self.processes.iter().filter(|process| holds(process)).map(|process| process.owner.clone()).collect()
        };
        let direct = by(&|process| process.progs.contains(&prog_id));
        if direct.is_empty() { by(&|process| map_ids.iter().any(|id| process.maps.contains(id))) } else { direct }
    }

    fn add(&mut self, pid: u32, path: &Path, found: Vec<(u32, Descriptor)>, names: &Names, recorders: &BTreeSet<u32>) {
        let mut probes = Vec::new();
        let mut has_perf_events = false;
        let mut process = Holder { owner: Owner::default(), progs: BTreeSet::new(), maps: BTreeSet::new() };
        for (fd, kind) in found {
            match kind {
                Descriptor::PerfEvent => match sys::task_fd_query(pid, fd) {
                    Ok(task_fd) => {
                        process.progs.insert(task_fd.prog_id);
                        probes.extend(probe(&task_fd, names));
                    }
                    Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => has_perf_events = true,
                    // Most perf events have no program.
                    Err(_) => {}
                },
                Descriptor::Bpf => {
                    let Ok(text) = fs::read_to_string(path.join("fdinfo").join(fd.to_string())) else { continue };
                    let info = FdInfo::parse(&text);
                    process.progs.extend(info.prog_id);
                    process.maps.extend(info.map_id);
                }
            }
        }
        let holds_nothing = process.progs.is_empty() && process.maps.is_empty() && !has_perf_events;
        if holds_nothing || !process.progs.is_disjoint(recorders) {
            return;
        }
        self.probes.extend(probes);
        self.perf_event_pids.extend(has_perf_events.then_some(pid));
        if let Some(owner) = owner(pid) {
            process.owner = owner;
            self.processes.push(process);
        }
    }
}

enum Descriptor {
    Bpf,
    PerfEvent,
}

/// Descriptors of a process that are BPF objects or perf events.
fn descriptors(path: &Path) -> Vec<(u32, Descriptor)> {
    let open =
        || rustix::fs::open(path.join("fd"), OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let Ok(directory) = open() else { return Vec::new() };
    let Ok(entries) = Dir::read_from(&directory) else { return Vec::new() };
    let (mut found, mut target) = (Vec::new(), Vec::new());
    for entry in entries.flatten() {
        // The link is read relative to the open directory: the kernel checks the path to the directory once, not for each descriptor.
        let Ok(read) = readlinkat(&directory, entry.file_name(), std::mem::take(&mut target)) else { continue };
        target = read.into_bytes();
        let kind = match &target[..] {
            b"anon_inode:bpf-prog" | b"anon_inode:bpf-map" | b"anon_inode:bpf_link" | b"anon_inode:bpf-link" => {
                Descriptor::Bpf
            }
            b"anon_inode:[perf_event]" => Descriptor::PerfEvent,
            _ => continue,
        };
        found.extend(entry.file_name().to_str().ok().and_then(|name| name.parse().ok()).map(|fd| (fd, kind)));
    }
    found
}

/// Identity of a process in the form of recordings; `None` if the process has ended.
pub fn owner(pid: u32) -> Option<Owner> {
    let Process { pid, comm, uid, cgroup } = Process::of(pid)?;
    Some(Owner { pid, comm, uid, cgroup })
}

/// Attachment of a program on a tracing perf event; `None` for another kind of descriptor.
fn probe(task_fd: &sys::TaskFd, names: &Names) -> Option<Attachment> {
    let kind = match task_fd.fd_type {
        1 => ProbeKind::Tracepoint,
        2 => ProbeKind::Kprobe,
        3 => ProbeKind::Kretprobe,
        4 => ProbeKind::Uprobe,
        5 => ProbeKind::Uretprobe,
        _ => return None,
    };
    let target = kind.target(Some(&task_fd.name), task_fd.probe_offset, task_fd.probe_addr, names);
    let (prog_id, kind) = (task_fd.prog_id, kind.name().to_owned());
    Some(Attachment { prog_id, link_id: None, kind, target })
}
