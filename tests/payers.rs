//! Payers: the process whose system calls a program delays pays as much as it loses. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::{Running, Scratch, measured, report, root};
use bprec_fixtures::{Fixture, load::system_calls};
use serde_json::Value;

/// A process that makes calls when it is asked to.
struct Caller {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Caller {
    fn start() -> Caller {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "payers::calls_on_request", "--nocapture", "--test-threads=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (requests, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut caller = Caller { child, requests, answers };
        // Its start is no part of any measurement.
        caller.cpu_ns(1);
        caller
    }

    /// Lets it make so many calls; the CPU time that they took by the scheduler's account.
    fn cpu_ns(&mut self, calls: u64) -> u64 {
        let before = self.account_ns();
        writeln!(self.requests, "{calls}").unwrap();
        let mut line = String::new();
        // The test harness has lines of its own.
        while line.trim() != format!("made {calls}") {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "it ended before it had made {calls} calls");
        }
        self.account_ns() - before
    }

    fn account_ns(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let times = tasks.map(|task| {
            let account = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
            account.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        times.sum()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Body of [`Caller`], in a process of its own: beside each call as much work, by a number that is the same every time.
#[test]
#[ignore = "run by another test"]
fn calls_on_request() {
    for line in std::io::stdin().lines() {
        let calls: u64 = line.unwrap().parse().unwrap();
        let mut random = 1u64;
        for _ in 0..calls {
            system_calls(1);
            // Calls that follow each other evenly beat against the timer that samples.
            for _ in 0..random >> 45 & 0xfff {
                random = std::hint::black_box(random).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        println!("\nmade {calls}");
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// One process makes 49 of 50 calls that a program works for: it is who pays, and BPF's share of its time is what it takes longer with
/// the program than without.
#[test]
fn the_process_that_makes_the_calls_pays_for_the_program() {
    if !root("the_process_that_makes_the_calls_pays_for_the_program") {
        return;
    }
    const VICTIM: u64 = 19_600;
    const OTHER: u64 = 400;
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    measured(|| {
        let (mut victim, mut other) = (Caller::start(), Caller::start());
        let without_ns = victim.cpu_ns(VICTIM);
        // For whoever makes the call that the loads make.
        let program = Fixture::TWIN_B.open().unwrap().set("filter_syscall", libc::SYS_getppid).unwrap();
        let program = program.loops(300).unwrap().start().unwrap();
        let id = program.id_of("same_name_in_two_objects").unwrap();
        // Sampling interrupts take time, so the reference is measured without them.
        let with_ns = victim.cpu_ns(VICTIM);
        let recording = Running::record(&path, &["-F", "2500", "-e", "cpu-clock"]);
        victim.cpu_ns(2 * VICTIM);
        other.cpu_ns(2 * OTHER);
        recording.end();
        let with_ns = with_ns.midpoint(victim.cpu_ns(VICTIM));
        drop(program);
        let without_ns = without_ns.midpoint(victim.cpu_ns(VICTIM));

        let report = report(&path, &["--payers=pid"]);
        let event = &report["events"][0];
        let cells: Vec<&Value> = event["rows"].as_array().unwrap().iter().filter(|cell| cell["id"] == id).collect();
        let first = cells.first().ok_or("no sample in the program")?;
        let payer = &event["payers"][first["payer"].as_u64().unwrap() as usize];
        let pid = payer["payer"][0]["pid"].as_u64().unwrap();
        assert_eq!(pid, u64::from(victim.child.id()), "{payer:#}");
        // Other processes of the machine make some of the calls, too: of these two, it is 98 %, of some thousand samples.
        let of_pid = |pid: u32| {
            let pays = |cell: &&&Value| {
                let payer = &event["payers"][cell["payer"].as_u64().unwrap() as usize];
                payer["payer"][0]["pid"] == pid
            };
            cells.iter().find(pays).map_or(0.0, |cell| number(&cell["program_percent"]))
        };
        let [of_victim, of_other] = [&victim, &other].map(|caller| of_pid(caller.child.id()));
        let ratio = of_victim / (of_victim + of_other);
        if !(0.96..=0.995).contains(&ratio) || of_victim < 50.0 {
            return Err(format!("{of_victim} % of the program is the victim's, {of_other} % the other one's"));
        }
        let lost = (with_ns as f64 - without_ns as f64) / with_ns as f64;
        let paid = number(&payer["payer_percent"]) / 100.0;
        println!("paid {paid:.4} by samples, lost {lost:.4} by the clock: {with_ns} ns with, {without_ns} ns without");
        // Half of it is to be lost, or the measurement has nothing to go by.
        if !(0.2..0.9).contains(&lost) {
            return Err(format!("{lost} of the time is lost"));
        }
        match (paid - lost).abs() <= lost * 0.1 {
            true => Ok(()),
            false => Err(format!("paid {paid} by samples, lost {lost} by the clock")),
        }
    });
}
