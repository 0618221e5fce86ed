//! The thread that compresses: it takes what the drain has read, in its order, and writes it.
//!
//! The drain hands over copies in buffers of which there are few, so that memory is bounded. Where compressing falls behind, what
//! waits is written as it is: the drain never waits for zstd, only for the output as it does without compression.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use super::Sink;
use super::compression::whole_records_bytes;
use crate::{Error, Result};

/// Bytes of a buffer.
const BUFFER_BYTES: usize = 512 << 10;
/// Buffers that there are.
const BUFFERS: usize = 32;
/// With more bytes than this waiting, records are written as they are.
const BEHIND_BYTES: usize = BUFFERS * BUFFER_BYTES / 4;
/// Orders that may wait.
const ORDERS_MAX: usize = 2 * BUFFERS;

/// The thread, and the way to it.
#[derive(Debug)]
pub(crate) struct Compressor {
    orders: SyncSender<Order>,
    /// Buffers that have been written.
    free: Receiver<Vec<u8>>,
    /// Buffers that have been made.
    made: usize,
    /// What the drain is filling.
    filling: Vec<u8>,
    waiting_bytes: Arc<AtomicUsize>,
    thread: JoinHandle<(Sink, Result<()>)>,
}

/// What is to be done with the output.
enum Order {
    /// Bytes of records, of which the first may be the rest of one and the last a part of one.
    Buffer(Vec<u8>),
    /// Whole records.
    Records(Vec<u8>),
    /// Whole records that are not compressed: they are for the reader of the container.
    Plain(Vec<u8>),
    /// Frames of the journal.
    Journal(Vec<u8>),
    FinishedRound,
    /// A checkpoint, whose bytes are put there.
    Checkpoint(Arc<AtomicU64>),
    /// The output is another one from here on; whoever wants it gets the one before it.
    Switch(Box<Sink>, Box<dyn FnOnce(Sink) + Send>),
}

impl Compressor {
    /// Starts to write to `sink`.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(crate) fn start(sink: Sink) -> Result<Compressor> {
        let (orders, received) = sync_channel(ORDERS_MAX);
        let (used, free) = channel();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&waiting_bytes);
        let thread = thread::Builder::new()
            .name("bprec-compress".to_owned())
            .spawn(move || {
                let mut worker = Worker { sink, waiting_bytes: waiting, pending: Vec::new() };
                let outcome = received.iter().try_for_each(|order| match worker.perform(order) {
                    // Nobody waits for buffers any more when the recording ends.
                    Ok(Some(buffer)) => {
                        let _ = used.send(buffer);
                        Ok(())
                    }
                    other => other.map(drop),
                });
                (worker.sink, outcome)
            })
            .map_err(|answer| Error::Other(format!("cannot start a thread: {answer}")))?;
        Ok(Compressor { orders, free, made: 0, filling: Vec::new(), waiting_bytes, thread })
    }

    /// Hands over bytes of a ring, of which a record may be in two pieces.
    ///
    /// # Errors
    /// When the thread has ended, with an error that [`Compressor::finish`] has; so for all of these.
    pub(crate) fn bytes(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.filling.capacity() == 0 {
                self.filling = self.buffer()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(BUFFER_BYTES - self.filling.len()));
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.filling.len() == BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Hands over whole records.
    pub(crate) fn records(&mut self, records: Vec<u8>) -> Result<()> {
        self.order(Order::Records(records))
    }

    /// Hands over whole records that are not to be compressed.
    pub(crate) fn plain(&mut self, records: Vec<u8>) -> Result<()> {
        self.order(Order::Plain(records))
    }

    /// Hands over frames of the journal.
    pub(crate) fn journal(&mut self, frames: Vec<u8>) -> Result<()> {
        self.order(Order::Journal(frames))
    }

    /// [`Sink::finished_round`].
    pub(crate) fn finished_round(&mut self) -> Result<()> {
        self.order(Order::FinishedRound)
    }

    /// [`Sink::checkpoint`]; `written_bytes` gets what has been written then.
    pub(crate) fn checkpoint(&mut self, written_bytes: &Arc<AtomicU64>) -> Result<()> {
        self.order(Order::Checkpoint(Arc::clone(written_bytes)))
    }

    /// Goes on in `sink`; `then` gets the one before it when that has all that was handed over.
    pub(crate) fn switch(&mut self, sink: Sink, then: Box<dyn FnOnce(Sink) + Send>) -> Result<()> {
        self.order(Order::Switch(Box::new(sink), then))
    }

    /// Has everything written that was handed over. The output, and what went wrong with it.
    ///
    /// # Errors
    /// When the thread has failed in a way that left nothing behind.
    pub(crate) fn finish(mut self) -> Result<(Sink, Result<()>)> {
        // What ended the thread is in what it leaves.
        let _ = self.flush();
        drop(self.orders);
        self.thread.join().map_err(|_| Error::Other("the thread that compresses failed".to_owned()))
    }

    fn order(&mut self, order: Order) -> Result<()> {
        self.flush()?;
        self.send(order)
    }

    fn flush(&mut self) -> Result<()> {
        if self.filling.is_empty() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.filling);
        self.send(Order::Buffer(buffer))
    }

    fn send(&self, order: Order) -> Result<()> {
        self.waiting_bytes.fetch_add(order.bytes(), Ordering::Relaxed);
        self.orders.send(order).map_err(|_| ended())
    }

    /// An empty buffer; waits for one when all are in use.
    fn buffer(&mut self) -> Result<Vec<u8>> {
        if let Ok(buffer) = self.free.try_recv() {
            return Ok(buffer);
        }
        if self.made < BUFFERS {
            self.made += 1;
            return Ok(Vec::with_capacity(BUFFER_BYTES));
        }
        self.free.recv().map_err(|_| ended())
    }
}

