//! Events per run, estimated from samples.

use crate::index::student::NORMAL_95;
use crate::model::{Known, Reason, Runs, SampledPerRun};
use crate::pass::sinks::pivot::Charges;

/// Estimates the events per run from a program's samples. The number of samples is a matter of chance, with a variance equal to the number, and each
/// sample stands for the same number of events. The margin also includes the margin of the runs if the runs are an estimate.
pub(super) fn per_run(charges: &Charges, runs: &Runs) -> Known<SampledPerRun> {
    if runs.count == 0 {
        return Known::Unknown(Reason::NoRuns);
    }
    // The time of a run does not include entry code, so samples in entry code are left out.
    let inside = charges.inside();
    if inside.samples == 0 {
        return Known::Unknown(Reason::NoSamples);
    }
    let value = inside.weight as f64 / runs.count as f64;
    let by_samples = NORMAL_95 / (inside.samples as f64).sqrt();
    let Some(margin) = runs.count_margin() else { return Known::Unknown(Reason::StatisticsWereOff) };
    let by_runs = margin as f64 / runs.count as f64;
    // The C library's `hypot` may differ in the last bit between machines. These operations give the same result everywhere.
    let margin = value * (by_samples * by_samples + by_runs * by_runs).sqrt();
    Known::Value(SampledPerRun { value, margin })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Count, RunsEstimate};

    /// 100 samples of 50,000 cycles each, a fifth of them in entry code, and 2,000 runs.
    #[test]
    fn events_per_run_have_the_margin_of_their_samples_and_runs() {
        let count = |samples| Count { samples, weight: samples * 50_000 };
        let charges = Charges { own: count(80), entry: count(20), total: count(100), ..Charges::default() };
        let runs = Runs::new(2_000, 1, None, Some((0, 1)));
        let Known::Value(known) = per_run(&charges, &runs) else { panic!() };
        assert!((known.value - 2_000.0).abs() < 1e-9, "80 × 50,000 / 2,000");
        assert!((known.margin - 1.96 * 2_000.0 / 80f64.sqrt()).abs() < 1e-6, "{}", known.margin);

        let estimate = |count_margin| Some(RunsEstimate { counted_for_ns: 1, count_margin, time_margin_ns: None });
        let Known::Value(known) = per_run(&charges, &Runs { estimate: estimate(Some(500)), ..runs }) else { panic!() };
        let expected = 2_000.0 * (1.96f64 * 1.96 / 80.0 + 0.25 * 0.25).sqrt();
        assert!((known.margin - expected).abs() < 1e-6, "{}", known.margin);
        assert_eq!(
            per_run(&charges, &Runs { estimate: estimate(None), ..runs }),
            Known::Unknown(Reason::StatisticsWereOff)
        );
        assert_eq!(per_run(&Charges::default(), &runs), Known::Unknown(Reason::NoSamples));
        assert_eq!(per_run(&charges, &Runs::new(0, 0, None, None)), Known::Unknown(Reason::NoRuns));
    }
}
