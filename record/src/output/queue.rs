//! The one way to the output thread: what the rings had and what the sources say, in one order.
//!
//! Memory is bounded on both sides. Bytes of rings wait in pooled buffers: where a disk is slow the pool is empty, the rings fill, and the
//! kernel counts what it drops. A source whose messages are too many waits. The drain never does.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::state_writer::stamp;
use super::thread::Next;
use crate::sys::{self, Waker};
use crate::{Error, Result};

/// Bytes of a buffer; one for a ring that holds more is larger.
const BUFFER_BYTES: usize = 128 << 10;
/// Bytes of all buffers that wait.
const POOL_BYTES: usize = 16 << 20;
/// Buffers that are kept for the next ones.
const FREE_MAX: usize = 8;
/// With more bytes than this waiting, compression is behind.
const BEHIND_BYTES: usize = POOL_BYTES / 4;
/// Messages of sources that may wait; with more whoever sends waits.
const MESSAGES_MAX: usize = 64;

/// Message to the output thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// Whole records of rings, in a buffer of the pool.
    Ring(Vec<u8>),
    /// Whole records.
    Records(Vec<u8>),
    /// Whole records for the reader of the container: they are not compressed.
    Plain(Vec<u8>),
    /// Samples of `bprec:state`, which get their time when they are sent.
    States(Vec<u8>),
    /// Frames of the journal.
    Journal(Vec<u8>),
    /// All that was there before has been sent: from here on a FINISHED_ROUND follows each pass over the rings that found
    /// something. A reader sorts what lies between two of them by time, and would take what was there before for late.
    BeginRounds,
    /// All rings were read. A FINISHED_ROUND follows in any case if that was asked for.
    Round { is_asked_for: bool },
    /// The file ends here, and another one begins. Rounds begin anew there.
    Next(Box<Next>),
}

/// Statistics of draining.
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
    /// Message about what could not be read; None if everything could.
    pub(crate) fn loss(&self) -> Option<String> {
        let bytes = self.overrun_bytes;
        (bytes > 0).then(|| format!("{bytes} bytes in the rings could not be read as records and are lost"))
    }

    pub(crate) fn add_overrun(&mut self, bytes: u64) {
        self.overrun_bytes = self.overrun_bytes.saturating_add(bytes);
    }
}

/// The end of the queue for whoever sends.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    shared: Arc<SharedQueue>,
}

/// The end of the queue for the output thread. Dropped, it ends the sending.
#[derive(Debug)]
pub(super) struct Received {
    shared: Arc<SharedQueue>,
}

#[derive(Debug)]
struct SharedQueue {
    state: Mutex<QueueState>,
    /// A message came.
    sent: Condvar,
    /// A message of a source was taken.
    taken: Condvar,
    /// Wakes the drain when it found no buffer and there is one again.
    drain: Waker,
}

#[derive(Debug, Default)]
struct QueueState {
    /// With whether a source has sent it.
    messages: VecDeque<(Message, bool)>,
    /// Messages of sources among them.
    of_sources: usize,
    /// Bytes of buffers that wait or are being written.
    pooled_bytes: usize,
    free: Vec<Vec<u8>>,
    /// The drain found no buffer.
    is_short: bool,
    /// Something came since the last round ended.
    has_news: bool,
    /// True if the senders are gone.
    is_closed: bool,
    /// True if the receiver is gone.
    has_ended: bool,
}

/// A queue; `drain` is woken when it found no buffer and there is one again.
pub(super) fn queue(drain: Waker) -> (Queue, Received) {
    let (state, sent, taken) = (Mutex::default(), Condvar::new(), Condvar::new());
    let shared = Arc::new(SharedQueue { state, sent, taken, drain });
    (Queue { shared: Arc::clone(&shared) }, Received { shared })
}

