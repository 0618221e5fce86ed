//! The kernel's run statistics: runs of programs, and the time that they took.
//!
//! They read two clocks for each run of any program. Where that would take more than the budget, they are on in windows only:
//! one in each period, of which the length is drawn by chance, at a place that is drawn by chance, so that nothing that repeats
//! itself beats against them. To switch them patches the kernel's text, so that periods are long rather than windows short.

use std::time::{Duration, Instant};

use bprec_bpf::{StatsGuard, statistics_run_ns, stats_sysctl};

use super::inventory::{OnTime, Programs};
use super::{Context, Source};
use crate::output::Summary;
use crate::{Level, Result, sys};

/// The usual length of a period with one window; it is drawn from half of it to one and a half of it.
const PERIOD: Duration = Duration::from_millis(500);
/// The shortest window.
const WINDOW_MIN: Duration = Duration::from_millis(2);
/// A period is so many times what it takes to read all counts, which is done twice in it.
const READS: u32 = 200;
/// The first look at what they take, and time between two later ones.
const LOOK_FIRST: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How much the newest window counts for what programs run in a second.
const NEWEST: f64 = 0.3;
/// Windows end when what they take is less than this part of what it may: it must not begin again at once.
const ENOUGH: f64 = 0.8;

/// The switch of run statistics, ours alone: others may have them on as well.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    guard: Option<StatsGuard>,
    /// What they may take of a second; `None` without a limit.
    budget_ns: Option<f64>,
    /// What they add to a run; `None` when that is not known, or somebody else has them on.
    run_ns: Option<f64>,
    /// They are on in windows, so much of the time.
    windows: Option<f64>,
    /// Runs of all programs in a second, as far as it is known.
    rate: f64,
    time: OnTime,
}

impl Statistics {
    /// Counts run by them, be it in windows.
    pub(crate) fn are_used(&self) -> bool {
        self.guard.is_some() || self.windows.is_some()
    }

    /// They are on for a part of the time.
    pub(crate) fn are_in_windows(&self) -> bool {
        self.windows.is_some()
    }

    /// What they take of each second.
    pub(crate) fn taken_ns(&self) -> f64 {
        self.rate * self.run_ns.unwrap_or(0.0) * self.windows.unwrap_or(1.0)
    }

    /// Keeps them within their budget while all programs run so many times a second. True when that changes how they are on.
    pub(crate) fn adapt(&mut self, runs_per_second: f64) -> bool {
        self.rate = runs_per_second;
        let (Some(budget_ns), Some(run_ns)) = (self.budget_ns, self.run_ns) else { return false };
        let was_in_windows = self.windows.is_some();
        let part = budget_ns / (runs_per_second * run_ns).max(1.0);
        let limit = if was_in_windows { 1.0 / ENOUGH } else { 1.0 };
        self.windows = (part < limit).then_some(part.min(1.0));
        self.windows.is_some() != was_in_windows
    }

    /// Switches them on. The time of the switch is the middle of what it took.
    fn switch_on(&mut self) -> bprec_bpf::Result<()> {
        let before_ns = sys::monotonic_ns();
        self.guard = Some(StatsGuard::enable()?);
        self.time.since_ns = Some(middle(before_ns));
        Ok(())
    }

    fn switch_off(&mut self) {
        if self.guard.is_some() {
            let before_ns = sys::monotonic_ns();
            self.guard = None;
            self.time = OnTime { before_ns: self.time.at(middle(before_ns)), since_ns: None };
        }
    }
}

fn middle(before_ns: u64) -> u64 {
    before_ns + (sys::monotonic_ns() - before_ns) / 2
}

/// Runs of programs as the kernel counts them.
#[derive(Debug)]
pub(crate) struct RunStatistics {
    /// What they may take of the machine's time in a second, and what they add to a run.
    budget_ns: Option<f64>,
    run_ns: Option<f64>,
    is_refused: bool,
    next_look: Option<Instant>,
    /// When the window under way ends, or the next one begins.
    switch_at: Option<Instant>,
    /// When the period under way ends.
    period_ends: Instant,
    /// Runs of all programs at the last look, and for how long statistics had been on.
    seen: (u64, u64),
    /// What they have taken in all.
    taken_ns: f64,
    /// What reading the counts of all programs took.
    read_time: Duration,
    draw: Draw,
}

impl RunStatistics {
    /// `budget_ns` of each second, all CPUs together, may go to statistics. What they add to a run is found here, with a program of our
    /// own, which is gone again behind this.
    pub(crate) fn new(budget_ns: Option<f64>) -> RunStatistics {
        RunStatistics {
            budget_ns,
            run_ns: statistics_run_ns().ok().flatten().map(|ns| ns as f64),
            is_refused: false,
            next_look: None,
            switch_at: None,
            period_ends: Instant::now(),
            seen: (0, 0),
            taken_ns: 0.0,
            read_time: Duration::ZERO,
            draw: Draw(sys::monotonic_ns() | 1),
        }
    }

