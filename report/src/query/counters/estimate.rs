//! Estimates for all runs from measured runs, with their errors. The gate of the counting programs selects the runs to measure.

use crate::index::student::Quantiles;
use bprec_format::bprec::state::{Histogram, Reading};
use std::collections::BTreeMap;

/// Least count of strata for an estimate of the variance.
const MIN_STRATA: u32 = 3;

/// Estimate of the total of a value over all runs, from the measured runs. Each interval between snapshots is a stratum with its own mean, which
/// stands for all its runs. Otherwise, a busy second, in which the gate measures a smaller share of the runs, would count less.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strata {
    /// Sum of the intervals that are not in a stratum yet. They become a stratum once one of their runs was measured, and the counter was on
    /// the PMU for part of their time.
    pending: Stratum,
    /// Count of all runs in strata, measured or not.
    runs: f64,
    /// Sum over strata of mean per measured run × all runs.
    total: f64,
    measured: f64,
    value: f64,
    /// Sum over strata of the squared value.
    value_value: f64,
    /// Sum over strata of value × measured runs.
    value_measured: f64,
    /// Sum over strata of the squared number of measured runs.
    measured_measured: f64,
    /// Sum over strata of runs × unmeasured runs / measured runs.
    spread: f64,
    count: u32,
}

#[derive(Debug, Clone, Default)]
struct Stratum {
    runs: f64,
    measured: f64,
    value: f64,
    enabled: f64,
    running: f64,
}

impl Strata {
    /// Adds an interval.
    pub(crate) fn add(&mut self, runs: u64, measured: u64, reading: &Reading) {
        let pending = &mut self.pending;
        // A run that is open at a snapshot is in `runs` of the interval before and in `measured` of the interval after. An interval with runs may
        // therefore have no measured run.
        pending.runs += runs as f64;
        pending.measured += measured as f64;
        pending.value += reading.value as f64;
        pending.enabled += reading.enabled_ns as f64;
        pending.running += reading.running_ns as f64;
        if pending.measured == 0.0 || pending.running == 0.0 {
            return;
        }
        let Stratum { runs, measured, value, enabled, running } = std::mem::take(pending);
        let value = if enabled > running { value * (enabled / running) } else { value };
        self.runs += runs;
        self.total += value / measured * runs;
        self.measured += measured;
        self.value += value;
        self.value_value += value * value;
        self.value_measured += value * measured;
        self.measured_measured += measured * measured;
        self.spread += runs * (runs - measured).max(0.0) / measured;
        self.count += 1;
    }

    /// Mean per run; `None` if no run was measured.
    pub(crate) fn mean(&self) -> Option<f64> {
        if self.runs > 0.0 {
            return Some(self.total / self.runs);
        }
        (self.measured > 0.0).then(|| self.value / self.measured)
    }

    /// Half of the mean's 95 % confidence interval, from the variance of one run.
    pub(crate) fn error_of_variance(&self, variance: f64) -> Option<f64> {
        let quantile = Quantiles::two_sided_95().of(self.measured - 1.0)?;
        (self.runs > 0.0).then(|| quantile * (variance * self.spread).sqrt() / self.runs)
    }

    /// Half of the mean's 95 % confidence interval, from the differences of the strata; `None` with too few strata.
    pub(crate) fn error_of_strata(&self) -> Option<f64> {
        if self.count < MIN_STRATA || self.measured <= 0.0 || self.runs <= 0.0 {
            return None;
        }
        let ratio = self.value / self.measured;
        let residual = self.value_value - 2.0 * ratio * self.value_measured + ratio * ratio * self.measured_measured;
        let count = f64::from(self.count);
        let unmeasured = (1.0 - self.measured / self.runs).max(0.0);
        let variance = residual.max(0.0) * count / (count - 1.0) / (self.measured * self.measured);
        Some(Quantiles::two_sided_95().of(count - 1.0)? * (variance * unmeasured).sqrt())
    }
}

