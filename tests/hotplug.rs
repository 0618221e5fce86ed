//! CPUs that go offline and come online while they are recorded. Only a guest is at hand to do that to.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::{self, Running, Scratch, bprec, report, skip, succeed};
use bprec_fixtures::{Fixture, Loaded, run_on_cpu};

const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";

/// A CPU that can be switched off, and is on again at the end.
struct Cpu1;

impl Cpu1 {
    fn find(test: &str) -> Option<Cpu1> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        if host.trim() != "guest" {
            skip(test, "switches a CPU off, which is done in guests alone");
            return None;
        }
        if !Path::new(SWITCH).exists() {
            skip(test, "this kernel cannot switch CPU 1 off");
            return None;
        }
        Some(Cpu1)
    }

    fn switch(&self, on: bool) {
        std::fs::write(SWITCH, if on { "1" } else { "0" }).unwrap();
    }
}

impl Drop for Cpu1 {
    fn drop(&mut self) {
        drop(std::fs::write(SWITCH, "1"));
    }
}

/// Records, and does something once that has begun. The report, and what the recorder said.
fn recorded(path: &Path, meanwhile: impl FnOnce()) -> (serde_json::Value, String) {
    let recording = Running::record(path, &["-e", "cpu-clock"]);
    thread::sleep(Duration::from_millis(500));
    meanwhile();
    // It looks once a second.
    thread::sleep(Duration::from_millis(1_500));
    let said = recording.end();
    (report(path, &[]), said)
}

#[test]
fn a_cpu_that_is_not_sampled_any_more_is_said() {
    let Some(cpu) = Cpu1::find("a_cpu_that_is_not_sampled_any_more_is_said") else { return };
    let scratch = Scratch::new();
    let file = scratch.path("off.data");
    let (report, said) = recorded(&file, || {
        cpu.switch(false);
        thread::sleep(Duration::from_millis(700));
        cpu.switch(true);
    });
    let unsampled = &report["recording"]["cpus_not_sampled"];
    assert_eq!(unsampled.as_array().unwrap().len(), 1, "{unsampled}");
    assert_eq!((&unsampled[0]["cpu"], &unsampled[0]["came_online"]), (&1.into(), &false.into()));
    let after_ns = unsampled[0]["from_ns"].as_u64().unwrap() - report["recording"]["start_ns"].as_u64().unwrap();
    assert!(after_ns > 200_000_000, "{after_ns}");
    assert!(said.contains("CPU 1 went offline"), "{said}");
    let table = succeed(bprec().args(["report", "-i"]).arg(&file));
    assert!(String::from_utf8_lossy(&table.stdout).contains("CPU 1 went offline after"), "{table:?}");
    // perf agrees that the kernel took no sample of it after that time.
    let script = succeed(Command::new("perf").args(["script", "-F", "cpu,time", "--ns", "-i"]).arg(&file));
    let from_s = unsampled[0]["from_ns"].as_u64().unwrap() as f64 / 1e9;
    let script = String::from_utf8_lossy(&script.stdout).into_owned();
    let times = script.lines().filter_map(|line| line.trim().strip_prefix("[001]")).map(|time| {
        let time: f64 = time.trim().trim_end_matches(':').parse().unwrap();
        time
    });
    let last_s = times.reduce(f64::max).unwrap();
    assert!(last_s < from_s, "{last_s} {from_s}");
}

