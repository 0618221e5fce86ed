//! Functions of mapped files that samples hit, looked up in the files as they are when a recording ends.
//!
//! A wrong name is worse than no name, so a file is used only if it is the mapped file. The record of the mapping has the build id of the file, or
//! its device and inode. Without a build id, the file must also be unchanged since it was mapped. Reading files of other users can block, so a
//! separate thread reads them within a time limit.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bprec_format::bprec::state::{FileFunction, FileFunctions, UserSymbols};
use bprec_format::records::{BuildId, Mmap2File};
use bprec_host::elf::{self, Elf, open_regular};

use crate::Result;
use crate::output::{FileHits, LeftOut, Mapper};
use crate::sys;

/// Limit on the time of the lookup.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Time for which the recorder waits for a reading in progress after the limit.
const GRACE: Duration = Duration::from_millis(100);
/// Capacity of the channel of results, in files.
const CHANNEL: usize = 16;
/// Unit of the start time of a process in `/proc/PID/stat`.
const TICK_NS: u64 = 10_000_000;
/// Upper end of the addresses of 32-bit processes, which have another `[vdso]`.
const ABOVE_32_BITS: u64 = 1 << 32;

/// Looks up functions, one file of a recording after the other.
#[derive(Debug, Default)]
pub(crate) struct UserFunctions {
    /// Thread that was still reading a file when the time limit was over.
    stuck: Option<JoinHandle<()>>,
}

impl UserFunctions {
    /// Returns the functions at the hit offsets, by file, and statistics of the lookup. `mapped_ns` is the time assumed
    /// for mappings from before the recording, ns of the recording's clock.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn look_up(
        &mut self,
        (mut files, left_out): (Vec<FileHits>, LeftOut),
        mapped_ns: u64,
    ) -> Result<(Vec<FileFunctions>, UserSymbols)> {
        let started = Instant::now();
        let addresses = files.iter().map(|file| file.offsets.len() as u64).sum();
        let mut done = UserSymbols { addresses, ..UserSymbols::default() };
        done.cut = left_out.text().unwrap_or_default();
        if self.stuck.as_ref().is_some_and(|thread| !thread.is_finished()) {
            done.cut = "reading an executable file took too long".to_owned();
            return Ok((Vec::new(), done));
        }
        files.sort_by(|a, b| (b.offsets.len(), &a.path).cmp(&(a.offsets.len(), &b.path)));
        let (sender, receiver) = sync_channel(CHANNEL);
        let clocks = Clocks::now(mapped_ns);
        let end = started + TIME_MAX;
        let thread = sys::spawn("bprec-symbols", move || {
            for hits in files {
                if Instant::now() >= end || sender.send(functions(&hits, &clocks, &|| Instant::now() >= end)).is_err() {
                    break;
                }
            }
        })?;
        let mut found = Vec::new();
        let wait = || (end + GRACE).saturating_duration_since(Instant::now());
        let ended = loop {
            match receiver.recv_timeout(wait()) {
                Ok(None) => {}
                Ok(Some((functions, named))) => {
                    done.named += named;
                    found.push(functions);
                }
                Err(ended) => break ended,
            }
        };
        if Instant::now() >= end {
            done.cut = format!("bprec stopped looking up names after {} s", TIME_MAX.as_secs());
        }
        if ended == RecvTimeoutError::Timeout {
            self.stuck = Some(thread);
        }
        done.took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok((found, done))
    }
}

/// Offsets between the clocks of the recording, of files and of process starts.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    /// Time assumed for mappings from before the recording, ns of the recording's clock.
    mapped_ns: u64,
    /// The clock of file times minus the recording's clock.
    to_unix_ns: i128,
    /// The clock of process start times minus the recording's clock.
    to_boottime_ns: i64,
}

impl Clocks {
    fn now(mapped_ns: u64) -> Clocks {
        let to_unix_ns = i128::from(sys::realtime_unix_ns()) - i128::from(sys::monotonic_ns());
        Clocks { mapped_ns, to_unix_ns, to_boottime_ns: sys::to_boottime_ns() }
    }

    /// Returns the time of a mapping, ns of the recording's clock.
    fn mapped(&self, since_ns: u64) -> u64 {
        if since_ns == 0 { self.mapped_ns } else { since_ns }
    }

