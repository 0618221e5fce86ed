//! Uncertainty of a recording's number, and of the difference of two numbers.
//!
//! A number is a ratio of two sums over the intervals of a recording: time by runs, weight by time. Its uncertainty follows from the differences
//! between intervals. Intervals are not independent, because a busy machine stays busy for a while. The variance is therefore the larger of two
//! estimates:
//! - From the sums of batches of neighbouring intervals, at every position, so that batches overlap (overlapping batch means, with 1.5 times the
//!   degrees of freedom of batches without overlap).
//! - From the assumption that each interval depends on the interval before (first-order autocorrelation, corrected for its bias in short series).
//!
//! A number counted from samples is at least as uncertain as the number of samples implies.

use crate::index::student::Quantiles;

/// Number with an uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Uncertain {
    /// The number.
    pub(crate) value: f64,
    /// Mean over the whole recording. `value` may leave out a part of the recording, such as its slowest intervals.
    pub(crate) mean: f64,
    /// Variance and its degrees of freedom; `None` if unknown.
    pub(crate) variance: Option<(f64, f64)>,
}

/// Least count of intervals for a variance.
const FEW_INTERVALS: usize = 15;
/// Least count of intervals for a trimmed mean.
const FEW_TYPICAL: usize = 8;
/// Least count of intervals in a batch. Batches overlap: one begins at each interval.
const BATCH_MIN: usize = 5;
/// Approximate limit on the batches that would fit into the recording without overlap: a batch has at least a twelfth of the intervals.
const BATCHES_MAX: usize = 12;
/// Limit on the autocorrelation: beyond it, the variance is unknown.
const TOO_DEPENDENT: f64 = 0.75;
/// Probability that a comparison does not detect a change of the size that it calls detectable.
const MISSED: f64 = 0.05;
/// Least count of runs in an interval: with fewer runs, the interval's time per run is not used.
const ENOUGH: f64 = 100.0;

/// Returns the ratio of two sums over intervals, with its uncertainty. Each interval has a numerator and a denominator. `value` is the ratio over the
/// whole recording. The variance is at least `least`.
pub(crate) fn ratio(intervals: &[(f64, f64)], value: f64, least: f64) -> Uncertain {
    let below: f64 = intervals.iter().map(|it| it.1).sum();
    if below <= 0.0 {
        return Uncertain { value, mean: value, variance: None };
    }
    let mean = intervals.iter().map(|it| it.0).sum::<f64>() / below;
    let residuals: Vec<f64> = intervals.iter().map(|(above, below)| above - mean * below).collect();
    let of_sum = variance_of_sum(&residuals);
    let variance = of_sum.map(|(variance, degrees)| ((variance / (below * below)).max(least), degrees));
    Uncertain { value, mean: value, variance }
}

/// Returns the mean of the intervals' ratios without the highest third: a busy moment of the machine makes runs longer, never shorter. `None` with
/// too few intervals, or if more than a tenth of the intervals have a denominator below `ENOUGH`.
///
/// `mean` is the ratio over all intervals. It goes into the result, because a change counts only if it is visible there, too.
pub(crate) fn typical(intervals: &[(f64, f64)], mean: f64) -> Option<Uncertain> {
    let ratios: Vec<f64> = intervals.iter().filter(|(_, below)| *below >= ENOUGH).map(|(a, b)| a / b).collect();
    let count = ratios.len();
    if count < FEW_TYPICAL || count * 10 < intervals.len() * 9 {
        return None;
    }
    let mut sorted = ratios.clone();
    sorted.sort_by(f64::total_cmp);
    let lowest = &sorted[..count - count / 3];
    let value = lowest.iter().sum::<f64>() / lowest.len() as f64;
    let high = lowest[lowest.len() - 1];
    // For the variance, each ratio that the mean leaves out is replaced by the largest ratio that it has (Yuen). The series then has no holes and can
    // be cut into batches.
    let kept: Vec<f64> = ratios.iter().map(|ratio| ratio.min(high)).collect();
    let middle_of_kept = kept.iter().sum::<f64>() / count as f64;
    let residuals: Vec<f64> = kept.iter().map(|ratio| ratio - middle_of_kept).collect();
    let scale = (lowest.len() * lowest.len()) as f64;
    let variance = variance_of_sum(&residuals).map(|(variance, degrees)| (variance / scale, degrees));
    Some(Uncertain { value, mean, variance })
}

/// Returns the variance of the sum of residuals, with its degrees of freedom. The residuals have the mean 0 and may be autocorrelated.
fn variance_of_sum(residuals: &[f64]) -> Option<(f64, f64)> {
    if residuals.len() < FEW_INTERVALS {
        return None;
    }
    let count = residuals.len() as f64;
    let squares: f64 = residuals.iter().map(|z| z * z).sum();
    let neighbours: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let correlation = if squares > 0.0 { neighbours / squares } else { 0.0 };
    // The estimated autocorrelation ρ of n values is too small by about (1 + 3ρ)/n.
    let correlation = ((correlation + 1.0 / count) / (1.0 - 3.0 / count)).max(0.0);
    if correlation > TOO_DEPENDENT {
        return None;
    }
    let inflation = (1.0 + correlation) / (1.0 - correlation);
    let by_neighbours = squares / (count - inflation) * count * inflation;
    let batch = BATCH_MIN.max(residuals.len() / BATCHES_MAX);
    let sums = residuals.windows(batch).map(|batch| batch.iter().sum::<f64>());
    let length = batch as f64;
    let places = count - length;
    let by_batches = sums.map(|sum| sum * sum).sum::<f64>() * count * count / (length * places * (places + 1.0));
    // Degrees of freedom by Meketon and Schmeiser: 1.5 times those of batches without overlap.
    Some((by_neighbours.max(by_batches), 1.5 * (count / length - 1.0)))
}

