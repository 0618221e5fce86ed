//! A recording that goes on over several files: when one ends, what the closed ones are called, and which are kept.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::output::{ClosedFiles, Sink};
use crate::{Error, Level, Options, Output, Result, SwitchOutput, sys};

/// Names have hundredths of a second: files that end in the same one take turns.
const NAME_TRIES: u32 = 100;

/// The files of a recording.
#[derive(Debug)]
pub(super) struct Rotation {
    how: SwitchOutput,
    path: PathBuf,
    /// When the file is to end.
    next: Option<Instant>,
    /// The least bytes that a file has when its size ends it.
    least_bytes: u64,
    closed: ClosedFiles,
    notify: fn(Level, &str),
}

impl Rotation {
    /// Rotation by `options`; `None` when everything goes into one file.
    ///
    /// # Errors
    /// When the output is no file.
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

    /// Closed files that are there.
    pub(super) fn closed_files(&self) -> &ClosedFiles {
        &self.closed
    }

    /// The file that is being written.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// When the file is to end at the latest.
    pub(super) fn switch_at(&self) -> Option<Instant> {
        self.next
    }

    /// True if the file is to end now. `was_signalled` is SIGUSR2.
    pub(super) fn is_due(&self, now: Instant, written_bytes: u64, was_signalled: bool) -> bool {
        self.next.is_some_and(|next| next <= now)
            || self.how.size_bytes.is_some_and(|size_bytes| written_bytes >= size_bytes.max(self.least_bytes))
            || self.how.on_signal && was_signalled
    }

    /// Another file has begun, with so many bytes that each file has. It gets room for as many samples, whatever size was
    /// asked for: else files would follow each other that hold nothing besides.
    pub(super) fn begin(&mut self, now: Instant, own_bytes: u64) {
        self.next = self.how.every.map(|every| now + every);
        self.least_bytes = own_bytes.saturating_mul(2);
    }

    /// The file could not end, and goes on as if it had begun now.
    pub(super) fn go_on(&mut self, now: Instant, written_bytes: u64) {
        self.next = self.how.every.map(|every| now + every);
        self.least_bytes = written_bytes.saturating_add(self.how.size_bytes.unwrap_or(0));
    }

    /// Gives the file that is being written, and goes on to be for a moment, the name of a closed one. The oldest goes when there are too many.
    ///
    /// # Errors
    /// When it cannot be renamed; it keeps its name then.
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

    /// Gives the file its name back: there is none to follow.
    pub(super) fn take_back(&self, closed: &Path) {
        self.closed.stays_open();
        if let Err(error) = Sink::vacate(closed, &self.path) {
            (self.notify)(Level::Warning, &format!("the recording stays in {}: {error}", closed.display()));
        }
    }
}
