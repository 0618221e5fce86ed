//! Sources of what a recording, or `bprec stat`, holds beside samples: one file or folder each.
//!
//! All run on the control thread. They hand states and records to an [`Outlet`], and say when they want to be polled
//! again. What one of them finds out that others need is in the [`Context`].

pub(crate) mod aggregate;
pub(crate) mod boot_clock;
pub(crate) mod bpf_sampler;
pub(crate) mod exact;
pub(crate) mod hotplug;
pub(crate) mod inventory;
pub(crate) mod map_dumps;
pub(crate) mod perf_counters;
pub(crate) mod sampling;
pub(crate) mod shared;
pub(crate) mod statistics;
pub(crate) mod user_objects;

use std::time::Instant;

use bprec_bpf::ProgSnapshot;
use bprec_format::SampleLayout;
use bprec_format::state::{Session, State};

use crate::output::Summary;
use crate::sys::Waker;
use crate::{Error, Level, Result};

use inventory::Programs;
use statistics::Statistics;

/// Something that a recording asks the machine for.
///
/// The calls come in this order: `prepare`, `start`, `begin`, `enable`, then `poll` and `read`, `end_file` and `begin_file`
/// where the recording goes on in another file, then `disable` and `finish`.
/// Each is made for all sources before the next one is, in the order of the sources; the last two in the opposite order.
pub(crate) trait Source {
    /// Looks at what is there. Nothing that belongs to others is touched.
    ///
    /// # Errors
    /// When a recording without it would not be what was asked for; so for all of these calls.
    fn prepare(&mut self, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Attaches, and switches on what takes long.
    fn start(&mut self, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// The first counts, as of just before sampling starts.
    fn begin(&mut self, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Switches on what does not wait for the exec of a command.
    fn enable(&mut self, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Wakes the control thread when there is something to poll for.
    fn waker(&self) -> Option<&Waker> {
        None
    }

    /// When [`Source::poll`] is to be called next at the latest.
    fn poll_at(&self) -> Option<Instant> {
        None
    }

    /// Takes in what has come up since the last call, of its own and of the news in the context.
    fn poll(&mut self, _now: Instant, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Counts as of now, at each interval.
    fn read(&mut self, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// A file of the recording ends, and another one follows: the last counts for this one.
    fn end_file(&mut self, context: &mut Context<'_>) -> Result<()> {
        self.read(context)
    }

    /// Another file has begun: what a reader needs that has no other, with the first counts.
    fn begin_file(&mut self, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Switches off what [`Source::enable`] has switched on, for good.
    fn disable(&mut self) {}

    /// Lets go of everything; the last counts.
    fn finish(&mut self, _context: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    /// Adds to what the closing line says.
    fn sum_up(&self, _summary: &mut Summary) {}
}

/// Context that sources share.
pub(crate) struct Context<'a> {
    /// The BPF programs that are known.
    pub(crate) programs: &'a mut Programs,
    /// The switch of the kernel's run statistics.
    pub(crate) statistics: &'a mut Statistics,
    /// Events since the last time that all sources were polled.
    pub(crate) news: &'a mut News,
    /// Settings of the recording; complete when all sources have begun.
    pub(crate) session: &'a mut Session,
    /// Kernel addresses that are to get names.
    pub(crate) addresses: &'a mut Vec<u64>,
    /// Outlet for findings.
    pub(crate) out: &'a mut dyn Outlet,
    /// Takes messages as they arise.
    pub(crate) notify: fn(Level, &str),
}

/// Facts that sources tell each other.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Ids of programs that have come.
    pub(crate) loaded: Vec<u32>,
    /// Ids of programs that everyone else has let go of.
    pub(crate) released: Vec<u32>,
    /// CPUs that have come online.
    pub(crate) online: Vec<u32>,
    /// CPUs that have gone offline.
    pub(crate) offline: Vec<u32>,
}

/// Takes states, and what belongs into a file where there is one. An error means that the output has ended.
pub(crate) trait Outlet {
    /// Takes a state.
    fn state(&mut self, state: State) -> Result<()>;

    /// Layout of what is common to all records; `None` where no records are written.
    fn layout(&self) -> Option<SampleLayout> {
        None
    }

    /// Takes whole records.
    fn records(&mut self, _records: Vec<u8>) -> Result<()> {
        Ok(())
    }

    /// Ends a round: nothing that follows is older than what was sent before.
    fn end_round(&mut self) -> Result<()> {
        Ok(())
    }

    /// Takes a program, and keeps it where a crash of this process does not lose it.
    fn program(&mut self, _snapshot: &ProgSnapshot) -> Result<()> {
        Ok(())
    }

    /// Takes types that the file needs to be read. False when they are too many for a stream.
    fn types(&mut self, _btf_id: u32, _btf: &[u8]) -> Result<bool> {
        Ok(true)
    }

    /// Takes types of a map, which become a part of the file at its end.
    fn keep_types(&mut self, _btf_id: u32, _btf: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Takes states.
    fn states(&mut self, states: Vec<State>) -> Result<()> {
        states.into_iter().try_for_each(|state| self.state(state))
    }
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
        let notes = &mut self.session.counters_note;
        notes.push_str(if notes.is_empty() { "" } else { "; " });
        notes.push_str(note);
    }
}
