//! How the drain writes: by itself, or, where records are compressed, by way of a thread that does that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::output::{Compressor, Sink};
use crate::{Error, Result};

/// Writes what is drained.
#[derive(Debug)]
pub(super) struct Writer {
    way: Way,
    /// Bytes that were handed to it for this file, before they were compressed.
    appended_bytes: u64,
    /// Bytes of the file as of the last checkpoint.
    written_bytes: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Way {
    Direct(Box<Sink>),
    Compressed(Compressor),
    /// Between two outputs, and at the end.
    Closed,
}

impl Writer {
    /// Writes to `sink`. The bytes that the file has at each checkpoint are put into `written_bytes`.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub(super) fn new(sink: Sink, written_bytes: Arc<AtomicU64>) -> Result<Writer> {
        let way =
            if sink.is_compressed() { Way::Compressed(Compressor::start(sink)?) } else { Way::Direct(Box::new(sink)) };
        Ok(Writer { way, appended_bytes: 0, written_bytes })
    }

    /// Bytes that were handed over for this file.
    pub(super) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// Appends whole records of which one may be in two pieces.
    ///
    /// # Errors
    /// When the output has ended; so for all of these.
    pub(super) fn append_pieces(&mut self, first: &[u8], second: &[u8]) -> Result<()> {
        self.appended_bytes += (first.len() + second.len()) as u64;
        match &mut self.way {
            Way::Direct(sink) => sink.append_pieces(first, second),
            Way::Compressed(compressor) => compressor.bytes(first).and_then(|()| compressor.bytes(second)),
            Way::Closed => Err(closed()),
        }
    }

    /// Appends whole records.
    ///
    /// # Errors
    /// As above.
    pub(super) fn append(&mut self, records: Vec<u8>) -> Result<()> {
        self.appended_bytes += records.len() as u64;
        match &mut self.way {
            Way::Direct(sink) => sink.append(&records),
            Way::Compressed(compressor) => compressor.records(records),
            Way::Closed => Err(closed()),
        }
    }

    /// Appends whole records that are never compressed.
    ///
    /// # Errors
    /// As above.
    pub(super) fn append_plain(&mut self, records: Vec<u8>) -> Result<()> {
        self.appended_bytes += records.len() as u64;
        match &mut self.way {
            Way::Direct(sink) => sink.append(&records),
            Way::Compressed(compressor) => compressor.plain(records),
            Way::Closed => Err(closed()),
        }
    }

    /// Keeps frames for the features.
    ///
    /// # Errors
    /// As above.
    pub(super) fn journal(&mut self, frames: Vec<u8>) -> Result<()> {
        match &mut self.way {
            Way::Direct(sink) => {
                sink.journal(&frames);
                Ok(())
            }
            Way::Compressed(compressor) => compressor.journal(frames),
            Way::Closed => Err(closed()),
        }
    }

    /// [`Sink::finished_round`].
    ///
    /// # Errors
    /// As above.
    pub(super) fn finished_round(&mut self) -> Result<()> {
        match &mut self.way {
            Way::Direct(sink) => sink.finished_round(),
            Way::Compressed(compressor) => compressor.finished_round(),
            Way::Closed => Err(closed()),
        }
    }

    /// [`Sink::checkpoint`].
    ///
    /// # Errors
    /// As above.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        match &mut self.way {
            Way::Direct(sink) => {
                sink.checkpoint()?;
                self.written_bytes.store(sink.written_bytes(), Ordering::Relaxed);
                Ok(())
            }
            Way::Compressed(compressor) => compressor.checkpoint(&self.written_bytes),
            Way::Closed => Err(closed()),
        }
    }

    /// Goes on in `next`; `then` gets the output before it once that has everything.
    ///
    /// # Errors
    /// As above.
    pub(super) fn switch(&mut self, next: Sink, then: impl FnOnce(Sink) + Send + 'static) -> Result<()> {
        self.appended_bytes = 0;
        match std::mem::replace(&mut self.way, Way::Closed) {
            Way::Direct(before) => {
                self.way = Way::Direct(Box::new(next));
                then(*before);
                Ok(())
            }
            Way::Compressed(mut compressor) => {
                let switched = compressor.switch(next, Box::new(then));
                self.way = Way::Compressed(compressor);
                switched
            }
            Way::Closed => Err(closed()),
        }
    }

    /// Ends writing. The output, and what went wrong with it beside what was said already.
    ///
    /// # Errors
    /// When the thread that compresses has failed in a way that left nothing behind.
    pub(super) fn finish(self) -> Result<(Sink, Result<()>)> {
        match self.way {
            Way::Direct(sink) => Ok((*sink, Ok(()))),
            Way::Compressed(compressor) => compressor.finish(),
            Way::Closed => Err(closed()),
        }
    }
}

fn closed() -> Error {
    Error::Other("the output has ended".to_owned())
}
