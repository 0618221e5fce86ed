//! Margins of runs counted in windows, estimated from the differences of neighbouring windows.

use super::WindowStratum;
use crate::index::student::Quantiles;

/// Number of windows below which the margin is at least the margin by chance alone: the rates of few windows may happen to be nearly equal.
const FEW_FOR_A_MARGIN: usize = 5;
/// Upper 95 % limit on the expected number of events when none was seen.
const NONE_SEEN: f64 = 3.0;

/// Returns half of the 95 % interval of the runs; `None` if runs were seen, but only in a single window. `stands` is the time that each window
/// represents, and `seen` is the part of this time in which runs were counted.
pub(super) fn margin(strata: &[WindowStratum], stands: &[f64], seen: &[f64]) -> Option<f64> {
    let all = || (0..strata.len()).filter(|at| stands[*at] > 0.0);
    if all().all(|at| strata[at].runs == 0.0) {
        let unseen_ns: f64 = all().map(|at| stands[at] - seen[at]).sum();
        let seen_ns: f64 = all().map(|at| strata[at].on_ns).sum();
        return (seen_ns > 0.0).then(|| NONE_SEEN * unseen_ns / seen_ns);
    }
    margin_of(strata, stands, seen, 1.0, |it| it.runs)
}

/// Returns half of the 95 % interval of the time in runs, ns; `None` with one window or without runs.
pub(super) fn time_margin_ns(strata: &[WindowStratum], stands: &[f64], seen: &[f64]) -> Option<f64> {
    let counted = strata.iter().zip(stands).filter(|(_, stands)| **stands > 0.0).map(|(it, _)| it);
    let (runs, time_ns) = counted.fold((0.0, 0.0), |(runs, time_ns), it| (runs + it.runs, time_ns + it.time_ns));
    if runs > 0.0 { margin_of(strata, stands, seen, time_ns / runs, |it| it.time_ns) } else { None }
}

/// Returns the margin of the sum of `value` over all windows; `each` is the mean of `value` per run.
fn margin_of(
    strata: &[WindowStratum],
    stands: &[f64],
    seen: &[f64],
    each: f64,
    value: fn(&WindowStratum) -> f64,
) -> Option<f64> {
    let weight = |at: usize| stands[at] * (stands[at] - seen[at]).max(0.0);
    let all = || (0..strata.len()).filter(|at| stands[*at] > 0.0);
    let rate = |it: &WindowStratum| value(it) / it.on_ns;
    let last = strata.len() - 1;
    // A window with a neighbour on either side is in two pairs, so half of its weight goes to each pair.
    let weight_of_pair = |at: usize| weight(at) / if at > 0 && at < last { 2.0 } else { 1.0 };
    let pairs = strata.windows(2).enumerate().map(|(at, pair)| {
        let (one, other) = (pair[0].on_ns, pair[1].on_ns);
        let weight = (weight_of_pair(at) * other + weight_of_pair(at + 1) * one) / (one + other);
        (weight, rate(&pair[1]) - rate(&pair[0]))
    });
    let pairs: Vec<(f64, f64)> = pairs.filter(|(weight, _)| *weight > 0.0).collect();
    if pairs.is_empty() {
        return None;
    }
    let variance: f64 = pairs.iter().map(|(weight, d)| weight * d * d).sum();
    let chance =
        |at: usize| weight(at) * each * each * strata[at].runs.max(1.0) / (strata[at].on_ns * strata[at].on_ns);
    let chance: f64 = all().map(chance).sum();
    let least = if all().count() < FEW_FOR_A_MARGIN { chance } else { 0.0 };
    let quantile = Quantiles::two_sided_95().of(degrees(&pairs))?;
    Some(quantile * variance.max(least).sqrt())
}

/// Returns the degrees of freedom of a sum of weighted squared differences. Neighbouring differences share a window, so they are not independent. The
/// result is the lower of two estimates: one from the weights, for windows of equal variance, and one from the weighted squares.
fn degrees(pairs: &[(f64, f64)]) -> f64 {
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| -> f64 { pairs.iter().map(of).sum() };
    let (weights, squares) = (sum(&|it| it.0), sum(&|it| it.0 * it.0));
    let neighbours: f64 = pairs.windows(2).map(|pair| pair[0].0 * pair[1].0).sum();
    let by_weights = weights * weights / (squares + 0.5 * neighbours);
    let (variance, fourth) = (sum(&|it| it.0 * it.1 * it.1), sum(&|it| (it.0 * it.1 * it.1) * (it.0 * it.1 * it.1)));
    let by_squares = if fourth > 0.0 { 2.0 * variance * variance / fourth } else { by_weights };
    by_weights.min(by_squares).max(1.0)
}
