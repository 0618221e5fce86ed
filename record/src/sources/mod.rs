//! Sources of what a recording, or `bprec stat`, holds beside samples: one file or folder each.
//!
//! All run on the control thread. They hand states and records to the [`Outbox`], and say when they want to be called
//! again. What one of them finds out that others need is an [`Event`].

pub(crate) mod aggregate;
pub(crate) mod boot_clock;
pub(crate) mod bpf_sampler;
pub(crate) mod exact;
pub(crate) mod hotplug;
pub(crate) mod inventory;
pub(crate) mod map_dumps;
mod outbox;
pub(crate) mod sampling;
pub(crate) mod shared;
pub(crate) mod statistics;
pub(crate) mod user_objects;

use std::time::Instant;

pub(crate) use outbox::Outbox;

use crate::{Error, Level, Result};

use inventory::Programs;
use statistics::Statistics;

/// Something that a recording, or a count, asks the machine for.
///
/// Each call is made for all sources before the next one is, in the order of the sources; backwards where things end. An error of
/// [`Source::begin_file`] ends a recording that has not begun; any later one switches the source off, and the others go on.
pub(crate) trait Source {
    /// A file begins: what a reader needs that has no other, and the first counts, as of just before it. With the first file the
    /// source begins to watch and attaches, so that nothing is left for [`Source::switch`] that takes long.
    ///
    /// # Errors
    /// When a recording without it would not be what was asked for.
    fn begin_file(&mut self, _is_first: bool, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Takes in what has come up since the last call, of its own and of the events in the context; counts as of now where they are
    /// asked for. Returns when it is to be called next at the latest.
    ///
    /// # Errors
    /// When it cannot go on; so for the other calls.
    fn tick(&mut self, _tick: Tick, _context: &mut Context<'_>) -> Result<Option<Instant>> {
        Ok(None)
    }

    /// A file ends: the last counts for it. With the last file the source lets go of everything.
    fn end_file(&mut self, _is_last: bool, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Switches on, and off for good, what counts or samples from one moment to another.
    fn switch(&mut self, _is_on: bool) -> Result<()> {
        Ok(())
    }
}

/// Reason of a [`Source::tick`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tick {
    /// The time.
    pub(crate) now: Instant,
    /// An interval ends: counts are due.
    pub(crate) is_reading: bool,
}

/// Event that concerns several sources: those behind the one that has found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A program has come, by its id.
    Loaded(u32),
    /// Everyone else has let go of a program.
    Released(u32),
    /// A CPU has come online.
    CpuOnline(u32),
    /// A CPU has gone offline.
    CpuOffline(u32),
}

/// Context that sources share.
pub(crate) struct Context<'a> {
    /// The BPF programs that are known.
    pub(crate) programs: &'a mut Programs,
    /// The switch of the kernel's run statistics.
    pub(crate) statistics: &'a mut Statistics,
    /// Events since the last tick.
    pub(crate) events: &'a mut Vec<Event>,
    /// Output of all sources.
    pub(crate) out: &'a mut Outbox,
    /// Takes messages as they arise.
    pub(crate) notify: fn(Level, &str),
}

/// Refuses what a BPF program of ours does by process ids, which it sees as the initial pid namespace has them, where records have others.
///
/// # Errors
/// In another pid namespace.
pub(crate) fn refuse_foreign_process_ids(what: &str) -> Result<()> {
    match bprec_host::is_initial_pid_namespace() {
        Some(false) => Err(Error::Other(format!(
            "{what} the process ids of the initial pid namespace; run it there (in a container: with --pid=host)"
        ))),
        _ => Ok(()),
    }
}

impl Context<'_> {
    /// Adds to what there is to say about how programs are counted.
    pub(crate) fn note_counters(&mut self, note: &str) {
        let notes = &mut self.out.session.counters_note;
        notes.push_str(if notes.is_empty() { "" } else { "; " });
        notes.push_str(note);
    }
}