/// Mean of a number over the recordings of a side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    /// Mean of the recordings' `value`.
    value: f64,
    /// Mean of the recordings' `mean`.
    mean: f64,
    count: f64,
    /// Variance of `value` from the variances within recordings, and its degrees of freedom; `None` if a variance is unknown.
    within: Option<(f64, f64)>,
    /// Sum of the squared differences between the recordings' numbers and `value`, divided by the square of `value`.
    between: f64,
}

impl Side {
    /// Averages recordings; `None` without recordings.
    pub(crate) fn of(recordings: &[Uncertain]) -> Option<Side> {
        let count = recordings.len() as f64;
        if recordings.is_empty() {
            return None;
        }
        let value = recordings.iter().map(|it| it.value).sum::<f64>() / count;
        let mean = recordings.iter().map(|it| it.mean).sum::<f64>() / count;
        let variances: Option<Vec<(f64, f64)>> = recordings.iter().map(|it| it.variance).collect();
        let within = variances.map(|variances| {
            let sum: f64 = variances.iter().map(|(variance, _)| variance).sum();
            let shares: f64 = variances.iter().map(|(variance, degrees)| variance * variance / degrees).sum();
            let degrees = if shares > 0.0 { sum * sum / shares } else { variances.iter().map(|it| it.1).sum() };
            (sum / (count * count), degrees)
        });
        let squares: f64 = recordings.iter().map(|it| (it.value - value) * (it.value - value)).sum();
        let between = if value == 0.0 { 0.0 } else { squares / (value * value) };
        Some(Side { value, mean, count, within, between })
    }

    /// Returns the mean of the recordings' `value`.
    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    /// Returns the mean, and half of its confidence interval; `None` if unknown.
    pub(crate) fn interval(&self, two_sided: &Quantiles) -> (f64, Option<f64>) {
        let margin = |spread: &Spread| Some(two_sided.of(spread.degrees)? * spread.base.sqrt());
        (self.value, widest(&spreads(self, None), margin))
    }

    /// Returns the number nearest to `limit` that a comparison with the same uncertainty would nearly always detect as beyond the limit: above it
    /// with `is_above`, otherwise below it. `None` if no number would be detected.
    pub(crate) fn least_shown(&self, limit: f64, is_above: bool, levels: &Levels) -> Option<f64> {
        let margin = |spread: &Spread| Some(levels.deviations(spread.degrees)? * spread.base.sqrt());
        let margin = widest(&spreads(self, None), margin)?;
        if is_above { Some(limit + margin) } else { Some(limit - margin).filter(|least| *least > 0.0) }
    }
}

/// Quantiles for the distance between a number and a bound.
#[derive(Debug, Clone)]
pub(crate) struct Levels {
    /// Quantile for the confidence interval of a number. The number is beyond a bound if the interval does not include the bound.
    pub(crate) shown: Quantiles,
    /// Quantile for a number that chance moves towards the bound. It moves further than this in only one of twenty comparisons (`MISSED`).
    missed: Quantiles,
}

impl Levels {
    /// Makes the quantiles; `error` is the probability of a false result by chance.
    pub(crate) fn new(error: f64) -> Levels {
        Levels { shown: Quantiles::new(error), missed: Quantiles::new(MISSED) }
    }

    /// Returns the least distance from a bound, in standard deviations, at which a number is nearly always detected as beyond the bound.
    fn deviations(&self, degrees: f64) -> Option<f64> {
        Some(self.shown.of(degrees)? + self.missed.of(degrees)?)
    }
}

/// Variances of the means of two sides.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    base: f64,
    new: f64,
    degrees: f64,
}

