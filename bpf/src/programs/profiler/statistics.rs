//! What run statistics add to a run, found on a program that does nothing.

use super::calibrate::usual;
use super::empty::EmptyProgram;
use crate::error::Result;
use crate::inspect::StatsGuard;

/// Runs at a time; the kernel gives their mean, rounded to 1 ns.
const RUNS: u32 = 250;
/// How many times. The lower quartile counts: what else the machine does only ever adds.
const BATCHES: usize = 21;

/// What run statistics add to a run of any program, ns; `None` when somebody else has them on, so that nothing is added for us. They
/// are switched on for some hundred microseconds.
///
/// # Errors
/// When they cannot be switched on, or a program of our own cannot be run.
pub fn statistics_run_ns() -> Result<Option<u64>> {
    let empty = EmptyProgram::load()?;
    let (without_ns, is_counted) = run_ns(&empty)?;
    if is_counted {
        return Ok(None);
    }
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
