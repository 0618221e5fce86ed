//! The kernel's run statistics: number and duration of the runs of programs.
//!
//! With statistics on, the kernel reads the clock twice per run of any program. Statistics are on throughout if that stays within the budget
//! ([`limiter`]). Otherwise they are on in windows: short times that a thread begins and ends ([`window`]). Counts are read before and after each
//! window. While the recorder has statistics off, an empty program shows if another tool has statistics on ([`others`]).

mod limiter;
mod others;
mod window;

use std::time::{Duration, Instant};

use bprec_bpf::{StatsCost, StatsGuard, StatsProbe, stats_sysctl};

use super::inventory::{OnTime, Reading};
use super::{Context, Source, Tick};
use crate::events::machine;
use crate::sys::Waker;
use crate::{Level, Result, Taken, sys};
use limiter::Limiter;
use others::{Beside, Others};
use window::{WindowResult, WindowTimer, middle};

/// Shortest time between two checks of how often programs run.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Shortest time between two checks, as a multiple of the CPU time of one check.
const LOOKS: u32 = 50;
/// Shortest time over which a rate of runs is computed.
const LOOK_MIN: Duration = Duration::from_millis(20);
/// Shortest period of windows, used at the start.
const PERIOD_MIN: Duration = Duration::from_millis(80);
/// Longest usual period of windows.
const PERIOD_MAX: Duration = Duration::from_millis(500);
/// Number of usual periods in the duration of the recording so far, between the limits [`PERIOD_MIN`] and [`PERIOD_MAX`].
const PERIODS: u32 = 50;
/// Least number of usual periods in a requested interval, if these periods are at least [`PERIOD_MIN`].
const PERIODS_PER_INTERVAL: u32 = 10;

/// Switch of run statistics by this recorder; other tools can have statistics on, too.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    stage: StatisticsStage,
    /// Keeps run statistics on throughout; `None` if statistics are off, or on only in windows.
    guard: Option<StatsGuard>,
    in_windows: bool,
    limiter: Limiter,
    on_time: OnTime,
    probe: Option<StatsProbe>,
    /// Cost of run statistics; `None` if unknown.
    cost: Option<StatsCost>,
    others: Others,
}

/// Use of run statistics.
#[derive(Debug, Default, PartialEq, Eq)]
enum StatisticsStage {
    /// Not requested.
    #[default]
    Off,
    /// Requested, and not switched on yet.
    Asked,
    /// Switched on, throughout or in windows.
    Used,
    Refused,
}

impl Statistics {
    /// Requests run statistics that take at most `budget_ns` of each second, all CPUs together. Measures their cost with a program of the
    /// recorder before the recording begins, so that the recording does not contain these runs.
    pub(crate) fn asked(budget_ns: Option<f64>) -> Statistics {
        let probe = StatsProbe::load().ok();
        let cost = probe.as_ref().and_then(|probe| probe.calibrate().ok());
        let limiter = Limiter::new(budget_ns, cost);
        Statistics { stage: StatisticsStage::Asked, limiter, probe, cost, ..Statistics::default() }
    }

    /// Id of the recorder's program that checks if statistics are on and measures their cost.
    pub(crate) fn own_program(&self) -> Option<u32> {
        self.probe.as_ref().map(StatsProbe::id)
    }

    /// Returns true if the recorder has statistics on, throughout or in windows.
    pub(crate) fn are_used(&self) -> bool {
        self.guard.is_some() || self.in_windows
    }

    /// Returns true if statistics are on in windows.
    pub(crate) fn are_in_windows(&self) -> bool {
        self.in_windows
    }

    /// Cost of counting, ns of each second.
    pub(crate) fn taken_ns(&self) -> f64 {
        self.limiter.taken_ns(self.in_windows)
    }

    /// Chooses windows if programs run too often. Called before counting starts.
    pub(crate) fn adapt(&mut self, runs_per_second: f64) {
        self.in_windows = self.limiter.is_too_much(runs_per_second);
    }

    /// Returns true if another tool has statistics on. Must be called while the recorder has statistics off.
    fn look_for_others(&mut self) -> bool {
        let are_on = self.probe.as_ref().is_some_and(|probe| probe.are_on().unwrap_or(false));
        if let Some(ns) = self.others.seen(are_on, sys::monotonic_ns()) {
            self.on_time.add_others(ns);
        }
        are_on
    }