    /// Returns true if a file's timestamp is not after the time of a mapping.
    fn is_before(&self, (seconds, ns): (i64, i64), since_ns: u64) -> bool {
        i128::from(seconds) * 1_000_000_000 + i128::from(ns) <= i128::from(self.mapped(since_ns)) + self.to_unix_ns
    }
}

/// Returns the functions of a file, and the number of hit offsets inside them.
fn functions(hits: &FileHits, clocks: &Clocks, is_over: &dyn Fn() -> bool) -> Option<(FileFunctions, u64)> {
    let mut offsets: Vec<u64> = hits.offsets.iter().copied().collect();
    offsets.sort_unstable();
    let found = if hits.path == b"[vdso]" {
        // A 64-bit process maps its [vdso] above 4 GiB.
        let is_ours = cfg!(target_pointer_width = "64") && hits.mappers.iter().any(|it| it.start >= ABOVE_32_BITS);
        let own = elf::vdso().filter(|_| is_ours)?;
        elf::functions_at(&Elf::parse(own)?, &offsets, None, is_over)
    } else {
        let (elf, root) = open(hits, clocks)?;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&hits.path));
        elf::functions_at(&elf, &offsets, Some((&root, &path)), is_over)
    };
    let named = offsets.iter().filter(|offset| {
        let before = found.partition_point(|function| function.offset <= **offset);
        before.checked_sub(1).is_some_and(|last| **offset - found[last].offset < found[last].len_bytes)
    });
    let named = named.count() as u64;
    let functions =
        found.into_iter().map(|it| FileFunction { offset: it.offset, len_bytes: it.len_bytes, name: it.name });
    let functions: Vec<_> = functions.collect();
    (!functions.is_empty()).then(|| (FileFunctions { path: hits.path.clone(), file: hits.file, functions }, named))
}

/// Opens the mapped file, and returns the root directory below which its path is valid.
fn open(hits: &FileHits, clocks: &Clocks) -> Option<(Elf<File>, PathBuf)> {
    let relative = hits.path.strip_prefix(b"/").map(|path| Path::new(std::ffi::OsStr::from_bytes(path)))?;
    let in_root = |root: PathBuf| {
        let file = open_regular(&root.join(relative)).ok()?;
        Some((checked(file, hits, clocks, false)?, root))
    };
    // The recorder's own root comes first: only this machine's administrator can place files there.
    in_root(PathBuf::from("/")).or_else(|| {
        hits.mappers.iter().rev().filter(|mapper| is_same_process(mapper, clocks)).find_map(|mapper| {
            let root = PathBuf::from(format!("/proc/{}/root", mapper.pid));
            let by_mapping = format!("/proc/{}/map_files/{:x}-{:x}", mapper.pid, mapper.start, mapper.end);
            let mapped = open_regular(Path::new(&by_mapping)).ok().and_then(|file| checked(file, hits, clocks, true));
            mapped.map(|elf| (elf, root.clone())).or_else(|| in_root(root))
        })
    })
}

/// Returns the file if it is the mapped file and unchanged. A file opened through its mapping has the same inode even if the file was deleted or
/// is on an overlay, so its device and change time are not compared.
fn checked(file: File, hits: &FileHits, clocks: &Clocks, is_mapping: bool) -> Option<Elf<File>> {
    let about = file.metadata().ok()?;
    match hits.file {
        Mmap2File::BuildId(id) => {
            Elf::parse(file).filter(|elf| elf.build_id().is_some_and(|own| BuildId::new(&own) == id))
        }
        Mmap2File::Inode { major, minor, inode, .. } => {
            use rustix::fs::{major as major_of, minor as minor_of};
            let is_device = (major_of(about.dev()), minor_of(about.dev())) == (major, minor);
            let was_written = !clocks.is_before((about.mtime(), about.mtime_nsec()), hits.first_ns);
            let was_changed = !clocks.is_before((about.ctime(), about.ctime_nsec()), hits.first_ns);
            let is_it = inode == about.ino() && !was_written && (is_mapping || is_device && !was_changed);
            Elf::parse(file).filter(|_| is_it)
        }
    }
}

/// Returns true if the current process with this pid had the mapping: it started before the mapping was made.
fn is_same_process(mapper: &Mapper, clocks: &Clocks) -> bool {
    let started = bprec_host::start_ticks(mapper.pid);
    let mapped_ns = clocks.mapped(mapper.since_ns).saturating_add_signed(clocks.to_boottime_ns);
    started.is_some_and(|ticks| ticks.saturating_mul(TICK_NS) <= mapped_ns)
}
