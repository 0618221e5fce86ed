//! Run statistics seen by a program of ours that does nothing: whether they are on, and what they cost.

use std::thread;
use std::time::{Duration, Instant};

use super::calibrate::usual;
use super::empty::BareProgram;
use crate::error::Result;
use crate::inspect::StatsGuard;

/// Runs at a time; the kernel gives their mean, rounded to 1 ns.
const RUNS: u32 = 250;
/// Number of rounds. The lower quartile counts: other work of the machine only ever adds.
const BATCHES: usize = 9;
/// Times that they are switched on and off, which patches the kernel's text on all CPUs. A processor's clock may change meanwhile.
const SWITCHES: usize = 5;
/// Cost of counting a run among other work over its cost in a loop: 80 to 88 ns over 68 ns, measured as the slowdown of a thread that makes
/// system calls under two tracepoint programs.
const IN_PLACE: (u64, u64) = (6, 5);
/// Between tries, while somebody else has them on.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(5), Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(40)];
/// Cost of a run over the time that statistics see of an empty program: of the two readings of the clock they see one and a
/// part. 80 to 88 ns over 50 ns, measured with system calls under two tracepoint programs.
const UNSEEN: (u64, u64) = (5, 3);

/// Cost of run statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsCost {
    /// Added to each run of any program, ns.
    pub run_ns: u64,
    /// Time that it takes to switch them on and off again.
    pub switch: Duration,
}

/// A program that tells whether run statistics are on, whoever has switched them on.
#[derive(Debug)]
pub struct StatsProbe {
    program: BareProgram,
    id: u32,
}

impl StatsProbe {
    /// Loads the program.
    ///
    /// # Errors
    /// Fails if the kernel refuses it.
    pub fn load() -> Result<StatsProbe> {
        let program = BareProgram::load()?;
        let id = program.id()?;
        Ok(StatsProbe { program, id })
    }

    /// The program's id.
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

    /// Measures the cost of run statistics. They are switched on for some hundred microseconds, several times. While somebody else has them on the
    /// cost of a run follows from the time that they see of the program, and that of a switch is unknown, and small: it changes a number.
    ///
    /// # Errors
    /// Fails if they cannot be switched on, or the program cannot be run.
    pub fn calibrate(&self) -> Result<StatsCost> {
        let mut without = self.run_ns()?;
        // Another recorder may have them on for a moment only.
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

    /// The time of a run, and how much of it run statistics see, if they are on.
    fn run_ns(&self) -> Result<(u64, Option<u64>)> {
        let (runs, seen_ns) = self.program.counted()?;
        let batches = (0..BATCHES).map(|_| self.program.run(RUNS)).collect::<Result<Vec<_>>>()?;
        let now = self.program.counted()?;
        Ok((usual(batches), (now.1 - seen_ns).checked_div(now.0 - runs)))
    }
}
