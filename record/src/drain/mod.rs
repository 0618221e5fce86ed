//! The drain thread: copies records from the rings into buffers for the output thread, and does nothing else.
//!
//! The drain reads no `/proc`, calls no `bpf(2)`, writes to no disk and waits for no other thread. If the output has no
//! free buffer, the records stay in the rings.

mod code;
mod ring;
mod rings;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use code::CodeRings;
#[cfg(test)]
pub(crate) use ring::Ring;
use ring::Unread;
pub(crate) use rings::Rings;

use crate::events::OpenEvents;
use crate::output::{DrainAccount, Message, Next, Queue};
use crate::sys::{self, Waker};
use crate::{Error, Result};

/// The longest time that records stay in the rings.
const DRAIN_EVERY: Duration = Duration::from_millis(200);

/// Handle of the drain thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Drain {
    requests: Option<SyncSender<Request>>,
    waker: Waker,
    thread: Option<JoinHandle<(DrainAccount, Result<()>)>>,
}

/// Request to end a round. `done` is answered when the round is on its way to the output.
#[derive(Debug)]
struct Request {
    /// The next file, if the round also ends the current file.
    next: Option<Box<Next>>,
    done: SyncSender<()>,
}

/// State of the thread.
struct Drainer {
    opened: Arc<OpenEvents>,
    rings: Rings,
    queue: Queue,
    account: DrainAccount,
}

/// Copies bytes of the rings into buffers for the output.
struct Copies<'a> {
    queue: &'a Queue,
    account: &'a mut DrainAccount,
    /// Everything in the rings has to be copied, even if many buffers wait already.
    is_due: bool,
    buffer: Vec<u8>,
}

impl Drain {
    /// Starts the thread. `waker` wakes the thread; the thread wakes `ended` when it ends.
    ///
    /// # Errors
    /// Fails if no thread can be created.
    pub(crate) fn start(
        opened: Arc<OpenEvents>,
        rings: Rings,
        queue: Queue,
        waker: Waker,
        ended: Waker,
    ) -> Result<Drain> {
        let (requests, received) = sync_channel(1);
        let mut drainer = Drainer { opened, rings, queue, account: DrainAccount::default() };
        let woken = waker.clone();
        let thread = sys::spawn("bprec-drain", move || {
            // Without the right to a higher priority, the drain runs at the normal priority.
            sys::become_favoured();
            let outcome = drainer.drain(&received, &woken);
            ended.wake();
            (drainer.account, outcome)
        })?;
        Ok(Drain { requests: Some(requests), waker, thread: Some(thread) })
    }

    /// Ends a round after the records that were sent and the records in the rings. Counts that the caller reads
    /// afterwards are newer than every record of the round; readers that sort round by round rely on that.
    ///
    /// # Errors
    /// Fails if the output has ended, as [`Drain::switch`] does.
    pub(crate) fn end_round(&self) -> Result<()> {
        self.request(None)
    }

    /// Writes everything that is sent from here on into another file. The current file ends after the records that were
    /// sent before and the records in the rings.
    pub(crate) fn switch(&self, next: Next) -> Result<()> {
        self.request(Some(Box::new(next)))
    }

    fn request(&self, next: Option<Box<Next>>) -> Result<()> {
        let (done, receive) = sync_channel(1);
        let requests = self.requests.as_ref().ok_or(Error::OutputEnded)?;
        requests.send(Request { next, done }).map_err(|_| Error::OutputEnded)?;
        self.waker.wake();
        receive.recv().map_err(|_| Error::OutputEnded)
    }

    /// Sends everything in the rings and ends the thread. Also returns the error of the thread, if there was one.
    ///
    /// # Errors
    /// Fails if the thread panicked.
    pub(crate) fn finish(&mut self) -> Result<(DrainAccount, Result<()>)> {
        self.requests = None;
        self.waker.wake();
        let failed = || Error::Other("the thread that drains the rings failed".to_owned());
        self.thread.take().ok_or_else(failed)?.join().map_err(|_| failed())
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if self.thread.is_some() {
            drop(self.finish());
        }
    }
}

