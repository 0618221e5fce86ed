//! The drain thread: what the kernel writes into the rings goes to the output, and nothing else happens here.
//!
//! It owns rings and output. It reads no `/proc`, calls no `bpf(2)`, and allocates nothing that grows with the machine: the
//! bytes of a ring are written from its mapping. What the control thread has for the file arrives encoded, over a bounded
//! channel. When that is full the control thread waits, never this one.

mod ring;
mod rings;
mod trailer;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bprec_format::SampleLayout;

pub(crate) use ring::Ring;
pub(crate) use rings::Rings;
pub(crate) use trailer::fix_sample_id_trailer;
use writer::Writer;

use crate::events::OpenEvents;
use crate::output::{Sink, Tally, stamp};
use crate::sys::{self, Waker};
use crate::{Error, Result};

/// The longest time that what the kernel wrote stays in the rings.
const DRAIN_EVERY: Duration = Duration::from_millis(200);
/// Messages that may wait here; with more the control thread waits.
const MESSAGES_MAX: usize = 64;

/// What the control thread has for the file, or for the drain.
#[derive(Debug)]
pub(crate) enum Message {
    /// Whole records, written as they are.
    Records(Vec<u8>),
    /// The same, for the reader of the container: they are not compressed.
    Plain(Vec<u8>),
    /// Samples of `bprec:state`, which get their time when they are written.
    States(Vec<u8>),
    /// Frames of the journal.
    Journal(Vec<u8>),
    /// All that was there before has been sent: from here on a FINISHED_ROUND follows each pass over the rings that found
    /// something. A reader sorts what lies between two of them by time, and would take what was there before for late.
    BeginRounds,
    /// A FINISHED_ROUND follows the pass that takes this, which is then told.
    EndRound(SyncSender<()>),
    /// The file ends here, and another one begins. Rounds begin anew there.
    Switch(Box<Successor>),
}

/// The file that follows, and who is waiting for the one before it.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) sink: Sink,
    pub(crate) closed: SyncSender<Closed>,
}

/// A file that nothing is recorded into any more.
#[derive(Debug)]
pub(crate) struct Closed {
    /// The output, to be completed.
    pub(crate) sink: Sink,
    /// Counts of what passed by, in a stream; a file is followed (`output::Follower`).
    pub(crate) tally: Option<Tally>,
    /// How draining into it went.
    pub(crate) account: DrainAccount,
}

/// The thread, and the way to it. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Drain {
    messages: Option<SyncSender<Message>>,
    waker: Waker,
    ended: Waker,
    written_bytes: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<Drained>>>,
}

/// What the thread leaves behind.
#[derive(Debug)]
pub(crate) struct Drained {
    /// The last output.
    pub(crate) last: Closed,
    /// What ended it before its time.
    pub(crate) outcome: Result<()>,
}

/// How draining went.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DrainAccount {
    /// Passes over the rings.
    pub(crate) wakeups: u64,
    /// The longest time between two of them.
    pub(crate) longest_gap: Duration,
    /// Bytes in rings that were overwritten before they could be read, or are no records.
    pub(crate) overrun_bytes: u64,
}

impl DrainAccount {
    /// What could not be read, in words; None when that is nothing.
    pub(crate) fn loss(&self) -> Option<String> {
        let bytes = self.overrun_bytes;
        (bytes > 0).then(|| format!("{bytes} bytes in the rings could not be read as records and are lost"))
    }

    fn add_overrun(&mut self, bytes: u64) {
        self.overrun_bytes = self.overrun_bytes.saturating_add(bytes);
    }
}

/// What the thread works with.
struct Drainer {
    opened: Arc<OpenEvents>,
    rings: Rings,
    writer: Writer,
    /// Of a stream, which cannot be read back.
    tally: Option<Tally>,
    account: DrainAccount,
    has_rounds: bool,
    /// Bytes that were appended at the last checkpoint.
    checkpoint_bytes: u64,
    /// One is to follow this pass, for whom waits there.
    round_ends: Option<SyncSender<()>>,
    /// Of every event's records but samples.
    trailer_bytes: usize,
    buffer: Vec<u8>,
}

