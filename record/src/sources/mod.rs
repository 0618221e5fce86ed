//! Sources: each module provides one kind of data of a recording or of `bprec stat`, other than samples.
//!
//! All sources run on the control thread. They send states and records to the [`Outbox`], and return the time of their next
//! call. A source informs the other sources by an [`Event`].

pub(crate) mod aggregate;
pub(crate) mod boot_clock;
pub(crate) mod bpf_sampler;
pub(crate) mod exact;
pub(crate) mod hotplug;
pub(crate) mod inventory;
pub(crate) mod map_dumps;
mod outbox;
pub(crate) mod pods;
pub(crate) mod sampling;
pub(crate) mod shared;
pub(crate) mod statistics;
pub(crate) mod user_objects;

use std::time::Instant;

pub(crate) use outbox::Outbox;

use crate::events::ReopenedCpu;
use crate::{Error, Level, Result};

use inventory::Programs;
use statistics::Statistics;

/// Provider of one kind of data for a recording or a count.
///
/// The recorder calls one method of all sources before it calls the next method. It calls the sources in order, and in reverse order at the
/// end. An error of [`Source::begin_file`] ends a recording that has not begun; after any later error, only this source is switched off.
pub(crate) trait Source {
    /// Begins a file: writes all states that a reader of this file alone needs, and the counts at its start. At the first file, the
    /// source also does all slow work, such as attaching programs, so that [`Source::switch`] is fast.
    ///
    /// # Errors
    /// Fails if the recording would lack data that the user explicitly requested.
    fn begin_file(&mut self, _is_first: bool, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Processes the changes since the last call and the events in the context, and writes current counts if
    /// [`Tick::is_reading`] is set. Returns the latest time of the next call.
    ///
    /// # Errors
    /// Fails if the source cannot continue. The same holds for the other methods.
    fn tick(&mut self, _tick: Tick, _context: &mut Context<'_>) -> Result<Option<Instant>> {
        Ok(None)
    }

    /// Ends a file: writes its last counts. At the last file, the source releases all its resources.
    fn end_file(&mut self, _is_last: bool, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Enables the events of the source at the start of sampling, and disables them at the end.
    fn switch(&mut self, _is_on: bool) -> Result<()> {
        Ok(())
    }
}

/// Argument of [`Source::tick`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tick {
    /// Current time.
    pub(crate) now: Instant,
    /// True if a reading is due: the source must write its counts.
    pub(crate) is_reading: bool,
}

/// Event that one source reports to the sources after it.
#[derive(Debug)]
pub(crate) enum Event {
    /// A program with this id was loaded.
    Loaded(u32),
    /// All processes other than recorders have released the program with this id.
    Released(u32),
    /// This CPU came online.
    CpuOnline(u32),
    /// This CPU went offline.
    CpuOffline(u32),
    /// The machine was suspended.
    Suspended,
    /// The events of this CPU are open again, and their rings are read. Sampling events are disabled.
    CpuReopened(ReopenedCpu),
}

/// Context that all sources share.
pub(crate) struct Context<'a> {
    /// Known BPF programs.
    pub(crate) programs: &'a mut Programs,
    /// Switch of the kernel's run statistics.
    pub(crate) statistics: &'a mut Statistics,
    /// Events that sources have reported since the last tick ended.
    pub(crate) events: &'a mut Vec<Event>,
    /// Output of all sources.
    pub(crate) out: &'a mut Outbox,
    /// Callback for messages to the user.
    pub(crate) notify: fn(Level, &str),
}

/// Refuses an option outside of the initial pid namespace: there, the process ids that the option's BPF program reads differ from the ids in
/// records. `what` begins the message.
///
/// # Errors
/// Fails outside of the initial pid namespace.
pub(crate) fn refuse_foreign_process_ids(what: &str) -> Result<()> {
    match bprec_host::is_initial_pid_namespace() {
        Some(false) => Err(Error::Other(format!(
            "{what} process ids of the initial pid namespace, but bprec runs in another pid namespace; run bprec in the \
             initial pid namespace (start the container with --pid=host)"
        ))),
        _ => Ok(()),
    }
}

impl Context<'_> {
    /// Appends a remark on the counting of programs to the session.
    pub(crate) fn note_counters(&mut self, note: &str) {
        let notes = &mut self.out.session.counters_note;
        notes.push_str(if notes.is_empty() { "" } else { "; " });
        notes.push_str(note);
    }
}
