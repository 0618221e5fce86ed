//! The output thread: tally, compress, write, checkpoint, in this order and for files and streams alike.
//!
//! It learns what it writes before that is compressed, so that nothing is read back. What it writes is on its way to the disk with each
//! checkpoint, which follows each pass over the rings, or, where the disk is slow, comes in time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::queue::{DrainAccount, Message, Queue, Received, queue};
use super::{Sink, Tally};
use crate::sys::{self, Waker};
use crate::{Error, Result};

/// The longest time between two checkpoints while there is something to write: longer than that between two passes over the rings.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(400);

/// The file that follows, and who is waiting for the one before it.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) sink: Sink,
    /// Statistics of draining into the file before.
    pub(crate) account: DrainAccount,
    pub(crate) closed: SyncSender<Closed>,
}

/// A file that nothing is recorded into any more.
#[derive(Debug)]
pub(crate) struct Closed {
    /// The output, to be completed.
    pub(crate) sink: Sink,
    /// Counts of what is in it.
    pub(crate) tally: Tally,
    /// Statistics of draining into it.
    pub(crate) account: DrainAccount,
}

/// The thread, and what it is known by. Dropped, it ends when it has written what was sent.
#[derive(Debug)]
pub(crate) struct OutputThread {
    queue: Queue,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<(Sink, Result<()>)>>,
}

/// Progress of the thread.
#[derive(Debug)]
struct Progress {
    /// Bytes of the file as of the last checkpoint.
    written_bytes: AtomicU64,
    /// Counts of what is in the file.
    tally: Mutex<Tally>,
}

/// State of the thread.
struct Writer {
    sink: Sink,
    progress: Arc<Progress>,
    has_rounds: bool,
    /// Something was written since the last round ended.
    is_in_round: bool,
    /// Something was written since the last checkpoint.
    is_ahead: bool,
    checkpoint: Instant,
}

impl OutputThread {
    /// Starts to write to `sink`. `drain` is woken when it found no buffer and there is one again, `ended` when the thread ends.
    ///
    /// # Errors
    /// When there can be no more threads.
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
            // Compressing takes time that others may need more; what waits too long for it is written as it is.
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

    /// The way to it.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Bytes of the file as of the last checkpoint.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.progress.written_bytes.load(Ordering::Relaxed)
    }

    /// Counts of what is in the file so far. The thread waits while they are looked at.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.progress.tally()
    }

    /// Has everything written that was sent, and ends the thread. Returns the last output, and what went wrong with it.
    ///
    /// # Errors
    /// When the thread has failed in a way that left nothing behind.
    pub(crate) fn finish(&mut self, account: DrainAccount) -> Result<(Closed, Result<()>)> {
        self.queue.close();
        let failed = || Error::Other("the thread that writes the recording failed".to_owned());
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
    /// Writes until nobody sends any more.
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

    /// Does what a message says; returns the buffer that is free then.
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

    /// Goes on in another file.
    fn go_on(&mut self, Next { sink, account, closed }: Next) {
        (self.has_rounds, self.is_in_round, self.is_ahead) = (false, false, false);
        self.progress.written_bytes.store(sink.written_bytes(), Ordering::Relaxed);
        let sink = std::mem::replace(&mut self.sink, sink);
        let mut tally = self.progress.tally();
        let next = tally.successor();
        let tally = std::mem::replace(&mut *tally, next);
        // Nobody waits any more when the recording is being given up.
        drop(closed.send(Closed { sink, tally, account }));
    }
}
