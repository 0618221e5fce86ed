//! Cost of a pair, and its overhead in what it measures: found on a program that does nothing.
//!
//! With the kernel's run statistics on, both are other numbers, by a third and more: they are found for both.

use super::empty::unfit;
use super::load::Profiler;
use super::per_cpu::ProbeCounts;
use super::probe::Probe;
use crate::error::Result;

/// Runs at a time; the kernel gives their mean, rounded to 1 ns.
const RUNS: u32 = 250;
/// Number of rounds, each way by turns. The lower quartile counts: other work of the machine only ever adds.
const BATCHES: usize = 41;
/// Number of attempts if run statistics are switched on or off meanwhile.
const TRIES: usize = 5;
/// No run is measured by chance.
const NEVER: u64 = 1 << 30;

/// Overhead of a pair, as totals over a number of runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProbeCost {
    /// Runs that the totals are over.
    pub runs: u64,
    /// Time that the pair saw of itself.
    pub inside_ns: u64,
    /// Counts of the events in it, scaled if they took turns on the hardware.
    pub inside: Vec<u64>,
    /// Time of the runs without a probe.
    pub bare_ns: u64,
    /// Time that measured runs took longer than runs without a probe.
    pub measured_ns: u64,
    /// Time that skipped runs took longer than runs without a probe.
    pub skipped_ns: u64,
    /// The kernel's run statistics were on, which read a clock before and after each of these programs, and those of the pair too.
    pub with_stats: bool,
}

impl Profiler {
    /// Finds out what a pair adds, with run statistics as they are. Takes some milliseconds, and runs nothing but programs of our own.
    ///
    /// # Errors
    /// Fails if these cannot be run.
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
        Err(unfit("run statistics were switched on and off meanwhile".to_owned()))
    }

    /// Returns true if run statistics are on, whoever switched them on.
    ///
    /// # Errors
    /// Fails if a program of our own cannot be run.
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
            // The first is measured, and draws how many are not.
            self.empty.run(1)?;
            skipped.push(self.empty.run(RUNS)?);
        }
        if times.is_empty() {
            let all = read(&probe)?;
            return Err(unfit(format!("of {} runs {} were measured", all.runs, all.measured)));
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

/// Counts of a probe around a program that runs no more at this moment.
fn read(probe: &Probe) -> Result<ProbeCounts> {
    probe.read().ok_or_else(|| unfit("its counts never stop changing".to_owned()))
}

/// Count of an event between two readings; none if it was not on the hardware.
fn scaled(before: &ProbeCounts, now: &ProbeCounts, event: usize) -> Option<u64> {
    let (before, now) = (before.readings.get(event)?, now.readings.get(event)?);
    let [value, enabled_ns, running_ns] = [0, 1, 2].map(|part| u128::from(now[part] - before[part]));
    if enabled_ns == running_ns {
        return u64::try_from(value).ok();
    }
    u64::try_from((value * enabled_ns).checked_div(running_ns)?).ok()
}

/// The lower quartile; zero of none.
pub(super) fn usual(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 4).copied().unwrap_or(0)
}