    /// Counts as of now. Returns the runs of all programs, and for how long statistics had been on.
    fn count(&mut self, context: &mut Context<'_>) -> Result<(u64, u64)> {
        let began = Instant::now();
        context.programs.set_statistics_time(context.statistics.time);
        let on_ns = context.statistics.time.at(sys::monotonic_ns());
        let states = context.programs.run_stats();
        let runs = Programs::runs_in(&states);
        context.out.states(states)?;
        self.read_time = began.elapsed();
        Ok((runs, on_ns))
    }

    /// Counts as of now. Returns the runs per second since the last look; `None` when that was a moment ago.
    fn snapshot(&mut self, context: &mut Context<'_>) -> Result<Option<f64>> {
        let (runs, on_ns) = self.count(context)?;
        let (seen_runs, seen_on_ns) = self.seen;
        let elapsed_ns = on_ns.saturating_sub(seen_on_ns);
        // A moment says nothing about a second, whereas a window has to.
        let enough_ns = if context.statistics.are_in_windows() { 1 } else { LOOK_FIRST.as_nanos() as u64 };
        let is_last = !context.statistics.are_used();
        if elapsed_ns < enough_ns && !is_last {
            return Ok(None);
        }
        self.seen = (runs, on_ns);
        // Programs that have gone take their runs along.
        let new = runs.saturating_sub(seen_runs) as f64;
        self.taken_ns += new * self.run_ns.unwrap_or(0.0);
        Ok(Some(new * 1e9 / elapsed_ns.max(1) as f64))
    }

    /// Switches them as windows demand.
    fn switch(&mut self, now: Instant, context: &mut Context<'_>) -> Result<()> {
        let Some(part) = context.statistics.windows else { return Ok(()) };
        if context.statistics.guard.is_some() {
            context.statistics.switch_off();
            let rate = self.snapshot(context)?;
            // Of many windows: one alone may have met a burst, or none.
            let rate = rate.map(|rate| context.statistics.rate * (1.0 - NEWEST) + rate * NEWEST);
            if let Some(rate) = rate
                && context.statistics.adapt(rate)
            {
                return self.always(context);
            }
            self.switch_at = Some(self.next_window(now, part));
            context.programs.set_statistics_time(context.statistics.time);
            return Ok(());
        }
        // Others may have had them on since the last window. What was counted then is not of this one.
        self.seen = self.count(context)?;
        if let Err(error) = context.statistics.switch_on() {
            (context.notify)(Level::Warning, &format!("no run counts of programs any more: {error}"));
            context.statistics.windows = None;
            self.switch_at = None;
        } else {
            let now = Instant::now();
            let window = self.period_ends.saturating_duration_since(now);
            self.switch_at = Some(now + self.window(part).min(window.max(WINDOW_MIN)));
        }
        context.programs.set_statistics_time(context.statistics.time);
        Ok(())
    }

    /// The beginning of the next window, somewhere in the next period.
    fn next_window(&mut self, now: Instant, part: f64) -> Instant {
        let start = self.period_ends.max(now);
        let period = self.period(part).mul_f64(0.5 + self.draw.unit());
        self.period_ends = start + period;
        let room = period.saturating_sub(self.window(part));
        start + room.mul_f64(self.draw.unit())
    }

    fn period(&self, part: f64) -> Duration {
        PERIOD.max(WINDOW_MIN.div_f64(part.max(1e-4))).max(self.read_time * READS)
    }

    fn window(&self, part: f64) -> Duration {
        self.period(part).mul_f64(part).max(WINDOW_MIN)
    }

    /// They are on again throughout.
    fn always(&mut self, context: &mut Context<'_>) -> Result<()> {
        self.switch_at = None;
        if let Err(error) = context.statistics.switch_on() {
            (context.notify)(Level::Warning, &format!("no run counts of programs any more: {error}"));
        }
        context.programs.set_statistics_time(context.statistics.time);
        Ok(())
    }

    /// Looks whether they take more than they may.
    fn look(&mut self, rate: Option<f64>, now: Instant, context: &mut Context<'_>) {
        if let Some(rate) = rate
            && context.statistics.adapt(rate)
        {
            let text = format!(
                "run statistics are on for a part of the time: {rate:.0} runs of programs a second would take {:.0} ns each for them, \
                 which is more than --budget; runs are estimates",
                self.run_ns.unwrap_or(0.0)
            );
            (context.notify)(Level::Detail, &text);
            self.period_ends = now;
            self.switch_at = Some(now);
        }
    }
}

impl Source for RunStatistics {
    fn start(&mut self, context: &mut Context<'_>) -> Result<()> {
        context.session.stats_were_on = stats_sysctl().unwrap_or(false);
        (context.statistics.budget_ns, context.statistics.run_ns) = (self.budget_ns, self.run_ns);
        match context.statistics.switch_on() {
            Ok(()) => context.session.counters = "stats".to_owned(),
            Err(error) => {
                self.is_refused = true;
                context.note_counters(&error.to_string());
                (context.notify)(Level::Warning, &format!("no run counts of programs: {error}"));
            }
        }
        context.programs.set_statistics_time(context.statistics.time);
        Ok(())
    }

