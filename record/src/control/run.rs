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

    /// Does the work of one turn of the loop, after all sources have ticked.
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
    /// True if an interval that the user requested has ended and counts were read.
    pub(super) ends_interval: bool,
    /// True if SIGUSR2 has arrived since the previous turn.
    pub(super) was_signalled: bool,
    /// True if no turn follows.
    pub(super) is_last: bool,
}

/// Causes of the end of a run.
pub(super) struct Ends<'a> {
    pub(super) signals: &'a Signals,
    /// The run ends when the command ends.
    pub(super) workload: Option<&'a mut Workload>,
    /// True if the first signal does not end the run: it is passed to the command, and the run ends when the command
    /// ends. A signal that the terminal sent to both processes is not passed on.
    pub(super) passes_signals: bool,
    /// Without a command, the run ends when these tasks have ended.
    pub(super) liveness: Option<Liveness>,
    /// Maximum duration of the run.
    pub(super) duration: Option<Duration>,
    /// The run ends when this descriptor is readable.
    pub(super) stop: Option<BorrowedFd<'a>>,
    /// Readable when a thread of the output has ended by itself, which is an error.
    pub(super) failed: Option<&'a Waker>,
}

/// Schedule of the readings of counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadingSchedule {
    /// The longest time between two readings.
    pub(super) every: Duration,
    /// Time between two readings, if the user requested an interval. Readings are due at multiples of the interval
    /// since the start of the run; a reading that is a whole interval late is left out.
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
        // The first tick is due at once. Each tick returns the time of the next one.
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
                // `signal` does not pass on a signal of the terminal, because the command has received it, too.
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
        waited.map_err(Error::refused("poll", "signals"))
    }

    /// Returns true if the command has ended, or, without a command, all watched tasks have ended.
    fn are_gone(&mut self) -> bool {
        match &mut self.workload {
            Some(workload) => workload.has_ended(),
            None => self.liveness.as_mut().is_some_and(Liveness::are_gone),
        }
    }
}
