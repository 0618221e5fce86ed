//! An attached session or pair around a function.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::per_cpu::{FunctionStats, ProbeCounts};
use crate::sys;

/// A session or a pair around a function, attached; gone when this is dropped.
#[derive(Debug)]
pub struct Probe {
    id: u32,
    stats: FunctionStats,
    events: usize,
    /// In the order in which they were attached.
    ends: Vec<End>,
    /// The most that was ever sure.
    misses: AtomicU64,
    /// When there are no programs any more.
    last_misses: Option<u64>,
}

/// A program at one end of a function, or at both.
#[derive(Debug)]
pub(super) struct End {
    link: Option<OwnedFd>,
    program: OwnedFd,
    /// From some moment after this on it runs: attaching takes its time.
    after: Instant,
}

impl Probe {
    /// Probes around the program `id`, by their ends in the order in which they were attached.
    pub(super) fn new(id: u32, stats: FunctionStats, events: usize, ends: Vec<End>) -> Probe {
        Probe { id, stats, events, ends, misses: AtomicU64::new(0), last_misses: None }
    }

    /// Id of the traced program.
    pub fn program_id(&self) -> u32 {
        self.id
    }

    /// Counts so far, over all CPUs; `None` as [`Probe::read_cpus`].
    pub fn read(&self) -> Option<ProbeCounts> {
        self.read_cpus().map(|cpus| ProbeCounts::sum(&cpus))
    }

    /// Runs so far, over all CPUs: much less to read than all of it.
    pub fn runs(&self) -> u64 {
        self.stats.begun()
    }

    /// Counts so far on each CPU, by its number; `None` when they moved all the time while they were read. That is not
    /// to be expected, and over for sure when the probe is detached.
    pub fn read_cpus(&self) -> Option<Vec<ProbeCounts>> {
        self.stats.read(self.events)
    }

    /// Runs whose begin the kernel's recursion guard kept from us. For a session this is a lower bound: the kernel
    /// counts refused begins and ends together, so two runs under way can hide one miss until they end.
    pub fn misses(&self) -> Option<u64> {
        match &self.ends[..] {
            [] => self.last_misses,
            [session] => {
                // In this order: what ends meanwhile has begun.
                let ended = self.stats.ended();
                let refused = session.misses()?;
                let begun = self.stats.begun();
                // Each run has two ends, seen or refused, but for those that are under way.
                let sure = (ended + refused).saturating_sub(begun).div_ceil(2);
                Some(self.misses.fetch_max(sure, Ordering::Relaxed).max(sure))
            }
            [.., begin] => begin.misses(),
        }
    }

    /// Has one in `every` runs measured from here on.
    pub fn set_every(&self, every: u64) {
        self.stats.set_every(every);
    }

    /// One in this many runs is measured.
    pub fn every(&self) -> u64 {
        self.stats.every()
    }

    /// A moment before the first run that it could count, as near as is known; None when it is detached.
    pub fn began(&self) -> Option<Instant> {
        self.ends.last().map(|end| end.after)
    }

    /// References that it holds on its program.
    pub fn references(&self) -> i64 {
        self.ends.len() as i64
    }

    /// Detaches it, of a pair the begin first. What was counted can still be read; what was being measured is discarded.
    pub fn detach(&mut self) {
        self.ends.iter_mut().rev().for_each(|end| end.link = None);
        self.last_misses = self.misses();
        self.ends.clear();
    }
}

impl End {
    /// Counts of a program that was attached by `link` some time after `after`.
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
