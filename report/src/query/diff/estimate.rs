//! Uncertainty of a recording's number, and of the difference of two.
//!
//! A number is a ratio of two sums over the intervals of a recording: time by runs, weight by time. How the intervals differ says how far
//! the ratio may be off. They are neither independent nor as even as chance would have them: a machine that is busy stays so for a while.
//! So the variance is that of batches of neighbouring intervals, all that there are, also those that overlap (overlapping batch means: half as
//! many degrees of freedom again as of batches that do not), or that of intervals which depend on the one before (first-order
//! autocorrelation, its estimate corrected for the bias that it has in short series), whichever is larger. What is counted from samples is at
//! least as uncertain as their number says.

use crate::index::student::Quantiles;

/// A number that may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Uncertain {
    /// The number.
    pub(crate) value: f64,
    /// The mean of all that it is of, where the number is that of a part.
    pub(crate) mean: f64,
    /// Its variance, and the degrees of freedom that this is known with; `None` where there is no telling.
    pub(crate) variance: Option<(f64, f64)>,
}

/// Fewer intervals say nothing.
const FEW_INTERVALS: usize = 15;
/// With fewer intervals none of them is left out.
const FEW_TYPICAL: usize = 8;
/// Intervals of a batch: so many at least, and so many batches beside each other at most.
const BATCH_MIN: usize = 5;
const BATCHES_MAX: usize = 12;
/// Neighbours that depend on each other more than this leave too little to tell by.
const TOO_DEPENDENT: f64 = 0.75;
/// Probability that a comparison misses a change that it is said to be able to show.
const MISSED: f64 = 0.05;
/// An interval with fewer runs says too little of what a run is.
const ENOUGH: f64 = 100.0;

/// The ratio of two sums over intervals, of which each has its parts of both; `least` is the least variance.
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

/// The mean of the ratios of intervals, without the highest third of them: a busy moment of the machine makes runs longer and never shorter,
/// and is no part of what a run takes. `None` where there are too few intervals, or where they have so little below that ratios are of few.
///
/// `mean` is what all of them come to: what differs has to differ in that, too.
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
    // Ratios that are left out count as the outermost one that is kept (Yuen), also in batches.
    let kept: Vec<f64> = ratios.iter().map(|ratio| ratio.min(high)).collect();
    let middle_of_kept = kept.iter().sum::<f64>() / count as f64;
    let residuals: Vec<f64> = kept.iter().map(|ratio| ratio - middle_of_kept).collect();
    let scale = (lowest.len() * lowest.len()) as f64;
    let variance = variance_of_sum(&residuals).map(|(variance, degrees)| (variance / scale, degrees));
    Some(Uncertain { value, mean, variance })
}

/// The variance of the sum of what goes up and down around 0 and depends on what was before; with degrees of freedom.
fn variance_of_sum(residuals: &[f64]) -> Option<(f64, f64)> {
    if residuals.len() < FEW_INTERVALS {
        return None;
    }
    let count = residuals.len() as f64;
    let squares: f64 = residuals.iter().map(|z| z * z).sum();
    let neighbours: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let correlation = if squares > 0.0 { neighbours / squares } else { 0.0 };
    // Bias of the estimate of n values: too small by about (1 + 3ρ)/n.
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
    // Meketon and Schmeiser: 1.5 times those of batches beside each other.
    Some((by_neighbours.max(by_batches), 1.5 * (count / length - 1.0)))
}

/// One number of several recordings: their mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    /// Ratio of the numbers.
    value: f64,
    /// Ratio of the means.
    mean: f64,
    count: f64,
    /// Variance of the mean by the variances within recordings, with degrees of freedom.
    within: Option<(f64, f64)>,
    /// Sum of the squares of what recordings differ from the mean by, relative to its square.
    between: f64,
}

impl Side {
    /// `None` without any.
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

    /// The mean of the numbers.
    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    /// The mean, and half of its interval; `None` where there is no telling.
    pub(crate) fn interval(&self, two_sided: &Quantiles) -> (f64, Option<f64>) {
        let margin = |spread: &Spread| Some(two_sided.of(spread.degrees)? * spread.base.sqrt());
        (self.value, widest(&spreads(self, None), margin))
    }

    /// The least number above `limit`, or the largest below it, of which the interval would nearly always lie beyond `limit`, were it as
    /// uncertain as this one; `None` where no number is.
    pub(crate) fn least_shown(&self, limit: f64, is_above: bool, levels: &Levels) -> Option<f64> {
        let margin = |spread: &Spread| Some(levels.deviations(spread.degrees)? * spread.base.sqrt());
        let margin = widest(&spreads(self, None), margin)?;
        if is_above { Some(limit + margin) } else { Some(limit - margin).filter(|least| *least > 0.0) }
    }
}

