//! Runs and time per run are the kernel's own numbers. Real kernel, root; tests of other files wait, so that no other recording
//! makes the kernel count at the same time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::support::{Running, Scratch, alone, bprec, measured, program, report, root, skip, stats_sysctl};
use bprec_fixtures::load::{Packets, Pattern};
use bprec_fixtures::{Fixture, Loaded};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

/// Options for the whole budget: the kernel counts without interruption. With the usual budget, counting on a busy machine is too expensive: the
/// kernel counts only in windows, and the report shows estimates instead of the kernel's numbers.
const WHOLE_BUDGET: [&str; 2] = ["--budget", "100"];

/// Program that runs once for each system call.
const PROGRAM: &str = "account_syscall_enter";

/// Runs, and time per run, are the kernel's own numbers: the program runs only while the recording counts.
#[test]
fn runs_are_the_kernels() {
    const PACKETS: u64 = 5_000;
    if !root("runs_are_the_kernels") {
        return;
    }
    alone();
    if stats_sysctl() != "0" {
        skip("runs_are_the_kernels", "kernel.bpf_stats_enabled is on: runs are counted outside of the recording too");
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let mut loaded = Fixture::XDP.open().unwrap().load().unwrap();
    // Attached after the start of the recording, because earlier runs are also counted if another tool has statistics on.
    let recording = Running::record(&path, &["-q"]);
    match loaded.attach() {
        Err(error) if format!("{error:#}").contains("busy") => {
            skip("runs_are_the_kernels", "another XDP program is on lo");
            recording.end();
            return;
        }
        attached => attached.unwrap(),
    }
    Packets::new().unwrap().send(PACKETS).unwrap();
    // Detached, so that later packets of other processes on lo are not counted.
    loaded.detach();
    recording.end();

    let name = "xdp_count_packets";
    let kernel = loaded.run_stats(name).unwrap();
    assert!(kernel.run_cnt >= PACKETS, "{kernel:?}");
    let report = report(&path, &[]);
    let runs = &program(&report, loaded.id_of(name).unwrap())["runs"];
    assert_eq!(runs["count"].as_u64(), Some(kernel.run_cnt));
    assert_eq!(runs["time_ns"].as_u64(), Some(kernel.run_time_ns));
    assert_eq!(runs["ns_per_run"].as_f64(), Some(kernel.run_time_ns as f64 / kernel.run_cnt as f64));
    assert_eq!(runs["misses"].as_u64(), kernel.recursion_misses);
}

/// By default all runs are counted, and the cost of counting is reported: at 100,000 runs per second, nothing is estimated.
#[test]
fn runs_are_exact_by_default() {
    if !root("runs_are_exact_by_default") {
        return;
    }
    alone();
    // Repeats a failed attempt: other programs may run so often that not all runs can be counted.
    measured(|| {
        let scratch = Scratch::new();
        let path = scratch.path("perf.data");
        let mut loaded = Fixture::TP.open().unwrap().load().unwrap();
        // Attaches the program only during the recording, so that all of its runs are counted.
        let recording = Running::record(&path, &["-F", "99"]);
        loaded.attach().unwrap();
        Pattern::Bursts.run(Duration::from_secs(2), 100_000);
        loaded.detach();
        let said = recording.end();
        let ran = loaded.entered(PROGRAM).unwrap();
        let report = report(&path, &[]);
        let runs = &program(&report, loaded.id_of(PROGRAM).unwrap())["runs"];
        if !runs["estimate"].is_null() {
            return Err(format!("estimated: {runs}"));
        }
        assert_eq!(runs["count"].as_u64(), Some(ran));
        let percent = report["recording"]["cost"]["run_statistics"]["machine_percent"].as_f64().unwrap();
        assert!((0.001..2.5).contains(&percent), "{percent}");
        assert!(said.contains("counting runs took ≈"), "{said}");
        Ok(())
    });
}

/// Readings of the kernel's run count of a program.
struct Counted(Vec<Count>);

/// A count and the two times between which it was read.
#[derive(Clone, Copy)]
struct Count {
    from_ns: u64,
    to_ns: u64,
    runs: u64,
}

impl Counted {
    /// Reads the count continuously while a load of system calls runs and `bprec` counts.
    fn while_called(loaded: &Loaded, seconds: u64) -> Counted {
        let load = thread::spawn(move || Pattern::Steady.run(Duration::from_secs(seconds), 50_000));
        let mut counted = Vec::new();
        while !load.is_finished() {
            let from_ns = now_ns();
            let runs = loaded.run_stats(PROGRAM).unwrap().run_cnt;
            counted.push(Count { from_ns, to_ns: now_ns(), runs });
            thread::sleep(Duration::from_millis(2));
        }
        load.join().unwrap();
        Counted(counted)
    }

    /// The last count read before a time, and the first count read after it: about 2 ms apart.
    fn around(&self, time_ns: u64) -> (f64, f64) {
        let before = self.0.partition_point(|count| count.to_ns <= time_ns).saturating_sub(1);
        let after = self.0.partition_point(|count| count.from_ns < time_ns).min(self.0.len() - 1);
        (self.0[before].runs as f64, self.0[after].runs as f64)
    }

    /// Fails if `shown` is more than 1 % below or above the possible counts of an interval.
    fn agrees(&self, shown: &Value, from_ns: u64, to_ns: u64) -> Result<(), String> {
        let (from, to) = (self.around(from_ns), self.around(to_ns));
        let (least, most) = (to.0 - from.1, to.1 - from.0);
        match shown.as_f64().is_some_and(|shown| (least * 0.99..=most * 1.01).contains(&shown)) {
            true => Ok(()),
            false => Err(format!("{shown} runs shown, but {least} to {most} counted from {from_ns} to {to_ns} ns")),
        }
    }
}

/// Each interval of `bprec top` has the runs that the kernel counted in it, as `bpftool prog show` reads them.
#[test]
fn top_counts_what_the_kernel_counts() {
    if !root("top_counts_what_the_kernel_counts") {
        return;
    }
    alone();
    measured(|| {
        let loaded = Fixture::TP.open().unwrap().start().unwrap();
        let id = loaded.id_of(PROGRAM).unwrap();
        let mut top = bprec();
        top.args(["top", "--json", "-n", "5", "-d", "0.5"]).args(WHOLE_BUDGET);
        let top = top.stdout(Stdio::piped()).spawn().unwrap();
        let counted = Counted::while_called(&loaded, 6);
        let output = top.wait_with_output().unwrap();
        let intervals = String::from_utf8(output.stdout).unwrap();
        let intervals: Vec<Value> = intervals.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(intervals.len(), 5);
        intervals.iter().try_for_each(|interval| {
            let [from_ns, to_ns] = ["from_ns", "to_ns"].map(|name| interval[name].as_u64().unwrap());
            assert!(interval["counting_percent"].is_number(), "{interval}");
            counted.agrees(&program(&interval["report"], id)["runs"]["count"], from_ns, to_ns)
        })
    });
}

/// Each interval of `bprec stat -I` has the runs that the kernel counted in it.
#[test]
fn stat_counts_what_the_kernel_counts() {
    if !root("stat_counts_what_the_kernel_counts") {
        return;
    }
    alone();
    measured(|| {
        let loaded = Fixture::TP.open().unwrap().start().unwrap();
        let id = loaded.id_of(PROGRAM).unwrap();
        let arguments = ["--json", "-b", &id.to_string(), "-I", "1000", "--", "sleep", "5.5"];
        let mut stat = bprec().arg("stat").args(WHOLE_BUDGET).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(stat.stderr.take().unwrap()).lines();
        // Times of `stat` count from its start: each line is written at the end of its interval, or shortly after.
        let reading = thread::spawn(move || {
            // Messages are in the same output.
            let rows = lines.map(Result::unwrap).filter(|line| line.starts_with('{'));
            let rows = rows.map(|line| (now_ns(), serde_json::from_str::<Value>(&line).unwrap()));
            rows.filter(|(_, row)| row["row"] == "interval").take(5).collect::<Vec<_>>()
        });
        let counted = Counted::while_called(&loaded, 8);
        let rows = reading.join().unwrap();
        stat.wait().unwrap();
        assert_eq!(rows.len(), 5, "{rows:?}");
        let time = |row: &Value, name: &str| row[name].as_u64().unwrap();
        let began_ns = rows.iter().map(|(at_ns, row)| at_ns - time(row, "to_ns")).min().unwrap();
        rows.iter().try_for_each(|(_, row)| {
            assert_eq!(row["id"], id);
            counted.agrees(&row["stats"]["runs"], began_ns + time(row, "from_ns"), began_ns + time(row, "to_ns"))
        })
    });
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