    /// Measures the cost of statistics again if other tools had statistics on at the first measurement, because
    /// switching then had no cost.
    fn recalibrate(&mut self) {
        let Some(probe) = self.probe.as_ref().filter(|_| self.cost.is_none_or(|cost| cost.switch.is_zero())) else {
            return;
        };
        if let Some(cost) = (!probe.are_on().unwrap_or(true)).then(|| probe.calibrate().ok()).flatten() {
            self.cost = Some(cost);
            self.limiter.set_cost(cost);
        }
    }

    /// Switches statistics on throughout.
    fn switch_on(&mut self) -> bprec_bpf::Result<()> {
        let began_ns = sys::monotonic_ns();
        self.guard = Some(StatsGuard::enable()?);
        self.on_time.switched_on(middle(began_ns));
        Ok(())
    }

    /// Switches statistics off if this recorder has them on throughout; does nothing in windows.
    fn switch_off(&mut self) {
        let began_ns = sys::monotonic_ns();
        if self.guard.take().is_some() {
            self.on_time.switched_off(middle(began_ns));
        }
    }
}

impl Context<'_> {
    /// Switches run statistics on if they are requested and no source has switched them on before.
    pub(super) fn switch_statistics_on(&mut self) {
        if self.statistics.stage != StatisticsStage::Asked {
            return;
        }
        let are_others = self.statistics.look_for_others();
        self.statistics.others.forget();
        self.out.session.stats_were_on = are_others || stats_sysctl().unwrap_or(false);
        self.out.session.statistics_run_ns = self.statistics.cost.map(|cost| cost.run_ns);
        if are_others {
            let text = "another tool has switched on the kernel's run statistics, which slow all BPF programs and stay on \
                        after bprec ends";
            (self.notify)(Level::Notice, text);
        }
        match self.statistics.switch_on() {
            Ok(()) => {
                self.statistics.stage = StatisticsStage::Used;
                self.out.session.counters = "stats".to_owned();
            }
            Err(error) => {
                self.statistics.stage = StatisticsStage::Refused;
                self.note_counters(&error.to_string());
                (self.notify)(Level::Warning, &format!("runs of BPF programs are not counted: {error}"));
            }
        }
        self.programs.set_on_time(self.statistics.on_time.clone());
    }
}

/// Source of run counts from the kernel's run statistics.
#[derive(Debug)]
pub(crate) struct RunStatistics {
    /// Requested time between two readings.
    interval: Duration,
    began: Instant,
    /// Time of the next check of how often programs run; used while statistics are on throughout.
    next_look: Option<Instant>,
    /// Runs since the last computed rate.
    new_runs: u64,
    /// Time of the last computed rate.
    seen_at: Instant,
    /// CPU time that statistics have taken so far, ns.
    taken_ns: f64,
    /// Copy of `taken_ns` for other threads.
    taken: Taken,
    /// CPU time that the last reading of all programs took.
    reading: Duration,
    windows: Windows,
}

/// Schedule of windows.
#[derive(Debug)]
struct Windows {
    /// Thread that opens and closes windows; `None` before the first window.
    timer: Option<WindowTimer>,
    /// Wakes the control thread when a window is closed.
    waker: Waker,
    /// Time at which the next window opens, and its length.
    next: Option<(Instant, Duration)>,
    /// Time at which the last window was closed.
    closed_at: Instant,
    /// True if a failure has been reported.
    has_failed: bool,
    draw: Draw,
}

impl RunStatistics {
    /// Makes the source. Counts are read at each `interval` and when a window is closed, which wakes `waker`.
    pub(crate) fn new(interval: Duration, taken: Taken, waker: Waker) -> RunStatistics {
        let now = Instant::now();
        RunStatistics {
            interval,
            began: now,
            next_look: None,
            new_runs: 0,
            seen_at: now,
            taken_ns: 0.0,
            taken,
            reading: Duration::ZERO,
            windows: Windows {
                timer: None,
                waker,
                next: None,
                closed_at: now,
                has_failed: false,
                draw: Draw(sys::monotonic_ns() | 1),
            },
        }
    }

