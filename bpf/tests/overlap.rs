//! The program profiler with overlapping runs of one program on a CPU: asleep, preempted, interrupted. The tests expect the counts and times that the
//! programs and their callers measure themselves. Needs trampolines (fentry, fexit), which not every machine allows.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::time::Duration;

use bprec_bpf::{HISTOGRAM_SUB_BITS, ProbeCounts, Profiler};
use bprec_fixtures::{AbsentMemory, Fixture, Loaded, Ran, Request, run_on_cpu};
use bprec_format::bprec::state::Histogram;
use common::{attach, position_of, profilers};

/// Returns the buckets of all runs, ascending.
fn buckets(counted: &ProbeCounts) -> Vec<u16> {
    counted.buckets.iter().flat_map(|(bucket, runs)| (0..*runs).map(|_| *bucket)).collect()
}

#[test]
fn sleeping_runs_end_in_any_order_and_are_not_mixed() {
    let test = "sleeping_runs_end_in_any_order_and_are_not_mixed";
    profilers(test).iter().for_each(|profiler| sleeping_runs(test, profiler));
}

fn sleeping_runs(test: &str, profiler: &Profiler) {
    const NAME: &str = "sleep_in_the_middle";
    // Order in which consecutive runs end, and count of runs that exceed the limit on open runs.
    for (order, nesting_overflow) in
        [(&[0, 1, 2, 3][..], 0), (&[3, 2, 1, 0], 0), (&[1, 3, 0, 2], 0), (&[5, 0, 4, 1, 3, 2], 2)]
    {
        let runs = order.len();
        let memory = match AbsentMemory::new(runs) {
            Ok(memory) => memory,
            Err(error) => return println!("SKIP {test}: {error:#}"),
        };
        let loaded = Fixture::OVERLAP.open().unwrap().load().unwrap();
        let mut pair = attach(profiler, &loaded, NAME, 0);
        let (ran, outside_ns): (Vec<Ran>, u64) = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for page in 0..runs {
                let request = Request { address: memory.address(page), ..Request::default() };
                let loaded = &loaded;
                threads.push(scope.spawn(move || {
                    run_on_cpu(0).unwrap();
                    let start = std::time::Instant::now();
                    let ran = loaded.request(NAME, &request).unwrap();
                    (ran, start.elapsed().as_nanos() as u64)
                }));
                memory.wait_for_reader().unwrap();
                std::thread::sleep(Duration::from_millis(150));
            }
            // The runs have different lengths, so a wrong start time would be noticed.
            for (place, page) in order.iter().enumerate() {
                memory.give(*page).unwrap();
                let patience = std::time::Instant::now() + Duration::from_secs(20);
                while loaded.ran(NAME).unwrap() < place as u64 + 1 {
                    assert!(
                        std::time::Instant::now() < patience,
                        "page {page} is available, but its reader still waits"
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            let ran: Vec<(Ran, u64)> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            // The last runs to begin exceeded the limit.
            let measured = &ran[..runs - nesting_overflow as usize];
            (measured.iter().map(|(ran, _)| *ran).collect(), measured.iter().map(|(_, outside_ns)| outside_ns).sum())
        });
        pair.detach();
        let counted = pair.read().unwrap();
        assert_eq!((loaded.entered(NAME).unwrap(), loaded.ran(NAME).unwrap()), (runs as u64, runs as u64));
        assert_eq!((counted.runs, pair.misses()), (runs as u64, Some(0)), "{order:?}");
        assert_eq!(counted.measured, runs as u64 - nesting_overflow, "{order:?}: {counted:?}");
        assert_eq!((counted.nesting_overflow, counted.discarded, counted.open), (nesting_overflow, 0, 0), "{order:?}");
        // The measured time includes the program's own time, and is within the caller's waiting time.
        let inside_ns: u64 = ran.iter().map(Ran::time_ns).sum();
        assert!((inside_ns..=outside_ns).contains(&counted.time_ns), "{order:?}: {counted:?}, {ran:?}");
        // A measured time is longer than the program's own time, by up to 25 %: its bucket is the same or a later one.
        let mut own_ns: Vec<u64> = ran.iter().map(Ran::time_ns).collect();
        own_ns.sort_unstable();
        for (ns, bucket) in own_ns.iter().zip(buckets(&counted)) {
            let of = |ns| Histogram::bucket(ns, HISTOGRAM_SUB_BITS);
            assert!((of(*ns)..=of(ns + ns / 4)).contains(&bucket), "{order:?}: {ran:?} in {counted:?}");
        }
    }
}

/// Sums over all runs of `work`.
struct Work {
    entered: u64,
    inside: u64,
    ns: u64,
}

fn work(loaded: &Loaded) -> Work {
    let of = |name| loaded.variable(name).unwrap();
    assert_eq!((of("under_way"), of("work_entered")), (0, of("work_ran")), "some runs have not ended");
    Work { entered: of("work_entered"), inside: of("work_inside"), ns: of("work_ns") }
}

#[test]
fn preempted_runs_are_counted_once_each() {
    let test = "preempted_runs_are_counted_once_each";
    profilers(test).iter().for_each(|profiler| preempted_runs(test, profiler));
}

fn preempted_runs(_: &str, profiler: &Profiler) {
    let loaded = Fixture::OVERLAP.open().unwrap().load().unwrap();
    let mut pair = attach(profiler, &loaded, "work_until_done", position_of(&loaded, "work_until_done", "work"));
    const THREADS: u64 = 3;
    const RUNS: u64 = 40;
    let outside_ns: u64 = std::thread::scope(|scope| {
        let run = || {
            run_on_cpu(0).unwrap();
            let start = std::time::Instant::now();
            for _ in 0..RUNS {
                let request = Request { rounds: 60_000, ..Request::default() };
                loaded.request("work_until_done", &request).unwrap();
            }
            start.elapsed().as_nanos() as u64
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    pair.detach();
    let (counted, own) = (pair.read().unwrap(), work(&loaded));
    println!("{} of {} runs started during another run", own.inside, own.entered);
    assert_eq!(own.entered, THREADS * RUNS);
    assert_eq!(counted.runs + pair.misses().unwrap(), own.entered, "{counted:?}");
    assert_eq!(
        counted.measured + counted.discarded + counted.nesting_overflow + counted.open,
        counted.runs,
        "{counted:?}"
    );
    if (counted.measured, counted.nesting_overflow) == (own.entered, 0) {
        assert!(
            (own.ns..=outside_ns).contains(&counted.time_ns),
            "{counted:?}, but {} ns by the program's own clock",
            own.ns
        );
    }
    // If a run ends while our program is preempted in another run, the kernel skips our program at that end. The run that ended stays open for a
    // while, so the number of measured runs is random.
    assert!(counted.measured > 0, "{counted:?}");
}

#[test]
fn runs_from_an_interrupt_inside_runs_are_counted_once_each() {
    let test = "runs_from_an_interrupt_inside_runs_are_counted_once_each";
    profilers(test).iter().for_each(|profiler| runs_from_an_interrupt(test, profiler));
}

fn runs_from_an_interrupt(test: &str, profiler: &Profiler) {
    run_on_cpu(0).unwrap();
    let loaded = Fixture::OVERLAP.open().unwrap().load().unwrap();
    let mut pair = attach(profiler, &loaded, "work_until_done", position_of(&loaded, "work_until_done", "work"));
    const RUNS: u64 = 1000;
    let alone = Request { rounds: 10_000, timer_rounds: 100, ..Request::default() };
    let time_ns = loaded.request("work_until_done", &alone).unwrap().time_ns();
    for run in 0..RUNS {
        // Each run sets a longer delay, from 1 ns to the time of a run without a timer. If the kernel runs the timer on time, it fires at moments
        // spread from before the first instruction of `work` to after its last one.
        let timer_ns = 1 + time_ns * run / RUNS;
        loaded.request("work_until_done", &Request { timer_ns, ..alone }).unwrap();
        // Wait for the timer before the next run sets it again: each run executes `work` twice, once itself and once in the timer. The run before the
        // loop executed it once.
        let patience = std::time::Instant::now() + Duration::from_secs(5);
        while loaded.variable("work_ran").unwrap() < 2 * (run + 1) + 1 {
            assert!(std::time::Instant::now() < patience, "the timer did not fire");
        }
    }
    pair.detach();
    let (counted, own) = (pair.read().unwrap(), work(&loaded));
    let misses = pair.misses().unwrap();
    println!("{} of {} runs started inside another run; {misses} missed; {counted:?}", own.inside, own.entered);
    assert_eq!(own.entered, 2 * RUNS + 1);
    // If the timer interrupts our own program, the kernel skips our program for the timer's run and counts a miss. All other runs are counted.
    assert_eq!(counted.runs + misses, own.entered, "{counted:?}");
    assert_eq!(counted.measured + counted.discarded + counted.open, counted.runs, "{counted:?}");
    assert_eq!(counted.nesting_overflow, 0);
    assert_eq!(counted.buckets.iter().map(|(_, runs)| runs).sum::<u64>(), counted.measured);
    assert!(counted.measured > RUNS + own.inside / 2, "{counted:?}");
    if counted.measured == own.entered {
        assert!(counted.time_ns >= own.ns, "{counted:?}, but {} ns by the program's own clock", own.ns);
    }
    if own.inside < RUNS / 20 {
        println!("SKIP {test}: only {} runs started inside another run, because the timer fired late", own.inside);
    }
}