impl Drain {
    /// Starts to drain.
    ///
    /// # Errors
    /// When there can be no more threads or descriptors.
    pub(crate) fn start(
        opened: Arc<OpenEvents>,
        rings: Rings,
        sink: Sink,
        tally: Option<Tally>,
        layout: &SampleLayout,
    ) -> Result<Drain> {
        let (waker, ended) = (Waker::new()?, Waker::new()?);
        let (messages, received) = sync_channel(MESSAGES_MAX);
        let written_bytes = Arc::new(AtomicU64::new(0));
        let drainer = Drainer {
            opened,
            rings,
            writer: Writer::new(sink, Arc::clone(&written_bytes))?,
            tally,
            account: DrainAccount::default(),
            has_rounds: false,
            checkpoint_bytes: 0,
            round_ends: None,
            trailer_bytes: layout.trailer_bytes(),
            buffer: Vec::new(),
        };
        let (woken, at_end) = (waker.clone(), ended.clone());
        let thread = thread::Builder::new()
            .name("bprec-drain".to_owned())
            .spawn(move || {
                let drained = drainer.run(&received, &woken);
                at_end.wake();
                drained
            })
            .map_err(|answer| Error::Other(format!("cannot start a thread: {answer}")))?;
        Ok(Drain { messages: Some(messages), waker, ended, written_bytes, thread: Some(thread) })
    }

    /// Sends something. Waits while the drain has too much to do.
    ///
    /// # Errors
    /// When the drain has ended: [`Drain::finish`] tells why.
    pub(crate) fn send(&self, message: Message) -> Result<()> {
        let ended = || Error::Other("the output has ended".to_owned());
        let messages = self.messages.as_ref().ok_or_else(ended)?;
        match messages.try_send(message) {
            // What is sent is written with the next pass, which is never far.
            Ok(()) => Ok(()),
            Err(TrySendError::Full(message)) => {
                self.waker.wake();
                messages.send(message).map_err(|_| ended())
            }
            Err(TrySendError::Disconnected(_)) => Err(ended()),
        }
    }

    /// Readable when the thread has ended by itself, which is an error.
    pub(crate) fn ended(&self) -> &Waker {
        &self.ended
    }

    /// Ends a round behind what was sent and what is in the rings, and waits until that is done: what the caller counts from
    /// then on is newer than everything in that round, as a reader that sorts round by round takes for granted.
    ///
    /// # Errors
    /// When the drain has ended: [`Drain::finish`] tells why.
    pub(crate) fn end_round(&self) -> Result<()> {
        let (ended, receive) = sync_channel(1);
        self.send(Message::EndRound(ended))?;
        self.waker.wake();
        receive.recv().map_err(|_| Error::Other("the output has ended".to_owned()))
    }

    /// Bytes of the file as of the last pass.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Has what was sent from here on written into another file. Returns the one before it, which ends behind what was sent
    /// before and what was in the rings then.
    ///
    /// # Errors
    /// When the drain has ended: [`Drain::finish`] tells why.
    pub(crate) fn switch(&self, sink: Sink) -> Result<Closed> {
        let (closed, receive) = sync_channel(1);
        self.send(Message::Switch(Box::new(Successor { sink, closed })))?;
        self.waker.wake();
        receive.recv().map_err(|_| Error::Other("the output has ended".to_owned()))
    }

