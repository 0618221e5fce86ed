//! Keeps the cost of run statistics within a part of the machine's time.
//!
//! Statistics are on throughout while counting all runs costs less than the budget. Otherwise statistics are on in windows, about one per period.
//! Start and length of a window vary at random around a mean. The mean follows from the rate of runs over some seconds, never from the last
//! window alone: windows that are short because the window before was busy would bias the estimates of runs.

use std::time::Duration;

use bprec_bpf::StatsCost;

/// Unused budget (credit) at the start, in seconds of the budget. Credit lets a short burst of runs pass without windows.
const CREDIT_FIRST_S: f64 = 0.1;
/// Limit on the credit that a quiet time saves, in seconds of the budget.
const CREDIT_MOST_S: f64 = 0.5;
/// Time constant of the mean rate of runs.
const SMOOTHED_S: f64 = 2.0;
/// Part of the budget: windows end when counting all runs would take at most this part. With a larger part, windows could begin again at once.
const ENOUGH: f64 = 0.8;
/// Part of the budget that windows aim at.
const AIM: f64 = 0.9;
/// Limit on the part of the budget that switching statistics on and off may take.
const SWITCHING: f64 = 0.75;
/// The shortest usual window.
const WINDOW_MIN_S: f64 = 0.001;
/// The largest part of a period that a window may take.
const WINDOW_MOST: f64 = 0.9;
/// Limit on the cost of reading: a period is at least this multiple of the time that one reading of all counts takes.
/// Each period has two readings.
const READS: f64 = 100.0;

/// Limit on the cost of run statistics, and the cost so far. The default has no limit.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    /// Limit, ns of each second; `None` without a limit.
    budget_ns: Option<f64>,
    /// Cost of run statistics; `None` if unknown. Without a known cost there is no limit.
    cost: Option<StatsCost>,
    /// Mean rate of the runs of all programs, per second; `None` before the first measurement.
    rate: Option<f64>,
    /// Budget left over so far, ns; negative if statistics took more than the budget.
    credit_ns: f64,
}

/// Mean period and length of the next windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WindowPlan {
    /// Mean time from the start of a window to the start of the next.
    pub(super) period: Duration,
    /// Mean length of a window.
    pub(super) window: Duration,
}

impl Limiter {
    pub(super) fn new(budget_ns: Option<f64>, cost: Option<StatsCost>) -> Limiter {
        let credit_ns = budget_ns.unwrap_or(0.0) * CREDIT_FIRST_S;
        Limiter { budget_ns, cost, rate: None, credit_ns }
    }

    /// Replaces the cost of statistics after a new calibration.
    pub(super) fn set_cost(&mut self, cost: StatsCost) {
        self.cost = Some(cost);
    }

    /// Cost of counting a number of runs, ns.
    pub(super) fn cost_ns(&self, runs: f64) -> f64 {
        runs * self.cost.map_or(0.0, |cost| cost.run_ns as f64)
    }

    /// Cost of switching statistics on and off, ns.
    pub(super) fn switch_ns(&self) -> f64 {
        self.cost.map_or(0.0, |cost| cost.switch.as_nanos() as f64)
    }

    /// Mean rate of the runs of all programs, per second; 0 if unknown.
    pub(super) fn rate(&self) -> f64 {
        self.rate.unwrap_or(0.0)
    }

    /// Cost of counting, ns of each second; in windows, at most the budget.
    pub(super) fn taken_ns(&self, in_windows: bool) -> f64 {
        let all_ns = self.cost_ns(self.rate());
        self.budget_ns.filter(|_| in_windows).map_or(all_ns, |budget_ns| budget_ns.min(all_ns))
    }

    /// Adds a measurement: during `elapsed`, programs ran `rate` times a second, and counting took `taken_ns`.
    pub(super) fn add(&mut self, rate: f64, elapsed: Duration, taken_ns: f64) {
        let elapsed_s = elapsed.as_secs_f64();
        let weight = 1.0 - (-elapsed_s / SMOOTHED_S).exp();
        self.rate = Some(self.rate.map_or(rate, |before| before + weight * (rate - before)));
        if let Some(budget_ns) = self.budget_ns {
            self.credit_ns = (self.credit_ns + budget_ns * elapsed_s - taken_ns).min(budget_ns * CREDIT_MOST_S);
        }
    }

    /// Returns true if windows must begin, because statistics cost too much to stay on. `rate` is the latest rate of runs.
    pub(super) fn begins_windows(&mut self, rate: f64) -> bool {
        self.credit_ns < 0.0 && self.is_too_much(rate)
    }

    /// Returns true if counting all of `rate` runs a second would take more than the budget.
    pub(super) fn is_too_much(&mut self, rate: f64) -> bool {
        let is_too_much = self.cost.is_some() && self.budget_ns.is_some_and(|budget_ns| self.cost_ns(rate) > budget_ns);
        if is_too_much {
            // A load that has just begun has a rate above the mean; the first windows must follow the rate.
            self.rate = Some(self.rate.map_or(rate, |before| before.max(rate)));
        }
        is_too_much
    }

    /// Returns true if windows may end, so that statistics are on throughout.
    pub(super) fn ends_windows(&mut self) -> bool {
        let Some((budget_ns, rate)) = self.budget_ns.zip(self.rate) else { return true };
        let is_enough = self.cost_ns(rate) <= budget_ns * ENOUGH;
        if is_enough {
            self.credit_ns = budget_ns * CREDIT_FIRST_S;
        }
        is_enough
    }

