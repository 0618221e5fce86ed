//! Quantiles of Student's t-distribution, computed with additions, products and square roots only: these give the same bits on every machine, unlike
//! logarithms and powers of the C library.

use std::f64::consts::PI;
use std::sync::OnceLock;

/// Limit on the degrees of freedom; more are treated as this many, which makes intervals slightly wider.
const MOST_DEGREES: usize = 200;

/// Lower limit on the tail of the distribution.
const LEAST_TAIL: f64 = 1e-12;

/// Standard deviations on both sides of the mean that hold 95 % of a normal distribution.
pub(crate) const NORMAL_95: f64 = 1.96;

/// One-sided quantiles.
#[derive(Debug, Clone)]
pub struct Quantiles {
    /// Quantiles for 1, 2, 3 … degrees of freedom.
    by_degrees: Vec<f64>,
}

impl Quantiles {
    /// Makes the quantiles above which the part `tail` of the distribution lies; `tail` must be below one half.
    pub fn new(tail: f64) -> Quantiles {
        let tail = tail.clamp(LEAST_TAIL, 0.499);
        Quantiles { by_degrees: (1..=MOST_DEGREES).map(|degrees| quantile(tail, degrees)).collect() }
    }

    /// Quantiles of a two-sided 95 % interval.
    pub(crate) fn two_sided_95() -> &'static Quantiles {
        static QUANTILES: OnceLock<Quantiles> = OnceLock::new();
        QUANTILES.get_or_init(|| Quantiles::new(0.025))
    }

    /// Returns the quantile for these degrees of freedom; `None` for less than one.
    ///
    /// Between whole numbers, the quantile is interpolated by the inverse of the degrees. The result is at most a thousandth below the exact
    /// quantile.
    pub fn of(&self, degrees: f64) -> Option<f64> {
        if degrees.is_nan() || degrees < 1.0 {
            return None;
        }
        let degrees = degrees.min(MOST_DEGREES as f64);
        let whole = (degrees as usize).min(self.by_degrees.len());
        let lower = self.by_degrees[whole - 1];
        let Some(upper) = self.by_degrees.get(whole) else { return Some(lower) };
        let (from, to) = (1.0 / whole as f64, 1.0 / (whole + 1) as f64);
        Some(upper + (lower - upper) * (1.0 / degrees - to) / (from - to))
    }
}

fn quantile(tail: f64, degrees: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while beyond(high, degrees) > tail && high < 1e13 {
        low = high;
        high *= 2.0;
    }
    for _ in 0..64 {
        let middle = 0.5 * (low + high);
        if beyond(middle, degrees) > tail { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Returns the part of the distribution beyond `t`. With `tan θ = t/√n`, it is for an even number `n` of degrees
/// `(1 − sin θ·(1 + c/2 + c²·1·3/(2·4) + …)) / 2` with `n/2` terms in `c = cos² θ`, and for an odd number
/// `(1 − (θ + sin θ·cos θ·(1 + c·2/3 + c²·2·4/(3·5) + …))·2/π) / 2` with `(n − 1)/2` terms.
fn beyond(t: f64, degrees: usize) -> f64 {
    let n = degrees as f64;
    let cos_squared = n / (n + t * t);
    let sin = t / (n + t * t).sqrt();
    let is_odd = degrees % 2 == 1;
    let (mut term, mut sum) = (1.0, 0.0);
    for at in 1..=degrees / 2 {
        sum += term;
        let at = 2.0 * at as f64;
        term *= cos_squared * if is_odd { at / (at + 1.0) } else { (at - 1.0) / at };
    }
    let inside = if is_odd { (arc(sin) + sin * cos_squared.sqrt() * sum) * 2.0 / PI } else { sin * sum };
    (1.0 - inside) / 2.0
}

/// Returns the angle in the first quadrant with this sine. The angle is halved until the first terms of the series are exact enough.
fn arc(sin: f64) -> f64 {
    const HALVINGS: i32 = 6;
    let mut sin = sin;
    for _ in 0..HALVINGS {
        sin /= (2.0 + 2.0 * (1.0 - sin * sin).max(0.0).sqrt()).sqrt();
    }
    let square = sin * sin;
    f64::from(1 << HALVINGS) * sin * (1.0 + square * (1.0 / 6.0 + square * (3.0 / 40.0 + square * 15.0 / 336.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Critical values from published tables (one tail of 0.05, 0.025, 0.001 and 0.0005).
    #[test]
    fn quantiles_are_those_of_published_tables() {
        let table = [
            (1.0, [6.314, 12.706, 318.309, 636.619]),
            (2.0, [2.920, 4.303, 22.327, 31.599]),
            (3.0, [2.353, 3.182, 10.215, 12.924]),
            (4.0, [2.132, 2.776, 7.173, 8.610]),
            (7.0, [1.895, 2.365, 4.785, 5.408]),
            (10.0, [1.812, 2.228, 4.144, 4.587]),
            (20.0, [1.725, 2.086, 3.552, 3.850]),
            (29.0, [1.699, 2.045, 3.396, 3.659]),
            (30.0, [1.697, 2.042, 3.385, 3.646]),
            (60.0, [1.671, 2.000, 3.232, 3.460]),
            (120.0, [1.658, 1.980, 3.160, 3.373]),
        ];
        for (degrees, values) in table {
            for (tail, value) in [0.05, 0.025, 0.001, 0.0005].into_iter().zip(values) {
                let found = Quantiles::new(tail).of(degrees).unwrap();
                assert!((found - value).abs() < 0.0006, "{degrees} {tail}: {found}, {value}");
            }
        }
    }

    /// Quantiles of fractional degrees lie between those of whole degrees.
    #[test]
    fn what_is_interpolated_lies_between() {
        let quantiles = Quantiles::new(0.0005);
        assert_eq!(quantiles.of(0.9), None);
        assert_eq!(quantiles.of(f64::NAN), None);
        assert_eq!(quantiles.of(1e9), quantiles.of(200.0));
        for (below, between, above) in [(1.0, 1.5, 2.0), (2.0, 2.9, 3.0), (198.0, 198.5, 199.0)] {
            let [below, between, above] = [below, between, above].map(|degrees| quantiles.of(degrees).unwrap());
            assert!(below > between && between > above, "{below} {between} {above}");
        }
    }
}
