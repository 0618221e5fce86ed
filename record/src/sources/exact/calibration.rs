//! Overhead of exact counters, calibrated with and without run statistics; and runs per second of programs, from run statistics.

use std::collections::HashMap;
use std::time::Instant;

use bprec_bpf::{ProbeCost, Profiler};
use bprec_format::bprec::state::Calibration;

use super::budget::Costs;
use crate::sources::inventory::Programs;

/// Overhead of counting, with and without run statistics. With statistics on, the kernel reads the clock twice for each run of any program, including
/// the counting programs of a probe.
#[derive(Debug, Default)]
pub(super) struct Calibrations {
    without: Option<ProbeCost>,
    with: Option<ProbeCost>,
}

impl Calibrations {
    /// Measures the overhead of counting with the current setting of run statistics.
    ///
    /// # Errors
    /// Fails if the measurement fails.
    pub(super) fn add(&mut self, profiler: &Profiler) -> bprec_bpf::Result<()> {
        let gauged = profiler.calibrate()?;
        let place = if gauged.with_stats { &mut self.with } else { &mut self.without };
        *place = Some(gauged);
        Ok(())
    }

    /// Returns true if the overhead was measured with this setting of run statistics.
    pub(super) fn has(&self, with_stats: bool) -> bool {
        self.of(with_stats).is_some()
    }

    fn of(&self, with_stats: bool) -> Option<&ProbeCost> {
        let gauged = if with_stats { &self.with } else { &self.without };
        gauged.as_ref().filter(|gauged| gauged.runs > 0)
    }

    /// Returns the cost of counting. If the cost was measured only with the other setting of run statistics, returns the cost with
    /// that setting.
    pub(super) fn costs(&self, with_stats: bool) -> Option<Costs> {
        let gauged = self.of(with_stats).or(self.of(!with_stats))?;
        let per_run = |total_ns: u64| total_ns as f64 / gauged.runs as f64;
        Some(Costs { measured_ns: per_run(gauged.measured_ns), skipped_ns: per_run(gauged.skipped_ns) })
    }

    pub(super) fn calibration(&self, with_stats: bool) -> Option<Calibration> {
        self.of(with_stats).map(|gauged| Calibration {
            runs: gauged.runs,
            inside_ns: gauged.inside_ns,
            inside: gauged.inside.clone(),
            measured_ns: Some(gauged.measured_ns),
            skipped_ns: Some(gauged.skipped_ns),
        })
    }
}

/// Runs per second of programs, from run statistics.
#[derive(Debug)]
pub(super) struct Rates {
    seen: HashMap<u32, u64>,
    seen_at: Instant,
    /// Runs per second of all programs, at the last reading.
    pub(super) all: f64,
}

impl Rates {
    pub(super) fn begin(programs: &Programs) -> Rates {
        Rates { seen: programs.run_counts(), seen_at: Instant::now(), all: 0.0 }
    }

    /// Returns the runs per second of each program since the last reading.
    pub(super) fn look(&mut self, programs: &Programs) -> HashMap<u32, f64> {
        let (now, runs) = (Instant::now(), programs.run_counts());
        let elapsed_s = now.duration_since(self.seen_at).as_secs_f64().max(1e-3);
        let rate = |(id, runs): (&u32, &u64)| {
            let new = runs.saturating_sub(self.seen.get(id).copied().unwrap_or(0));
            (*id, new as f64 / elapsed_s)
        };
        let rates: HashMap<u32, f64> = runs.iter().map(rate).collect();
        self.all = rates.values().sum();
        (self.seen, self.seen_at) = (runs, now);
        rates
    }
}
