//! Several threads that print: each is handed every batch and prints some of its blocks, and the text is put together in order.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use bprec_format::Events;

use super::printer::{BLOCK_RECORDS, Batch, Printed, Printer, TextSink, WorkShare};
use super::text::Text;
use crate::Result;

/// Number of batches that are on their way at once: one that is printed, and one that waits for it.
const BATCHES: usize = 2;
/// A thread hands its text over in pieces of about this size, at the end of a record.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces of a thread that may wait to be written; then it waits.
const PIECES: usize = 8;

/// Work of a thread.
enum Job<'a> {
    /// Print its blocks of a batch.
    Print(Arc<Batch<'a>>, WorkShare),
    /// Print what still waits, as one more block.
    End(Arc<Events>),
}

/// Text of a thread, which goes on where the piece before ends.
#[derive(Default)]
struct Piece {
    text: Text,
    /// Ends of blocks.
    ends: Vec<usize>,
}

/// Hands text over in pieces.
struct Pieces {
    finished: SyncSender<Piece>,
    /// Pieces that were written out: their memory is used again.
    spare: Receiver<Piece>,
    ends: Vec<usize>,
    /// True if pieces are no longer taken.
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
    /// The piece that is being written, how much of it was, and how many of its blocks.
    piece: Piece,
    written: usize,
    blocks: usize,
    handle: ScopedJoinHandle<'scope, Printed>,
}

impl Member<'_, '_> {
    /// Writes out its next block.
    fn write_block(&mut self, out: &mut dyn Write) -> Result<()> {
        loop {
            let text = self.piece.text.as_bytes();
            if let Some(end) = self.piece.ends.get(self.blocks) {
                out.write_all(&text[self.written..*end])?;
                (self.written, self.blocks) = (*end, self.blocks + 1);
                return Ok(());
            }
            out.write_all(&text[self.written..])?;
            // A closed channel means that a thread has panicked: the panic is passed on at the end.
            let Ok(next) = self.done.recv() else {
                self.written = text.len();
                return Ok(());
            };
            let mut empty = std::mem::replace(&mut self.piece, next);
            (self.written, self.blocks) = (0, 0);
            empty.text.clear();
            empty.ends.clear();
            // A thread that has ended needs no memory.
            let _ = self.spare.send(empty);
        }
    }
}

/// The threads.
pub(super) struct Team<'scope, 'a> {
    members: Vec<Member<'scope, 'a>>,
    /// Batches on their way: the blocks of each, and the number of members that share them.
    under_way: VecDeque<(usize, usize)>,
}

impl<'scope, 'a> Team<'scope, 'a> {
    /// Starts so many, or as many as can be had; `None` without any.
    pub(super) fn start<'o: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        threads: usize,
        printer: impl Fn() -> Printer<'o>,
    ) -> Option<Team<'scope, 'a>>
    where
        'a: 'scope,
    {
        let members = (0..threads).map_while(|_| {
            // Room for all batches under way, so that no sender waits.
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

    /// Has a batch printed. The text of an earlier one is written out.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn submit(&mut self, batch: Batch<'a>, out: &mut dyn Write) -> Result<()> {
        if self.under_way.len() == BATCHES {
            self.write_oldest(out)?;
        }
        let of = if batch.is_sequential() { 1 } else { self.members.len() };
        self.under_way.push_back((batch.run.entries.len().div_ceil(BLOCK_RECORDS), of));
        let batch = Arc::new(batch);
        for (index, member) in self.members.iter().enumerate() {
            let share = if index < of { WorkShare { index, of } } else { WorkShare::NONE };
            // A thread that is gone has panicked, which is passed on when it is waited for.
            let _ = member.jobs.send(Job::Print(batch.clone(), share));
        }
        Ok(())
    }

    /// Waits for all batches and writes out their text.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn wait(&mut self, out: &mut dyn Write) -> Result<()> {
        while !self.under_way.is_empty() {
            self.write_oldest(out)?;
        }
        Ok(())
    }

    /// Writes out everything. Printers say what they have printed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(mut self, events: Option<Arc<Events>>, out: &mut dyn Write) -> Result<Printed> {
        self.wait(out)?;
        // Only the first has samples that wait.
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
        // Text with the end of its last block; threads without a block have none.
        if !pieces.ends.is_empty() {
            pieces.hand_over(&mut printer.text);
        }
        if pieces.is_over {
            break;
        }
    }
    printer.finish()
}
