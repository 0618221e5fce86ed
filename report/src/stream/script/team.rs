//! Parallel printing: each thread receives every batch and prints some of its blocks; the text is joined in order.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use bprec_format::Events;

use super::printer::{BLOCK_RECORDS, Batch, Printed, Printer, TextSink, WorkShare};
use super::text::Text;
use crate::Result;

/// Limit on batches in progress: one that is printed, and one that waits.
const BATCHES: usize = 2;
/// Approximate size of a piece of text that a thread hands over, bytes.
const PIECE_BYTES: usize = 256 << 10;
/// Limit on pieces of a thread that wait to be written.
const PIECES: usize = 8;

/// Work of a thread.
enum Job<'a> {
    /// Prints this thread's blocks of a batch.
    Print(Arc<Batch<'a>>, WorkShare),
    /// Prints the samples that still wait for a deferred chain, as a last block.
    End(Arc<Events>),
}

/// A piece of a thread's text.
#[derive(Default)]
struct Piece {
    text: Text,
    /// End offsets of blocks.
    ends: Vec<usize>,
}

/// Hands pieces of text over to the thread that writes them.
struct Pieces {
    finished: SyncSender<Piece>,
    /// Written pieces that come back, so that their memory is reused.
    spare: Receiver<Piece>,
    ends: Vec<usize>,
    /// True if the receiver was dropped.
    is_over: bool,
}

impl Pieces {
    fn hand_over(&mut self, text: &mut Text) {
        let Piece { text: empty, ends } = self.spare.try_recv().unwrap_or_default();
        let piece = Piece { text: std::mem::replace(text, empty), ends: std::mem::replace(&mut self.ends, ends) };
        self.is_over |= self.finished.send(piece).is_err();
    }
}

impl TextSink for Pieces {
    fn take_much(&mut self, text: &mut Text) {
        if self.is_over {
            text.clear();
        } else if text.len() >= PIECE_BYTES {
            self.hand_over(text);
        }
    }

    fn end_block(&mut self, text: &Text) {
        self.ends.push(text.len());
    }
}

struct Member<'scope, 'a> {
    jobs: SyncSender<Job<'a>>,
    done: Receiver<Piece>,
    spare: Sender<Piece>,
    /// Piece that is being written.
    piece: Piece,
    /// Number of written bytes of the piece.
    written: usize,
    /// Number of written blocks of the piece.
    blocks: usize,
    handle: ScopedJoinHandle<'scope, Printed>,
}

impl Member<'_, '_> {
    /// Writes the next block of this thread.
    fn write_block(&mut self, out: &mut dyn Write) -> Result<()> {
        loop {
            let text = self.piece.text.as_bytes();
            if let Some(end) = self.piece.ends.get(self.blocks) {
                out.write_all(&text[self.written..*end])?;
                (self.written, self.blocks) = (*end, self.blocks + 1);
                return Ok(());
            }
            out.write_all(&text[self.written..])?;
            // A closed channel means that the thread has panicked. The panic is passed on when the thread is joined.
            let Ok(next) = self.done.recv() else {
                self.written = text.len();
                return Ok(());
            };
            let mut empty = std::mem::replace(&mut self.piece, next);
            (self.written, self.blocks) = (0, 0);
            empty.text.clear();
            empty.ends.clear();
            // A thread that has ended needs no buffer.
            let _ = self.spare.send(empty);
        }
    }
}

/// Printing threads.
pub(super) struct Team<'scope, 'a> {
    members: Vec<Member<'scope, 'a>>,
    /// Batches in progress, each with its number of blocks and the number of threads that share them.
    under_way: VecDeque<(usize, usize)>,
}

impl<'scope, 'a> Team<'scope, 'a> {
    /// Starts up to `threads` threads, one printer each; `None` if no thread starts.
    pub(super) fn start<'o: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        printer: impl Fn() -> Printer<'o>,
    ) -> Option<Team<'scope, 'a>>
    where
        'a: 'scope,
    {
        let members = (0..threads).map_while(|_| {
            // The channel has space for one job more than the limit on batches, so that sending a job never blocks.
            let (jobs, todo) = sync_channel(BATCHES + 1);
            let (finished, done) = sync_channel(PIECES);
            let (spare, empty) = channel();
            let printer = printer();
            let pieces = Pieces { finished, spare: empty, ends: Vec::new(), is_over: false };
            let handle = Builder::new().spawn_scoped(scope, move || work(printer, &todo, pieces)).ok()?;
            Some(Member { jobs, done, spare, piece: Piece::default(), written: 0, blocks: 0, handle })
        });
        let members: Vec<_> = members.collect();
        (!members.is_empty()).then(|| Team { members, under_way: VecDeque::new() })
    }

    /// Submits a batch. If too many are in progress, first writes out the text of the oldest one.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub(super) fn submit(&mut self, batch: Batch<'a>, out: &mut dyn Write) -> Result<()> {
        if self.under_way.len() == BATCHES {
            self.write_oldest(out)?;
        }
        let of = if batch.is_sequential() { 1 } else { self.members.len() };
        self.under_way.push_back((batch.run.entries.len().div_ceil(BLOCK_RECORDS), of));
        let batch = Arc::new(batch);
        for (index, member) in self.members.iter().enumerate() {
            let share = if index < of { WorkShare { index, of } } else { WorkShare::NONE };
            // Sending fails only if the thread has panicked; joining the thread passes the panic on.
            let _ = member.jobs.send(Job::Print(batch.clone(), share));
        }
        Ok(())
    }

    /// Waits for all batches and writes out their text.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub(super) fn wait(&mut self, out: &mut dyn Write) -> Result<()> {
        while !self.under_way.is_empty() {
            self.write_oldest(out)?;
        }
        Ok(())
    }

    /// Writes out all text. Returns the counts of the printers.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub(super) fn finish(mut self, events: Option<Arc<Events>>, out: &mut dyn Write) -> Result<Printed> {
        self.wait(out)?;
        // Only the first printer can have waiting samples: it alone prints all blocks of a batch with deferred chains.
        if let Some(events) = events
            && let Some(first) = self.members.first_mut()
            && first.jobs.send(Job::End(events)).is_ok()
        {
            first.write_block(out)?;
        }
        let mut printed = Printed::default();
        for Member { jobs, handle, .. } in self.members {
            drop(jobs);
            match handle.join() {
                Ok(part) => printed.merge(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(printed)
    }

    fn write_oldest(&mut self, out: &mut dyn Write) -> Result<()> {
        let Some((count, of)) = self.under_way.pop_front() else { return Ok(()) };
        (0..count).try_for_each(|block| self.members[block % of].write_block(out))
    }
}

fn work(mut printer: Printer<'_>, todo: &Receiver<Job<'_>>, mut pieces: Pieces) -> Printed {
    while let Ok(job) = todo.recv() {
        match job {
            Job::Print(batch, share) => printer.batch(&batch, share, &mut pieces),
            Job::End(events) => {
                printer.give_up_waiting(&events, &mut pieces);
                pieces.end_block(&printer.text);
            }
        }
        // Hands over the piece with the end of the last block; a thread that printed no block has nothing to hand over.
        if !pieces.ends.is_empty() {
            pieces.hand_over(&mut printer.text);
        }
        if pieces.is_over {
            break;
        }
    }
    printer.finish()
}
