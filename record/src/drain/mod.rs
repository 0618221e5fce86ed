//! The drain thread: copies records from the rings into buffers for the output thread, and does nothing else.
//!
//! The drain reads no `/proc`, calls no `bpf(2)`, writes to no disk and waits for no other thread. If the output has no
//! free buffer, the records stay in the rings.

mod code;
mod file_ids;
mod ring;
mod rings;

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use code::CodeRings;
use file_ids::FileIds;
#[cfg(test)]
pub(crate) use ring::Ring;
use ring::Unread;
pub(crate) use rings::{CpuRings, Rings};

use crate::output::{DrainAccount, Message, Next, Queue};
use crate::sys::{self, Waker};
use crate::{Error, Result};

/// The longest time between two passes over the rings.
const DRAIN_EVERY: Duration = Duration::from_millis(200);

/// Handle of the drain thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Drain {
    requests: DrainRequests,
    thread: Option<JoinHandle<(DrainAccount, Result<()>)>>,
}

/// Sends requests to the drain.
#[derive(Debug, Clone)]
pub(crate) struct DrainRequests {
    sender: SyncSender<(Request, SyncSender<()>)>,
    waker: Waker,
}

/// Request to the drain.
#[derive(Debug)]
enum Request {
    /// End the round, and also the file if another file follows. Answered when the round is on its way to the output.
    EndRound(Option<Box<Next>>),
    /// Read the rings of a CPU from now on, instead of the rings that the CPU had before.
    Add(CpuRings),
    /// End the file and the thread.
    End,
}

/// State of the thread.
struct Drainer {
    rings: Rings,
    queue: Queue,
    account: DrainAccount,
}

/// Copies bytes of the rings into buffers for the output.
struct Copies<'a> {
    queue: &'a Queue,
    account: &'a mut DrainAccount,
    /// True if everything in the rings has to be copied, even if many buffers wait already.
    is_due: bool,
    buffer: Vec<u8>,
}

impl Drain {
    /// Starts the thread. `waker` wakes the thread; the thread wakes `ended` when it ends.
    ///
    /// # Errors
    /// Fails if no thread can be created.
    pub(crate) fn start(rings: Rings, queue: Queue, waker: Waker, ended: Waker) -> Result<Drain> {
        let (sender, received) = sync_channel(1);
        let mut drainer = Drainer { rings, queue, account: DrainAccount::default() };
        let woken = waker.clone();
        let thread = sys::spawn("bprec-drain", move || {
            // Without the right to a higher priority, the drain runs at the normal priority.
            sys::become_favoured();
            let outcome = drainer.drain(&received, &woken);
            ended.wake();
            (drainer.account, outcome)
        })?;
        Ok(Drain { requests: DrainRequests { sender, waker }, thread: Some(thread) })
    }

    /// Ends a round. The round has all records that were sent so far, and all records in the rings. Counts that the
    /// caller reads afterwards are newer than every record of the round; readers that sort round by round rely on that.
    ///
    /// # Errors
    /// Fails if the output has ended, as [`Drain::switch`] does.
    pub(crate) fn end_round(&self) -> Result<()> {
        self.requests.request(Request::EndRound(None))
    }

    /// Writes everything that is sent from here on into another file. The current file ends after the records that were
    /// sent before and the records in the rings.
    pub(crate) fn switch(&self, next: Next) -> Result<()> {
        self.requests.request(Request::EndRound(Some(Box::new(next))))
    }

    /// Sender of requests, for sources that keep a copy of it.
    pub(crate) fn requests(&self) -> &DrainRequests {
        &self.requests
    }

    /// Sends everything in the rings and ends the thread. Returns the statistics of draining, and the result of the
    /// thread.
    ///
    /// # Errors
    /// Fails if the thread panicked.
    pub(crate) fn finish(&mut self) -> Result<(DrainAccount, Result<()>)> {
        // The request fails if the thread has ended already; `join` returns the error of the thread.
        drop(self.requests.request(Request::End));
        let failed = || Error::Other("bprec's thread that drains the ring buffers ended with a panic".to_owned());
        self.thread.take().ok_or_else(failed)?.join().map_err(|_| failed())
    }
}

impl DrainRequests {
    /// Makes the drain read these rings of a CPU, instead of the rings that the CPU had before.
    ///
    /// # Errors
    /// Fails if the output has ended.
    pub(crate) fn add(&self, rings: CpuRings) -> Result<()> {
        self.request(Request::Add(rings))
    }

    fn request(&self, request: Request) -> Result<()> {
        let (done, receive) = sync_channel(1);
        self.sender.send((request, done)).map_err(|_| Error::OutputEnded)?;
        self.waker.wake();
        receive.recv().map_err(|_| Error::OutputEnded)
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
    /// Drains until [`Request::End`].
    fn drain(&mut self, requests: &Receiver<(Request, SyncSender<()>)>, waker: &Waker) -> Result<()> {
        let mut last = Instant::now();
        loop {
            self.rings.wait(waker, (last + DRAIN_EVERY).saturating_duration_since(Instant::now()))?;
            waker.take();
            let now = Instant::now();
            self.account.wakeups += 1;
            self.account.longest_gap = self.account.longest_gap.max(now - std::mem::replace(&mut last, now));
            match requests.try_recv() {
                Ok((request, done)) => {
                    match request {
                        Request::EndRound(next) => self.end_round(next)?,
                        Request::Add(rings) => self.add(rings)?,
                        Request::End => return self.end_file(),
                    }
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

    /// Ends a round, and also the file if another file follows.
    fn end_round(&mut self, next: Option<Box<Next>>) -> Result<()> {
        let Some(mut next) = next else {
            self.copy_rings(true)?;
            return self.queue.push(Message::Round { is_asked_for: true });
        };
        self.end_file()?;
        next.account = std::mem::take(&mut self.account);
        self.queue.push(Message::Next(next))
    }

    /// Replaces the rings of a CPU after reading the last records of its old rings.
    fn add(&mut self, rings: CpuRings) -> Result<()> {
        self.copy_rings(true)?;
        let Some(mut before) = self.rings.replace(rings) else { return Ok(()) };
        let mut newest = Vec::new();
        self.account.add_overrun(before.take_newest(&mut newest)?);
        if newest.is_empty() { Ok(()) } else { self.queue.push(Message::Ring(newest)) }
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
        let has_all = rings.take_main(|unread, ids| copies.copy(unread, ids))?;
        copies.send()?;
        account.add_overrun(rings.take_code(queue)?);
        Ok(has_all)
    }
}

impl Copies<'_> {
    /// Copies the records of a ring; returns false if there is no buffer for them.
    fn copy(&mut self, unread: &Unread<'_>, ids: &FileIds) -> Result<bool> {
        if self.buffer.len() + unread.len() > self.buffer.capacity() {
            self.send()?;
            let Some(buffer) = self.queue.buffer(unread.len(), self.is_due) else { return Ok(false) };
            self.buffer = buffer;
        }
        self.account.add_overrun(unread.overrun_bytes);
        let start = self.buffer.len();
        self.buffer.extend_from_slice(unread.first);
        self.buffer.extend_from_slice(unread.second);
        ids.put_into(&mut self.buffer[start..]);
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
