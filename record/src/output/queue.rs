//! The queue to the output thread: one order for the records of the rings and the messages of the sources.
//!
//! Memory is bounded for both. Records of rings wait in pooled buffers: if the disk is slow, the pool runs empty, the
//! rings fill up, and the kernel counts the records that it drops. A source waits if too many messages are queued. The
//! drain never waits.

use std::collections::VecDeque;
#[cfg(not(feature = "schedules"))]
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(feature = "schedules")]
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::state_writer::stamp;
use super::thread::Next;
use crate::sys::{self, Waker};
use crate::{Error, Result};

/// Bytes of a pooled buffer. A buffer for a ring with more data is larger.
const BUFFER_BYTES: usize = 128 << 10;
/// Limit on the bytes of all buffers that wait for the output.
const POOL_BYTES: usize = 16 << 20;
/// Number of free buffers that are kept for reuse.
const FREE_MAX: usize = 8;
/// Limit on the bytes that wait. Above it compression counts as behind, and records are written uncompressed.
const BEHIND_BYTES: usize = POOL_BYTES / 4;
/// Limit on queued messages of sources. At the limit, the next sender waits.
const MESSAGES_MAX: usize = 64;

/// Message to the output thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// Whole records of rings, in a pooled buffer.
    Ring(Vec<u8>),
    /// Whole records from a source, compressed if compression is on.
    Records(Vec<u8>),
    /// Whole records that carry event names, formats of tracepoints or feature sections in a stream; never compressed.
    Plain(Vec<u8>),
    /// Samples of `bprec:state`, which get their time when they are sent.
    States(Vec<u8>),
    /// Frames of the journal.
    Journal(Vec<u8>),
    /// All records about the time before the recording have been sent. From here on a FINISHED_ROUND record follows
    /// each pass over the rings that found records. Readers sort the records of each round by time, so records about
    /// the time before the recording must not follow the end of a round.
    BeginRounds,
    /// All rings were read. FINISHED_ROUND follows if `is_asked_for`; otherwise only after `BeginRounds`, and if the round has
    /// records.
    Round { is_asked_for: bool },
    /// The file ends here, and another file begins. Its rounds begin at its own `BeginRounds`.
    Next(Box<Next>),
}

/// Statistics of draining.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DrainAccount {
    /// Number of passes over the rings.
    pub(crate) wakeups: u64,
    /// The longest time between two passes.
    pub(crate) longest_gap: Duration,
    /// Bytes in rings that were overwritten before the recorder read them, or that are not records.
    pub(crate) overrun_bytes: u64,
}

impl DrainAccount {
    /// Message about bytes that could not be read; `None` if all could be read.
    pub(crate) fn loss(&self) -> Option<String> {
        let bytes = self.overrun_bytes;
        (bytes > 0)
            .then(|| format!("{bytes} bytes in the ring buffers are lost, because they could not be read as records"))
    }

    pub(crate) fn add_overrun(&mut self, bytes: u64) {
        self.overrun_bytes = self.overrun_bytes.saturating_add(bytes);
    }
}

/// Sending end of the queue.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    shared: Arc<SharedQueue>,
}

/// Receiving end of the queue, for the output thread. After it is dropped, sending fails.
#[derive(Debug)]
pub(super) struct Received {
    shared: Arc<SharedQueue>,
}

#[derive(Debug)]
struct SharedQueue {
    state: Mutex<QueueState>,
    /// Notified when a message was sent.
    sent: Condvar,
    /// Notified when a message of a source was received.
    taken: Condvar,
    /// Waker of the drain: used when a buffer becomes free after the drain asked for a buffer and got none.
    drain: Waker,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Messages; the flag is true if a source sent the message.
    messages: VecDeque<(Message, bool)>,
    /// Number of queued messages from sources.
    of_sources: usize,
    /// Bytes of pooled buffers that wait or are being written.
    pooled_bytes: usize,
    free: Vec<Vec<u8>>,
    /// True if the drain asked for a buffer and got none.
    is_short: bool,
    /// True if a message was sent since the last round ended.
    has_news: bool,
    /// True if all messages were sent.
    is_closed: bool,
    /// True if the receiver was dropped.
    has_ended: bool,
}

