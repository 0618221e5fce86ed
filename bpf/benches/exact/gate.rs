//! Effects of measuring only a part of the runs: on the mean time per run and, with a budget, on the throughput of the machine.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use bprec_fixtures::Fixture;

use crate::Result;
use crate::cost::{MIXED, ours};
use crate::load::{Load, Work};

/// Compares the mean time of measured runs: with every run measured, and with one run in a hundred measured.
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
                let before = pair.read().ok_or("the counts changed while they were read")?;
                loaded.run(name, if every == 1 { MEASURED } else { MEASURED * 25 })?;
                let after = pair.read().ok_or("the counts changed while they were read")?;
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

/// Time that `bprec stat` needs to attach, and to measure how often a program runs.
const SETTLED: Duration = Duration::from_secs(2);

/// Compares the throughput of the machine while a program is counted within a budget, and while it is not counted. One measurement starts after
/// counting has settled; another covers the second in which a paused program starts to run.
pub(crate) fn budget(bprec: &Path, seconds: u64, rounds: usize) -> Result<()> {
    println!("| load | runs/s | other work, counted / not | runs, counted / not | all, weighed by time |");
    println!("| --- | --- | --- | --- | --- |");
    let short = Some(Duration::from_millis(1));
    for (name, pause, begins) in [
        ("as often as possible", None, false),
        ("the same, in its first second", None, true),
        ("100 at a time, with pauses of 1 ms", short, false),
    ] {
        let work = Work::start();
        let load = Load::start("loop_of_100", 1, pause)?;
        let id = load.loaded.id_of("loop_of_100")?.to_string();
        let length = Duration::from_secs(if begins { 1 } else { seconds });
        let mut done: [[u64; 2]; 2] = [[0; 2]; 2];
        for round in 0..rounds {
            for turn in 0..2 {
                let counted = (round + turn) % 2 == 0;
                load.hold(begins);
                let mut child = None;
                if counted {
                    let ms = (SETTLED + length + SETTLED / 2).as_millis().to_string();
                    let mut command = Command::new(bprec);
                    command.args([
                        "stat",
                        "-q",
                        "--budget",
                        "0.5",
                        "-e",
                        "cpu-clock",
                        "-b",
                        &id,
                        "--timeout",
                        &ms,
                        "-o",
                        "/dev/null",
                    ]);
                    child = Some(command.spawn()?);
                    thread::sleep(SETTLED);
                }
                load.hold(false);
                let before = [work.done(), load.runs()];
                thread::sleep(length);
                let after = [work.done(), load.runs()];
                for (sum, (after, before)) in done[usize::from(counted)].iter_mut().zip(after.iter().zip(before)) {
                    *sum += after - before;
                }
                if let Some(mut child) = child {
                    let status = child.wait()?;
                    if !status.success() {
                        return Err(format!("{} ended with {status}", bprec.display()).into());
                    }
                }
            }
        }
        let [off, on] = done;
        let ratio = |index: usize| on[index] as f64 / off[index] as f64;
        println!(
            "| {name} | {:.0} | {:.4} | {:.4} | {:.4} |",
            off[1] as f64 / (length.as_secs_f64() * rounds as f64),
            ratio(0),
            ratio(1),
            (ratio(0) + ratio(1)) / 2.0
        );
    }
    Ok(())
}
