//! Attaches and detaches pairs of fentry and fexit programs around programs that always run on every CPU: each time, the kernel changes the first
//! instruction of running code. The benchmark shows if a machine handles this correctly; docs/vm.md has the results.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bprec_bpf::{Profiler, Program};
use bprec_fixtures::{Fixture, online_cpus};

use crate::Result;
use crate::attach::target;
use crate::cost::possible_cpus;

const PROGRAM: &str = "loop_of_100";
/// Runs of one program before the next program runs.
const AT_A_TIME: u32 = 100;
/// Count of programs with pairs. A separate thread attaches and detaches each pair, because a thread mostly waits for the kernel.
const TARGETS: usize = 16;

/// Attaches and detaches for `seconds`. Prints the count of attachments after each second, because the guest may crash before the end.
pub(crate) fn bench(seconds: u64) -> Result<()> {
    let profiler = Profiler::load_pair(&[], 0, possible_cpus()?)?;
    let cpus = online_cpus()?.len();
    let loaded = (0..TARGETS).map(|_| Fixture::COUNTED.open()?.load()).collect::<std::result::Result<Vec<_>, _>>()?;
    let targets = loaded.iter().map(|loaded| target(loaded, PROGRAM)).collect::<Result<Vec<_>>>()?;
    let (times, runs, start) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    let until = start + Duration::from_secs(seconds);
    let churn = |(program, type_id): &(Program, u32)| -> bprec_bpf::Result<()> {
        while Instant::now() < until {
            profiler.attach(program.as_fd(), program.id(), *type_id, 1)?.detach();
            times.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let load = || {
        while Instant::now() < until && loaded.iter().all(|loaded| loaded.run(PROGRAM, AT_A_TIME).is_ok()) {
            runs.fetch_add(u64::from(AT_A_TIME) * TARGETS as u64, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        (0..cpus).for_each(|_| drop(scope.spawn(load)));
        let threads: Vec<_> = targets.iter().map(|target| scope.spawn(|| churn(target))).collect();
        while Instant::now() < until {
            thread::sleep(Duration::from_secs(1));
            println!(
                "guest: after {:.0} s, pairs were attached {} times, and programs ran {} times",
                start.elapsed().as_secs_f64(),
                times.load(Ordering::Relaxed),
                runs.load(Ordering::Relaxed)
            );
            std::io::stdout().flush()?;
        }
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })
}
