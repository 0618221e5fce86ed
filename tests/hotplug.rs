//! CPUs that go offline and come online during a recording. Runs only in a guest.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::{self, Running, Scratch, bprec, report, skip, succeed};
use bprec_fixtures::{Fixture, Loaded, run_on_cpu};

const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";

/// Handle of a CPU that can be switched off; dropping it switches the CPU on.
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

/// Records, and calls `meanwhile` after the recording has begun. Returns the report and the recorder's messages.
fn recorded(path: &Path, meanwhile: impl FnOnce()) -> (serde_json::Value, String) {
    let recording = Running::record(path, &["-e", "cpu-clock"]);
    thread::sleep(Duration::from_millis(500));
    meanwhile();
    // The recorder checks once a second.
    thread::sleep(Duration::from_millis(1_500));
    let said = recording.end();
    (report(path, &[]), said)
}

/// Times of the samples of CPU 1 as perf reads them, in seconds of the recording's clock.
fn sample_times_s(file: &Path) -> Vec<f64> {
    let script = succeed(Command::new("perf").args(["script", "-F", "cpu,time", "--ns", "-i"]).arg(file));
    let script = String::from_utf8_lossy(&script.stdout).into_owned();
    let times = script.lines().filter_map(|line| line.trim().strip_prefix("[001]"));
    times.map(|time| time.trim().trim_end_matches(':').parse().unwrap()).collect()
}

/// Start and end of the only gap of CPU 1 in a report, in seconds of the recording's clock.
fn gap_s(report: &serde_json::Value) -> (f64, f64) {
    let recording = &report["recording"];
    let unsampled = recording["cpus_not_sampled"].as_array().unwrap();
    assert_eq!(unsampled.len(), 1, "{unsampled:?}");
    assert_eq!((&unsampled[0]["cpu"], &unsampled[0]["came_online"]), (&1.into(), &false.into()));
    let until_ns = recording["start_ns"].as_u64().unwrap() + unsampled[0]["until_ns"].as_u64().unwrap();
    (unsampled[0]["from_ns"].as_u64().unwrap() as f64 / 1e9, until_ns as f64 / 1e9)
}

/// Asserts that CPU 1 has samples before and after the gap, and no samples in the gap.
fn assert_gap(file: &Path, report: &serde_json::Value) {
    let (from_s, until_s) = gap_s(report);
    assert!(from_s < until_s, "{from_s} {until_s}");
    let times_s = sample_times_s(file);
    assert!(times_s.iter().any(|time_s| *time_s < from_s), "none before {from_s}");
    assert!(times_s.iter().filter(|time_s| **time_s > until_s).count() > 100, "few after {until_s}");
}

#[test]
fn a_cpu_that_comes_back_is_sampled_again() {
    let Some(cpu) = Cpu1::find("a_cpu_that_comes_back_is_sampled_again") else { return };
    let scratch = Scratch::new();
    let file = scratch.path("off.data");
    let (report, said) = recorded(&file, || {
        cpu.switch(false);
        thread::sleep(Duration::from_millis(700));
        cpu.switch(true);
    });
    assert_gap(&file, &report);
    let (from_s, until_s) = gap_s(&report);
    assert!(until_s - from_s > 0.2, "{from_s} {until_s}");
    assert!(sample_times_s(&file).iter().all(|time_s| *time_s < from_s || *time_s > until_s), "{from_s} {until_s}");
    assert!(said.contains("CPU 1 went offline") && said.contains("sampled again"), "{said}");
    let table = succeed(bprec().args(["report", "-i"]).arg(&file));
    assert!(String::from_utf8_lossy(&table.stdout).contains("CPU 1 was offline or suspended"), "{table:?}");
}

/// For a suspend to memory, the kernel takes all CPUs except the first offline, without a notification.
#[test]
fn cpus_are_sampled_after_a_suspend() {
    let test = "cpus_are_sampled_after_a_suspend";
    if Cpu1::find(test).is_none() {
        return;
    }
    let can_sleep = std::fs::read_to_string("/sys/power/mem_sleep").is_ok_and(|ways| ways.contains("deep"));
    if !can_sleep || !Path::new("/sys/class/rtc/rtc0/wakealarm").exists() {
        return skip(test, "this guest cannot suspend to memory and wake up");
    }
    std::fs::write("/sys/power/mem_sleep", "deep").unwrap();
    let scratch = Scratch::new();
    let file = scratch.path("suspended.data");
    let (report, said) = recorded(&file, || {
        // An alarm that comes before the machine sleeps does not wake it up.
        std::fs::write("/sys/class/rtc/rtc0/wakealarm", "+8").unwrap();
        std::fs::write("/sys/power/state", "mem").unwrap();
    });
    let unsampled = report["recording"]["cpus_not_sampled"].as_array().unwrap();
    assert_eq!(unsampled.len(), 2, "{unsampled:?}");
    assert!(said.contains("sampled again"), "{said}");
    let until_ns = unsampled.iter().map(|cpu| cpu["until_ns"].as_u64().unwrap()).max().unwrap();
    let until_s = (report["recording"]["start_ns"].as_u64().unwrap() + until_ns) as f64 / 1e9;
    assert!(sample_times_s(&file).iter().filter(|time_s| **time_s > until_s).count() > 100, "{until_s}");
}

