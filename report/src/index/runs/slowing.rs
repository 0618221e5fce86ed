//! Slowdown by counting: a load that keeps a CPU busy runs less often in windows, while statistics are on, than outside of them.
//!
//! - In windows, counting took the part `c` of a CPU: the number of runs times the cost of counting a run, divided by the time in windows. Outside of
//!   windows, a load without spare time runs `1/(1 − c)` times as often, and a load with spare time equally often. The factor is
//!   `1 + p·(1/(1 − c) − 1)`, where `p` is 1 for a load without spare time, and 0 for a load with spare time. `p` may be above 1, because opening and
//!   closing a window takes the load's time, too. The prior of `p` is a third at 0, a third between 0 and 1, and a third from 1 on.
//! - Samples cover the whole recording, in windows and outside. A program's sampled time divided by its own time per run gives all its runs, and so
//!   the runs outside of windows. The number of samples and the error of the time per run make this a likelihood, from which the mean and variance of
//!   `p` follow.

use super::{ProgramKey, ProgramSeries, RunSeries};
use rustc_hash::FxHashMap;

/// Part of the cost of counting a run that is inside the run's measured time: 47 of 82 ns, measured.
const IN_THE_RUN: f64 = 0.57;
/// Relative standard deviation of the counting cost.
const COST_ERROR: f64 = 0.1;
/// Part of the missing ticks of the sampling clock that may have been in busy time. The other missing ticks are ticks of idle time.
const BUSY_TICKS: f64 = 0.1;
/// Limit on the part of a CPU that counting takes: a run takes at least as long as its counting.
const MOST_TAKEN: f64 = 0.5;
/// Least ratio of the runs by samples to the runs by counting. A lower ratio shows that samples miss the program; the samples are then not used.
const LEAST_SEEN: f64 = 0.5;
/// Least number of samples for an estimate.
const FEW_SAMPLES: u64 = 10;
/// Number of steps of `p` from 0 to 1 in the numeric integration.
const STEPS: u32 = 50;
/// Upper limit of `p` in the numeric integration.
const MOST_TIMES: u32 = 3;
/// Mean excess of `p` over 1, if `p` is above 1.
const BEYOND: f64 = 0.4;
/// Number of standard deviations beyond which a value is clamped.
const FAR: f64 = 3.0;
/// Standard deviations in half of a 95 % interval.
const SIGMAS: f64 = 1.96;

/// Time in a program and its callees by samples.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SampledTime {
    pub(crate) samples: u64,
    /// Time if all missing samples were outside of the program, ns.
    pub(crate) least_ns: f64,
    /// Time if the missing samples were in the program in the same proportion as the recorded samples, ns.
    pub(crate) most_ns: f64,
}

/// Slowdown of a program by counting: the ratio of its run rate outside of windows to its rate in windows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slowing {
    pub(super) factor: f64,
    /// Half of the factor's 95 % interval.
    pub(super) margin: f64,
}

impl RunSeries {
    /// Returns true if statistics were on for a part of the time only.
    pub(crate) fn has_windows(&self) -> bool {
        self.windows.iter().any(|window| window.on_ns < (window.to_ns - window.from_ns) as f64)
            || self.windows.windows(2).any(|pair| pair[0].to_ns < pair[1].from_ns)
    }

    /// Returns true if the slowdown of programs is known.
    pub(crate) fn is_corrected(&self) -> bool {
        !self.slowing.is_empty()
    }

    /// Estimates how much counting slows each program down. `run_ns` is the cost of counting a run. `sampled` has the programs' time by the samples
    /// of the whole recording; `None` if the samples do not cover everything that ran.
    pub(crate) fn correct(&mut self, run_ns: u64, sampled: Option<&FxHashMap<ProgramKey, SampledTime>>) {
        let added_ns = IN_THE_RUN * run_ns as f64;
        let slowing = |(key, taken): (ProgramKey, f64)| {
            let most = 1.0 / (1.0 - taken.min(MOST_TAKEN));
            let beside = sampled.and_then(|sampled| {
                let sampled = sampled.get(&key).filter(|sampled| sampled.samples >= FEW_SAMPLES)?;
                let program = self.program(key)?;
                let (_, all) = self.measure(program, &[self.life(program)]);
                let unseen = all.runs - all.counted;
                let own_ns = (all.ns_per_run()? - added_ns).max(added_ns * COST_ERROR);
                let (least, most) = (sampled.least_ns / own_ns, sampled.most_ns / own_ns);
                let by_chance = least * least / sampled.samples as f64;
                let by_cost = least * COST_ERROR * added_ns / own_ns;
                let error = by_chance.sqrt().hypot(by_cost).hypot(BUSY_TICKS * (most - least));
                let beside = ((least - all.counted) / unseen, error / unseen);
                (most > LEAST_SEEN * all.runs && beside.0.is_finite() && beside.1.is_normal()).then_some(beside)
            });
            (key, slowing(most, beside))
        };
        self.slowing = self.taken(run_ns).into_iter().map(slowing).collect();
    }

