//! Chooses the part of each program's runs to measure, so that measuring stays within a budget.

/// Time that counting adds to one run of a counted program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Costs {
    /// Time added to a measured run, ns.
    pub(super) measured_ns: f64,
    /// Time added to a skipped run, which is only counted, ns.
    pub(super) skipped_ns: f64,
}

impl Costs {
    /// Reason why a frequent program is not counted. The text has no rate, so that reports can group programs with the same reason.
    pub(super) fn too_often(self) -> String {
        format!(
            "it runs too often: counting makes each run {:.0} ns longer, even runs that bprec does not measure, and all runs \
             together would exceed --budget",
            self.skipped_ns
        )
    }
}

/// Decision about a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// One run in this number of runs is measured.
    Every(u64),
    /// No run is measured: even skipping the program's runs would cost too much.
    TooOften,
}

/// Divides `budget_ns` of each second among targets with these rates of runs. Targets that need less than an equal part
/// leave the rest to the other targets. While skipping alone exceeds half of the budget, the most frequent target gets
/// `TooOften`.
pub(super) fn divide(runs_per_second: &[f64], costs: Costs, budget_ns: f64) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::Every(1); runs_per_second.len()];
    let mut order: Vec<usize> = (0..runs_per_second.len()).collect();
    order.sort_by(|a, b| runs_per_second[*a].total_cmp(&runs_per_second[*b]));
    let skipping = |order: &[usize]| order.iter().map(|index| runs_per_second[*index] * costs.skipped_ns).sum::<f64>();
    // At most half of the budget is spent on skipped runs, because they are only counted, not measured.
    while let Some(most) = order.last().copied().filter(|_| skipping(&order) > budget_ns / 2.0) {
        verdicts[most] = Verdict::TooOften;
        order.pop();
    }
    let mut left_ns = budget_ns - skipping(&order);
    let reading_ns = (costs.measured_ns - costs.skipped_ns).max(0.0);
    for (place, index) in order.iter().enumerate() {
        let part_ns = left_ns / (order.len() - place) as f64;
        let needed_ns = runs_per_second[*index] * reading_ns;
        let every = if needed_ns <= part_ns { 1 } else { (needed_ns / part_ns).ceil() as u64 };
        verdicts[*index] = Verdict::Every(every);
        left_ns -= needed_ns / every as f64;
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::{Costs, Verdict, divide};

    const COSTS: Costs = Costs { measured_ns: 200.0, skipped_ns: 20.0 };

    fn cost_ns(rates: &[f64], verdicts: &[Verdict]) -> f64 {
        let cost = |(rate, verdict): (&f64, &Verdict)| match verdict {
            Verdict::TooOften => 0.0,
            Verdict::Every(every) => rate * (COSTS.skipped_ns + 180.0 / *every as f64),
        };
        rates.iter().zip(verdicts).map(cost).sum()
    }

    #[test]
    fn what_fits_is_measured_in_full() {
        assert_eq!(divide(&[10.0, 1000.0, 0.0], COSTS, 1e7), [Verdict::Every(1); 3]);
        assert_eq!(divide(&[], COSTS, 1e7), []);
    }

    #[test]
    fn the_sum_stays_within_the_budget_and_rare_programs_are_spared() {
        // The budget is 10 ms of each second: 0.5 % of two CPUs.
        let rates = [100.0, 20_000.0, 100_000.0, 3.0];
        let verdicts = divide(&rates, COSTS, 1e7);
        assert_eq!((verdicts[0], verdicts[3]), (Verdict::Every(1), Verdict::Every(1)));
        assert!(matches!(verdicts[2], Verdict::Every(every) if every > 1));
        assert!(cost_ns(&rates, &verdicts) <= 1e7);
    }

    #[test]
    fn what_cannot_even_be_skipped_is_left_out() {
        let rates = [1e6, 5.0];
        let verdicts = divide(&rates, COSTS, 1e7);
        assert_eq!(verdicts, [Verdict::TooOften, Verdict::Every(1)]);
    }
}