    /// Reads and writes the counts. Returns the runs of all programs since the last reading.
    fn count(&mut self, reading: Reading, context: &mut Context<'_>) -> Result<u64> {
        let began = sys::thread_time();
        let (state, runs) = context.programs.run_stats(reading);
        context.out.state(state)?;
        self.reading = sys::thread_time().saturating_sub(began);
        Ok(runs)
    }

    /// Adds new runs, counted with statistics on throughout, and begins windows if counting takes too much.
    fn account(&mut self, new_runs: u64, context: &mut Context<'_>) -> Result<()> {
        let now = Instant::now();
        self.new_runs += new_runs;
        self.next_look = Some(now + LOOK_EVERY.max(self.reading * LOOKS));
        let elapsed = now - self.seen_at;
        if elapsed < LOOK_MIN {
            return Ok(());
        }
        let new = std::mem::take(&mut self.new_runs) as f64;
        self.seen_at = now;
        let rate = new / elapsed.as_secs_f64();
        let taken_ns = context.statistics.limiter.cost_ns(new);
        self.add_taken(taken_ns);
        context.statistics.limiter.add(rate, elapsed, taken_ns);
        if context.statistics.limiter.begins_windows(rate) { self.begin_windows(context) } else { Ok(()) }
    }

    fn add_taken(&mut self, ns: f64) {
        self.taken_ns += ns;
        self.taken.set(self.taken_ns as u64);
    }

    /// Changes statistics from on throughout to windows.
    fn begin_windows(&mut self, context: &mut Context<'_>) -> Result<()> {
        if self.windows.timer.is_none() {
            let timer = WindowTimer::start(context.statistics.on_time.clone(), self.windows.waker.clone());
            let missing = |error: &crate::Error| {
                (context.notify)(
                    Level::Warning,
                    &format!(
                        "run statistics stay on all the time and may cost more than --budget, because bprec cannot switch \
                         them on and off: {error}"
                    ),
                );
            };
            self.windows.timer = timer.inspect_err(missing).ok();
        }
        if self.windows.timer.is_none() {
            // Statistics stay on throughout: counts beyond the budget are better than no counts.
            context.statistics.in_windows = false;
            return Ok(());
        }
        context.statistics.in_windows = true;
        context.statistics.switch_off();
        self.next_look = None;
        self.count(Reading::All, context)?;
        context.statistics.recalibrate();
        let text = format!(
            "run counts are estimates: counting all {:.0} runs of programs per second would take {:.1} % of the machine, \
             more than --budget, so bprec counts only part of the time",
            context.statistics.limiter.rate(),
            context.statistics.limiter.taken_ns(false) / (machine::online_cpus().len() as f64 * 1e7),
        );
        (context.notify)(Level::Detail, &text);
        let now = Instant::now();
        self.windows.closed_at = now;
        context.statistics.look_for_others();
        self.plan(now, context);
        Ok(())
    }

    /// Chooses when the next window opens, and its length.
    fn plan(&mut self, now: Instant, context: &Context<'_>) {
        let of_interval = (self.interval / PERIODS_PER_INTERVAL).clamp(PERIOD_MIN, PERIOD_MAX);
        let usual = ((now - self.began) / PERIODS).clamp(PERIOD_MIN, of_interval);
        let plan = context.statistics.limiter.plan(usual, self.reading);
        self.windows.plan(now, plan.period, plan.window);
    }

    /// Reads the counts before a window and opens the window.
    fn open_window(&mut self, length: Duration, context: &mut Context<'_>) -> Result<()> {
        self.windows.next = None;
        let are_others = context.statistics.look_for_others();
        context.statistics.others.window_opens(are_others, sys::monotonic_ns());
        self.count(Reading::Changed, context)?;
        if let Some(timer) = &mut self.windows.timer {
            timer.open(length);
        }
        Ok(())
    }