    /// Returns, for each program, the part of a CPU that counting of all programs took in windows, as a mean over the program's runs.
    fn taken(&self, run_ns: u64) -> Vec<(ProgramKey, f64)> {
        let grown = |program: &ProgramSeries| {
            let points = program.points.windows(2);
            points.map(|pair| (pair[1].moment, pair[1].since(&pair[0]).0 as f64)).collect::<Vec<_>>()
        };
        // First the runs of all programs in each window, by the window's end; then the part of a CPU that counting these runs took.
        let mut windows: FxHashMap<u32, f64> = FxHashMap::default();
        let all = self.programs.values().flat_map(grown);
        all.for_each(|(moment, runs)| *windows.entry(moment).or_default() += runs);
        let on_ns: FxHashMap<u32, f64> = self.windows.iter().map(|window| (window.until, window.on_ns)).collect();
        for (moment, taken) in &mut windows {
            *taken = on_ns.get(moment).map_or(0.0, |on_ns| *taken * run_ns as f64 / on_ns);
        }
        let of = |(key, program): (&ProgramKey, &ProgramSeries)| {
            let (mut runs, mut taken) = (0.0, 0.0);
            for (moment, grown) in grown(program) {
                runs += grown;
                taken += grown * windows[&moment];
            }
            (runs > 0.0).then(|| (*key, taken / runs))
        };
        self.programs.iter().filter_map(of).collect()
    }
}

/// Returns the mean of the factor, and its margin. `most` is the factor of a load without spare time; `sampled` is the factor by samples with its
/// standard deviation.
fn slowing(most: f64, sampled: Option<(f64, f64)>) -> Slowing {
    let (mut weights, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for step in 0..=STEPS * MOST_TIMES {
        let p = f64::from(step) / f64::from(STEPS);
        let slower = p * (most - 1.0);
        let own = slower * COST_ERROR;
        let prior = match step {
            0 => f64::from(STEPS),
            1..STEPS => 1.0,
            _ => (-(p - 1.0) / BEYOND).exp() / BEYOND,
        };
        let likelihood = sampled.map_or(1.0, |(factor, error)| {
            // A factor by samples may be far outside of the range of the integration. It is clamped to a few standard deviations beyond the range, so
            // that a likelihood remains.
            let off = (factor - 1.0).clamp(-FAR * error, f64::from(MOST_TIMES) * (most - 1.0) + FAR * error) - slower;
            let variance = error * error + own * own;
            (-0.5 * off * off / variance).exp() / variance.sqrt()
        });
        let weight = prior * likelihood;
        weights += weight;
        sum += weight * slower;
        squares += weight * (slower * slower + own * own);
    }
    let mean = sum / weights;
    let variance = (squares / weights - mean * mean).max(0.0);
    Slowing { factor: 1.0 + mean, margin: SIGMAS * variance.sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_tell_a_load_that_is_slowed_from_one_that_is_not() {
        let of = |sampled| slowing(1.25, sampled);
        let nothing_known = of(None);
        assert!((1.12..1.2).contains(&nothing_known.factor) && nothing_known.margin > 0.2, "{nothing_known:?}");
        for (sampled, factor) in [(1.0, 1.0), (0.8, 1.0), (1.25, 1.25), (1.4, 1.4), (-3.0, 1.0)] {
            let found = of(Some((sampled, 0.03)));
            assert!((found.factor - factor).abs() < 0.02, "{sampled}: {found:?}");
            assert!(found.margin < 0.2, "{sampled}: {found:?}");
        }
        assert!((1.6..1.9).contains(&of(Some((9.0, 0.03))).factor));
        // A factor halfway between 1 and 1.25: half of the runs are slowed down.
        let half = of(Some((1.125, 0.02)));
        assert!((half.factor - 1.125).abs() < 0.01 && half.margin < 0.06, "{half:?}");
        // Samples with a large error hardly change the factor.
        let unsure = of(Some((1.0, 0.5)));
        assert!((1.09..1.17).contains(&unsure.factor), "{unsure:?}");
    }

    #[test]
    fn nothing_is_added_where_counting_takes_nothing() {
        let found = slowing(1.0, Some((1.3, 0.01)));
        assert_eq!((found.factor, found.margin), (1.0, 0.0));
    }
}
