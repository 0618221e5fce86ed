//! Finds out with an empty program whether run statistics are on, and measures their cost.

use std::thread;
use std::time::{Duration, Instant};

use super::calibrate::usual;
use super::empty::BareProgram;
use crate::error::Result;
use crate::inspect::StatsGuard;

/// Runs per test run call; the kernel returns their mean time, rounded to 1 ns.
const RUNS: u32 = 250;
/// Count of rounds. The lower quartile is used, because other work on the machine can only add time.
const BATCHES: usize = 9;
/// Count of on-off switches; each switch patches kernel code on all CPUs. One switch is not enough, because the CPU's frequency may change meanwhile.
const SWITCHES: usize = 5;
/// Factor from the cost of counting a run in a loop of test runs (68 ns) to its cost among other work (80 to 88 ns). The second cost is the measured
/// slowdown of a thread that makes system calls under two tracepoint programs.
const IN_PLACE: (u64, u64) = (6, 5);
/// Pauses between attempts while another process has run statistics on.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(5), Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(40)];
/// Factor from the run time that the statistics report for an empty program (50 ns) to the cost of counting a run (80 to 88 ns, measured with system
/// calls under two tracepoint programs). The kernel reads the clock before and after a run. The reported time includes one of these reads and a part
/// of the other.
const UNSEEN: (u64, u64) = (5, 3);

/// Cost of run statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsCost {
    /// Time added to each run of any program, ns.
    pub run_ns: u64,
    /// Time to switch run statistics on and off again.
    pub switch: Duration,
}

/// A program that shows whether run statistics are on, no matter which process switched them on.
#[derive(Debug)]
pub struct StatsProbe {
    program: BareProgram,
    id: u32,
}

impl StatsProbe {
    /// Loads the program.
    ///
    /// # Errors
    /// Fails if the kernel refuses the program.
    pub fn load() -> Result<StatsProbe> {
        let program = BareProgram::load()?;
        let id = program.id()?;
        Ok(StatsProbe { program, id })
    }

    /// Id of the program.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns true if run statistics are on now; takes some microseconds.
    ///
    /// # Errors
    /// Fails if the program cannot be run.
    pub fn are_on(&self) -> Result<bool> {
        let (before, _) = self.program.counted()?;
        self.program.run(1)?;
        Ok(self.program.counted()?.0 > before)
    }

    /// Measures the cost of run statistics by switching them on several times, for some hundred microseconds each. If another process keeps
    /// run statistics on, the cost of switching cannot be measured and is returned as 0; the cost per run is then estimated from the run time
    /// that the statistics report for the test program.
    ///
    /// # Errors
    /// Fails if run statistics cannot be switched on, or if the program cannot be run.
    pub fn calibrate(&self) -> Result<StatsCost> {
        let mut without = self.run_ns()?;
        // Another process may have run statistics on for a moment only: try again.
        let mut pauses = PAUSES.iter();
        while let Some(seen_ns) = without.1 {
            let Some(pause) = pauses.next() else {
                return Ok(StatsCost { run_ns: seen_ns * UNSEEN.0 / UNSEEN.1, switch: Duration::ZERO });
            };
            thread::sleep(*pause);
            without = self.run_ns()?;
        }
        let (mut costs, mut switches) = (Vec::new(), Vec::new());
        for _ in 0..SWITCHES {
            let (without_ns, _) = self.run_ns()?;
            let began = Instant::now();
            let guard = StatsGuard::enable()?;
            let switch_on = began.elapsed();
            let (with_ns, _) = self.run_ns()?;
            let began = Instant::now();
            drop(guard);
            switches.push(u64::try_from((switch_on + began.elapsed()).as_nanos()).unwrap_or(u64::MAX));
            costs.push(with_ns.saturating_sub(without_ns));
        }
        costs.sort_unstable();
        let run_ns = costs[SWITCHES / 2] * IN_PLACE.0 / IN_PLACE.1;
        Ok(StatsCost { run_ns, switch: Duration::from_nanos(usual(switches)) })
    }

    /// Measures the time of a run, ns, and the part that run statistics report, ns (`None` if they are off).
    fn run_ns(&self) -> Result<(u64, Option<u64>)> {
        let (runs, seen_ns) = self.program.counted()?;
        let batches = (0..BATCHES).map(|_| self.program.run(RUNS)).collect::<Result<Vec<_>>>()?;
        let now = self.program.counted()?;
        Ok((usual(batches), (now.1 - seen_ns).checked_div(now.0 - runs)))
    }
}
