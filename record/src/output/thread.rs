//! The output thread: tallies, compresses, writes and checkpoints, in this order, for files and streams.
//!
//! Records are tallied before they are compressed, so that nothing has to be read back. A checkpoint follows each pass
//! over the rings; if the disk is slow, a checkpoint follows at the latest after `CHECKPOINT_EVERY`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::queue::{DrainAccount, Message, Queue, Received, queue};
use super::{Sink, Tally};
use crate::sys::{self, Waker};
use crate::{Error, Result};

/// The longest time between two checkpoints while records are written; longer than the time between two passes over the
/// rings.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(400);

/// The next file, and the channel that delivers the current file when it is written.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) sink: Sink,
    /// Statistics of draining into the current file.
    pub(crate) account: DrainAccount,
    pub(crate) closed: SyncSender<Closed>,
}

/// A file that gets no more records.
#[derive(Debug)]
pub(crate) struct Closed {
    /// Output to be completed.
    pub(crate) sink: Sink,
    /// Counts over the records of the file.
    pub(crate) tally: Tally,
    /// Statistics of draining into the file.
    pub(crate) account: DrainAccount,
}

/// Handle of the output thread. After it is dropped, the thread writes the queued messages and ends.
#[derive(Debug)]
pub(crate) struct OutputThread {
    queue: Queue,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<(Sink, Result<()>)>>,
}

/// Progress of the thread, which other threads read.
#[derive(Debug)]
struct Progress {
    /// Bytes of the file at the last checkpoint.
    written_bytes: AtomicU64,
    /// Counts over the records of the current file.
    tally: Mutex<Tally>,
}

/// State of the thread.
struct Writer {
    sink: Sink,
    progress: Arc<Progress>,
    /// True after [`Message::BeginRounds`].
    has_rounds: bool,
    /// True if records were written since the last round ended.
    is_in_round: bool,
    /// True if records were written since the last checkpoint.
    is_ahead: bool,
    checkpoint: Instant,
}

impl OutputThread {
    /// Starts the thread, which writes to `sink`. The thread wakes `drain` when a buffer becomes free after the drain asked for a buffer and got
    /// none, and wakes `ended` when the thread ends.
    ///
    /// # Errors
    /// Fails if no thread can be created.
    pub(crate) fn start(sink: Sink, tally: Tally, drain: Waker, ended: Waker) -> Result<OutputThread> {
        let (queue, received) = queue(drain);
        let progress = Arc::new(Progress { written_bytes: AtomicU64::new(0), tally: Mutex::new(tally) });
        let mut writer = Writer {
            sink,
            progress: Arc::clone(&progress),
            has_rounds: false,
            is_in_round: false,
            is_ahead: false,
            checkpoint: Instant::now(),
        };
        let thread = sys::spawn("bprec-output", move || {
            // Compression takes CPU time that other tasks may need more, so a compressing thread keeps the normal
            // priority; records that wait too long are written uncompressed.
            if !writer.sink.is_compressed() {
                sys::become_favoured();
            }
            let outcome = writer.write(&received);
            drop(received);
            ended.wake();
            (writer.sink, outcome)
        })?;
        Ok(OutputThread { queue, progress, thread: Some(thread) })
    }

    /// Queue to the thread.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Bytes of the file at the last checkpoint.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.progress.written_bytes.load(Ordering::Relaxed)
    }

    /// Counts over the records of the current file. The output thread waits while the guard is held.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.progress.tally()
    }

    /// Writes everything that was sent and ends the thread. Returns the last output, and the error of the thread, if
    /// there was one.
    ///
    /// # Errors
    /// Fails if the thread panicked.
    pub(crate) fn finish(&mut self, account: DrainAccount) -> Result<(Closed, Result<()>)> {
        self.queue.close();
        let failed = || Error::Other("bprec's thread that writes the recording ended with a panic".to_owned());
        let (sink, outcome) = self.thread.take().ok_or_else(failed)?.join().map_err(|_| failed())?;
        let mut tally = self.tally();
        let next = tally.successor();
        let tally = std::mem::replace(&mut *tally, next);
        Ok((Closed { sink, tally, account }, outcome))
    }
}

impl Drop for OutputThread {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // The result of the thread is not needed.
            drop(thread.join());
        }
    }
}

impl Progress {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Writes until all senders have ended.
    fn write(&mut self, received: &Received) -> Result<()> {
        while let Some((message, is_behind)) = received.next() {
            let buffer = self.take(message, is_behind)?;
            buffer.into_iter().for_each(|buffer| received.give_back(buffer));
            if self.is_ahead && self.checkpoint.elapsed() >= CHECKPOINT_EVERY {
                self.checkpoint()?;
            }
        }
        Ok(())
    }

    /// Handles a message; returns the buffer of the message if it is free again.
    fn take(&mut self, message: Message, is_behind: bool) -> Result<Option<Vec<u8>>> {
        match message {
            Message::Ring(records) => {
                self.append(&records, is_behind)?;
                return Ok(Some(records));
            }
            Message::Records(records) | Message::States(records) => self.append(&records, is_behind)?,
            Message::Plain(records) => {
                (self.is_in_round, self.is_ahead) = (true, true);
                self.sink.append(&records)?;
            }
            Message::Journal(frames) => self.sink.journal(&frames),
            Message::BeginRounds => self.has_rounds = true,
            Message::Round { is_asked_for } if is_asked_for || self.is_in_round => {
                self.is_in_round = false;
                if is_asked_for || self.has_rounds {
                    self.sink.finished_round()?;
                }
                self.checkpoint()?;
                self.progress.tally().round();
            }
            Message::Round { .. } => (),
            Message::Next(next) => self.go_on(*next),
        }
        Ok(None)
    }

    fn append(&mut self, records: &[u8], is_behind: bool) -> Result<()> {
        (self.is_in_round, self.is_ahead) = (true, true);
        self.progress.tally().add(records);
        self.sink.append_packed(records, is_behind)
    }

    fn checkpoint(&mut self) -> Result<()> {
        (self.is_ahead, self.checkpoint) = (false, Instant::now());
        self.sink.checkpoint()?;
        self.progress.written_bytes.store(self.sink.written_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Continues in another file.
    fn go_on(&mut self, Next { sink, account, closed }: Next) {
        (self.has_rounds, self.is_in_round, self.is_ahead) = (false, false, false);
        self.progress.written_bytes.store(sink.written_bytes(), Ordering::Relaxed);
        let sink = std::mem::replace(&mut self.sink, sink);
        let mut tally = self.progress.tally();
        let next = tally.successor();
        let tally = std::mem::replace(&mut *tally, next);
        // Sending fails only if the recording is abandoned.
        drop(closed.send(Closed { sink, tally, account }));
    }
}
