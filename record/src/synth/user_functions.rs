//! Functions of mapped files that samples hit, looked up in the files as they are when a recording ends.
//!
//! A wrong name is worse than none. A file has to be the one that was mapped, by its build id or by device and inode; without a build id
//! it must not have changed since. Files belong to others: they are never waited for longer than there is time, by a thread of its own.

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

/// Limit on its time.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Time that a reading may go on when time is over.
const GRACE: Duration = Duration::from_millis(100);
/// Functions of files wait here until they are taken.
const CHANNEL: usize = 16;
/// The kernel counts the starts of processes in these.
const TICK_NS: u64 = 10_000_000;
/// Code of 32-bit processes is below, and theirs is another `[vdso]`.
const ABOVE_32_BITS: u64 = 1 << 32;

/// Looks up functions, one file of a recording after the other.
#[derive(Debug, Default)]
pub(crate) struct UserFunctions {
    /// A thread that did not come back from reading a file.
    stuck: Option<JoinHandle<()>>,
}

impl UserFunctions {
    /// The functions at these places of files, by file, and how far that went. `mapped_ns` is when mappings were there that have no time, ns of
    /// the recording's clock.
    ///
    /// # Errors
    /// When no thread can be started.
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
            done.cut = "reading a file took too long".to_owned();
            return Ok((Vec::new(), done));
        }
        // Files with the most hits come first, in an order that is the same each time.
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
            done.cut = format!("that takes longer than {} s", TIME_MAX.as_secs());
        }
        if ended == RecvTimeoutError::Timeout {
            self.stuck = Some(thread);
        }
        done.took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok((found, done))
    }
}

/// Relation of the times of the recording, of files and of processes.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    /// When mappings were there that have no time.
    mapped_ns: u64,
    /// Add this to a time of the recording for that of files.
    to_unix_ns: i128,
    /// Add this to a time of the recording for that of starts of processes.
    to_boottime_ns: i64,
}

impl Clocks {
    fn now(mapped_ns: u64) -> Clocks {
        let to_unix_ns = i128::from(sys::realtime_unix_ns()) - i128::from(sys::monotonic_ns());
        Clocks { mapped_ns, to_unix_ns, to_boottime_ns: sys::to_boottime_ns() }
    }

    /// The time of a mapping, ns of the recording's clock.
    fn mapped(&self, since_ns: u64) -> u64 {
        if since_ns == 0 { self.mapped_ns } else { since_ns }
    }

    /// True if what a file says of a time is not after that of a mapping.
    fn is_before(&self, (seconds, ns): (i64, i64), since_ns: u64) -> bool {
        i128::from(seconds) * 1_000_000_000 + i128::from(ns) <= i128::from(self.mapped(since_ns)) + self.to_unix_ns
    }
}

/// The functions of a file, and how many places they hold.
fn functions(hits: &FileHits, clocks: &Clocks, is_over: &dyn Fn() -> bool) -> Option<(FileFunctions, u64)> {
    let mut offsets: Vec<u64> = hits.offsets.iter().copied().collect();
    offsets.sort_unstable();
    let found = if hits.path == b"[vdso]" {
        // A process of 64 bits has it above.
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

/// The file that was mapped, and the root that its path holds in.
fn open(hits: &FileHits, clocks: &Clocks) -> Option<(Elf<File>, PathBuf)> {
    let relative = hits.path.strip_prefix(b"/").map(|path| Path::new(std::ffi::OsStr::from_bytes(path)))?;
    let in_root = |root: PathBuf| {
        let file = open_regular(&root.join(relative)).ok()?;
        Some((checked(file, hits, clocks, false)?, root))
    };
    // The file that has the name for us was put there by our own administrator.
    in_root(PathBuf::from("/")).or_else(|| {
        hits.mappers.iter().rev().filter(|mapper| is_same_process(mapper, clocks)).find_map(|mapper| {
            let root = PathBuf::from(format!("/proc/{}/root", mapper.pid));
            let by_mapping = format!("/proc/{}/map_files/{:x}-{:x}", mapper.pid, mapper.start, mapper.end);
            let mapped = open_regular(Path::new(&by_mapping)).ok().and_then(|file| checked(file, hits, clocks, true));
            mapped.map(|elf| (elf, root.clone())).or_else(|| in_root(root))
        })
    })
}

/// A file, if it is the one that was mapped, as it was then. One that is mapped yet keeps its inode, also when it is deleted or written on an
/// overlay.
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

/// True if the process that has the number now is the one that had the mapping: it started before that.
fn is_same_process(mapper: &Mapper, clocks: &Clocks) -> bool {
    let started = bprec_host::start_ticks(mapper.pid);
    let mapped_ns = clocks.mapped(mapper.since_ns).saturating_add_signed(clocks.to_boottime_ns);
    started.is_some_and(|ticks| ticks.saturating_mul(TICK_NS) <= mapped_ns)
}
