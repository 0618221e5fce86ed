//! The one loop of recordings and counts: sources tick until something asks for the end.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::command::Workload;
use super::liveness::{Liveness, is_readable};
use super::sources::Sources;
use crate::sources::Tick;
use crate::sys::{self, Signals, Waker};
use crate::{Error, Result};

/// Time between two looks at targets that cannot be waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Something that sources run for.
pub(super) trait Purpose {
    /// Result of a turn that fails.
    type Error: From<Error>;

    /// The sources.
    fn sources(&mut self) -> &mut Sources;

    /// Time of the next turn to take besides those of the sources.
    fn due_at(&self) -> Option<Instant> {
        None
    }

    /// Takes a turn, after all sources have.
    ///
    /// # Errors
    /// When going on is of no use.
    fn turn(&mut self, turn: Turn) -> Result<(), Self::Error>;
}

/// A turn of the loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// The time.
    pub(super) now: Instant,
    /// An interval that was asked for has ended, and counts were read.
    pub(super) ends_interval: bool,
    /// SIGUSR2 came.
    pub(super) was_signalled: bool,
    /// There is no turn behind it.
    pub(super) is_last: bool,
}

/// Causes of the end of a run.
pub(super) struct Ends<'a> {
    pub(super) signals: &'a Signals,
    /// It ends with the command.
    pub(super) workload: Option<&'a mut Workload>,
    /// A first signal that was meant for this process alone goes to the command, whose end is waited for.
    pub(super) passes_signals: bool,
    /// Without a command it ends with these tasks.
    pub(super) liveness: Option<Liveness>,
    /// The longest time.
    pub(super) duration: Option<Duration>,
    /// It ends when this is readable.
    pub(super) stop: Option<BorrowedFd<'a>>,
    /// The output has ended when this is readable, which is an error.
    pub(super) failed: Option<&'a Waker>,
}

/// Schedule of readings of counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadingSchedule {
    /// The longest time between two.
    pub(super) every: Duration,
    /// Time between two that are of interest by themselves. They keep to the clock; those that were slept through are left out.
    pub(super) interval: Option<Duration>,
}

impl Ends<'_> {
    /// Runs the sources of `purpose` until something asks for the end.
    ///
    /// # Errors
    /// When the output has ended, or a turn fails.
    pub(super) fn run<P: Purpose>(mut self, purpose: &mut P, readings: ReadingSchedule) -> Result<(), P::Error> {
        let started = Instant::now();
        let ends_at = self.duration.map(|duration| started + duration);
        let mut next_reading = started + readings.every;
        let mut next_interval = readings.interval.map(|interval| started + interval);
        // At their first tick sources say when the next one is.
        let mut next_tick = Some(started);
        let mut was_asked = false;
        loop {
            let look_at = Instant::now() + LOOK_EVERY;
            let wakes = [next_tick, Some(next_reading), next_interval, ends_at, purpose.due_at()];
            let wake_at = wakes.into_iter().flatten().fold(look_at, Instant::min);
            self.wait(purpose.sources().waker(), wake_at)?;
            if self.failed.is_some_and(is_readable) {
                return Err(Error::OutputEnded.into());
            }
            let arrived = self.signals.take();
            let now = Instant::now();
            let mut is_last = ends_at.is_some_and(|at| at <= now) || self.stop.as_ref().is_some_and(is_readable);
            if let Some(asked) = arrived.end {
                // The terminal sends its signals to the command, too.
                match self.workload.as_deref_mut().filter(|_| self.passes_signals && !was_asked) {
                    Some(workload) => workload.signal(asked),
                    None => is_last = true,
                }
                was_asked = true;
            }
            is_last |= self.are_gone();
            let ends_interval = !is_last && next_interval.is_some_and(|at| at <= now);
            let is_reading = ends_interval || !is_last && next_reading <= now;
            if is_reading {
                next_reading = now + readings.every;
            }
            if let (Some(at), Some(interval), true) = (&mut next_interval, readings.interval, ends_interval) {
                while *at <= now {
                    *at += interval;
                }
            }
            next_tick = purpose.sources().tick(Tick { now, is_reading })?;
            purpose.turn(Turn { now, ends_interval, was_signalled: arrived.user, is_last })?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Waits until there is something to do for a source, a signal or one of the other descriptors came, a command or another target
    /// has ended, or the time is over.
    fn wait(&self, waker: &Waker, until: Instant) -> Result<()> {
        let mut fds = vec![sys::poll_in(self.signals), sys::poll_in(waker)];
        fds.extend(self.failed.map(sys::poll_in));
        fds.extend(self.stop.as_ref().map(sys::poll_in));
        fds.extend(self.workload.as_deref().and_then(Workload::pidfd).map(sys::poll_in));
        fds.extend(self.liveness.iter().flat_map(Liveness::fds).map(sys::poll_in));
        let waited = sys::poll(&mut fds, Some(until.saturating_duration_since(Instant::now())));
        waker.take();
        waited.map_err(|answer| Error::Syscall {
            call: "poll",
            object: "signals".to_owned(),
            answer,
            remedy: String::new(),
        })
    }

    /// True when the command has ended, or where there is none all tasks have.
    fn are_gone(&mut self) -> bool {
        match &mut self.workload {
            Some(workload) => workload.has_ended(),
            None => self.liveness.as_mut().is_some_and(Liveness::are_gone),
        }
    }
}
