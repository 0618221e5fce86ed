//! A session or pair that is attached around a function.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::per_cpu::{FunctionStats, ProbeCounts};
use crate::sys;

/// A session or a pair around a function. Dropping it detaches the programs.
#[derive(Debug)]
pub struct Probe {
    id: u32,
    stats: FunctionStats,
    events: usize,
    /// Programs in the order of attachment.
    ends: Vec<End>,
    /// Highest lower bound of the misses so far; it keeps the result of `misses` from decreasing.
    misses: AtomicU64,
    /// Count of misses when the programs were detached; `None` before, or if the kernel does not count misses.
    last_misses: Option<u64>,
}

/// A program at one end of a function, or at both ends.
#[derive(Debug)]
pub(super) struct End {
    link: Option<OwnedFd>,
    program: OwnedFd,
    /// Time just before the attach call. The program begins to run at some moment after this time.
    after: Instant,
}

impl Probe {
    /// Makes the probe of a function of the program `id`. `ends` are in the order of attachment.
    pub(super) fn new(id: u32, stats: FunctionStats, events: usize, ends: Vec<End>) -> Probe {
        Probe { id, stats, events, ends, misses: AtomicU64::new(0), last_misses: None }
    }

    /// Id of the traced program.
    pub fn program_id(&self) -> u32 {
        self.id
    }

    /// Reads the counts so far, summed over all CPUs. Returns `None` in the same case as [`Probe::read_cpus`].
    pub fn read(&self) -> Option<ProbeCounts> {
        self.read_cpus().map(|cpus| ProbeCounts::sum(&cpus))
    }

    /// Count of runs so far, on all CPUs. Reads much less memory than [`Probe::read`].
    pub fn runs(&self) -> u64 {
        self.stats.begun()
    }

    /// Reads the counts so far of each CPU, in the order of CPU numbers. Returns `None` if the counts of a CPU change during every attempt.
    /// This is unlikely, and impossible after the probe is detached.
    pub fn read_cpus(&self) -> Option<Vec<ProbeCounts>> {
        self.stats.read(self.events)
    }

    /// Count of runs that the kernel's recursion guard hid from the probe; `None` if the kernel does not count them. For a session this is a lower
    /// bound: the kernel counts refused begins and ends together, so two runs in progress can hide one miss until they end.
    pub fn misses(&self) -> Option<u64> {
        match &self.ends[..] {
            [] => self.last_misses,
            [session] => {
                // Ends are read before begins, so that the begin of every counted end is counted too.
                let ended = self.stats.ended();
                let refused = session.misses()?;
                let begun = self.stats.begun();
                // A completed run has a begin and an end, each seen or refused. A run in progress has no end yet.
                let sure = (ended + refused).saturating_sub(begun).div_ceil(2);
                Some(self.misses.fetch_max(sure, Ordering::Relaxed).max(sure))
            }
            [.., begin] => begin.misses(),
        }
    }

    /// Sets the interval: from now on, one in `every` runs is measured.
    pub fn set_every(&self, every: u64) {
        self.stats.set_every(every);
    }

    /// Interval of measurement: one in this many runs is measured.
    pub fn every(&self) -> u64 {
        self.stats.every()
    }

    /// Latest known time before the first run that the probe can count; `None` after the probe is detached.
    pub fn began(&self) -> Option<Instant> {
        self.ends.last().map(|end| end.after)
    }

    /// Count of references that the probe holds on the traced program.
    pub fn references(&self) -> i64 {
        self.ends.len() as i64
    }

    /// Detaches the programs; of a pair, the begin first. The counts can still be read; runs in progress are discarded.
    pub fn detach(&mut self) {
        self.ends.iter_mut().rev().for_each(|end| end.link = None);
        self.last_misses = self.misses();
        self.ends.clear();
    }
}

impl End {
    /// Makes the [`End`] of a program that `link` attached at some moment after `after`.
    pub(super) fn new(link: OwnedFd, program: OwnedFd, after: Instant) -> End {
        End { link: Some(link), program, after }
    }

    fn misses(&self) -> Option<u64> {
        let (info, known) = sys::prog_summary(self.program.as_fd(), 0).ok()?;
        sys::knows_misses(known).then_some(info.recursion_misses)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.detach();
    }
}