/// The thread has ended before its time.
fn ended() -> Error {
    Error::Other("the output has ended".to_owned())
}

impl Order {
    /// Bytes of records that may be compressed.
    fn bytes(&self) -> usize {
        match self {
            Order::Buffer(bytes) | Order::Records(bytes) => bytes.len(),
            _ => 0,
        }
    }
}

/// What the thread works with.
struct Worker {
    sink: Sink,
    waiting_bytes: Arc<AtomicUsize>,
    /// A part of a record, the rest of which is in the next buffer.
    pending: Vec<u8>,
}

impl Worker {
    /// Does it; the buffer that is free then.
    fn perform(&mut self, order: Order) -> Result<Option<Vec<u8>>> {
        let bytes = order.bytes();
        let is_behind = self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed) > BEHIND_BYTES;
        match order {
            Order::Buffer(mut buffer) => {
                self.buffer(&buffer, is_behind)?;
                buffer.clear();
                return Ok(Some(buffer));
            }
            Order::Records(records) => self.append(&records, is_behind)?,
            Order::Plain(records) => self.sink.append(&records)?,
            Order::Journal(frames) => self.sink.journal(&frames),
            Order::FinishedRound => self.sink.finished_round()?,
            Order::Checkpoint(written_bytes) => {
                self.sink.checkpoint()?;
                written_bytes.store(self.sink.written_bytes(), Ordering::Relaxed);
            }
            Order::Switch(next, then) => then(std::mem::replace(&mut self.sink, *next)),
        }
        Ok(None)
    }

    fn buffer(&mut self, bytes: &[u8], is_behind: bool) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            let (whole, part) = bytes.split_at(whole_records_bytes(bytes, usize::MAX));
            self.pending.extend_from_slice(part);
            return self.append(whole, is_behind);
        }
        pending.extend_from_slice(bytes);
        let (whole, part) = pending.split_at(whole_records_bytes(&pending, usize::MAX));
        self.pending.extend_from_slice(part);
        self.append(whole, is_behind)
    }

    fn append(&mut self, records: &[u8], is_behind: bool) -> Result<()> {
        match is_behind {
            true => self.sink.append_skipped(records),
            false => self.sink.append_packed(records),
        }
    }
}
