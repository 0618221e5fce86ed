//! Cost of run statistics: measured on a program that does nothing, and on a load of system calls. Needs root.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use bprec_bpf::{StatsGuard, StatsProbe};
use bprec_fixtures::load::system_calls;
use bprec_fixtures::{Counter, Fixture, SoftwareEvent, thread_id};
use common::can_load;

#[test]
fn a_load_pays_what_was_calibrated() {
    const CALLS: u64 = 10_000;
    const ROUNDS: usize = 21;
    if !can_load("a_load_pays_what_was_calibrated") {
        return;
    }
    let probe = StatsProbe::load().unwrap();
    // Each call runs two programs; programs of others that also run for each call add to the cost.
    let loaded = Fixture::TP.open().unwrap().for_this_thread().unwrap().start().unwrap();
    let clock = Counter::of_task(SoftwareEvent::TaskClock, thread_id()).unwrap();
    let time_of_calls = || {
        let before = clock.value().unwrap();
        system_calls(CALLS);
        clock.value().unwrap() - before
    };
    let quartile = |mut times: Vec<u64>| {
        times.sort_unstable();
        times[times.len() / 4] as f64 / (CALLS * 2) as f64
    };
    let mut was_alone = false;
    let agrees = (0..20).any(|_| {
        // While another process has run statistics on, switching them on here does not change the cost of a load.
        if probe.are_on().unwrap() {
            std::thread::sleep(std::time::Duration::from_millis(200));
            return false;
        }
        was_alone = true;
        let cost = probe.calibrate().unwrap();
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(time_of_calls());
            let guard = StatsGuard::enable().unwrap();
            with.push(time_of_calls());
            drop(guard);
        }
        let paid_ns = quartile(with) - quartile(without);
        println!("calibrated {} ns a run, paid {paid_ns:.1} ns; a switch takes {:?}", cost.run_ns, cost.switch);
        let ratio = paid_ns / cost.run_ns as f64;
        (0.6..2.5).contains(&ratio)
    });
    if !was_alone {
        println!("SKIP a_load_pays_what_was_calibrated: others have run statistics on all the time");
        return;
    }
    assert!(agrees);
    assert!(loaded.entered("account_syscall_enter").unwrap() >= CALLS);
}

/// The probe detects that another process has statistics on, and calibration then still finds their cost.
#[test]
fn statistics_of_others_are_seen() {
    const CALIBRATIONS: usize = 3;
    if !can_load("statistics_of_others_are_seen") {
        return;
    }
    let probe = StatsProbe::load().unwrap();
    // Other processes may have statistics on for some time, but not always. The minimum of several measurements excludes busy moments.
    let alone = (0..100).filter_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let before = probe.are_on().unwrap();
        let cost = probe.calibrate().unwrap();
        (!before && !probe.are_on().unwrap() && !cost.switch.is_zero()).then_some(cost)
    });
    let alone = alone.take(CALIBRATIONS).min_by_key(|cost| cost.run_ns);
    let guard = StatsGuard::enable().unwrap();
    assert!(probe.are_on().unwrap());
    let beside: Vec<_> = (0..CALIBRATIONS).map(|_| probe.calibrate().unwrap()).collect();
    drop(guard);
    println!("alone {alone:?}, while another process has statistics on {beside:?}");
    assert!(beside.iter().all(|cost| cost.run_ns > 0 && cost.switch.is_zero()));
    let least_ns = beside.iter().map(|cost| cost.run_ns).min().unwrap();
    if let Some(alone) = alone {
        let ratio = least_ns as f64 / alone.run_ns as f64;
        assert!((0.3..3.0).contains(&ratio), "{ratio}");
    }
}
