//! FORK, COMM and MMAP2 records of the tasks that exist when the recording starts.
//!
//! NAMESPACES records are left out: reading namespaces takes longer than everything else here, and no report needs
//! them.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use bprec_format::records::{Comm, Mmap2, Mmap2File, Task};
use bprec_format::{Endian, RecordType, Records, SampleLayout, misc};
use bprec_host::{Stat, process_ids, thread_ids};

use super::append;
use super::build_id::BuildIds;
use super::maps::Mapping;
use crate::Result;
use crate::options::caller::AsCaller;

/// Longest name of a task, without its NUL (`TASK_COMM_LEN`). `/proc` shows longer names for kernel workers.
const COMM_BYTES: usize = 15;
/// File name in MMAP2 records of mappings without a file.
const ANONYMOUS: &[u8] = b"//anon";

/// Passes FORK, COMM and MMAP2 records of live tasks to `take`, process by process: of all processes, or of `processes` only (then
/// without FORK, because the parents may be unknown). Only executable mappings have MMAP2 records, with build ids of the files.
///
/// # Errors
/// Fails if `take` fails.
pub(crate) fn each_process(
    layout: &SampleLayout,
    processes: Option<&[u32]>,
    mut take: impl FnMut(u32, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut out = Vec::new();
    let mut tasks = Tasks {
        layout,
        out: &mut out,
        with_forks: processes.is_none(),
        build_ids: BuildIds::default(),
        text: Vec::new(),
    };
    for pid in processes.map_or_else(process_ids, <[u32]>::to_vec) {
        {
            let _as_caller = AsCaller::begin();
            tasks.process(pid);
        }
        take(pid, tasks.out)?;
        tasks.out.clear();
    }
    Ok(())
}

/// Returns true if the records of a process include a mapping.
pub(crate) fn has_mappings(records: &[u8]) -> bool {
    Records::new(records, 0, Endian::NATIVE).map_while(Result::ok).any(|record| record.kind == RecordType::MMAP2)
}

/// Appends a name for pid 0, which records have for tasks without a pid in this pid namespace. Without the name, perf
/// and other tools show these tasks as idle CPUs.
pub(crate) fn unknown_tasks(layout: &SampleLayout, out: &mut Vec<u8>) {
    let comm = Comm { pid: 0, tid: 0, comm: b"[unknown]" };
    append(layout, out, RecordType::COMM, 0, |w| comm.encode(w));
}

struct Tasks<'a> {
    layout: &'a SampleLayout,
    out: &'a mut Vec<u8>,
    with_forks: bool,
    build_ids: BuildIds,
    /// Contents of the last file that was read from `/proc`.
    text: Vec<u8>,
}

impl Tasks<'_> {
    fn process(&mut self, pid: u32) {
        if self.read(format!("/proc/{pid}/stat")).is_none() {
            return;
        }
        let Some(stat) = Stat::parse(&self.text) else { return };
        let (ppid, threads, is_kernel_thread) = (stat.parent, stat.threads, stat.is_kernel_thread);
        let comm = stat.comm.to_vec();
        self.task(pid, pid, ppid, &comm);
        if is_kernel_thread {
            return;
        }
        self.maps(pid);
        if threads < 2 {
            return;
        }
        for tid in thread_ids(pid) {
            if tid == pid || self.read(format!("/proc/{pid}/task/{tid}/comm")).is_none() {
                continue;
            }
            let comm = self.text.strip_suffix(b"\n").unwrap_or(&self.text).to_vec();
            self.task(pid, tid, pid, &comm);
        }
    }

    /// Appends the records of one thread. For the first thread, `parent` is the parent process; for other threads, the
    /// process itself.
    fn task(&mut self, pid: u32, tid: u32, parent: u32, comm: &[u8]) {
        if self.with_forks {
            let fork = Task { pid, ppid: parent, tid, ptid: parent, time_ns: 0 };
            append(self.layout, self.out, RecordType::FORK, misc::FORK_EXEC, |w| fork.encode(w));
        }
        let comm = Comm { pid, tid, comm: &comm[..comm.len().min(COMM_BYTES)] };
        append(self.layout, self.out, RecordType::COMM, 0, |w| comm.encode(w));
    }

    fn maps(&mut self, pid: u32) {
        if self.read(format!("/proc/{pid}/maps")).is_none() {
            return;
        }
        for map in Mapping::executable(&self.text) {
            let build_id = match map.inode != 0 && map.path.starts_with(b"/") {
                true => self.build_ids.get((map.major, map.minor), map.inode, file_paths(pid, &map)),
                false => None,
            };
            let file = match build_id {
                Some(build_id) => Mmap2File::BuildId(build_id),
                None => Mmap2File::Inode { major: map.major, minor: map.minor, inode: map.inode, generation: 0 },
            };
            let mmap = Mmap2 {
                pid,
                tid: pid,
                addr: map.start,
                len_bytes: map.end.saturating_sub(map.start),
                pgoff: map.pgoff,
                file,
                prot: map.prot,
                flags: map.flags,
                filename: if map.path.is_empty() { ANONYMOUS } else { map.path },
            };
            append(self.layout, self.out, RecordType::MMAP2, misc::USER | mmap.misc(), |w| mmap.encode(w));
        }
    }

    /// Reads a file into `text`; `None` if it does not exist or cannot be read.
    fn read(&mut self, path: String) -> Option<()> {
        self.text.clear();
        File::open(path).ok()?.read_to_end(&mut self.text).ok()?;
        Some(())
    }
}

/// Paths to a mapped file: first through the mapping, which also reaches deleted and overmounted files but needs privilege; then by
/// its path below the root of the process.
fn file_paths(pid: u32, map: &Mapping<'_>) -> impl Iterator<Item = PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let by_mapping = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.end));
    let mut by_path = std::ffi::OsString::from(format!("/proc/{pid}/root"));
    by_path.push(std::ffi::OsStr::from_bytes(map.path));
    [by_mapping, PathBuf::from(by_path)].into_iter()
}
