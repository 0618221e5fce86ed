//! What a gate does to the numbers, and what a budget does to the machine.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{hint, thread};

use bprec_fixtures::Fixture;

use crate::Result;
use crate::cost::{MIXED, ours};
use crate::load::Load;

/// The mean time of measured runs, and what a clock came to in them, when all are measured and when one in a hundred is.
pub(crate) fn accuracy() -> Result<()> {
    const EVERY: u64 = 100;
    const ROUNDS: usize = 12;
    const MEASURED: u32 = 4000;
    println!("| program | mean of every run | mean of one in {EVERY} | ratio | measured |");
    println!("| --- | --- | --- | --- | --- |");
    for name in ["loop_of_100", "loop_of_1000", "loop_of_10000"] {
        let loaded = Fixture::COUNTED.open()?.load()?;
        let held = ours(&loaded, name, &MIXED[..1], 1)?;
        let pair = held.pair().ok_or("no pair")?;
        let (mut all, mut gated) = ([0u64; 2], [0u64; 2]);
        for _ in 0..ROUNDS {
            for (every, sums) in [(1, &mut all), (EVERY, &mut gated)] {
                pair.set_every(every);
                let before = pair.read();
                loaded.run(name, if every == 1 { MEASURED } else { MEASURED * 25 })?;
                let after = pair.read();
                sums[0] += after.time_ns - before.time_ns;
                sums[1] += after.measured - before.measured;
            }
        }
        let mean = |[time_ns, measured]: [u64; 2]| time_ns as f64 / measured as f64;
        println!(
            "| {name} | {:.0} ns | {:.0} ns | {:.3} | {}, {} |",
            mean(all),
            mean(gated),
            mean(gated) / mean(all),
            all[1],
            gated[1]
        );
    }
    Ok(())
}

/// What the machine gets done while a program is counted under a budget, and while it is not.
pub(crate) fn budget(bprec: &Path, seconds: u64, rounds: usize) -> Result<()> {
    println!("| load | runs/s | other work, counted / not | runs, counted / not | all, weighed by time |");
    println!("| --- | --- | --- | --- | --- |");
    for (name, pause) in [("as often as it can", None), ("with pauses of 1 ms", Some(Duration::from_millis(1)))] {
        let work = Work::start();
        let load = Load::start("loop_of_100", 1, pause)?;
        let id = load.loaded.id_of("loop_of_100")?.to_string();
        let mut done: [[u64; 2]; 2] = [[0; 2]; 2];
        let mut runs_per_second = 0.0;
        for round in 0..rounds {
            for turn in 0..2 {
                let counted = (round + turn) % 2 == 0;
                let mut child = None;
                if counted {
                    let ms = ((seconds + 2) * 1000).to_string();
                    let mut command = Command::new(bprec);
                    command.args(["stat", "-q", "-e", "cpu-clock", "-b", &id, "--timeout", &ms, "-o", "/dev/null"]);
                    child = Some(command.spawn()?);
                    thread::sleep(Duration::from_millis(700));
                }
                let (start, before) = (Instant::now(), [work.done(), load.runs()]);
                thread::sleep(Duration::from_secs(seconds));
                let after = [work.done(), load.runs()];
                if !counted {
                    runs_per_second = (after[1] - before[1]) as f64 / start.elapsed().as_secs_f64();
                }
                for (sum, (after, before)) in done[usize::from(counted)].iter_mut().zip(after.iter().zip(before)) {
                    *sum += after - before;
                }
                if let Some(mut child) = child {
                    child.wait()?;
                }
            }
        }
        let [off, on] = done;
        let ratio = |index: usize| on[index] as f64 / off[index] as f64;
        println!(
            "| {name} | {runs_per_second:.0} | {:.4} | {:.4} | {:.4} |",
            ratio(0),
            ratio(1),
            (ratio(0) + ratio(1)) / 2.0
        );
    }
    Ok(())
}

/// Arithmetic on one thread, counted.
struct Work {
    rounds: std::sync::Arc<AtomicU64>,
    quit: std::sync::Arc<AtomicBool>,
}

impl Work {
    fn start() -> Work {
        let work = Work { rounds: Default::default(), quit: Default::default() };
        let (rounds, quit) = (std::sync::Arc::clone(&work.rounds), std::sync::Arc::clone(&work.quit));
        thread::spawn(move || {
            let mut x = 1u64;
            while !quit.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    x = hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        work
    }

    fn done(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Relaxed);
    }
}