    fn begin(&mut self, context: &mut Context<'_>) -> Result<()> {
        if !self.is_refused {
            self.seen = self.count(context)?;
            self.next_look = Some(Instant::now() + LOOK_FIRST);
            // Somebody who attaches may have met too many runs already.
            self.switch_at = context.statistics.are_in_windows().then(Instant::now);
        }
        Ok(())
    }

    fn begin_file(&mut self, context: &mut Context<'_>) -> Result<()> {
        if !self.is_refused {
            self.count(context)?;
        }
        Ok(())
    }

    fn poll_at(&self) -> Option<Instant> {
        self.switch_at.or(self.next_look)
    }

    fn poll(&mut self, now: Instant, context: &mut Context<'_>) -> Result<()> {
        if let Some(at) = self.switch_at {
            return if at <= now { self.switch(now, context) } else { Ok(()) };
        }
        if self.next_look.is_some_and(|at| at <= now) {
            self.next_look = Some(now + LOOK_EVERY);
            let rate = self.snapshot(context)?;
            self.look(rate, now, context);
        }
        Ok(())
    }

    /// In windows there are counts at the end of each.
    fn read(&mut self, context: &mut Context<'_>) -> Result<()> {
        if self.is_refused || context.statistics.are_in_windows() {
            return Ok(());
        }
        let now = Instant::now();
        self.next_look = Some(now + LOOK_EVERY);
        let rate = self.snapshot(context)?;
        self.look(rate, now, context);
        Ok(())
    }

    /// Switched off first: what is read then is all that the kernel will ever have counted for us.
    fn finish(&mut self, context: &mut Context<'_>) -> Result<()> {
        if self.is_refused {
            return Ok(());
        }
        let was_on = context.statistics.time;
        context.statistics.switch_off();
        if !context.statistics.are_in_windows() {
            // They were on throughout; what is read a moment later is of that time.
            context.statistics.time = was_on;
        }
        self.snapshot(context)?;
        context.statistics.windows = None;
        (self.switch_at, self.next_look) = (None, None);
        Ok(())
    }

    fn sum_up(&self, summary: &mut Summary) {
        if !self.is_refused && self.run_ns.is_some() {
            summary.statistics_time = Some(Duration::from_nanos(self.taken_ns as u64));
        }
    }
}

/// Numbers drawn by chance (xorshift64*).
#[derive(Debug)]
struct Draw(u64);

impl Draw {
    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(budget_ns: f64) -> Statistics {
        Statistics { budget_ns: Some(budget_ns), run_ns: Some(50.0), ..Statistics::default() }
    }

    #[test]
    fn windows_begin_where_statistics_take_more_than_they_may() {
        let mut statistics = with(1e7);
        // 10 ms of each second, 50 ns a run: up to 200,000 runs of all programs.
        assert!(!statistics.adapt(200_000.0) && !statistics.are_in_windows());
        assert!(statistics.adapt(2_000_000.0));
        assert_eq!(statistics.windows, Some(0.1));
        assert!((statistics.taken_ns() - 1e7).abs() < 1.0);
        // A little less is no reason to end them.
        assert!(!statistics.adapt(180_000.0) && statistics.are_in_windows());
        assert!(statistics.adapt(100_000.0) && !statistics.are_in_windows());
        let mut unlimited = Statistics { run_ns: Some(50.0), ..Statistics::default() };
        assert!(!unlimited.adapt(1e9));
    }

    #[test]
    fn windows_take_their_part_and_do_not_repeat_themselves() {
        let mut source = RunStatistics {
            budget_ns: None,
            run_ns: None,
            is_refused: false,
            next_look: None,
            switch_at: None,
            period_ends: Instant::now(),
            seen: (0, 0),
            taken_ns: 0.0,
            read_time: Duration::ZERO,
            draw: Draw(1),
        };
        for part in [0.002, 0.05, 0.5] {
            let start = Instant::now();
            source.period_ends = start;
            let mut starts = Vec::new();
            for _ in 0..2000 {
                let at = source.next_window(start, part);
                starts.push((at - start).as_secs_f64());
            }
            let on = 2000.0 * source.window(part).as_secs_f64();
            let all = (source.period_ends - start).as_secs_f64();
            assert!((on / all / part - 1.0).abs() < 0.05, "{part}: {}", on / all);
            let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let period = source.period(part).as_secs_f64();
            assert!(gaps.iter().any(|gap| *gap < 0.7 * period) && gaps.iter().any(|gap| *gap > 1.3 * period));
            assert!(all / 2000.0 >= 0.45, "{part}: the kernel's text is patched every {} s", all / 4000.0);
        }
    }

    #[test]
    fn time_on_is_that_of_the_windows() {
        let mut time = OnTime { before_ns: 5, since_ns: None };
        assert_eq!(time.at(1000), 5);
        time.since_ns = Some(900);
        assert_eq!(time.at(1000), 105);
    }
}