/// Distance beyond a bound that a number needs.
#[derive(Debug, Clone)]
pub(crate) struct Levels {
    /// To be shown: its interval lies beyond.
    pub(crate) shown: Quantiles,
    /// To be shown in all comparisons but one of twenty: chance takes it back towards the bound by more than this in one.
    missed: Quantiles,
}

impl Levels {
    /// `error` is how often chance alone may show it.
    pub(crate) fn new(error: f64) -> Levels {
        Levels { shown: Quantiles::new(error), missed: Quantiles::new(MISSED) }
    }

    /// Deviations between a bound and a number that is nearly always shown to be beyond it.
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

/// Variances from the intervals within recordings, and variances from the differences between recordings of a side,
/// where there are several: the first miss all that differs from recording to recording, the second have few values to
/// tell by. Empty where the first is not known.
fn spreads(base: &Side, new: Option<&Side>) -> Vec<Spread> {
    let sides = [Some(base), new];
    let sides = sides.iter().flatten();
    let mut spreads = Vec::with_capacity(2);
    let of_new = new.map_or(Some((0.0, 1.0)), |new| new.within);
    let (Some((of_base, base_degrees)), Some((of_new, new_degrees))) = (base.within, of_new) else { return spreads };
    let shares = of_base * of_base / base_degrees + of_new * of_new / new_degrees;
    let sum = of_base + of_new;
    // Satterthwaite's.
    let degrees = if shares > 0.0 { sum * sum / shares } else { base_degrees.min(new_degrees) };
    spreads.push(Spread { base: of_base, new: of_new, degrees });
    let degrees: f64 = sides.clone().map(|side| side.count - 1.0).sum();
    if degrees > 0.0 {
        let relative = sides.map(|side| side.between).sum::<f64>() / degrees;
        let of = |side: &Side| relative / side.count * side.value * side.value;
        let (base, new) = (of(base), new.map_or(0.0, of));
        // One degree alone tells next to nothing: two recordings are no worse than one, but where they differ by more than their intervals do.
        match &mut spreads[0] {
            within if degrees < 2.0 => {
                (within.base, within.new) = (within.base.max(base), within.new.max(new));
            }
            _ => spreads.push(Spread { base, new, degrees }),
        }
    }
    spreads
}

/// The largest margin; `None` when one of them cannot be told, or there is none.
fn widest(spreads: &[Spread], margin: impl Fn(&Spread) -> Option<f64>) -> Option<f64> {
    let margins: Option<Vec<f64>> = spreads.iter().map(margin).collect();
    margins?.into_iter().reduce(f64::max)
}

/// Numbers of two sides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    base: f64,
    new: f64,
    /// Means of all that base and new are of.
    means: (f64, f64),
    spreads: Vec<Spread>,
}

impl Pair {
    /// Holds two sides against each other.
    pub(crate) fn new(base: &Side, new: &Side) -> Pair {
        Pair { base: base.value, new: new.value, means: (base.mean, new.mean), spreads: spreads(base, Some(new)) }
    }

    /// Returns true if they differ by more than chance explains; `None` where there is no telling.
    pub(crate) fn is_significant(&self, two_sided: &Quantiles) -> Option<bool> {
        let (from, to) = self.ratio_interval(two_sided)?;
        Some(from > 1.0 || to < 1.0)
    }

    /// The interval of `new / base` (Fieller's), and of the ratio of the means of all that both are of: what differs has to differ in that,
    /// too. Without an end where the base cannot be told from 0; `None` where there is no telling.
    pub(crate) fn ratio_interval(&self, quantiles: &Quantiles) -> Option<(f64, f64)> {
        let intervals: Option<Vec<(f64, f64)>> =
            self.spreads.iter().map(|spread| self.fieller(spread, quantiles)).collect();
        let (from, to) = intervals?.into_iter().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))?;
        // Means that are both 0 have no ratio; the least and the largest are those of the others.
        let of_means = self.means.1 / self.means.0;
        Some((from.min(of_means), to.max(of_means)))
    }

    /// Confidence interval of the ratio of two numbers, neither negative.
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
            // The base may be 0, the new number is more.
            () if square_of_new > 0.0 => (square_of_new / (product + root), f64::INFINITY),
            () => (0.0, f64::INFINITY),
        })
    }

    /// The least factor above `factor`, or the largest below it, of which the interval would nearly always lie beyond `factor`, were both
    /// sides as uncertain as these are; `None` where no factor is.
    pub(crate) fn least_shown(&self, factor: f64, is_above: bool, levels: &Levels) -> Option<f64> {
        let each = self.spreads.iter().map(|spread| {
            let deviations = levels.deviations(spread.degrees)?;
            let part = |variance: f64, of: f64| 1.0 - deviations * deviations * variance / (of * of);
            // A number that is larger is less certain by as much.
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