/// Times of measured runs. Each measured run counts as many times as there are runs per measured run in its interval: while a program runs often, the
/// gate measures only few of its runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    sub_bits: u8,
    /// Runs by bucket.
    buckets: BTreeMap<u16, f64>,
    measured: u64,
    /// Runs of intervals without a measured run. They are represented by the measured runs of the next interval.
    pending: f64,
}

impl Times {
    /// Adds the measured runs of an interval, which stand for `runs`.
    pub(crate) fn add(&mut self, runs: u64, every: u64, histogram: &Histogram) {
        let measured = histogram.buckets.iter().fold(0_u64, |sum, (_, runs)| sum.saturating_add(*runs));
        self.pending += runs as f64;
        if measured == 0 {
            return;
        }
        // Without a gate, all runs are measured when they end, so each counts once.
        let weight = if every > 1 { (self.pending / measured as f64).max(1.0) } else { 1.0 };
        self.pending = 0.0;
        self.sub_bits = histogram.sub_bits;
        self.measured = self.measured.saturating_add(measured);
        for (bucket, runs) in &histogram.buckets {
            *self.buckets.entry(*bucket).or_default() += *runs as f64 * weight;
        }
    }

    fn runs(&self) -> f64 {
        self.buckets.values().sum()
    }

    /// Variance of the times, assuming that times are spread evenly over each bucket; `None` with fewer than two measured runs.
    pub(crate) fn variance(&self) -> Option<f64> {
        let buckets = || {
            self.buckets.iter().filter_map(|(bucket, runs)| {
                let (first, last) = Histogram::bounds(*bucket, self.sub_bits)?;
                let width = last as f64 - first as f64;
                Some(((first as f64 + last as f64) / 2.0, width * width / 12.0, *runs))
            })
        };
        if self.measured < 2 {
            return None;
        }
        let (runs, measured) = (self.runs(), self.measured as f64);
        let mean = buckets().map(|(time, _, runs)| time * runs).sum::<f64>() / runs;
        let squares = buckets().map(|(time, inside, runs)| ((time - mean) * (time - mean) + inside) * runs);
        Some(squares.sum::<f64>() / runs * (measured / (measured - 1.0)))
    }