    /// Reads the counts after a closed window.
    fn window_closed(&mut self, closed: WindowResult, reading: Reading, context: &mut Context<'_>) -> Result<()> {
        let now = Instant::now();
        let are_others = context.statistics.look_for_others();
        let mut is_ours_alone = true;
        if let Ok(on) = &closed {
            let on_ns = u64::try_from(on.as_nanos()).unwrap_or(u64::MAX);
            let beside = context.statistics.others.beside_window(are_others, sys::monotonic_ns(), on_ns);
            is_ours_alone = beside == Beside::Never;
            match beside {
                Beside::Never => (),
                Beside::Always(ns) => context.statistics.on_time.add_others(ns),
                // The counts include runs outside of the window, for an unknown time.
                Beside::Partly => context.statistics.on_time.take_back(on_ns),
            }
        }
        let new = self.count(reading, context)? as f64;
        let elapsed = now - self.windows.closed_at;
        self.windows.closed_at = now;
        match closed {
            // Other tools had statistics on: counting cost nothing extra, and the counts include runs outside of the
            // window, so they give no rate.
            Ok(_) if !is_ours_alone => (),
            Ok(on) => {
                let limiter = &context.statistics.limiter;
                let taken_ns = limiter.cost_ns(new) + limiter.switch_ns();
                self.add_taken(taken_ns);
                context.statistics.limiter.add(new / on.as_secs_f64().max(1e-6), elapsed, taken_ns);
            }
            // The next period tries again.
            Err(error) if !self.windows.has_failed => {
                self.windows.has_failed = true;
                (context.notify)(
                    Level::Warning,
                    &format!("runs of BPF programs were not counted for part of the time: {error}"),
                );
            }
            Err(_) => (),
        }
        Ok(())
    }

    /// Plans the next window, or switches statistics on throughout if the budget allows it again.
    fn go_on(&mut self, context: &mut Context<'_>) -> Result<()> {
        if context.statistics.limiter.ends_windows() && context.statistics.switch_on().is_ok() {
            context.statistics.in_windows = false;
            context.statistics.others.forget();
            self.count(Reading::All, context)?;
            let now = Instant::now();
            (self.new_runs, self.seen_at) = (0, now);
            self.next_look = Some(now + LOOK_EVERY);
        } else {
            self.plan(Instant::now(), context);
        }
        Ok(())
    }
}

impl Windows {
    /// Plans a pause and then a window of about `window`, together about a `period`. The pause before each window is random and independent of other
    /// pauses. If each fixed period had one window at a random place, long windows would mostly cover the middle of the period. Programs that run
    /// with that period would then be counted always or never.
    fn plan(&mut self, now: Instant, period: Duration, window: Duration) {
        let length = window.mul_f64(0.5 + self.draw.unit()).min(period.mul_f64(0.98));
        self.next = Some((now + (period - length).mul_f64(2.0 * self.draw.unit()), length));
    }

    fn is_open(&self) -> bool {
        self.timer.as_ref().is_some_and(WindowTimer::is_open)
    }
}

impl Source for RunStatistics {
    fn begin_file(&mut self, is_first: bool, context: &mut Context<'_>) -> Result<()> {
        context.switch_statistics_on();
        if context.statistics.stage == StatisticsStage::Refused {
            return Ok(());
        }
        if !is_first {
            // Begins with the counts at the end of the file before, so that no run between two files is lost.
            context.out.state(context.programs.last_run_stats(context.out.session.start_ns))?;
            return self.read(context);
        }
        self.count(Reading::All, context)?;
        let now = Instant::now();
        (self.began, self.seen_at, self.next_look) = (now, now, Some(now + LOOK_EVERY));
        // `in_windows` may be set already: exact counters start before statistics, and find out whether programs run too often.
        if context.statistics.in_windows { self.begin_windows(context) } else { Ok(()) }
    }

    fn tick(&mut self, tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        if context.statistics.stage == StatisticsStage::Refused {
            return Ok(None);
        }
        self.poll(tick.now, context)?;
        if tick.is_reading {
            self.read(context)?;
        }
        Ok(match self.windows.next {
            Some((opens, _)) => Some(opens.min(context.statistics.others.looked_at() + LOOK_EVERY)),
            None => self.next_look,
        })
    }