/// Creates a queue. `drain` is woken when a buffer becomes free after the drain asked for a buffer and got none.
pub(super) fn queue(drain: Waker) -> (Queue, Received) {
    let (state, sent, taken) = (Mutex::default(), Condvar::new(), Condvar::new());
    let shared = Arc::new(SharedQueue { state, sent, taken, drain });
    (Queue { shared: Arc::clone(&shared) }, Received { shared })
}

impl Message {
    /// Bytes of the pooled buffer in the message, or 0.
    fn pooled_bytes(&self) -> usize {
        match self {
            Message::Ring(buffer) => buffer.capacity(),
            _ => 0,
        }
    }
}

impl Queue {
    /// Sends a message of a source. Waits while too many messages of sources are queued.
    ///
    /// # Errors
    /// Fails if the output has ended.
    pub(crate) fn send(&self, message: Message) -> Result<()> {
        let is_full = |state: &mut QueueState| state.of_sources >= MESSAGES_MAX && !state.has_ended;
        let waited = self.shared.taken.wait_while(self.shared.state(), is_full);
        self.put(waited.unwrap_or_else(PoisonError::into_inner), message, true)
    }

    /// Sends a message of a thread that reads rings. Never waits.
    ///
    /// # Errors
    /// Fails if the output has ended.
    pub(crate) fn push(&self, message: Message) -> Result<()> {
        self.put(self.shared.state(), message, false)
    }

    /// Ends a round if a message was sent since the last round ended.
    ///
    /// # Errors
    /// Fails if the output has ended.
    pub(crate) fn end_pass(&self) -> Result<()> {
        let state = self.shared.state();
        if state.has_news { self.put(state, Message::Round { is_asked_for: false }, false) } else { Ok(()) }
    }

    /// Returns an empty buffer for `bytes`. Returns `None` if too many bytes wait and `is_due` is false; the drain is
    /// woken when a buffer is free again.
    pub(crate) fn buffer(&self, bytes: usize, is_due: bool) -> Option<Vec<u8>> {
        let bytes = bytes.max(BUFFER_BYTES);
        let mut state = self.shared.state();
        // A buffer larger than the pool is granted if no other buffer waits.
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

    /// Ends the sending: the receiver gets the queued messages and then the end.
    pub(super) fn close(&self) {
        self.shared.state().is_closed = true;
        self.shared.sent.notify_one();
    }

    fn put(&self, mut state: MutexGuard<'_, QueueState>, mut message: Message, is_of_source: bool) -> Result<()> {
        if state.has_ended {
            return Err(Error::OutputEnded);
        }
        // States get their time under the lock, in the order of the queue. Otherwise a round could end after the states got their time and before
        // they are sent, and readers would count the states as late records.
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
    /// Waits for the next message. Returns the message and true if compression is behind, or `None` after the last
    /// message.
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

    /// Returns a buffer to the pool.
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
        // Unread messages are dropped. Their reply channels close with them, which tells the senders that the output has ended.
        drop(left);
        self.shared.taken.notify_all();
    }
}

impl SharedQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        // A panic leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, feature = "schedules"))]
mod schedules;

#[cfg(all(test, not(feature = "schedules")))]
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
        assert!(!drain.take(), "no buffer was given back yet");
        // An overdue buffer is always granted, so that the round can end.
        assert!(queue.buffer(100, true).is_some());
        let Some((Message::Ring(buffer), true)) = received.next() else {
            panic!("expected a Ring message, and the report that compression is behind")
        };
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
        assert_eq!(
            queue.buffer(1, false).unwrap().capacity(),
            BUFFER_BYTES,
            "the memory of the large buffer was freed"
        );
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
        // All messages arrive in order, and then the end.
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