    /// Returns the bounds, ns, of the bucket that has the `per_mille` quantile of run times. For 990, it is the first bucket beyond which fewer than
    /// 1 % of the runs lie. `None` if there are too few measured runs: for 990, fewer than 100.
    pub(crate) fn percentile(&self, per_mille: u32) -> Option<(u64, u64)> {
        let rest = 1000 - per_mille.min(1000);
        if u128::from(self.measured) * u128::from(rest) < 1000 {
            return None;
        }
        let runs = self.runs();
        let shorter = runs - (runs * f64::from(rest) / 1000.0).floor();
        let mut below = 0.0;
        let bucket = self.buckets.iter().find(|(_, runs)| {
            below += **runs;
            below > shorter
        });
        bucket.and_then(|(bucket, _)| Histogram::bounds(*bucket, self.sub_bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(value: u64) -> Reading {
        Reading { value, enabled_ns: 1, running_ns: 1 }
    }

    #[test]
    fn each_interval_weighs_as_its_runs_and_not_as_its_measured_runs() {
        let mut strata = Strata::default();
        // 100 runs with the value 10, all measured; then 9,900 runs with the value 20, one in 100 measured.
        strata.add(100, 100, &whole(1000));
        strata.add(9900, 99, &whole(1980));
        assert_eq!(strata.mean(), Some((1000.0 + 9900.0 * 20.0) / 10_000.0));
        // An interval without a measured run is merged with the next interval.
        let mut strata = Strata::default();
        strata.add(50, 0, &whole(0));
        strata.add(50, 10, &whole(70));
        assert_eq!(strata.mean(), Some(7.0));
    }

    #[test]
    fn what_took_turns_is_scaled() {
        let mut strata = Strata::default();
        strata.add(10, 10, &Reading { value: 500, enabled_ns: 1000, running_ns: 250 });
        assert_eq!(strata.mean(), Some(200.0));
        let mut never = Strata::default();
        never.add(10, 10, &Reading { value: 0, enabled_ns: 1000, running_ns: 0 });
        assert_eq!(never.mean(), None);
    }

    #[test]
    fn errors_follow_the_number_of_measured_runs() {
        // 10,000 runs, 100 measured, standard deviation 50: 1.984 × 50 / 10 × √0.99, with Student's quantile for 99 degrees of freedom.
        let mut strata = Strata::default();
        strata.add(10_000, 100, &whole(0));
        let error = strata.error_of_variance(2500.0).unwrap();
        assert!((error - 1.9842 * 5.0 * 0.99f64.sqrt()).abs() < 1e-3, "{error}");
        let mut all = Strata::default();
        all.add(100, 100, &whole(0));
        assert_eq!(all.error_of_variance(2500.0), Some(0.0));
        // Three strata, each with 10 measured of 1000 runs, and means of 90, 100 and 110: the residuals are −10, 0 and 10.
        let mut strata = Strata::default();
        for value in [90, 100, 110] {
            strata.add(1000, 10, &whole(value));
        }
        // Student's t with two degrees of freedom.
        let expected = 4.3027 * (200.0f64 * 1.5 / 900.0 * 0.99).sqrt();
        assert!((strata.error_of_strata().unwrap() - expected).abs() < 1e-3);
    }

    fn times(buckets: &[(u64, u64)]) -> Times {
        let buckets = buckets.iter().map(|(time_ns, runs)| (Histogram::bucket(*time_ns, 2), *runs)).collect();
        let mut times = Times::default();
        times.add(0, 1, &Histogram { sub_bits: 2, buckets });
        times
    }

    #[test]
    fn percentiles_are_buckets() {
        // 990 runs of 100 to 111 ns, 10 of 10,240 to 12,287 ns.
        let some = times(&[(100, 990), (11_000, 10)]);
        assert_eq!(some.percentile(500), Some((96, 111)));
        assert_eq!(some.percentile(989), Some((96, 111)));
        assert_eq!(some.percentile(990), Some((10_240, 12_287)), "the longest 1 % of the runs");
        assert_eq!(some.percentile(999), Some((10_240, 12_287)));
        assert_eq!(times(&[(100, 999)]).percentile(999), None, "999 runs are too few for this percentile");
        assert_eq!(Times::default().percentile(500), None);
    }

    /// Three quiet intervals of 1,000 runs of 1 µs, all measured, and a busy interval of 100,000 runs of 5 µs, one in 100 measured.
    #[test]
    fn times_weigh_as_the_runs_that_they_stand_for() {
        let of = |time_ns, runs| Histogram { sub_bits: 2, buckets: vec![(Histogram::bucket(time_ns, 2), runs)] };
        let mut times = Times::default();
        (0..3).for_each(|_| times.add(1_000, 1, &of(1_000, 1_000)));
        times.add(60_000, 100, &of(0, 0));
        times.add(40_000, 100, &of(5_000, 1_000));
        let (first, last) = times.percentile(500).unwrap();
        assert!(first <= 5_000 && 5_000 <= last, "{first} {last}");
        assert!(times.percentile(10).unwrap().1 < 2_000);
        let (low, high): (f64, f64) = (960.0, 4_607.5);
        let mean = (3_000.0 * low + 100_000.0 * high) / 103_000.0;
        let between: f64 = (3_000.0 * (low - mean).powi(2) + 100_000.0 * (high - mean).powi(2)) / 103_000.0;
        assert!((times.variance().unwrap() / between - 1.0).abs() < 0.4, "{:?} {between}", times.variance());
    }
}