impl Message {
    /// Bytes of a buffer of the pool.
    fn pooled_bytes(&self) -> usize {
        match self {
            Message::Ring(buffer) => buffer.capacity(),
            _ => 0,
        }
    }
}

impl Queue {
    /// Sends a message of a source. Waits while too many of them wait.
    ///
    /// # Errors
    /// When the output has ended.
    pub(crate) fn send(&self, message: Message) -> Result<()> {
        let is_full = |state: &mut QueueState| state.of_sources >= MESSAGES_MAX && !state.has_ended;
        let waited = self.shared.taken.wait_while(self.shared.state(), is_full);
        self.put(waited.unwrap_or_else(PoisonError::into_inner), message, true)
    }

    /// Sends a message of those who read rings, and never wait.
    ///
    /// # Errors
    /// When the output has ended.
    pub(crate) fn push(&self, message: Message) -> Result<()> {
        self.put(self.shared.state(), message, false)
    }

    /// Ends a round, if there is anything in it.
    ///
    /// # Errors
    /// When the output has ended.
    pub(crate) fn end_pass(&self) -> Result<()> {
        let state = self.shared.state();
        if state.has_news { self.put(state, Message::Round { is_asked_for: false }, false) } else { Ok(()) }
    }

    /// An empty buffer for so many bytes. `None` while too many wait, unless it `is_due` all the same; the drain is woken later then.
    pub(crate) fn buffer(&self, bytes: usize, is_due: bool) -> Option<Vec<u8>> {
        let bytes = bytes.max(BUFFER_BYTES);
        let mut state = self.shared.state();
        // A ring that is larger than the pool has it alone.
        if state.pooled_bytes > 0 && state.pooled_bytes + bytes > POOL_BYTES && !is_due {
            state.is_short = true;
            return None;
        }
        let free = state.free.pop();
        drop(state);
        let mut buffer = free.unwrap_or_default();
        buffer.reserve_exact(bytes);
        Some(buffer)
    }

    /// Says that nobody sends any more.
    pub(super) fn close(&self) {
        self.shared.state().is_closed = true;
        self.shared.sent.notify_one();
    }

    fn put(&self, mut state: MutexGuard<'_, QueueState>, mut message: Message, is_of_source: bool) -> Result<()> {
        if state.has_ended {
            return Err(Error::OutputEnded);
        }
        // Here, so that no round is behind it that ended before: a reader would take it for late.
        if let Message::States(states) = &mut message {
            stamp(states, sys::monotonic_ns());
        }
        state.has_news = !matches!(message, Message::Round { .. });
        state.pooled_bytes += message.pooled_bytes();
        state.of_sources += usize::from(is_of_source);
        state.messages.push_back((message, is_of_source));
        drop(state);
        self.shared.sent.notify_one();
        Ok(())
    }
}

impl Received {
    /// The next message, with whether compression is behind; waits for it. `None` when nobody sends any more.
    pub(super) fn next(&self) -> Option<(Message, bool)> {
        let is_idle = |state: &mut QueueState| state.messages.is_empty() && !state.is_closed;
        let waited = self.shared.sent.wait_while(self.shared.state(), is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let (message, is_of_source) = state.messages.pop_front()?;
        let is_behind = state.pooled_bytes > BEHIND_BYTES;
        state.of_sources -= usize::from(is_of_source);
        drop(state);
        if is_of_source {
            self.shared.taken.notify_one();
        }
        Some((message, is_behind))
    }

    /// Gives a buffer back to the pool.
    pub(super) fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut state = self.shared.state();
        state.pooled_bytes = state.pooled_bytes.saturating_sub(buffer.capacity());
        if std::mem::take(&mut state.is_short) {
            self.shared.drain.wake();
        }
        if buffer.capacity() <= BUFFER_BYTES && state.free.len() < FREE_MAX {
            state.free.push(buffer);
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.has_ended = true;
        let left = std::mem::take(&mut state.messages);
        drop(state);
        // Messages left over are dropped: their senders get no answer.
        drop(left);
        self.shared.taken.notify_all();
    }
}

impl SharedQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        // It is whole at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;