/// The recorder does not get to look meanwhile.
#[test]
fn a_cpu_that_is_offline_for_a_moment_is_said() {
    let Some(cpu) = Cpu1::find("a_cpu_that_is_offline_for_a_moment_is_said") else { return };
    let scratch = Scratch::new();
    let path = scratch.path("moment.data");
    let recording = Running::record(&path, &["-e", "cpu-clock"]);
    thread::sleep(Duration::from_millis(500));
    let recorder = recording.id().to_string();
    succeed(Command::new("kill").args(["-STOP", &recorder]));
    cpu.switch(false);
    cpu.switch(true);
    succeed(Command::new("kill").args(["-CONT", &recorder]));
    thread::sleep(Duration::from_millis(1_500));
    // Announced on the CPU that is back.
    let (ids, loaded) = loaded_on_cpu_1();
    thread::sleep(Duration::from_millis(500));
    drop(loaded);
    let said = recording.end();
    let report = report(&path, &[]);
    let unsampled = &report["recording"]["cpus_not_sampled"];
    assert_eq!(unsampled.as_array().unwrap().len(), 1, "{unsampled}");
    assert_eq!((&unsampled[0]["cpu"], &unsampled[0]["came_online"]), (&1.into(), &false.into()));
    assert!(said.contains("CPU 1 went offline"), "{said}");
    for id in ids {
        assert_eq!(support::program(&report, id)["captured"], true, "{id}");
    }
}

#[test]
fn a_cpu_that_came_too_late_is_said() {
    let Some(cpu) = Cpu1::find("a_cpu_that_came_too_late_is_said") else { return };
    let scratch = Scratch::new();
    cpu.switch(false);
    let (report, said) = recorded(&scratch.path("on.data"), || cpu.switch(true));
    let unsampled = &report["recording"]["cpus_not_sampled"];
    assert_eq!(unsampled.as_array().unwrap().len(), 1, "{unsampled}");
    assert_eq!((&unsampled[0]["cpu"], &unsampled[0]["came_online"]), (&1.into(), &true.into()));
    assert!(said.contains("CPU 1 came online"), "{said}");
}

/// A CPU takes the ring of its loads along, also the one that the recording began with, and brings another when it comes back.
#[test]
fn descriptors_do_not_grow_with_cpus_that_come_and_go() {
    let Some(cpu) = Cpu1::find("descriptors_do_not_grow_with_cpus_that_come_and_go") else { return };
    let scratch = Scratch::new();
    let recording = Running::record(&scratch.path("cycles.data"), &["-e", "cpu-clock"]);
    let events = || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", recording.id())).unwrap().flatten();
        let targets = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        targets.filter(|target| target.as_os_str() == "anon_inode:[perf_event]").count()
    };
    let at_start = events();
    for _ in 0..5 {
        cpu.switch(false);
        support::wait_for("the ring of the CPU to go", || (events() < at_start).then_some(()));
        cpu.switch(true);
        support::wait_for("another ring", || (events() >= at_start).then_some(()));
    }
    assert_eq!(events(), at_start);
    recording.end();
}

/// Loads programs on CPU 1: their ids, and what keeps them.
fn loaded_on_cpu_1() -> (Vec<u32>, Loaded) {
    let load = || {
        run_on_cpu(1).unwrap();
        Fixture::COUNTED.open().unwrap().load().unwrap()
    };
    let loaded = thread::spawn(load).join().unwrap();
    (loaded.programs().unwrap().iter().map(|program| program.id).collect(), loaded)
}

/// The kernel tells of a load on the CPU where it happens.
#[test]
fn programs_loaded_on_a_cpu_that_came_later_are_in_the_recording() {
    let test = "programs_loaded_on_a_cpu_that_came_later_are_in_the_recording";
    let Some(cpu) = Cpu1::find(test) else { return };
    let scratch = Scratch::new();
    cpu.switch(false);
    let (mut ids, mut kept) = (Vec::new(), None);
    let (report, _) = recorded(&scratch.path("loads.data"), || {
        cpu.switch(true);
        // Before the recorder has seen the CPU, and there to the end.
        let (before, loaded) = loaded_on_cpu_1();
        kept = Some(loaded);
        thread::sleep(Duration::from_millis(1_500));
        // After that, and gone long before the end.
        let (after, loaded) = loaded_on_cpu_1();
        thread::sleep(Duration::from_millis(500));
        drop(loaded);
        ids.extend(before.into_iter().chain(after));
    });
    assert!(ids.len() >= 10, "{ids:?}");
    for id in ids {
        assert_eq!(support::program(&report, id)["captured"], true, "{id}");
    }
    drop(kept);
}
