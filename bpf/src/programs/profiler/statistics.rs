//! What run statistics add to a run, found on a program that does nothing.

use std::thread;
use std::time::Duration;

use super::calibrate::usual;
use super::empty::EmptyProgram;
use crate::error::Result;
use crate::inspect::StatsGuard;

/// Runs at a time; the kernel gives their mean, rounded to 1 ns.
const RUNS: u32 = 250;
/// How many times. The lower quartile counts: what else the machine does only ever adds.
const BATCHES: usize = 21;

/// Between tries, while somebody else has them on.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(5), Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(40)];

/// What run statistics add to a run of any program, ns; `None` when somebody else has them on, so that nothing is added for us. They
/// are switched on for some hundred microseconds.
///
/// # Errors
/// When they cannot be switched on, or a program of our own cannot be run.
pub fn statistics_run_ns() -> Result<Option<u64>> {
    let empty = EmptyProgram::load()?;
    let mut without = run_ns(&empty)?;
    // Another recorder may have them on for a moment only.
    let mut pauses = PAUSES.iter();
    while without.1 {
        let Some(pause) = pauses.next() else { return Ok(None) };
        thread::sleep(*pause);
        without = run_ns(&empty)?;
    }
    let without_ns = without.0;
    let guard = StatsGuard::enable()?;
    let (with_ns, _) = run_ns(&empty)?;
    drop(guard);
    Ok(Some(with_ns.saturating_sub(without_ns)))
}

/// The time of a run, and whether runs are counted now.
fn run_ns(empty: &EmptyProgram) -> Result<(u64, bool)> {
    let before = empty.counted_runs()?;
    let batches = (0..BATCHES).map(|_| empty.run_bare(RUNS)).collect::<Result<Vec<_>>>()?;
    Ok((usual(batches), empty.counted_runs()? > before))
}
