//! Measures two costs of a probe on an empty program: the time that the probe adds to a run, and the part of this time that its own counts include.
//!
//! The kernel's run statistics change both costs by a third or more. Each result therefore has the flag [`ProbeCost::with_stats`].

use super::empty::unfit;
use super::load::Profiler;
use super::per_cpu::ProbeCounts;
use super::probe::Probe;
use crate::error::Result;

/// Runs per test run call; the kernel returns their mean time, rounded to 1 ns.
const RUNS: u32 = 250;
/// Count of rounds; each round measures all variants in turn. The lower quartile is used, because other work can only add time.
const BATCHES: usize = 41;
/// Limit on attempts if run statistics are switched on or off during a calibration.
const TRIES: usize = 5;
/// Interval of measurement (one in this many runs) with which practically no run is measured.
const NEVER: u64 = 1 << 30;

/// Cost of a probe, as totals over [`ProbeCost::runs`] runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProbeCost {
    /// Count of runs in the totals.
    pub runs: u64,
    /// Time that the probe counts for an empty program, ns: the part of its cost that its own counts include.
    pub inside_ns: u64,
    /// Counts of the events for an empty program, scaled if the events were multiplexed.
    pub inside: Vec<u64>,
    /// Time of the runs without a probe, ns.
    pub bare_ns: u64,
    /// Additional time of measured runs over runs without a probe, ns.
    pub measured_ns: u64,
    /// Additional time of skipped runs over runs without a probe, ns.
    pub skipped_ns: u64,
    /// True if the kernel's run statistics were on: they read a clock before and after each program, including the programs of the probe.
    pub with_stats: bool,
}

impl Profiler {
    /// Measures the cost of a probe and leaves run statistics as they are. Takes some milliseconds and runs only programs of our own.
    ///
    /// # Errors
    /// Fails if the programs cannot be run, or if run statistics are switched on or off during every attempt.
    pub fn calibrate(&self) -> Result<ProbeCost> {
        for _ in 0..TRIES {
            let counted = self.empty.counted_runs()?;
            let found = self.calibrate_once()?;
            match self.empty.counted_runs()? - counted {
                0 => return Ok(found),
                runs if runs == BATCHES as u64 * u64::from(RUNS) => {
                    return Ok(ProbeCost { with_stats: true, ..found });
                }
                _ => (),
            }
        }
        Err(unfit("calibration failed: another process switched run statistics on and off during it".to_owned()))
    }

    /// Returns true if run statistics are on, no matter which process switched them on.
    ///
    /// # Errors
    /// Fails if the empty program cannot be run.
    pub fn stats_are_on(&self) -> Result<bool> {
        let counted = self.empty.counted_runs()?;
        self.empty.run_bare(1)?;
        Ok(self.empty.counted_runs()? > counted)
    }

    fn calibrate_once(&self) -> Result<ProbeCost> {
        let probe = self.attach(self.empty.program(), 0, self.empty.function_type_id()?, 1)?;
        let (mut bare, mut skipped) = (Vec::new(), Vec::new());
        let (mut times, mut spent, mut values) = (Vec::new(), Vec::new(), vec![Vec::new(); self.events]);
        for _ in 0..BATCHES {
            bare.push(self.empty.run_bare(RUNS)?);
            probe.set_every(1);
            let before = read(&probe)?;
            spent.push(self.empty.run(RUNS)?);
            let now = read(&probe)?;
            if now.measured - before.measured == u64::from(RUNS) {
                times.push(now.time_ns - before.time_ns);
                for (event, values) in values.iter_mut().enumerate() {
                    values.extend(scaled(&before, &now, event));
                }
            }
            probe.set_every(NEVER);
            // The program measures this run too, and draws the count of runs to skip.
            self.empty.run(1)?;
            skipped.push(self.empty.run(RUNS)?);
        }
        if times.is_empty() {
            let all = read(&probe)?;
            return Err(unfit(format!(
                "calibration failed: of {} runs, only {} were measured",
                all.runs, all.measured
            )));
        }
        let bare_ns = usual(bare);
        let added = |with_ns: u64| with_ns.saturating_sub(bare_ns) * u64::from(RUNS);
        let inside_ns = usual(times);
        self.subtract((inside_ns + u64::from(RUNS) / 2) / u64::from(RUNS));
        Ok(ProbeCost {
            runs: u64::from(RUNS),
            inside_ns,
            inside: values.into_iter().map(usual).collect(),
            bare_ns: bare_ns * u64::from(RUNS),
            measured_ns: added(usual(spent)),
            skipped_ns: added(usual(skipped)),
            with_stats: false,
        })
    }
}

/// Reads the counts of a probe around a program that is not running at this moment.
fn read(probe: &Probe) -> Result<ProbeCounts> {
    probe.read().ok_or_else(|| unfit("calibration failed: the counts kept changing while bprec read them".to_owned()))
}

/// Returns the count of an event between two readings, scaled to the enabled time; `None` if the event was enabled, but never on the hardware.
fn scaled(before: &ProbeCounts, now: &ProbeCounts, event: usize) -> Option<u64> {
    let (before, now) = (before.readings.get(event)?, now.readings.get(event)?);
    let [value, enabled_ns, running_ns] = [0, 1, 2].map(|part| u128::from(now[part] - before[part]));
    if enabled_ns == running_ns {
        return u64::try_from(value).ok();
    }
    u64::try_from((value * enabled_ns).checked_div(running_ns)?).ok()
}

/// Returns the lower quartile; 0 for an empty list.
pub(super) fn usual(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 4).copied().unwrap_or(0)
}