impl Drainer {
    /// Drains until the sender of requests is dropped.
    fn drain(&mut self, requests: &Receiver<Request>, waker: &Waker) -> Result<()> {
        let writers_of_rings = self.rings.writers(&self.opened);
        let mut writers: Vec<_> = writers_of_rings.iter().map(|writers| writers.iter()).collect();
        let mut fds = vec![sys::poll_in(waker)];
        fds.extend(writers.iter_mut().map(|writers| writers.next().map_or(sys::poll_in(waker), sys::poll_in)));
        let mut last = Instant::now();
        loop {
            let wait = (last + DRAIN_EVERY).saturating_duration_since(Instant::now());
            sys::poll(&mut fds, Some(wait)).map_err(|answer| Error::Syscall {
                call: "poll",
                object: "rings".to_owned(),
                answer,
                remedy: String::new(),
            })?;
            // The task has ended or the CPU went offline. From here on the next event that writes to the same ring is
            // polled.
            for (fd, writers) in fds[1..].iter_mut().zip(&mut writers).filter(|(fd, _)| sys::is_hung_up(fd)) {
                *fd = writers.next().map_or(sys::poll_in(waker), sys::poll_in);
            }
            waker.take();
            let now = Instant::now();
            self.account.wakeups += 1;
            self.account.longest_gap = self.account.longest_gap.max(now - std::mem::replace(&mut last, now));
            match requests.try_recv() {
                Ok(Request { next, done }) => {
                    self.end_round(next)?;
                    // The requester may be gone if the recording is being given up.
                    let _ = done.send(());
                }
                // Records left in a ring also belong to this round, so the round ends only when all rings were read.
                Err(TryRecvError::Empty) if self.copy_rings(false)? => self.queue.end_pass()?,
                Err(TryRecvError::Empty) => (),
                Err(TryRecvError::Disconnected) => return self.end_file(),
            }
        }
    }

    /// Ends a round, and also the file if another one follows.
    fn end_round(&mut self, next: Option<Box<Next>>) -> Result<()> {
        let Some(mut next) = next else {
            self.copy_rings(true)?;
            return self.queue.push(Message::Round { is_asked_for: true });
        };
        self.end_file()?;
        next.account = std::mem::take(&mut self.account);
        self.queue.push(Message::Next(next))
    }

    /// Adds the last records of a file: the samples of overwritten rings, and the side-band records of the same time.
    fn end_file(&mut self) -> Result<()> {
        let mut newest = Vec::new();
        let passed_over_bytes = self.rings.take_newest(&mut newest)?;
        self.account.add_overrun(passed_over_bytes);
        self.queue.push(Message::Ring(newest))?;
        self.copy_rings(true)?;
        self.queue.push(Message::Round { is_asked_for: true })
    }

    /// Copies the records in the rings. Returns false if there was no buffer for the rest, which can happen only if
    /// `is_due` is false.
    fn copy_rings(&mut self, is_due: bool) -> Result<bool> {
        let Drainer { rings, queue, account, .. } = self;
        let mut copies = Copies { queue, account, is_due, buffer: Vec::new() };
        let has_all = rings.take_main(|unread| copies.copy(unread))?;
        copies.send()?;
        account.add_overrun(rings.take_code(queue)?);
        Ok(has_all)
    }
}

impl Copies<'_> {
    /// Copies the records of a ring; returns false if there is no buffer for them.
    fn copy(&mut self, unread: &Unread<'_>) -> Result<bool> {
        if self.buffer.len() + unread.len() > self.buffer.capacity() {
            self.send()?;
            let Some(buffer) = self.queue.buffer(unread.len(), self.is_due) else { return Ok(false) };
            self.buffer = buffer;
        }
        self.account.add_overrun(unread.overrun_bytes);
        self.buffer.extend_from_slice(unread.first);
        self.buffer.extend_from_slice(unread.second);
        Ok(true)
    }

    /// Sends the copied records.
    fn send(&mut self) -> Result<()> {
        match self.buffer.is_empty() {
            true => Ok(()),
            false => self.queue.push(Message::Ring(std::mem::take(&mut self.buffer))),
        }
    }
}
