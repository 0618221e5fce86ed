//! From measured runs to all runs, and how sure that is.

use bprec_format::state::{Histogram, Reading};

/// Two-sided normal quantile of 95 %.
const Z_95: f64 = 1.96;

/// Strata with fewer than this many intervals say nothing about how much a value varies.
const MIN_STRATA: u32 = 3;

/// Estimate of a value's total over all runs, where only some runs were measured. The intervals between snapshots are the
/// strata: the gate may measure another share of the runs in each, and a busy second must not count less because its gate
/// was tighter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strata {
    /// What no stratum is made of yet: intervals without a measured run, or in which the counter was not on the hardware.
    pending: Stratum,
    /// All runs, in strata.
    runs: f64,
    /// Sum of each stratum's mean times its runs.
    total: f64,
    measured: f64,
    value: f64,
    /// Sums of the products of the strata's values and measured runs.
    value_value: f64,
    value_measured: f64,
    measured_measured: f64,
    /// Sum of runs × unmeasured runs / measured runs.
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
        // Of a run that was open at a snapshot, the begin is in one interval and the measurement in the next.
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

    /// Mean of a run; `None` when none was measured.
    pub(crate) fn mean(&self) -> Option<f64> {
        if self.runs > 0.0 {
            return Some(self.total / self.runs);
        }
        (self.measured > 0.0).then(|| self.value / self.measured)
    }

    /// Half the width of the mean's 95 % confidence interval, given the variance of one run.
    pub(crate) fn error_of_variance(&self, variance: f64) -> Option<f64> {
        (self.runs > 0.0 && self.measured >= 2.0).then(|| Z_95 * (variance * self.spread).sqrt() / self.runs)
    }

    /// The same, from how much the strata differ; `None` with too few of them.
    pub(crate) fn error_of_strata(&self) -> Option<f64> {
        if self.count < MIN_STRATA || self.measured <= 0.0 || self.runs <= 0.0 {
            return None;
        }
        let ratio = self.value / self.measured;
        let residual = self.value_value - 2.0 * ratio * self.value_measured + ratio * ratio * self.measured_measured;
        let count = f64::from(self.count);
        let unmeasured = (1.0 - self.measured / self.runs).max(0.0);
        let variance = residual.max(0.0) * count / (count - 1.0) / (self.measured * self.measured);
        Some(Z_95 * (variance * unmeasured).sqrt())
    }
}

/// Variance of the times of a histogram, as if those of a bucket were spread evenly over it.
pub(crate) fn variance(histogram: &Histogram) -> Option<f64> {
    let buckets = || {
        histogram.buckets.iter().filter_map(|(bucket, runs)| {
            let (first, last) = Histogram::bounds(*bucket, histogram.sub_bits)?;
            let width = last as f64 - first as f64;
            Some(((first as f64 + last as f64) / 2.0, width * width / 12.0, *runs as f64))
        })
    };
    let runs: f64 = buckets().map(|(_, _, runs)| runs).sum();
    if runs < 2.0 {
        return None;
    }
    let mean = buckets().map(|(time, _, runs)| time * runs).sum::<f64>() / runs;
    let squares = buckets().map(|(time, inside, runs)| ((time - mean) * (time - mean) + inside) * runs);
    Some(squares.sum::<f64>() / (runs - 1.0))
}

/// The bucket of the shortest of the longest runs, which are as many as `per_mille` of 1000 leave: its first and last time. One in a
/// thousand that takes longer than all others is so in the 999th, whatever its number is rounded to. `None` when there are too few
/// runs for one to be beyond it.
pub(crate) fn percentile(histogram: &Histogram, per_mille: u32) -> Option<(u64, u64)> {
    let runs = histogram.buckets.iter().fold(0u128, |sum, (_, runs)| sum + u128::from(*runs));
    let longest = runs * u128::from(1000 - per_mille.min(1000)) / 1000;
    if longest == 0 {
        return None;
    }
    let rank = runs - longest + 1;
    let mut below = 0;
    for (bucket, runs) in &histogram.buckets {
        below += u128::from(*runs);
        if below >= rank {
            return Histogram::bounds(*bucket, histogram.sub_bits);
        }
    }
    None
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
        // 100 runs of 10, all measured; then 9,900 of 20 of which one in 100 is.
        strata.add(100, 100, &whole(1000));
        strata.add(9900, 99, &whole(1980));
        assert_eq!(strata.mean(), Some((1000.0 + 9900.0 * 20.0) / 10_000.0));
        // An interval without a measured run goes with the next.
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
        // 10,000 runs, 100 measured, standard deviation 50: 1.96 × 50 / 10 × √0.99.
        let mut strata = Strata::default();
        strata.add(10_000, 100, &whole(0));
        let error = strata.error_of_variance(2500.0).unwrap();
        assert!((error - 1.96 * 5.0 * 0.99f64.sqrt()).abs() < 1e-9, "{error}");
        let mut all = Strata::default();
        all.add(100, 100, &whole(0));
        assert_eq!(all.error_of_variance(2500.0), Some(0.0));
        // Three strata of 10 measured among 1000 runs: 90, 100 and 110, so residuals −10, 0 and 10.
        let mut strata = Strata::default();
        for value in [90, 100, 110] {
            strata.add(1000, 10, &whole(value));
        }
        let expected = 1.96 * (200.0f64 * 1.5 / 900.0 * 0.99).sqrt();
        assert!((strata.error_of_strata().unwrap() - expected).abs() < 1e-9);
    }

    #[test]
    fn percentiles_are_buckets() {
        // 990 runs of 100 to 111 ns, 10 of 10,240 to 12,287 ns.
        let buckets = vec![(Histogram::bucket(100, 2), 990), (Histogram::bucket(11_000, 2), 10)];
        let histogram = Histogram { sub_bits: 2, buckets };
        assert_eq!(percentile(&histogram, 500), Some((96, 111)));
        assert_eq!(percentile(&histogram, 989), Some((96, 111)));
        assert_eq!(percentile(&histogram, 990), Some((10_240, 12_287)), "one in a hundred is beyond all others");
        assert_eq!(percentile(&histogram, 999), Some((10_240, 12_287)));
        let few = Histogram { sub_bits: 2, buckets: vec![(30, 999)] };
        assert_eq!(percentile(&few, 999), None, "none of 999 runs is beyond it");
        assert_eq!(percentile(&Histogram::default(), 500), None);
    }
}
