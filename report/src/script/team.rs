//! Several threads that print: each is handed every batch and prints some of its blocks, and the text is put together in order.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use bprec_format::Events;

use super::printer::{BLOCK_RECORDS, Batch, Printed, Printer, Share};
use super::text::Text;
use crate::Result;

/// So many batches are on their way at once: one that is printed, and one that waits for it.
const BATCHES: usize = 2;

/// What a thread is to do.
enum Job<'a> {
    /// Print its blocks of a batch, into memory that was used before.
    Print(Arc<Batch<'a>>, Share, Blocks),
    /// Print what still waits.
    End(Arc<Events>),
}

/// The text of a thread's blocks of a batch.
#[derive(Default)]
struct Blocks {
    text: Text,
    /// Where each block ends.
    ends: Vec<usize>,
}

struct Member<'scope, 'a> {
    jobs: SyncSender<Job<'a>>,
    done: Receiver<Blocks>,
    handle: ScopedJoinHandle<'scope, Printed>,
}

/// The threads.
pub(super) struct Team<'scope, 'a> {
    members: Vec<Member<'scope, 'a>>,
    /// Of each batch that is on its way: its blocks, and how many members share them.
    under_way: VecDeque<(usize, usize)>,
    /// Memory that is free.
    spare: Vec<Blocks>,
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
            // As many as are under way, so that nobody waits for room.
            let (jobs, todo) = sync_channel(BATCHES + 1);
            let (finished, done) = sync_channel(BATCHES + 1);
            let printer = printer();
            let handle = Builder::new().spawn_scoped(scope, move || work(printer, &todo, &finished)).ok()?;
            Some(Member { jobs, done, handle })
        });
        let members: Vec<_> = members.collect();
        (!members.is_empty()).then(|| Team { members, under_way: VecDeque::new(), spare: Vec::new() })
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
            let share = if index < of { Share { index, of } } else { Share::NONE };
            // A thread that is gone has panicked, which is passed on when it is waited for.
            let _ = member.jobs.send(Job::Print(batch.clone(), share, self.spare.pop().unwrap_or_default()));
        }
        Ok(())
    }

    /// Writes out everything. Printers say what they have printed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(mut self, events: Option<Arc<Events>>, out: &mut dyn Write) -> Result<Printed> {
        while !self.under_way.is_empty() {
            self.write_oldest(out)?;
        }
        // Only the first has samples that wait.
        if let Some(events) = events
            && let Some(first) = self.members.first()
            && first.jobs.send(Job::End(events)).is_ok()
            && let Ok(blocks) = first.done.recv()
        {
            out.write_all(blocks.text.as_bytes())?;
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
        // Where a thread has panicked, nothing comes: that is passed on at the end.
        let parts: Vec<Blocks> = self.members.iter().map(|member| member.done.recv().unwrap_or_default()).collect();
        for number in 0..count {
            let (part, block) = (&parts[number % of], number / of);
            let start = block.checked_sub(1).map_or(Some(0), |before| part.ends.get(before).copied());
            let range = start.zip(part.ends.get(block).copied());
            let text = range.and_then(|(start, end)| part.text.as_bytes().get(start..end));
            out.write_all(text.unwrap_or_default())?;
        }
        self.spare.extend(parts);
        Ok(())
    }
}

fn work(mut printer: Printer<'_>, todo: &Receiver<Job<'_>>, finished: &SyncSender<Blocks>) -> Printed {
    while let Ok(job) = todo.recv() {
        let mut ends = Vec::new();
        match job {
            Job::Print(batch, share, mut blocks) => {
                blocks.text.clear();
                blocks.ends.clear();
                ends = blocks.ends;
                printer.text = blocks.text;
                let Ok(()) = printer.batch(&batch, share, |text| {
                    ends.push(text.len());
                    Ok::<(), Infallible>(())
                });
            }
            Job::End(events) => printer.give_up_waiting(&events),
        }
        if finished.send(Blocks { text: std::mem::take(&mut printer.text), ends }).is_err() {
            break;
        }
    }
    printer.finish()
}