    fn end_file(&mut self, is_last: bool, context: &mut Context<'_>) -> Result<()> {
        if context.statistics.stage == StatisticsStage::Refused {
            return Ok(());
        }
        if !is_last {
            return self.read(context);
        }
        self.next_look = None;
        self.windows.next = None;
        if context.statistics.in_windows {
            let closed = self.windows.timer.as_mut().and_then(WindowTimer::close);
            match closed {
                Some(closed) => self.window_closed(closed, Reading::All, context)?,
                None => {
                    context.statistics.look_for_others();
                    self.count(Reading::All, context)?;
                }
            }
            self.windows.timer = None;
            context.statistics.in_windows = false;
        } else {
            // Statistics are switched off first, so that the kernel counts no more runs for this recorder after the reading. `on_time` goes on: the
            // final counts of programs, read a moment later, also belong to the time with statistics on.
            context.statistics.guard = None;
            let new_runs = self.new_runs + self.count(Reading::All, context)?;
            let taken_ns = context.statistics.limiter.cost_ns(new_runs as f64);
            self.add_taken(taken_ns);
        }
        self.sum_up(context);
        Ok(())
    }
}

impl RunStatistics {
    fn poll(&mut self, now: Instant, context: &mut Context<'_>) -> Result<()> {
        if self.windows.is_open() {
            let closed = self.windows.timer.as_mut().and_then(WindowTimer::take_closed);
            let Some(closed) = closed else { return Ok(()) };
            self.window_closed(closed, Reading::Changed, context)?;
            return self.go_on(context);
        }
        match self.windows.next {
            Some((opens, length)) if opens <= now => self.open_window(length, context)?,
            Some(_) if context.statistics.others.looked_at() + LOOK_EVERY <= now => {
                context.statistics.look_for_others();
            }
            Some(_) => (),
            None if self.next_look.is_some_and(|at| at <= now) => {
                let began = sys::thread_time();
                let new_runs = context.programs.new_runs();
                self.reading = sys::thread_time().saturating_sub(began);
                self.account(new_runs, context)?;
            }
            None => (),
        }
        Ok(())
    }

    /// Reads the counts of all programs.
    fn read(&mut self, context: &mut Context<'_>) -> Result<()> {
        let new_runs = self.count(Reading::All, context)?;
        if !context.statistics.in_windows {
            self.account(new_runs, context)?;
        }
        self.sum_up(context);
        Ok(())
    }

    fn sum_up(&self, context: &mut Context<'_>) {
        if context.statistics.cost.is_none() {
            return;
        }
        let machine_s = self.began.elapsed().as_secs_f64() * machine::online_cpus().len() as f64;
        let taken_s = self.taken_ns / 1e9;
        context.out.summary.statistics_time = Some(Duration::from_secs_f64(taken_s));
        context.out.summary.statistics_part = (machine_s > 0.0).then(|| taken_s / machine_s);
    }
}

/// Random numbers (xorshift64*).
#[derive(Debug)]
struct Draw(u64);

impl Draw {
    /// Returns a random number from 0 to 1.
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

    #[test]
    fn windows_have_their_length_and_see_each_time_alike() {
        const COUNT: u32 = 20_000;
        let period = Duration::from_millis(100);
        for window in [Duration::from_millis(5), Duration::from_millis(50)] {
            let start = Instant::now();
            let mut windows = Windows {
                timer: None,
                waker: Waker::new().unwrap(),
                next: None,
                closed_at: start,
                has_failed: false,
                draw: Draw(1),
            };
            let (mut now, mut on) = (start, Duration::ZERO);
            // Milliseconds for which statistics were on in each tenth of the period.
            let mut seen = [0_u32; 10];
            for _ in 0..COUNT {
                windows.plan(now, period, window);
                let (opens, length) = windows.next.unwrap();
                assert!(opens >= now && opens + length <= now + period * 2);
                (now, on) = (opens + length, on + length);
                for at_ms in 0..length.as_millis() {
                    seen[((opens - start).as_millis() + at_ms) as usize % 100 / 10] += 1;
                }
            }
            for (what, expected) in [(on, window * COUNT), (now - start, period * COUNT)] {
                assert!((what.as_secs_f64() / expected.as_secs_f64() - 1.0).abs() < 0.05, "{what:?}, not {expected:?}");
            }
            let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
            assert!(f64::from(*most) < f64::from(*least) * 1.2, "{seen:?}");
        }
    }
}