    /// Computes the windows. `usual` is the shortest period, `reading` the CPU time to read all counts.
    pub(super) fn plan(&self, usual: Duration, reading: Duration) -> WindowPlan {
        let budget_ns = self.budget_ns.unwrap_or(f64::INFINITY).max(1.0);
        // With negative credit, windows take less, so that an excess is compensated within a second or two.
        let aim_ns = budget_ns * AIM * (1.0 + self.credit_ns / budget_ns).clamp(0.5, 1.0);
        let all_ns = self.cost_ns(self.rate()).max(1.0);
        let periods_s = [
            usual.as_secs_f64(),
            self.switch_ns() / (aim_ns * SWITCHING),
            (self.switch_ns() + WINDOW_MIN_S * all_ns) / aim_ns,
            reading.as_secs_f64() * READS,
        ];
        let period_s = periods_s.into_iter().fold(0.0, f64::max);
        let window_s = (period_s * aim_ns - self.switch_ns()) / all_ns;
        let window_s = window_s.clamp(WINDOW_MIN_S, period_s * WINDOW_MOST);
        WindowPlan { period: Duration::from_secs_f64(period_s), window: Duration::from_secs_f64(window_s) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: f64 = 1e9;
    const PERIOD: Duration = Duration::from_millis(100);

    fn limiter(budget_part: f64) -> Limiter {
        let cost = StatsCost { run_ns: 70, switch: Duration::from_micros(400) };
        // Budget of a machine with two CPUs.
        Limiter::new(Some(budget_part * 2.0 * SECOND_NS), Some(cost))
    }

    /// Simulates programs that run `rate` times a second on two CPUs. Returns the cost of counting, the seconds with statistics on throughout, and
    /// the number of windows.
    fn simulate(limiter: &mut Limiter, seconds: f64, rate: impl Fn(f64) -> f64) -> (f64, f64, u32) {
        let (mut now_s, mut taken_ns, mut throughout_s, mut windows) = (0.0, 0.0, 0.0, 0);
        let mut in_windows = false;
        while now_s < seconds {
            let elapsed_s = if in_windows {
                let plan = limiter.plan(PERIOD, Duration::ZERO);
                let (period_s, window_s) = (plan.period.as_secs_f64(), plan.window.as_secs_f64());
                // The window has a pseudo-random position in its period.
                let rate = rate(now_s + period_s * (f64::from(windows) * 0.618).fract());
                let took_ns = limiter.cost_ns(rate * window_s) + limiter.switch_ns();
                limiter.add(rate, plan.period, took_ns);
                taken_ns += took_ns;
                windows += 1;
                in_windows = !limiter.ends_windows();
                period_s
            } else {
                let rate = rate(now_s);
                let took_ns = limiter.cost_ns(rate * 0.05);
                limiter.add(rate, Duration::from_millis(50), took_ns);
                taken_ns += took_ns;
                throughout_s += 0.05;
                in_windows = limiter.begins_windows(rate);
                0.05
            };
            now_s += elapsed_s;
        }
        (taken_ns / (2.0 * SECOND_NS * now_s), throughout_s, windows)
    }

    #[test]
    fn all_runs_are_counted_where_that_is_affordable() {
        // 500,000 runs a second take 1.75 % of two CPUs.
        let (part, throughout_s, windows) = simulate(&mut limiter(0.02), 5.0, |_| 500_000.0);
        assert!((part - 0.0175).abs() < 1e-6 && throughout_s > 4.99 && windows == 0, "{part} {throughout_s} {windows}");
        // A short burst does not start windows.
        let burst = |now: f64| if (1.0..1.1).contains(&now) { 1_500_000.0 } else { 100_000.0 };
        assert_eq!(simulate(&mut limiter(0.02), 5.0, burst).2, 0);
    }

    #[test]
    fn a_load_that_is_too_much_is_limited_from_its_start() {
        for budget in [0.005, 0.02] {
            for seconds in [2.0, 5.0, 20.0] {
                let (part, throughout_s, windows) = simulate(&mut limiter(budget), seconds, |_| 2_000_000.0);
                assert!(part < budget * 1.1, "{budget} {seconds}: {part}");
                assert!(throughout_s <= 0.15, "{throughout_s}");
                assert!(f64::from(windows) >= seconds * 8.0, "{windows} windows in {seconds} s");
            }
        }
        // The same holds for a load that begins late, and for a load with bursts.
        let late = |now: f64| if now < 4.0 { 1000.0 } else { 2_000_000.0 };
        assert!(simulate(&mut limiter(0.02), 20.0, late).0 < 0.02);
        let bursts = |now: f64| if (now / 0.4).fract() < 0.25 { 4_000_000.0 } else { 0.0 };
        assert!(simulate(&mut limiter(0.005), 20.0, bursts).0 < 0.006);
    }

    #[test]
    fn windows_end_when_all_runs_are_affordable_again() {
        let mut limiter = limiter(0.02);
        let early = |now: f64| if now < 4.0 { 2_000_000.0 } else { 1000.0 };
        let (_, throughout_s, _) = simulate(&mut limiter, 20.0, early);
        assert!(throughout_s > 8.0, "{throughout_s}");
    }

    #[test]
    fn nothing_is_limited_without_a_limit_or_without_a_known_cost() {
        let cost = StatsCost { run_ns: 70, switch: Duration::ZERO };
        for mut limiter in [Limiter::new(None, Some(cost)), Limiter::new(Some(1e6), None)] {
            limiter.add(1e9, Duration::from_secs(1), limiter.cost_ns(1e9));
            assert!(!limiter.begins_windows(1e9) && !limiter.is_too_much(1e9));
        }
    }
}
