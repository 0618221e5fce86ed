//! Change of a program between base days and the days after, with days as the unit of replication.
//!
//! Hosts share releases, traffic and weekdays, so a day is one observation, however many hosts there are. The value of a day is the logarithm of its
//! ratio to the base days of the same weekday. A base day is compared with the other base days of its weekday. The variance between days is estimated
//! from all days. The standard error of the change follows from this variance and the count of days.

use bprec_report::StudentQuantiles;
use std::collections::BTreeMap;

/// Days of a week.
const WEEK: i64 = 7;

/// Value of a day: for a program, the weighted median over hosts; for the whole fleet, the median over programs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DayValue {
    /// Days since 1970.
    pub(crate) day: i64,
    /// True for a day after the base days.
    pub(crate) is_new: bool,
    /// Logarithm of the ratio to the base days; `None` if no base day of the weekday has the same hosts and hours.
    pub(crate) log_ratio: Option<f64>,
}

/// Mean change of the logarithm, with its standard error and degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Change {
    pub(crate) mean: f64,
    /// Standard error of the mean.
    pub(crate) error: f64,
    pub(crate) degrees: f64,
}

impl Change {
    /// Computes the change; `None` if the days are too few to estimate the variance between days.
    pub(crate) fn of(days: &[DayValue]) -> Option<Change> {
        let mut base_days: BTreeMap<i64, f64> = BTreeMap::new();
        for day in days.iter().filter(|day| !day.is_new) {
            *base_days.entry(day.day.rem_euclid(WEEK)).or_default() += 1.0;
        }
        let base_of = |day: &DayValue| base_days.get(&day.day.rem_euclid(WEEK)).copied();
        let values = |is_new: bool| {
            let of_side = days.iter().filter(move |day| day.is_new == is_new);
            of_side.filter_map(|day| Some((day.day.rem_euclid(WEEK), day.log_ratio?, base_of(day)?)))
        };
        let count = values(true).count() as f64;
        let mean = values(true).map(|(_, value, _)| value).sum::<f64>() / count;
        // The value of a base day is its difference to the mean of the other base days of its weekday. The factor turns this value into the
        // difference to the mean of all base days of the weekday, the day itself included.
        let base_squares: f64 = values(false).map(|(_, value, base)| (value * (base - 1.0) / base).powi(2)).sum();
        let new_squares: f64 = values(true).map(|(_, value, base)| (value - mean).powi(2) / (1.0 + 1.0 / base)).sum();
        let base_degrees: f64 = values(false).map(|(_, _, base)| (base - 1.0) / base).sum();
        let degrees = base_degrees + count - 1.0;
        if count == 0.0 || degrees < 1.0 {
            return None;
        }
        let variance = (base_squares + new_squares) / degrees;
        // New days of one weekday are compared with the same base days, so they share the error of these base days.
        let new_of = |weekday: i64| values(true).filter(|(other, ..)| *other == weekday).count() as f64;
        let of_base: f64 = values(true).map(|(weekday, _, base)| new_of(weekday) / base).sum();
        let error = (variance * (1.0 / count + of_base / (count * count))).sqrt();
        Some(Change { mean, error, degrees })
    }

    /// Returns true if the whole confidence interval is above `least` or below `-least`.
    pub(crate) fn exceeds(&self, least: f64, quantiles: &StudentQuantiles) -> bool {
        self.mean.abs() > least + self.margin(quantiles)
    }

    /// Half of the width of the confidence interval; infinite if there is no quantile for the degrees of freedom.
    pub(crate) fn margin(&self, quantiles: &StudentQuantiles) -> f64 {
        quantiles.of(self.degrees).map_or(f64::INFINITY, |quantile| quantile * self.error)
    }
}

/// Returns the quantiles that limit the false discovery rate of all changes to `rate`, by Benjamini and Hochberg. Their level is `rate · k / m`: `k`
/// is the highest count for which `k` of all `m` changes are significant at this level.
pub(crate) fn quantiles(changes: &[Change], least: f64, rate: f64) -> StudentQuantiles {
    let count = changes.len().max(1);
    let mut shown = count;
    loop {
        let quantiles = StudentQuantiles::new(rate / 2.0 * shown as f64 / count as f64);
        let at_these = changes.iter().filter(|change| change.exceeds(least, &quantiles)).count();
        if at_these >= shown || shown == 1 {
            return quantiles;
        }
        shown = at_these.max(1);
    }
}

/// Median of the values: the mean of the middle two if their count is even, `None` if there are no values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(day: i64, is_new: bool, log_ratio: f64) -> DayValue {
        DayValue { day, is_new, log_ratio: Some(log_ratio) }
    }

    /// With one base day for each weekday, the result is that of Student's paired test: mean 0.04, standard deviation of the differences 0.0216025.
    #[test]
    fn one_base_week_is_a_paired_test() {
        let base = (0..7).map(|number| DayValue { day: number, is_new: false, log_ratio: None });
        let new = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07].into_iter().enumerate();
        let days: Vec<DayValue> = base.chain(new.map(|(at, value)| day(7 + at as i64, true, value))).collect();
        let change = Change::of(&days).unwrap();
        assert_eq!(change.degrees, 6.0);
        assert!((change.mean - 0.04).abs() < 1e-12);
        assert!((change.error - 0.021_602_5 / 7_f64.sqrt()).abs() < 1e-7, "{change:?}");
    }

    /// Two base weeks. Days of a weekday differ by 0.02, so the variance is 0.0002 with seven degrees of freedom. The change of a single new day
    /// has the variance of a day plus that of the mean of two base days: 0.0002 · (1 + 1/2).
    #[test]
    fn one_day_has_the_error_of_base_days() {
        let base = (0..14).map(|number| day(number, false, if number < 7 { 0.02 } else { -0.02 }));
        let days: Vec<DayValue> = base.chain([day(14, true, 0.1)]).collect();
        let change = Change::of(&days).unwrap();
        assert_eq!((change.mean, change.degrees), (0.1, 7.0));
        assert!((change.error - 0.000_3_f64.sqrt()).abs() < 1e-12, "{change:?}");
        // A weekday without base days gives no change. A single pair of days gives no change, because it has no variance.
        assert_eq!(Change::of(&[day(0, false, 0.0), day(1, true, 0.1)]), None);
        assert_eq!(Change::of(&[day(0, false, 0.0), day(7, true, 0.1)]), None);
    }

    /// Quantiles of six degrees of freedom: 3.707 (tail 0.005) if all three changes are significant; 4.70 (tail 0.005 / 3) if one change is
    /// significant.
    #[test]
    fn the_rate_of_false_discoveries_is_shared_by_those_that_are_shown() {
        let change = |t: f64| Change { mean: t, error: 1.0, degrees: 6.0 };
        let shown = |ts: &[f64]| {
            let changes: Vec<Change> = ts.iter().map(|t| change(*t)).collect();
            let quantiles = quantiles(&changes, 0.0, 0.01);
            changes.iter().filter(|change| change.exceeds(0.0, &quantiles)).count()
        };
        assert_eq!(shown(&[5.96, 4.30, 3.71]), 3);
        assert_eq!(shown(&[5.96, 1.0, 1.0]), 1);
        assert_eq!(shown(&[3.71, 1.0, 1.0]), 0);
        assert_eq!(shown(&[]), 0);
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 100.0]), Some(3.0));
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
    }
}
