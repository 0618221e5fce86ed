//! Live recording: the recorder writes rotated files into a directory in memory, and the reporter reads the newest file after each interval. So
//! `top` computes the same figures as `report`, and the user can save the recording.

use std::fs::{self, File};
use std::io::PipeWriter;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bprec_record::{Options, Output, SwitchOutput, Taken, record};
use bprec_report::model::Interval;
use bprec_report::{Input, Options as Query, Redacting, Redactor, Session, Source};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// Age, ns, from which on a record is certainly in the file, together with the names of its functions. Longer than the time between two drains of the
/// ring buffers, and between two symbol lookups.
const SETTLE_NS: u64 = 600_000_000;
/// Limit on the age (ns) of an interval that cannot be computed; beyond it, `top` ends with the error. A younger interval is computed again, because
/// samples can be late.
const LATE_NS: u64 = 5_000_000_000;
/// Shortest allowed interval, as a fraction of the requested length. Intervals can be shorter than requested: they end at readings, which can be
/// late, and each file begins with a reading.
const LEAST_LENGTH: f64 = 0.8;
/// Time between two polls of the file.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Mount point of a file system in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Wall time, CPU time of this process, and CPU time of counting, at one moment.
#[derive(Clone, Copy)]
struct Used {
    wall_ns: u64,
    cpu_ns: u64,
    counting_ns: u64,
}

impl Used {
    fn now(taken: &Taken) -> Used {
        Used { wall_ns: now_ns(ClockId::Monotonic), cpu_ns: now_ns(ClockId::ProcessCPUTime), counting_ns: taken.ns() }
    }
}

/// A running recording.
pub(super) struct Live {
    /// Directory of the files; removed after the recorder has ended.
    directory: Option<TempDir>,
    /// Lock of the directory, which marks it as in use.
    _lock: File,
    /// Pipe; closing it ends the recording.
    stop: Option<PipeWriter>,
    recorder: Option<JoinHandle<bprec_record::Result<()>>>,
    /// Redactor of all intervals: a name has the same pseudonym in every interval.
    redactor: Option<Redactor>,
    interval_ns: u64,
    /// Length (ns) of the time from which samples are shown with an interval. This time ends with the interval, and is at least as long. `None`: an
    /// interval is shown with its own samples.
    pub(super) samples_ns: Option<u64>,
    /// True to return the rest of a file as a shorter interval: the time from the last interval to the last reading in the file. If false, this time
    /// is in no interval.
    pub(super) has_ends_of_files: bool,
    /// End of the last returned interval, ns of the monotonic clock; 0 before the first.
    seen_ns: u64,
    /// Clocks when the last interval was returned, or when the recording started.
    used: Used,
    /// CPU time of counting, which the recorder updates.
    taken: Taken,
}

