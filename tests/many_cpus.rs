//! A machine with many CPUs: recording, report, counts, and their memory. Real kernel, root, 32 CPUs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{Running, Scratch, perf, perf_installed, program, report, root, skip, wait_for};
use bprec_fixtures::{Fixture, Loaded};
use serde_json::Value;

const MIN_CPUS: usize = 32;
const RUNS_PER_CPU: u64 = 20;

/// Peak memory of a process so far.
fn peak_kib(process: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Objects of a kind from bpftool, by id.
fn listed(kind: &str) -> Vec<Value> {
    let output = Command::new("bpftool").args(["-j", kind, "list"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Bytes of kernel memory for all maps except `but`.
fn map_bytes(but: &BTreeSet<u64>) -> u64 {
    let maps = listed("map");
    let new = maps.iter().filter(|map| !but.contains(&map["id"].as_u64().unwrap()));
    new.map(|map| map["bytes_memlock"].as_u64().unwrap_or(0)).sum()
}

/// Runs a program on every CPU.
fn run_everywhere(loaded: &Loaded, name: &str, cpus: usize) {
    for cpu in 0..cpus {
        // SAFETY: a set of CPUs is plain bytes, and zeros are the empty set; the kernel only reads it.
        let moved = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
        };
        assert_eq!(moved, 0, "{}", std::io::Error::last_os_error());
        loaded.run(name, RUNS_PER_CPU as u32).unwrap();
    }
}

#[test]
fn many_cpus_are_recorded_and_counted() {
    let test = "many_cpus_are_recorded_and_counted";
    if !root(test) || !perf_installed(test) {
        return;
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus < MIN_CPUS {
        skip(test, &format!("this machine has {cpus} CPUs, fewer than {MIN_CPUS}"));
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let loaded = Fixture::COUNTED.open().unwrap().load().unwrap();
    let runs = RUNS_PER_CPU * cpus as u64;

    let child = Running::record(&path, &["-q", "-e", "cpu-clock", "-F", "50", "--counters", "stats"]);
    run_everywhere(&loaded, "loop_of_10000", cpus);
    println!("{cpus} CPUs, recorded with run statistics: {} KiB", peak_kib(&child));
    child.end();
    let plain = report(&path, &["--all"]);
    assert_eq!(program(&plain, loaded.id_of("loop_of_10000").unwrap())["runs"]["count"], runs);
    let seen = perf(&["script", "-F", "cpu", "-i", path.to_str().unwrap()]);
    let seen: BTreeSet<&str> = seen.lines().map(str::trim).collect();
    assert_eq!(seen.len(), cpus, "samples of {seen:?}");

    let mut bytes = Vec::new();
    let names = ["loop_of_100", "loop_of_1000", "loop_of_10000", "call_a_subprogram", "rarely_a_hundred_times_longer"];
    for targets in [1, names.len()] {
        let before = listed("map").iter().map(|map| map["id"].as_u64().unwrap()).collect();
        let pattern = format!("exact={}", names[..targets].join(","));
        let options = ["-q", "-e", "cpu-clock", "-F", "50", "--counters", &pattern, "--budget", "100"];
        let child = Running::record(&path, &options);
        let own =
            || listed("prog").iter().filter(|it| it["name"] == "bprec_enter" || it["name"] == "bprec_session").count();
        wait_for("the targets' programs", || (own() >= targets).then_some(()));
        run_everywhere(&loaded, "loop_of_100", cpus);
        bytes.push(map_bytes(&before));
        println!(
            "{cpus} CPUs, {targets} exact targets: {} KiB, maps {} KiB",
            peak_kib(&child),
            bytes[bytes.len() - 1] >> 10
        );
        child.end();
        let counted = report(&path, &["--all"]);
        let exact = &program(&counted, loaded.id_of("loop_of_100").unwrap())["exact"];
        assert_eq!((&exact["runs"], &exact["measured"]), (&Value::from(runs), &Value::from(runs)), "{exact:#}");
    }
    let more = (bytes[1] - bytes[0]) as usize;
    println!("{} bytes of maps per exact target and CPU", more / (names.len() - 1) / cpus);
}
