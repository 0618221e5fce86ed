//! The loop that recordings and counts share: sources tick until the run ends.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::command::Workload;
use super::liveness::{Liveness, is_readable};
use super::sources::Sources;
use crate::sources::Tick;
use crate::sys::{self, Signals, Waker};
use crate::{Error, Result};

/// Time between two checks of targets that have no descriptor to poll.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A recording or a count, for which the sources run.
pub(super) trait Purpose {
    /// Error of a turn.
    type Error: From<Error>;

    /// Sources of the run.
    fn sources(&mut self) -> &mut Sources;

    /// Time of the next turn, in addition to the times that the sources ask for.
    fn due_at(&self) -> Option<Instant> {
        None
    }

    /// Takes a turn, after all sources have ticked.
    ///
    /// # Errors
    /// Fails if the run cannot go on.
    fn turn(&mut self, turn: Turn) -> Result<(), Self::Error>;
}

/// One turn of the loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// Time at which the turn began.
    pub(super) now: Instant,
    /// An interval that the user asked for has ended, and counts were read.
    pub(super) ends_interval: bool,
    /// SIGUSR2 arrived.
    pub(super) was_signalled: bool,
    /// No turn follows.
    pub(super) is_last: bool,
}

/// Causes of the end of a run.
pub(super) struct Ends<'a> {
    pub(super) signals: &'a Signals,
    /// The run ends when the command ends.
    pub(super) workload: Option<&'a mut Workload>,
    /// The first signal is passed to the command, unless the terminal sent it to both; the run then waits for the
    /// command.
    pub(super) passes_signals: bool,
    /// Without a command, the run ends when these tasks have ended.
    pub(super) liveness: Option<Liveness>,
    /// The longest time that the run may take.
    pub(super) duration: Option<Duration>,
    /// The run ends when this descriptor is readable.
    pub(super) stop: Option<BorrowedFd<'a>>,
    /// Readable when the output has ended, which is an error.
    pub(super) failed: Option<&'a Waker>,
}

/// Schedule of the readings of counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadingSchedule {
    /// The longest time between two readings.
    pub(super) every: Duration,
    /// Time between two readings that the user asked for. Readings keep to the clock; a reading that was slept through
    /// is left out.
    pub(super) interval: Option<Duration>,
}

impl Ends<'_> {
    /// Runs the sources of `purpose` until the run ends.
    ///
    /// # Errors
    /// Fails if the output has ended, or a tick or a turn fails.
    pub(super) fn run<P: Purpose>(mut self, purpose: &mut P, readings: ReadingSchedule) -> Result<(), P::Error> {
        let started = Instant::now();
        let ends_at = self.duration.map(|duration| started + duration);
        let mut next_reading = started + readings.every;
        let mut next_interval = readings.interval.map(|interval| started + interval);
        // At its first tick a source says when its next tick is due.
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
                // The terminal sends its signals to the command, too; `signal` leaves those out.
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

    /// Waits until a source has work, a signal or another descriptor is ready, the command or a target has ended, or
    /// `until` is reached.
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

    /// Returns true if the command has ended, or, without a command, all watched tasks have ended.
    fn are_gone(&mut self) -> bool {
        match &mut self.workload {
            Some(workload) => workload.has_ended(),
            None => self.liveness.as_mut().is_some_and(Liveness::are_gone),
        }
    }
}