impl Live {
    /// Starts a recording. Keeps two files of length `keep`: the current file and its predecessor. A `redactor` redacts the intervals.
    pub(super) fn start(options: Options, keep: Duration, redactor: Option<Redactor>) -> anyhow::Result<Live> {
        let (directory, lock) = directory()?;
        let (stopped, stop) = std::io::pipe().context("pipe")?;
        let options = Options {
            output: Output::File(directory.path().join(NAME)),
            stop: Some(Arc::new(OwnedFd::from(stopped))),
            switch_output: Some(SwitchOutput {
                every: Some(keep),
                max_files: Some(std::num::NonZeroUsize::MIN),
                ..SwitchOutput::default()
            }),
            sync: None,
            ..options
        };
        let taken = options.taken.clone();
        let interval_ns = u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX);
        let recorder =
            thread::Builder::new().name("bprec-record".to_owned()).spawn(move || record(&options).map(drop))?;
        let used = Used::now(&taken);
        Ok(Live {
            directory: Some(directory),
            _lock: lock,
            stop: Some(stop),
            recorder: Some(recorder),
            redactor,
            interval_ns,
            samples_ns: None,
            has_ends_of_files: false,
            seen_ns: 0,
            used,
            taken,
        })
    }

    /// Computes the interval between the readings of the counters at `from_ns` and `to_ns`.
    fn charge(&self, session: &Session<'_>, query: &Query, from_ns: u64, to_ns: u64) -> bprec_report::Result<Interval> {
        match self.samples_ns {
            None => session.interval(query, from_ns, to_ns),
            Some(ns) => session.interval_with_samples(query, (from_ns, to_ns), to_ns.saturating_sub(ns).min(from_ns)),
        }
    }

    /// Waits for the next interval and returns it; `None` if `is_over` returns true, or if the recorder has ended without an error.
    pub(super) fn next(&mut self, query: &Query, is_over: impl Fn() -> bool) -> anyhow::Result<Option<Interval>> {
        while !is_over() {
            if self.has_ended() {
                // A signal for the process ends the recorder, too.
                return self.end().map(|()| None);
            }
            match self.poll(query)? {
                Some(interval) => return Ok(Some(interval)),
                None => thread::sleep(LOOK_EVERY),
            }
        }
        Ok(None)
    }

    /// Returns true if the recorder has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.recorder.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the next interval; `None` until the interval has ended and is in the file.
    pub(super) fn poll(&mut self, query: &Query) -> anyhow::Result<Option<Interval>> {
        let due_ns = self.seen_ns.saturating_add(self.interval_ns).saturating_add(SETTLE_NS);
        if now_ns(ClockId::Monotonic) < due_ns { Ok(None) } else { self.read(query) }
    }

    /// Reads the time since the last returned interval. `None` if this time is too short, or if the file lacks its samples or
    /// cannot be read for the moment.
    fn read(&mut self, query: &Query) -> anyhow::Result<Option<Interval>> {
        // Opening fails while the file is created or replaced.
        let Ok(input) = Input::open(self.path()) else { return Ok(None) };
        let Ok(session) = Session::open_without_user_code(&input) else { return Ok(None) };
        let settled_ns = now_ns(ClockId::Monotonic).saturating_sub(SETTLE_NS);
        let mut reads: Vec<u64> = session.read_times_ns().into_iter().filter(|at| *at <= settled_ns).collect();
        reads.sort_unstable();
        // Begins at the end of the last interval, or at the first reading in the file if the last interval ended in the previous file.
        let from_ns = reads.iter().copied().find(|at| *at >= self.seen_ns);
        let Some((from_ns, &to_ns)) = from_ns.zip(reads.last()) else { return Ok(None) };
        if self.has_ends_of_files
            && 0 < self.seen_ns
            && self.seen_ns < from_ns
            && let Some(interval) = self.end_of_file_before(query)?
        {
            return Ok(Some(interval));
        }
        if ((to_ns - from_ns) as f64) < self.interval_ns as f64 * LEAST_LENGTH {
            return Ok(None);
        }
        let charged = match self.redactor {
            None => self.charge(&session, query, from_ns, to_ns),
            Some(_) => self
                .input()
                .and_then(|input| self.charge(&Session::open_without_user_code(&input)?, query, from_ns, to_ns)),
        };
        match charged {
            // Tries again later: on a busy machine, samples reach the file later than readings.
            Err(_) if now_ns(ClockId::Monotonic) < to_ns.saturating_add(LATE_NS) => Ok(None),
            interval => Ok(Some(self.seen(interval?))),
        }
    }

    /// Returns the rest of the previous file as an interval: from the end of the last returned interval to the last reading in that file. `None` if
    /// there is no previous file, or if the last returned interval ended at that reading or in another file.
    fn end_of_file_before(&mut self, query: &Query) -> anyhow::Result<Option<Interval>> {
        let Some(path) = self.path_before() else { return Ok(None) };
        let input = self.open(&path)?;
        let session = Session::open_without_user_code(&input)?;
        let reads = session.read_times_ns();
        let Some(to_ns) = reads.iter().copied().max().filter(|to_ns| *to_ns > self.seen_ns) else { return Ok(None) };
        if !reads.contains(&self.seen_ns) {
            return Ok(None);
        }
        let interval = self.charge(&session, query, self.seen_ns, to_ns)?;
        Ok(Some(self.seen(interval)))
    }

    /// Computes the shown interval for another query; `None` if the current file does not have the interval or cannot be read.
    #[cfg(feature = "tui")]
    pub(super) fn again(&mut self, query: &Query, shown: &Interval) -> anyhow::Result<Option<Interval>> {
        let Ok(input) = self.input() else { return Ok(None) };
        let Ok(session) = Session::open_without_user_code(&input) else { return Ok(None) };
        if !session.read_times_ns().contains(&shown.from_ns) {
            return Ok(None);
        }
        let interval = self.charge(&session, query, shown.from_ns, shown.to_ns)?;
        let Interval { own_cpu_percent, counting_percent, .. } = *shown;
        Ok(Some(Interval { own_cpu_percent, counting_percent, ..interval }))
    }

    /// Sets the length of the next intervals.
    #[cfg(feature = "tui")]
    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Marks an interval as returned. Adds the CPU time since the previous interval: of this process in percent of one CPU, of counting in percent of
    /// all CPUs.
    fn seen(&mut self, interval: Interval) -> Interval {
        let now = Used::now(&self.taken);
        let before = std::mem::replace(&mut self.used, now);
        let wall_ns = now.wall_ns.saturating_sub(before.wall_ns);
        let percent = |ns: u64| (wall_ns > 0).then(|| ns as f64 * 100.0 / wall_ns as f64);
        // `None` for the first interval, which would include the cost of starting.
        let own_cpu_percent = percent(now.cpu_ns.saturating_sub(before.cpu_ns)).filter(|_| self.seen_ns > 0);
        let counting = percent(now.counting_ns.saturating_sub(before.counting_ns)).zip(interval.report.recording.cpus);
        let counting_percent = counting.map(|(percent, cpus)| percent / f64::from(cpus));
        self.seen_ns = interval.to_ns;
        Interval { own_cpu_percent, counting_percent, ..interval }
    }

    /// Opens the current file, redacted if `--redact` is given.
    pub(super) fn input(&mut self) -> bprec_report::Result<Input> {
        self.open(&self.path())
    }

    fn open(&mut self, path: &Path) -> bprec_report::Result<Input> {
        match &mut self.redactor {
            None => Input::open(path),
            // Ignores the problems of the file: it is still being written, so it has no end.
            Some(redactor) => Ok(Redacting::begin(Source::open(path)?)?.finish(redactor)?.0),
        }
    }

    /// Time from the first to the last reading in the current file; zero if the file cannot be read.
    #[cfg(feature = "tui")]
    pub(super) fn file_length(&self) -> Duration {
        let Ok(input) = Input::open(self.path()) else { return Duration::ZERO };
        let Ok(session) = Session::open_without_user_code(&input) else { return Duration::ZERO };
        let read = session.read_times_ns();
        let (first, last) = (read.first(), read.last());
        first.zip(last).map_or(Duration::ZERO, |(first, last)| Duration::from_nanos(last - first))
    }

    /// Path of the previous file; `None` before the first rotation.
    pub(super) fn path_before(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(self.directory.as_ref()?.path()).ok()?.flatten();
        // The suffix is the end time of the file.
        let is_before = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            let ended = name.and_then(|name| name.strip_prefix(NAME)?.strip_prefix('.'));
            ended.is_some_and(|ended| ended.bytes().all(|byte| byte.is_ascii_digit()))
        };
        entries.map(|entry| entry.path()).filter(is_before).max()
    }

    /// Path of the current file.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.as_ref().map(|directory| directory.path().join(NAME)).unwrap_or_default()
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// Fails if the recorder failed or panicked.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        drop(self.stop.take());
        let ended = self.recorder.take().map(JoinHandle::join);
        drop(self.directory.take());
        match ended {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(error.into()),
            Some(Err(_)) => Err(anyhow!("the recorder panicked")),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Errors are ignored here; an explicit call of `end` returns them.
        let _ = self.end();
    }
}