/// The CPU is offline for such a short time that the recorder does not check meanwhile.
#[test]
fn a_cpu_that_was_offline_for_a_moment_is_sampled_again() {
    let Some(cpu) = Cpu1::find("a_cpu_that_was_offline_for_a_moment_is_sampled_again") else { return };
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
    // Loads programs on the CPU that came online again. The kernel announces a load on the CPU where it happens.
    let (ids, loaded) = loaded_on_cpu_1();
    thread::sleep(Duration::from_millis(500));
    drop(loaded);
    let said = recording.end();
    let report = report(&path, &[]);
    assert_gap(&path, &report);
    assert!(said.contains("sampled again") && said.contains("CPU 1"), "{said}");
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

/// A CPU that was offline at the start has samples from the next file on.
#[test]
fn a_cpu_that_came_late_is_sampled_in_the_next_file() {
    let Some(cpu) = Cpu1::find("a_cpu_that_came_late_is_sampled_in_the_next_file") else { return };
    let scratch = Scratch::new();
    let path = scratch.path("late.data");
    cpu.switch(false);
    let recording = Running::record(&path, &["-e", "cpu-clock", "--switch-output=signal"]);
    cpu.switch(true);
    thread::sleep(Duration::from_millis(1_500));
    succeed(Command::new("kill").args(["-USR2", &recording.id().to_string()]));
    thread::sleep(Duration::from_millis(1_500));
    recording.end();
    let mut files: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|it| it.unwrap().path()).collect();
    files.retain(|file| file.file_name().unwrap().to_str().unwrap().starts_with("late.data."));
    files.sort();
    let [first, second] = &files[..] else { panic!("{files:?}") };
    assert_eq!(report(first, &[])["recording"]["cpus_not_sampled"][0]["came_online"], true);
    assert_eq!(sample_times_s(first).len(), 0);
    let second_report = report(second, &[]);
    assert_eq!(second_report["recording"]["cpus_not_sampled"].as_array().unwrap().len(), 0, "{second_report}");
    assert!(sample_times_s(second).len() > 100);
}

/// A CPU's ring of BPF events is closed when the CPU goes offline, also a ring that was opened at the start of the recording. When the CPU comes
/// online again, the recorder opens a new ring.
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
        support::wait_for("the close of the ring of the CPU", || (events() < at_start).then_some(()));
        cpu.switch(true);
        support::wait_for("another ring", || (events() >= at_start).then_some(()));
    }
    support::wait_for("the initial number of descriptors", || (events() == at_start).then_some(()));
    recording.end();
}

/// Loads programs on CPU 1; returns their ids and their owner.
fn loaded_on_cpu_1() -> (Vec<u32>, Loaded) {
    let load = || {
        run_on_cpu(1).unwrap();
        Fixture::COUNTED.open().unwrap().load().unwrap()
    };
    let loaded = thread::spawn(load).join().unwrap();
    (loaded.programs().unwrap().iter().map(|program| program.id).collect(), loaded)
}

/// The kernel writes the record of a load to the ring of the CPU that loads the program.
#[test]
fn programs_loaded_on_a_cpu_that_came_later_are_in_the_recording() {
    let test = "programs_loaded_on_a_cpu_that_came_later_are_in_the_recording";
    let Some(cpu) = Cpu1::find(test) else { return };
    let scratch = Scratch::new();
    cpu.switch(false);
    let (mut ids, mut kept) = (Vec::new(), None);
    let (report, _) = recorded(&scratch.path("loads.data"), || {
        cpu.switch(true);
        // Loaded before the recorder has detected the CPU, and kept until the end.
        let (before, loaded) = loaded_on_cpu_1();
        kept = Some(loaded);
        thread::sleep(Duration::from_millis(1_500));
        // Loaded after the recorder has detected the CPU, and unloaded long before the end.
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
