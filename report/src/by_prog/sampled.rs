//! The time of a program by samples, beside the kernel's clock.

use crate::model::{Count, Disagreement, Runs};
use crate::sinks::ledger::Charges;

/// Samples are so many times as uncertain as their number says, at most; beyond that they say something else.
const SIGMAS: f64 = 3.0;
/// What a timer that is late now and then, and the ends of a run that no clock sees, may come to.
const SHARE: f64 = 0.25;

/// Where samples of time and run statistics say different things of the same. `all` are the samples of `event`, which tell how long one of
/// them stands for.
pub(super) fn disagreement(charges: &Charges, runs: &Runs, event: &str, all: Count) -> Option<Disagreement> {
    // The kernel's clock is read inside of what exists to run the program.
    let samples = charges.total.samples.saturating_sub(charges.entry.samples);
    let sampled_ns = charges.total.weight.saturating_sub(charges.entry.weight);
    let period_ns = all.weight.checked_div(all.samples).filter(|ns| *ns > 0)? as f64;
    let stats_ns = runs.time_ns as f64;
    let expected = (stats_ns / period_ns).max(samples as f64);
    let allowed_ns = SIGMAS * (expected.max(1.0)).sqrt() * period_ns + SHARE * stats_ns.max(sampled_ns as f64);
    ((sampled_ns as f64 - stats_ns).abs() > allowed_ns).then(|| Disagreement::SampledTime {
        sampled_ns,
        samples,
        event: event.to_owned(),
        stats_ns: runs.time_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand samples, one every ms, of which so many are in a program that ran for so many ms.
    fn said(samples: u64, ran_ms: u64) -> Option<String> {
        let count = |samples| Count { samples, weight: samples * 1_000_000 };
        let charges = Charges { own: count(samples), total: count(samples), ..Charges::default() };
        let runs = Runs::new(10, ran_ms * 1_000_000, None, Some((0, 1)));
        disagreement(&charges, &runs, "cpu-clock", count(1000)).map(|said| said.to_string())
    }

    #[test]
    fn what_chance_explains_is_no_disagreement() {
        assert_eq!(said(100, 100), None);
        // Three times the root of 154, and a quarter of it.
        assert_eq!(said(100, 154), None);
        assert_eq!(said(100, 200).as_deref(), Some("0.100 s by 100 samples of cpu-clock, 0.200 s by stats"));
        assert!(said(200, 100).is_some());
        assert_eq!(said(1, 4), None);
        assert_eq!(said(0, 0), None);
    }
}