const NAME: &str = "bprec.data";
/// Prefix of the names of the directories.
const PREFIX: &str = "bprec-top-";
/// Number of attempts to create a directory.
const TRIES: u32 = 10;

/// Creates and locks a directory, in memory if /dev/shm exists. Removes unlocked directories of earlier processes that were killed.
fn directory() -> anyhow::Result<(TempDir, File)> {
    let parent = match fs::metadata(SHARED_MEMORY) {
        Ok(metadata) if metadata.is_dir() => PathBuf::from(SHARED_MEMORY),
        _ => std::env::temp_dir(),
    };
    let failed = || format!("create a directory in {}", parent.display());
    for entry in fs::read_dir(&parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) && lock(&entry.path()).is_some() {
            // Ignores errors: directories of other users cannot be removed.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    for _ in 0..TRIES {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent).with_context(failed)?;
        // Another bprec that starts at the same time may have removed the directory before it was locked.
        if let Some(lock) = lock(directory.path()).filter(|_| directory.path().is_dir()) {
            return Ok((directory, lock));
        }
    }
    bail!("{}: another process removes each new directory at once", failed())
}

/// Locks a directory; `None` if another process holds the lock, or if the directory cannot be opened.
fn lock(directory: &Path) -> Option<File> {
    let opened = File::open(directory).ok()?;
    opened.try_lock().is_ok().then_some(opened)
}

fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