    use super::*;

    #[test]
    fn rings_get_no_more_buffers_than_the_pool_has_and_the_drain_is_told_of_one() {
        let drain = Waker::new().unwrap();
        let (queue, received) = queue(drain.clone());
        let mut waiting = 0;
        while let Some(mut buffer) = queue.buffer(100, false) {
            buffer.push(1);
            queue.push(Message::Ring(buffer)).unwrap();
            waiting += 1;
        }
        assert_eq!(waiting, POOL_BYTES / BUFFER_BYTES);
        assert!(!drain.take(), "nothing came back yet");
        // The end of a round is never left behind.
        assert!(queue.buffer(100, true).is_some());
        let Some((Message::Ring(buffer), true)) = received.next() else { panic!("compression is behind") };
        received.give_back(buffer);
        assert!(drain.take());
        assert!(queue.buffer(100, false).is_some_and(|buffer| buffer.is_empty() && buffer.capacity() == BUFFER_BYTES));
    }

    #[test]
    fn a_ring_that_is_larger_than_the_pool_is_taken_when_nothing_waits() {
        let (queue, received) = queue(Waker::new().unwrap());
        let mut large = queue.buffer(2 * POOL_BYTES, false).unwrap();
        large.push(1);
        queue.push(Message::Ring(large)).unwrap();
        assert!(queue.buffer(1, false).is_none());
        let Some((Message::Ring(large), _)) = received.next() else { panic!() };
        received.give_back(large);
        assert_eq!(queue.buffer(1, false).unwrap().capacity(), BUFFER_BYTES, "its memory is given back");
    }

    #[test]
    fn a_source_waits_while_much_waits_and_the_drain_does_not() {
        let (queue, received) = queue(Waker::new().unwrap());
        for _ in 0..MESSAGES_MAX {
            queue.send(Message::Records(Vec::new())).unwrap();
        }
        queue.push(Message::Plain(Vec::new())).unwrap();
        let (done, is_done) = channel();
        let sender = queue.clone();
        let source = thread::spawn(move || {
            let sent = sender.send(Message::Records(Vec::new())).is_ok();
            done.send(sent).unwrap();
        });
        assert_eq!(is_done.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
        received.next().unwrap();
        assert!(is_done.recv().unwrap());
        source.join().unwrap();
        // Everything that was sent comes, in its order, and then the end.
        queue.close();
        let left: Vec<Message> = std::iter::from_fn(|| received.next()).map(|(message, _)| message).collect();
        assert_eq!(left.len(), MESSAGES_MAX + 1);
        assert!(matches!(left[MESSAGES_MAX - 1], Message::Plain(_)));
    }

    #[test]
    fn who_waits_is_told_that_the_output_has_ended() {
        let (queue, received) = queue(Waker::new().unwrap());
        for _ in 0..MESSAGES_MAX {
            queue.send(Message::Records(Vec::new())).unwrap();
        }
        let sender = queue.clone();
        let source = thread::spawn(move || sender.send(Message::Records(Vec::new())).is_err());
        drop(received);
        assert!(source.join().unwrap());
        assert!(queue.push(Message::Round { is_asked_for: true }).is_err());
    }

    #[test]
    fn a_pass_that_found_nothing_ends_no_round() {
        let (queue, received) = queue(Waker::new().unwrap());
        queue.end_pass().unwrap();
        queue.push(Message::Records(Vec::new())).unwrap();
        queue.end_pass().unwrap();
        queue.end_pass().unwrap();
        queue.close();
        let kinds: Vec<bool> = std::iter::from_fn(|| received.next())
            .map(|(message, _)| matches!(message, Message::Round { is_asked_for: false }))
            .collect();
        assert_eq!(kinds, [false, true]);
    }
}