    /// Has everything written that is in the rings or was sent, and ends the thread.
    ///
    /// # Errors
    /// When the thread has failed in a way that left nothing behind.
    pub(crate) fn finish(&mut self) -> Result<Drained> {
        self.messages = None;
        self.waker.wake();
        let thread = self.thread.take().ok_or_else(|| Error::Other("draining has ended already".to_owned()))?;
        thread.join().map_err(|_| Error::Other("the thread that drains the rings failed".to_owned()))?
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
    fn run(mut self, messages: &Receiver<Message>, waker: &Waker) -> Result<Drained> {
        // Rights that are missing are no reason not to drain.
        sys::become_favoured();
        let outcome = self.drain(messages, waker);
        let Drainer { writer, tally, account, .. } = self;
        let (sink, written) = writer.finish()?;
        // What ended the output ended draining.
        Ok(Drained { last: Closed { sink, tally, account }, outcome: written.and(outcome) })
    }

    /// Drains until nobody sends any more.
    fn drain(&mut self, messages: &Receiver<Message>, waker: &Waker) -> Result<()> {
        let opened = Arc::clone(&self.opened);
        let owners: Vec<_> = self.rings.owners(&opened).collect();
        let mut fds = vec![sys::poll_in(waker)];
        fds.extend(owners.iter().map(sys::poll_in));
        let mut last = Instant::now();
        loop {
            let wait = (last + DRAIN_EVERY).saturating_duration_since(Instant::now());
            sys::poll(&mut fds, Some(wait)).map_err(|answer| Error::Syscall {
                call: "poll",
                object: "rings".to_owned(),
                answer,
                remedy: String::new(),
            })?;
            // Those of tasks that have ended, or of CPUs that are gone.
            fds.retain(|fd| !sys::is_hung_up(fd));
            waker.take();
            let now = Instant::now();
            self.account.wakeups += 1;
            self.account.longest_gap = self.account.longest_gap.max(now - std::mem::replace(&mut last, now));
            if !self.pass(messages)? {
                return self.end_file();
            }
        }
    }

    /// Everything in the rings, then what was sent. False when nobody will send any more.
    fn pass(&mut self, messages: &Receiver<Message>) -> Result<bool> {
        self.drain_rings()?;
        let mut is_open = true;
        loop {
            match messages.try_recv() {
                Ok(message) => self.take(message)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    is_open = false;
                    break;
                }
            }
        }
        if self.writer.appended_bytes() > self.checkpoint_bytes {
            if self.has_rounds || self.round_ends.is_some() {
                self.writer.finished_round()?;
            }
            self.writer.checkpoint()?;
            self.checkpoint_bytes = self.writer.appended_bytes();
        }
        // Nobody waits any more when the recording is being given up.
        if let Some(waiting) = self.round_ends.take() {
            let _ = waiting.send(());
        }
        Ok(is_open)
    }

    /// What a file still lacks when it ends: samples of rings that are overwritten, and what the side band has of their time.
    fn end_file(&mut self) -> Result<()> {
        let mut newest = Vec::new();
        let passed_over_bytes = self.rings.take_newest(&self.opened, &mut newest)?;
        self.account.add_overrun(passed_over_bytes);
        self.writer.append(newest)?;
        self.drain_rings()?;
        self.writer.finished_round()?;
        self.writer.checkpoint()
    }

    fn drain_rings(&mut self) -> Result<()> {
        let Drainer { rings, writer, tally, account, buffer, .. } = self;
        rings.take_main(|unread| {
            account.add_overrun(unread.overrun_bytes);
            writer.append_pieces(unread.first, unread.second)?;
            if let Some(tally) = tally {
                buffer.clear();
                buffer.extend_from_slice(unread.first);
                buffer.extend_from_slice(unread.second);
                tally.add(buffer);
            }
            Ok(())
        })?;
        buffer.clear();
        rings.take_code(|unread| {
            account.add_overrun(unread.overrun_bytes);
            buffer.extend_from_slice(unread.first);
            buffer.extend_from_slice(unread.second);
            Ok(())
        })?;
        if !buffer.is_empty() {
            fix_sample_id_trailer(buffer, self.trailer_bytes);
            writer.append_pieces(buffer, &[])?;
        }
        Ok(())
    }

    fn take(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Records(records) => {
                if let Some(tally) = &mut self.tally {
                    tally.add(&records);
                }
                self.writer.append(records)
            }
            Message::Plain(records) => self.writer.append_plain(records),
            Message::States(mut records) => {
                stamp(&mut records, sys::monotonic_ns());
                self.writer.append(records)
            }
            Message::Journal(frames) => self.writer.journal(frames),
            Message::BeginRounds => {
                self.has_rounds = true;
                Ok(())
            }
            Message::EndRound(waiting) => {
                self.round_ends = Some(waiting);
                Ok(())
            }
            Message::Switch(next) => {
                self.end_file()?;
                let Successor { sink, closed } = *next;
                (self.has_rounds, self.round_ends) = (false, None);
                self.checkpoint_bytes = 0;
                let tally = self.tally.take();
                let account = std::mem::take(&mut self.account);
                // Nobody waits any more when the recording is being given up.
                self.writer.switch(sink, move |sink| drop(closed.send(Closed { sink, tally, account })))
            }
        }
    }
}
