//! Rotation of a recording over several files: decides when a file ends, and names the closed files.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::output::{ClosedFiles, Sink};
use crate::{Error, Level, Options, Output, Result, SwitchOutput, sys};

/// Limit on attempts to find a free file name. Names have a resolution of 10 ms, so the next attempt is 10 ms later.
const NAME_TRIES: u32 = 100;

/// Rotation over the files of a recording.
#[derive(Debug)]
pub(super) struct Rotation {
    how: SwitchOutput,
    path: PathBuf,
    /// Time at which the file ends, if the user requested an interval.
    next: Option<Instant>,
    /// Minimum size of a file, bytes: a smaller file does not end because of its size.
    least_bytes: u64,
    closed: ClosedFiles,
    notify: fn(Level, &str),
}

impl Rotation {
    /// Rotation by `options`; `None` if everything goes into one file.
    ///
    /// # Errors
    /// Fails if the output is not a file.
    pub(super) fn new(options: &Options) -> Result<Option<Rotation>> {
        let Some(how) = options.switch_output else { return Ok(None) };
        let Output::File(path) = &options.output else {
            return Err(Error::Other("--switch-output needs a file: give -o FILE, not -".to_owned()));
        };
        let next = how.every.map(|every| Instant::now() + every);
        let (path, notify) = (path.clone(), options.notify);
        let closed = ClosedFiles::of(&path, how.max_files, notify);
        Ok(Some(Rotation { how, path, next, least_bytes: 0, closed, notify }))
    }

    /// Closed files of this recording.
    pub(super) fn closed_files(&self) -> &ClosedFiles {
        &self.closed
    }

    /// Path of the file that is being written.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Latest time at which the file ends; `None` if no interval was requested.
    pub(super) fn switch_at(&self) -> Option<Instant> {
        self.next
    }

    /// Returns true if the file has to end now. `was_signalled` says that SIGUSR2 arrived.
    pub(super) fn is_due(&self, now: Instant, written_bytes: u64, was_signalled: bool) -> bool {
        self.next.is_some_and(|next| next <= now)
            || self.how.size_bytes.is_some_and(|size_bytes| written_bytes >= size_bytes.max(self.least_bytes))
            || self.how.on_signal && was_signalled
    }

    /// Starts the schedule of a new file, which begins with `own_bytes` of fixed contents. The file ends by size only when it has at least twice
    /// `own_bytes`, even if the user requested smaller files. Otherwise each file would have only fixed contents.
    pub(super) fn begin(&mut self, now: Instant, own_bytes: u64) {
        self.next = self.how.every.map(|every| now + every);
        self.least_bytes = own_bytes.saturating_mul(2);
    }

    /// Restarts the schedule of a file that could not be closed: its time and size limits count from now on.
    pub(super) fn go_on(&mut self, now: Instant, written_bytes: u64) {
        self.next = self.how.every.map(|every| now + every);
        self.least_bytes = written_bytes.saturating_add(self.how.size_bytes.unwrap_or(0));
    }

    /// Renames the file that is being written to the name of a closed file, and deletes the oldest file if there are
    /// too many. The recorder writes to the renamed file until the next one is open.
    ///
    /// # Errors
    /// Fails if the file cannot be renamed; the file keeps its name then.
    pub(super) fn vacate(&self) -> Result<PathBuf> {
        self.closed.make_way();
        let mut tried = 0;
        loop {
            let mut name = self.path.as_os_str().to_owned();
            name.push(".");
            name.push(sys::file_timestamp(sys::realtime_unix_ns()));
            let closed = PathBuf::from(name);
            match Sink::vacate(&self.path, &closed) {
                Err(Error::File { answer, .. })
                    if answer.kind() == io::ErrorKind::AlreadyExists && tried < NAME_TRIES =>
                {
                    tried += 1;
                    thread::sleep(Duration::from_millis(10));
                }
                other => return other.map(|()| closed).inspect_err(|_| self.closed.stays_open()),
            }
        }
    }

    /// Restores the name of the file, because no new file could be created.
    pub(super) fn take_back(&self, closed: &Path) {
        self.closed.stays_open();
        if let Err(error) = Sink::vacate(closed, &self.path) {
            (self.notify)(
                Level::Warning,
                &format!(
                    "the file could not get its old name back, so the recording continues in {}: {error}",
                    closed.display()
                ),
            );
        }
    }
}