/// Returns one or two variances of the means. The caller uses the one with the wider interval. The first comes from the intervals within recordings
/// and ignores how recordings differ. The second exists only with several recordings and comes from the few differences between them. Empty if the
/// variances within recordings are unknown.
fn spreads(base: &Side, new: Option<&Side>) -> Vec<Spread> {
    let sides = [Some(base), new];
    let sides = sides.iter().flatten();
    let mut spreads = Vec::with_capacity(2);
    let of_new = new.map_or(Some((0.0, 1.0)), |new| new.within);
    let (Some((of_base, base_degrees)), Some((of_new, new_degrees))) = (base.within, of_new) else { return spreads };
    let shares = of_base * of_base / base_degrees + of_new * of_new / new_degrees;
    let sum = of_base + of_new;
    // Degrees of freedom by Satterthwaite's approximation.
    let degrees = if shares > 0.0 { sum * sum / shares } else { base_degrees.min(new_degrees) };
    spreads.push(Spread { base: of_base, new: of_new, degrees });
    let degrees: f64 = sides.clone().map(|side| side.count - 1.0).sum();
    if degrees > 0.0 {
        let relative = sides.map(|side| side.between).sum::<f64>() / degrees;
        let of = |side: &Side| relative / side.count * side.value * side.value;
        let (base, new) = (of(base), new.map_or(0.0, of));
        // With one degree of freedom, one side has two recordings, and the other at most one. The variance from the difference of the two is too
        // uncertain for an interval of its own. It replaces the variance within recordings if it is larger.
        match &mut spreads[0] {
            within if degrees < 2.0 => {
                (within.base, within.new) = (within.base.max(base), within.new.max(new));
            }
            _ => spreads.push(Spread { base, new, degrees }),
        }
    }
    spreads
}

/// Returns the largest margin; `None` if a margin is unknown, or without spreads.
fn widest(spreads: &[Spread], margin: impl Fn(&Spread) -> Option<f64>) -> Option<f64> {
    let margins: Option<Vec<f64>> = spreads.iter().map(margin).collect();
    margins?.into_iter().reduce(f64::max)
}

/// Numbers of two sides, compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    base: f64,
    new: f64,
    /// Means over the whole recordings: of base, of new.
    means: (f64, f64),
    spreads: Vec<Spread>,
}

impl Pair {
    /// Compares two sides.
    pub(crate) fn new(base: &Side, new: &Side) -> Pair {
        Pair { base: base.value, new: new.value, means: (base.mean, new.mean), spreads: spreads(base, Some(new)) }
    }

    /// Returns true if the sides differ by more than chance explains; `None` if unknown.
    pub(crate) fn is_significant(&self, two_sided: &Quantiles) -> Option<bool> {
        let (from, to) = self.ratio_interval(two_sided)?;
        Some(from > 1.0 || to < 1.0)
    }

    /// Returns the confidence interval of `new / base` (Fieller's), extended so that it includes the ratio of the means over the whole recordings: a
    /// change must be visible there, too. The upper end is infinite if the base may be 0. `None` if unknown.
    pub(crate) fn ratio_interval(&self, quantiles: &Quantiles) -> Option<(f64, f64)> {
        let intervals: Option<Vec<(f64, f64)>> =
            self.spreads.iter().map(|spread| self.fieller(spread, quantiles)).collect();
        let (from, to) = intervals?.into_iter().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))?;
        // If both means are 0, their ratio is NaN, which `min` and `max` ignore.
        let of_means = self.means.1 / self.means.0;
        Some((from.min(of_means), to.max(of_means)))
    }

    /// Returns the confidence interval of the ratio of two non-negative numbers.
    fn fieller(&self, spread: &Spread, quantiles: &Quantiles) -> Option<(f64, f64)> {
        let quantile = quantiles.of(spread.degrees)?;
        let (of_base, of_new) = (quantile * quantile * spread.base, quantile * quantile * spread.new);
        if self.base == self.new && of_base + of_new == 0.0 {
            return Some((1.0, 1.0));
        }
        let (square, square_of_new) = (self.base * self.base - of_base, self.new * self.new - of_new);
        let product = self.base * self.new;
        let root = (product * product - square * square_of_new).max(0.0).sqrt();
        Some(match () {
            () if square > 0.0 => ((product - root) / square, (product + root) / square),
            // The base may be 0, but the new number may not: the ratio has a lower end and no upper end.
            () if square_of_new > 0.0 => (square_of_new / (product + root), f64::INFINITY),
            () => (0.0, f64::INFINITY),
        })
    }

    /// Returns the factor nearest to `factor` that a comparison with the same uncertainties would nearly always detect as beyond `factor`: above it
    /// with `is_above`, otherwise below it. `None` if no factor would be detected.
    pub(crate) fn least_shown(&self, factor: f64, is_above: bool, levels: &Levels) -> Option<f64> {
        let each = self.spreads.iter().map(|spread| {
            let deviations = levels.deviations(spread.degrees)?;
            let part = |variance: f64, of: f64| 1.0 - deviations * deviations * variance / (of * of);
            // Variances relative to the square of the number: the uncertainty is assumed to grow with the number. If the new number is below the
            // base, its variance is relative to the square of the base.
            let (base, new) = (part(spread.base, self.base), part(spread.new, self.new.max(self.base)));
            // Solutions x of (x − factor)² = deviations² · (x²·variance of new + factor²·variance of base), both relative.
            let root = (1.0 - base * new).max(0.0).sqrt();
            let (end, is_shown) = if is_above {
                (factor * (1.0 + root) / new, new > 0.0)
            } else {
                (factor * base / (1.0 + root), base > 0.0)
            };
            (is_shown && self.base > 0.0).then_some(end)
        });
        let each: Option<Vec<f64>> = each.collect();
        each?.into_iter().reduce(if is_above { f64::max } else { f64::min })
    }
}

#[cfg(test)]
pub(super) mod tests;
