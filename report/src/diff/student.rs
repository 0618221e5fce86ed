//! Quantiles of Student's distribution, by additions, products and square roots alone: those are the same to the last bit on every
//! machine, where logarithms and powers of the C library are not.

/// Quantiles are kept up to so many degrees of freedom; what has more is taken to have as many, which makes intervals a little wider.
const MOST_DEGREES: usize = 200;

/// The least part of the distribution that is told apart from none.
const LEAST_TAIL: f64 = 1e-12;

/// Quantiles of one tail.
#[derive(Debug, Clone)]
pub struct Quantiles {
    /// Of 2, 4, 6 … degrees of freedom.
    of_even: Vec<f64>,
}

impl Quantiles {
    /// Of the values beyond which the part `tail` of the distribution lies, less than a half of it.
    pub fn new(tail: f64) -> Quantiles {
        let tail = tail.clamp(LEAST_TAIL, 0.499);
        Quantiles { of_even: (1..=MOST_DEGREES / 2).map(|half| quantile(tail, half)).collect() }
    }

    /// The quantile for so many degrees of freedom; `None` for less than two, where there is no telling.
    ///
    /// Between even numbers it is interpolated by the inverse of the degrees, which is never less than the quantile itself by more than a
    /// thousandth of it.
    pub fn of(&self, degrees: f64) -> Option<f64> {
        if degrees.is_nan() || degrees < 2.0 {
            return None;
        }
        let degrees = degrees.min(MOST_DEGREES as f64);
        let half = ((degrees / 2.0) as usize).min(self.of_even.len());
        let lower = self.of_even[half - 1];
        let Some(upper) = self.of_even.get(half) else { return Some(lower) };
        let (from, to) = (0.5 / half as f64, 0.5 / (half + 1) as f64);
        Some(upper + (lower - upper) * (1.0 / degrees - to) / (from - to))
    }
}

/// For `2 × half` degrees of freedom.
fn quantile(tail: f64, half: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while beyond(high, half) > tail && high < 1e9 {
        low = high;
        high *= 2.0;
    }
    for _ in 0..64 {
        let middle = 0.5 * (low + high);
        if beyond(middle, half) > tail { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The part of the distribution beyond `t`, for `2 × half` degrees of freedom: `(1 − s·(1 + c/2 + c²·1·3/(2·4) + …)) / 2` of `half` terms,
/// with `s² = t²/(n + t²)` and `c = 1 − s²`.
fn beyond(t: f64, half: usize) -> f64 {
    let degrees = 2.0 * half as f64;
    let cos_squared = degrees / (degrees + t * t);
    let sin = t / (degrees + t * t).sqrt();
    let (mut term, mut sum) = (1.0, 1.0);
    for at in 1..half {
        let at = at as f64;
        term *= cos_squared * (2.0 * at - 1.0) / (2.0 * at);
        sum += term;
    }
    (1.0 - sin * sum) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published tables of critical values (one tail of 0.05, 0.025, 0.001 and 0.0005).
    #[test]
    fn quantiles_are_those_of_published_tables() {
        let table = [
            (2.0, [2.920, 4.303, 22.327, 31.599]),
            (4.0, [2.132, 2.776, 7.173, 8.610]),
            (10.0, [1.812, 2.228, 4.144, 4.587]),
            (20.0, [1.725, 2.086, 3.552, 3.850]),
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

    /// Odd numbers of degrees lie between even ones; the interval is never narrower than it should be.
    #[test]
    fn what_is_interpolated_is_not_too_narrow() {
        let table = [(3.0, 12.924), (5.0, 6.869), (7.0, 5.408), (9.0, 4.781), (15.0, 4.073), (29.0, 3.659)];
        let quantiles = Quantiles::new(0.0005);
        for (degrees, value) in table {
            let found = quantiles.of(degrees).unwrap();
            assert!(found > value - 0.0006, "{degrees}: {found}, {value}");
            assert!(found < value * 1.3, "{degrees}: {found}, {value}");
        }
        assert_eq!(quantiles.of(1.9), None);
        assert_eq!(quantiles.of(f64::NAN), None);
        assert_eq!(quantiles.of(1e9), quantiles.of(200.0));
        assert!(quantiles.of(199.9).unwrap() < quantiles.of(198.0).unwrap());
    }
}
